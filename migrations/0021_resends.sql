-- What is sent again: how long it waits is counted from when that was asked for.

-- When it was last asked for; NULL for what was sent once.
ALTER TABLE outbox ADD COLUMN again_at timestamptz;

UPDATE service_rules
SET rights = '{SELECT, INSERT, UPDATE(again_at), UPDATE(open_deliveries), UPDATE(published_at)}'
WHERE table_name = 'public.outbox';
SELECT grant_service_rights();
