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

-- Whatever has gone out, however it stands, by its age: what is compared with a channel's statement.
CREATE INDEX withdrawals_sent_out ON withdrawals (updated_at) WHERE channel_payout_id IS NOT NULL;
DROP INDEX withdrawals_succeeded;

-- An order is paid when we hear of it or before, and after it was made, whatever its channel's clock says: by that age it is
-- settled. What was heard by instances of the version before stays as the channel said, but for what a run would settle yet.
UPDATE orders SET paid_at = least(greatest(paid_at, created_at), updated_at)
WHERE settle_status = 'UNSETTLED' AND kind = 'SALE' AND status IN ('PAID', 'PARTIALLY_REFUNDED')
  AND (paid_at < created_at OR paid_at > updated_at);
