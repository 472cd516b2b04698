-- Old answers are found by a B-tree, as old callbacks are (0041).
CREATE INDEX idempotency_keys_by_time ON idempotency_keys (created_at);
DROP INDEX idempotency_keys_by_age;
ALTER INDEX idempotency_keys_by_time RENAME TO idempotency_keys_by_age;
