-- Tasks that were done long ago are found by a B-tree, as old callbacks are (0041). Most tasks leave no row.
-- In words of its own (0028).
CREATE INDEX compensations_by_time ON compensations (created_at) WHERE coalesce(status, 'age') = 'DONE';
DROP INDEX compensations_by_age;
ALTER INDEX compensations_by_time RENAME TO compensations_by_age;
