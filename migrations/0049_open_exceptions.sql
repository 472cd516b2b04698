-- What is open about a subject is found by the subject, whether its kind is known or not.
DROP INDEX exceptions_one_open;
CREATE UNIQUE INDEX exceptions_one_open ON exceptions (subject, kind) WHERE status = 'OPEN';
