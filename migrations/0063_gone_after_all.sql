-- A withdrawal that its channel refused, whose money its user had again, and that the channel made after all is known to have gone
-- out: by the channel's number, which no other one has that stands reversed. It is booked once, under a kind of its own.
--
-- Instances of the version before go on to show it to a person, and book nothing.

DO $$
DECLARE
    definition text := pg_get_functiondef('ledger_transactions_post()'::regprocedure);
    known CONSTANT text := 'PAYOUT_DONE,';
BEGIN
    IF position(known IN definition) = 0 THEN
        RAISE EXCEPTION 'ledger_transactions_post() names no kinds as migration 0062 does; nothing was changed';
    END IF;
    EXECUTE replace(definition, known, known || 'PAYOUT_AFTER_ALL,');
END
$$;

-- Whether the money of a refund that failed, or that nobody has approved, has gone as far as is known: it was made after all, or is said
-- to have been, until its channel answers or a person decides. Nothing goes back in its place.
CREATE FUNCTION may_have_gone(id text, made_after_all_at timestamptz) RETURNS boolean LANGUAGE sql STABLE
RETURN made_after_all_at IS NOT NULL
    OR (SELECT subject FROM exceptions
        WHERE subject = id AND kind = 'CONTRADICTION' AND exceptions.status = 'OPEN' LIMIT 1) IS NOT NULL;

-- Whatever has gone out, however it stands, by its age: what is compared with a channel's statement.
-- First whoever holds a withdrawal is waited for: nobody who goes on to write one then waits for half of a lock.
DROP INDEX withdrawals_succeeded;
CREATE INDEX withdrawals_sent_out ON withdrawals (updated_at) WHERE channel_payout_id IS NOT NULL;
