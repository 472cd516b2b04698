-- What a statement says of money that a user was charged for counts as long as that statement does.

-- Which comparison listed the money of a missed payment, charged for or not, and in which of its rounds: a day that was
-- begun anew since has said nothing of it yet. Of a charge that was told of before, only `listed_at` says that one did.
ALTER TABLE reconciliation_items
    ADD COLUMN listed_by text COLLATE "C",
    ADD COLUMN listed_round integer,
    ADD CONSTRAINT reconciliation_items_listing_is_whole
        CHECK ((listed_by IS NULL) = (listed_round IS NULL) AND (listed_by IS NULL OR listed_at IS NOT NULL)) NOT VALID;

-- Missed payments whose money moved about when a day was, however many there were in other months.
DROP INDEX reconciliation_items_charged;
CREATE INDEX reconciliation_items_charged ON reconciliation_items (channel, at)
    WHERE class = 'MISSING_THERE' AND kind = 'PAYMENT';

-- Whether the user of a top-up stands charged for it, because its money never came: whoever asks for a refund of it looks.
CREATE INDEX ledger_transactions_of_charges ON ledger_transactions (merchant_id, order_no)
    WHERE kind = 'COMPENSATING_CHARGE';

-- When a refund was taken back at the sandbox: it says so of it when it is asked. It takes none back by itself.
ALTER TABLE sandbox.refunds ADD COLUMN taken_back_at timestamptz;
