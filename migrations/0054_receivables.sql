-- What users owe is cleared by an operator's word: collected from what they have by then, or written off.

-- A debt, or a part of it, that was cleared: each has one booking, COLLECTION:merchant:number or WRITE_OFF:merchant:number.
CREATE TABLE receivable_clearings (
    merchant_id  text COLLATE "C" NOT NULL CONSTRAINT receivable_clearings_merchant_fkey REFERENCES merchants,
    -- The operator's number: under it a debt is cleared once.
    clearing_no  text COLLATE "C" NOT NULL,
    kind         text NOT NULL,
    user_id      text COLLATE "C" NOT NULL,
    amount       bigint NOT NULL,
    currency     text NOT NULL,
    -- Of what was written off, so much came back: what its user had owed it for was undone.
    recovered    bigint NOT NULL DEFAULT 0,
    created_at   timestamptz NOT NULL,
    updated_at   timestamptz NOT NULL,
    CONSTRAINT receivable_clearings_pkey PRIMARY KEY (merchant_id, clearing_no),
    CONSTRAINT receivable_clearings_kind_is_known CHECK (kind IN ('COLLECTION', 'WRITE_OFF')),
    CONSTRAINT receivable_clearings_amount_is_positive CHECK (amount > 0),
    CONSTRAINT receivable_clearings_recovered_within_amount
        CHECK (recovered BETWEEN 0 AND CASE kind WHEN 'WRITE_OFF' THEN amount ELSE 0 END)
);
-- What stands written off of one user's debts.
CREATE INDEX receivable_clearings_standing ON receivable_clearings (merchant_id, user_id, currency)
    WHERE kind = 'WRITE_OFF' AND recovered < amount;

-- What an earlier version left open about users who owe nothing any more: nothing is left to see to.
UPDATE exceptions
SET status = 'RESOLVED', action = 'NONE', resolved_by = 'payonce', reason = 'nothing is owed any more', updated_at = now()
WHERE kind = 'USAGE_SHORTFALL' AND status = 'OPEN'
  AND NOT EXISTS (
      SELECT 1 FROM accounts
      WHERE balance > 0
        -- Of the hold, or of the top-up that was paid by that pay order.
        AND account_id = (SELECT format('USER_RECEIVABLE:%s:%s:%s', merchant_id, user_id, currency)
                          FROM usage_holds WHERE hold_id = exceptions.subject
                          UNION ALL
                          SELECT format('USER_RECEIVABLE:%s:%s:%s', orders.merchant_id, orders.user_id, orders.currency)
                          FROM pay_orders JOIN orders USING (merchant_id, order_no)
                          WHERE pay_order_id = exceptions.subject));

-- Two words more than before; what is there obeys the tighter rule that goes.
ALTER TABLE ledger_transactions
    DROP CONSTRAINT ledger_transactions_kind_is_known,
    ADD CONSTRAINT ledger_transactions_kind_is_known CHECK (kind IN
        ('PAYMENT', 'STRAY_PAYMENT', 'STRAY_KEPT', 'REFUND', 'REFUND_HOLD', 'SETTLEMENT', 'CLAW_BACK', 'WITHDRAWAL', 'PAYOUT',
         'PAYOUT_DONE', 'REVERSAL', 'USAGE_HOLD', 'USAGE_EXTENSION', 'USAGE_CHARGE', 'USAGE_RELEASE',
         'COMPENSATING_CHARGE', 'CHARGE_PAID_BACK', 'COLLECTION', 'WRITE_OFF')) NOT VALID;

INSERT INTO service_rules (table_name, rights) VALUES
    -- What was cleared never changes, only what came back of it does.
    ('public.receivable_clearings', '{SELECT, INSERT, UPDATE(recovered), UPDATE(updated_at)}');
SELECT grant_service_rights();
