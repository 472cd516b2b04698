-- Old files are found by a B-tree, as old callbacks are (0041).
CREATE INDEX statement_files_by_time ON statement_files (created_at);
DROP INDEX statement_files_by_age;
ALTER INDEX statement_files_by_time RENAME TO statement_files_by_age;
