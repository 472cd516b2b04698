-- Lets one statement be all or nothing, where it would otherwise need a transaction around it: a guarded write counts the
-- rows that it met, and unless those are all, nothing of the statement is done, and the same may be tried again.
CREATE FUNCTION require_all(met bigint, wanted bigint) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    IF met <> wanted THEN
        RAISE EXCEPTION 'a write met % rows of % as they were read', met, wanted USING ERRCODE = 'serialization_failure';
    END IF;
    RETURN met;
END
$$;
