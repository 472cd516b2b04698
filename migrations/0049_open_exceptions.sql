-- What is open about a subject is found by the subject, whether its kind is known or not.
CREATE UNIQUE INDEX exceptions_open_once ON exceptions (subject, kind) WHERE status = 'OPEN';
DROP INDEX exceptions_one_open;
ALTER INDEX exceptions_open_once RENAME TO exceptions_one_open;
