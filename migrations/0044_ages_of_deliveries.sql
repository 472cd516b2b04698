-- Old deliveries are found by a B-tree, as old callbacks are (0041).
CREATE INDEX deliveries_by_time ON deliveries (created_at) WHERE status IN ('DELIVERED', 'DROPPED');
DROP INDEX deliveries_by_age;
ALTER INDEX deliveries_by_time RENAME TO deliveries_by_age;
