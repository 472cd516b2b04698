-- The lines of a day's statement are kept until the days beside it are compared, however late their statements come.
--
-- A day is marked first, and its lines are taken out a day later: whoever compares a day beside it may have counted on them
-- before. With the mark none of them counts any more.
ALTER TABLE reconciliations
    ADD COLUMN forgotten_at timestamptz,
    ADD CONSTRAINT reconciliations_forgotten_is_done CHECK (forgotten_at IS NULL OR status = 'DONE');
-- Until now they were taken out after seven days, and did not count from the sixth on.
UPDATE reconciliations SET forgotten_at = finished_at + interval '6 days'
WHERE status = 'DONE' AND finished_at < now() - interval '6 days';
