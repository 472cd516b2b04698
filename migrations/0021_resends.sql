-- What is sent again: how long it waits is counted from when that was asked for, and what a merchant has had since an
-- instant is a range of an index.

-- When it was last asked for; NULL for what was sent once.
ALTER TABLE outbox ADD COLUMN again_at timestamptz;

-- Events of a merchant since an instant, past any number of events of others. outbox_by_age found those of all.
CREATE INDEX outbox_of_merchant ON outbox (merchant_id, created_at, id);
DROP INDEX outbox_by_age;

UPDATE service_rules
SET rights = '{SELECT, INSERT, UPDATE(again_at), UPDATE(open_deliveries), UPDATE(published_at)}'
WHERE table_name = 'public.outbox';
SELECT grant_service_rights();
