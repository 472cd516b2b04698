-- Old callbacks are found by a B-tree.
--
-- A BRIN says between which instants the rows of a range of pages are. Where rows are forgotten, new ones take their places,
-- and soon every range reaches from the oldest row that it ever had to now: whoever looked for a thousand old rows walked
-- the table, however large. An entry at the right end of a B-tree, whose last page is in memory, is what a row pays for it.
-- What is never forgotten keeps its BRIN. One table in a migration, and the index before anything is dropped: reads go on
-- meanwhile, and what writes to the table waits for no other one.
-- Its words keep it from lists, which would walk it for the callbacks of one order.
CREATE INDEX webhook_inbox_by_time ON webhook_inbox (received_at) WHERE verdict <> 'UNMATCHED';
DROP INDEX webhook_inbox_by_age;
ALTER INDEX webhook_inbox_by_time RENAME TO webhook_inbox_by_age;
