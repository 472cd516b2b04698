-- Reconciliation may charge a user for usage that was paid with money which never came.

-- One word more than before; what is there obeys the tighter rule that goes.
ALTER TABLE ledger_transactions
    DROP CONSTRAINT ledger_transactions_kind_is_known,
    ADD CONSTRAINT ledger_transactions_kind_is_known CHECK (kind IN
        ('PAYMENT', 'STRAY_PAYMENT', 'STRAY_KEPT', 'REFUND', 'REFUND_HOLD', 'SETTLEMENT', 'CLAW_BACK', 'WITHDRAWAL', 'PAYOUT',
         'PAYOUT_DONE', 'REVERSAL', 'USAGE_HOLD', 'USAGE_EXTENSION', 'USAGE_CHARGE', 'USAGE_RELEASE',
         'COMPENSATING_CHARGE')) NOT VALID;

ALTER TABLE reconciliation_items
    DROP CONSTRAINT reconciliation_items_action_is_known,
    ADD CONSTRAINT reconciliation_items_action_is_known
        CHECK (action IN ('APPLY', 'ASK', 'CHARGE', 'ESCALATE')) NOT VALID;
-- Who was charged for money that never came: looked at again when a statement has it after all.
CREATE INDEX reconciliation_items_charged ON reconciliation_items (channel, subject)
    WHERE action = 'CHARGE' AND status = 'APPLIED';
