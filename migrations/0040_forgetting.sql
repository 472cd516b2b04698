-- What is forgotten by its age, and what is kept for the day behind.

-- ---- statements -------------------------------------------------------------------------------------------------------

-- The lines of a day are kept until the day behind it is compared, however late its statement comes. Marked first, and
-- taken out a day later: whoever compares a day beside it may have counted on them before. With the first mark none of them
-- counts any more.
ALTER TABLE reconciliations
    ADD COLUMN forgotten_at timestamptz,
    ADD CONSTRAINT reconciliations_forgotten_is_done CHECK (forgotten_at IS NULL OR status = 'DONE');
-- Until now they were taken out after seven days, and did not count from the sixth on.
UPDATE reconciliations SET forgotten_at = finished_at + interval '6 days'
WHERE status = 'DONE' AND finished_at < now() - interval '6 days';

-- ---- ages -------------------------------------------------------------------------------------------------------------

-- A BRIN says between which instants the rows of a range of pages are. Where rows are forgotten, new ones take their
-- places, and soon every range reaches from the oldest row that it ever had to now: whoever looked for a thousand old rows
-- walked the table, however large, a thousand times a thousand rows. An entry at the right end of a B-tree, whose last page
-- is in memory, is what the insert of a row pays for it. What is never forgotten keeps its BRIN.
DROP INDEX webhook_inbox_by_age;
-- Pages of the newest callbacks are read by it, too.
CREATE INDEX webhook_inbox_by_age ON webhook_inbox (received_at);
DROP INDEX idempotency_keys_by_age;
CREATE INDEX idempotency_keys_by_age ON idempotency_keys (created_at);
-- Most tasks leave no row; of those that do, the ones that are done are forgotten.
DROP INDEX compensations_by_age;
CREATE INDEX compensations_by_age ON compensations (created_at) WHERE status = 'DONE';
DROP INDEX deliveries_by_age;
CREATE INDEX deliveries_by_age ON deliveries (created_at) WHERE status IN ('DELIVERED', 'DROPPED');
DROP INDEX usage_messages_by_age;
CREATE INDEX usage_messages_by_age ON usage_messages (created_at);
DROP INDEX statement_files_by_age;
CREATE INDEX statement_files_by_age ON statement_files (created_at);
