-- What a user was charged for money that never came can be given back, and a person is told once when it came after all.

-- One word more than before; what is there obeys the tighter rule that goes.
ALTER TABLE reconciliation_items
    DROP CONSTRAINT reconciliation_items_status_is_known,
    ADD CONSTRAINT reconciliation_items_status_is_known
        CHECK (status IN ('PROPOSED', 'WAITING', 'APPLYING', 'APPLIED', 'RESOLVED', 'DISMISSED', 'ESCALATED',
                          'REVERSED')) NOT VALID,
    -- When a statement listed the money of a charge, and a person was told.
    ADD COLUMN listed_at timestamptz;

ALTER TABLE ledger_transactions
    DROP CONSTRAINT ledger_transactions_kind_is_known,
    ADD CONSTRAINT ledger_transactions_kind_is_known CHECK (kind IN
        ('PAYMENT', 'STRAY_PAYMENT', 'STRAY_KEPT', 'REFUND', 'REFUND_HOLD', 'SETTLEMENT', 'CLAW_BACK', 'WITHDRAWAL', 'PAYOUT',
         'PAYOUT_DONE', 'REVERSAL', 'USAGE_HOLD', 'USAGE_EXTENSION', 'USAGE_CHARGE', 'USAGE_RELEASE',
         'COMPENSATING_CHARGE', 'CHARGE_PAID_BACK')) NOT VALID;

-- Who was charged for money that never came: looked at again until a statement has it after all.
DROP INDEX reconciliation_items_charged;
CREATE INDEX reconciliation_items_charged ON reconciliation_items (channel, subject)
    WHERE action = 'CHARGE' AND status = 'APPLIED' AND listed_at IS NULL;

-- What a worker may take, in the order in which it does: what is decided; and what was found of days that are compared
-- to their end, while that of other days, which may be much, is not looked at. In words that lead to no other index: that
-- of all that is open would be walked.
DROP INDEX reconciliation_items_due;
CREATE INDEX reconciliation_items_decided ON reconciliation_items (action, due_at)
    WHERE (status = 'APPLYING') IS TRUE;
CREATE INDEX reconciliation_items_found ON reconciliation_items (reconciliation_id, action, due_at)
    WHERE (status = 'PROPOSED') IS TRUE;
