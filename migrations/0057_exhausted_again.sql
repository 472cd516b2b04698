-- A hold whose work passes what can be set aside hears so each time (0039 told it once): `exhausted` is taken back once
-- all that is wanted is there.

-- How often that was. The event was told as often, and once more where `exhausted` is set. An instance of the version
-- before never takes it back, so that this is also true of its holds.
ALTER TABLE usage_holds ADD COLUMN recoveries integer NOT NULL DEFAULT 0;
