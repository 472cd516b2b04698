//! Invariants 1 and 2, the books: they are balanced, and say of each fact exactly what it moved.
//!
//! What a feature books is compared entry by entry with what its own rows say should be booked: a missing booking, one
//! too many, a wrong amount, account, merchant or order all show as a difference. A booking counts as long as it is not
//! reversed. Settlements, withdrawals and holds have checks of their own beside these, and say what users' `USER_HELD`
//! and the payouts in transit must come to.

use super::{Definition, check};

pub(super) const CHECKS: &[Definition] = &[
    check!(
        "booking_balanced",
        Always,
        "each booking, named by its kind, has two entries or more, none of nothing, of one currency and one user at most, which sum \
         to zero",
        "SELECT format('booking %s: %s on %s', transaction_id, amounts, account_ids)
         FROM ledger_transactions
         WHERE cardinality(amounts) < 2 OR cardinality(amounts) <> cardinality(account_ids) OR 0 = ANY (amounts)
            OR NOT starts_with(transaction_id, kind || ':') OR (kind = 'REVERSAL') <> (reverses IS NOT NULL)
            OR transaction_id <> 'REVERSAL:' || reverses OR starts_with(reverses, 'REVERSAL:')
            OR array_dims(account_ids) IS DISTINCT FROM array_dims(amounts)
            OR array_dims(amounts) <> ALL ('{[1:2],[1:3],[1:4],[1:5],[1:6]}')
            OR EXISTS (SELECT 1 FROM unnest(account_ids, amounts) AS entry (account_id, amount)
                       HAVING sum(amount) <> 0 OR count(DISTINCT right(account_id, 3)) > 1
                           OR count(DISTINCT account_id) <> count(*) OR count(amount) <> count(*)
                           OR bool_or(account_id LIKE 'USER\\_%'
                                      AND substr(account_id, strpos(account_id, ':') + 1) IS DISTINCT FROM wallet))",
    ),
    check!(
        "account_balance",
        Always,
        "each account's balance, with what is not folded into it yet, is the sum of its entries; a user's is so alone",
        "SELECT format('account %s: balance %s and movements of %s, entries say %s', account_id, balance,
                       coalesce(moved.amount, 0), sense * coalesce(booked.amount, 0))
         FROM accounts
         FULL JOIN (SELECT account_id, sum(amount) AS amount FROM ledger_entries GROUP BY account_id) AS booked
              USING (account_id)
         FULL JOIN (SELECT account_id, sum(amount) AS amount FROM account_movements GROUP BY account_id) AS moved
              USING (account_id)
         WHERE balance IS NULL OR balance + coalesce(moved.amount, 0) <> sense * coalesce(booked.amount, 0)
            OR user_id IS NOT NULL AND moved.amount IS NOT NULL",
    ),
    check!(
        "user_balance_not_negative",
        Always,
        "no user's balance is below zero",
        "SELECT format('account %s: %s', account_id, balance)
         FROM accounts WHERE user_id IS NOT NULL AND balance < 0",
    ),
    check!(
        "payment_booked",
        Always,
        "the attempt that paid an order has one booking, of the order's amount: a sale's credits its merchant, a top-up's its user",
        "SELECT format('booking %s: %s on %s for order %s/%s, which says %s for %s/%s', transaction_id,
                       coalesce(booked.amount, 0), account_id, booked.merchant_id, booked.order_no,
                       coalesce(due.amount, 0), due.merchant_id, due.order_no)
         FROM (SELECT 'PAYMENT:' || paid_by AS transaction_id, side.account_id, side.amount, orders.merchant_id,
                      orders.order_no
               FROM orders
               JOIN pay_orders AS payer ON payer.pay_order_id = orders.paid_by
               CROSS JOIN LATERAL (VALUES
                   ('CHANNEL:' || payer.channel || ':' || orders.currency, orders.amount),
                   (CASE orders.kind
                        WHEN 'TOPUP' THEN 'USER_AVAILABLE:' || orders.merchant_id || ':' || orders.user_id
                        ELSE 'MERCHANT:' || orders.merchant_id END || ':' || orders.currency,
                    -orders.amount)) AS side (account_id, amount)) AS due
         FULL JOIN (SELECT transaction_id, account_id, amount, merchant_id, order_no
                    FROM ledger_entries AS entry
                    WHERE kind = 'PAYMENT'
                      AND NOT EXISTS (SELECT 1 FROM ledger_transactions WHERE reverses = entry.transaction_id)) AS booked
              USING (transaction_id, account_id)
         WHERE (due.amount, due.merchant_id, due.order_no)
               IS DISTINCT FROM (booked.amount, booked.merchant_id, booked.order_no)",
    ),
    check!(
        "stray_booked",
        Always,
        "each stray payment has one booking to suspense, of the amount taken, and a KEPT one another to its keeper",
        "SELECT format('booking %s: %s on %s for order %s/%s, its stray payment says %s for %s/%s', transaction_id,
                       coalesce(booked.amount, 0), account_id, booked.merchant_id, booked.order_no,
                       coalesce(due.amount, 0), due.merchant_id, due.order_no)
         FROM (SELECT side.kind || ':' || stray_id AS transaction_id, side.account_id, side.amount, merchant_id,
                      order_no
               FROM stray_payments AS stray
               CROSS JOIN LATERAL (VALUES
                   ('STRAY_PAYMENT', 'CHANNEL:' || channel || ':' || currency, amount),
                   ('STRAY_PAYMENT', 'SUSPENSE:' || channel || ':' || currency, -amount),
                   ('STRAY_KEPT', 'SUSPENSE:' || channel || ':' || currency, amount),
                   ('STRAY_KEPT', coalesce('MERCHANT:' || merchant_id, 'PLATFORM_REVENUE') || ':' || currency,
                    -amount)) AS side (kind, account_id, amount)
               WHERE side.kind = 'STRAY_PAYMENT' OR stray.status = 'KEPT') AS due
         FULL JOIN (SELECT transaction_id, account_id, amount, merchant_id, order_no
                    FROM ledger_entries AS entry
                    WHERE kind IN ('STRAY_PAYMENT', 'STRAY_KEPT')
                      AND NOT EXISTS (SELECT 1 FROM ledger_transactions WHERE reverses = entry.transaction_id)) AS booked
              USING (transaction_id, account_id)
         WHERE (due.amount, due.merchant_id, due.order_no)
               IS DISTINCT FROM (booked.amount, booked.merchant_id, booked.order_no)",
    ),
    check!(
        "refund_booked",
        Always,
        "each SUCCEEDED refund has one booking, from its source to its channel, and no other refund has one that stands",
        "SELECT format('booking %s: %s on %s for order %s/%s, its refund says %s for %s/%s', transaction_id,
                       coalesce(booked.amount, 0), account_id, booked.merchant_id, booked.order_no,
                       coalesce(due.amount, 0), due.merchant_id, due.order_no)
         FROM (SELECT 'REFUND:' || refund_id AS transaction_id, side.account_id, side.amount, refund.merchant_id,
                      refund.order_no
               FROM refunds AS refund
               LEFT JOIN stray_payments AS stray ON stray.stray_id = refund.stray_id
               LEFT JOIN pay_orders AS payer ON payer.pay_order_id = refund.pay_order_id
               LEFT JOIN orders ON orders.merchant_id = payer.merchant_id AND orders.order_no = payer.order_no
               CROSS JOIN LATERAL (VALUES
                   (CASE WHEN stray.stray_id IS NOT NULL THEN 'SUSPENSE:' || stray.channel
                         -- What was set aside of the balance when the refund was asked for.
                         WHEN orders.kind = 'TOPUP' THEN 'USER_HELD:' || orders.merchant_id || ':' || orders.user_id
                         ELSE 'MERCHANT:' || refund.merchant_id END || ':' || refund.currency, refund.amount),
                   ('CHANNEL:' || coalesce(stray.channel, payer.channel) || ':' || refund.currency, -refund.amount))
                   AS side (account_id, amount)
               WHERE refund.status = 'SUCCEEDED') AS due
         FULL JOIN (SELECT transaction_id, account_id, amount, merchant_id, order_no
                    FROM ledger_entries AS entry
                    WHERE kind = 'REFUND'
                      AND NOT EXISTS (SELECT 1 FROM ledger_transactions WHERE reverses = entry.transaction_id)) AS booked
              USING (transaction_id, account_id)
         WHERE (due.amount, due.merchant_id, due.order_no)
               IS DISTINCT FROM (booked.amount, booked.merchant_id, booked.order_no)",
    ),
    check!(
        "refund_after_all_booked",
        Always,
        "of each refund that failed and was made after all one booking stands, the last of them, from whoever's its money was to its \
         channel: of a top-up its user pays, or owes; and no other refund has one",
        "SELECT format('booking %s: %s on %s for order %s/%s, its refund says %s for %s/%s', transaction_id,
                       coalesce(booked.amount, 0), account_id, booked.merchant_id, booked.order_no,
                       coalesce(due.amount, 0), due.merchant_id, due.order_no)
         FROM (SELECT format('REFUND_AFTER_ALL:%s:%s', refund_id, made_after_all_times) AS transaction_id,
                      side.account_id || ':' || refund.currency AS account_id, side.amount, refund.merchant_id, refund.order_no
               FROM refunds AS refund
               LEFT JOIN stray_payments AS stray ON stray.stray_id = refund.stray_id
               LEFT JOIN pay_orders AS payer ON payer.pay_order_id = refund.pay_order_id
               LEFT JOIN orders ON orders.merchant_id = payer.merchant_id AND orders.order_no = payer.order_no
               CROSS JOIN LATERAL (VALUES
                   (CASE WHEN stray.status = 'KEPT' THEN coalesce('MERCHANT:' || stray.merchant_id, 'PLATFORM_REVENUE')
                         WHEN stray.stray_id IS NOT NULL THEN 'SUSPENSE:' || stray.channel
                         WHEN orders.kind = 'TOPUP' THEN format('USER:%s:%s', orders.merchant_id, orders.user_id)
                         ELSE 'MERCHANT:' || refund.merchant_id END, refund.amount),
                   ('CHANNEL:' || coalesce(stray.channel, payer.channel), -refund.amount)) AS side (account_id, amount)
               WHERE made_after_all_at IS NOT NULL) AS due
         FULL JOIN (SELECT transaction_id, sum(amount) AS amount, min(merchant_id) AS merchant_id, min(order_no) AS order_no,
                           -- What they could pay, and what they owe.
                           CASE WHEN amount > 0 AND account_id ~ '^USER_(AVAILABLE|RECEIVABLE):'
                                THEN 'USER' || substr(account_id, strpos(account_id, ':')) ELSE account_id END AS account_id
                    FROM ledger_entries AS entry
                    WHERE kind = 'REFUND_AFTER_ALL'
                      AND NOT EXISTS (SELECT 1 FROM ledger_transactions WHERE reverses = entry.transaction_id)
                    GROUP BY transaction_id, 5) AS booked
              USING (transaction_id, account_id)
         WHERE (due.amount, due.merchant_id, due.order_no)
               IS DISTINCT FROM (booked.amount, booked.merchant_id, booked.order_no)",
    ),
    check!(
        "refund_hold_booked",
        Always,
        "of each top-up's refund that has not failed one booking sets its amount aside, and no other is set aside for a refund",
        "SELECT format('booking %s: %s on %s for order %s/%s, its refund says %s for %s/%s', transaction_id,
                       coalesce(booked.amount, 0), account_id, booked.merchant_id, booked.order_no,
                       coalesce(due.amount, 0), due.merchant_id, due.order_no)
         FROM (SELECT 'REFUND_HOLD:' || refund_id AS transaction_id,
                      format('%s:%s:%s:%s', side.kind, orders.merchant_id, user_id, refunds.currency) AS account_id,
                      side.sign * refunds.amount AS amount, orders.merchant_id, orders.order_no
               FROM refunds JOIN orders ON orders.paid_by = refunds.pay_order_id
               CROSS JOIN (VALUES ('USER_AVAILABLE', 1), ('USER_HELD', -1)) AS side (kind, sign)
               -- From the moment that it is asked for, also while it waits for an operator.
               WHERE orders.kind = 'TOPUP' AND refunds.status <> 'FAILED') AS due
         FULL JOIN (SELECT transaction_id, account_id, amount, merchant_id, order_no
                    FROM ledger_entries AS entry
                    WHERE kind = 'REFUND_HOLD'
                      AND NOT EXISTS (SELECT 1 FROM ledger_transactions WHERE reverses = entry.transaction_id)) AS booked
              USING (transaction_id, account_id)
         WHERE (due.amount, due.merchant_id, due.order_no)
               IS DISTINCT FROM (booked.amount, booked.merchant_id, booked.order_no)",
    ),
    check!(
        "suspense_is_stray_money",
        Always,
        "a channel's suspense account holds what its stray payments are HELD or REFUNDING with, less what of those that nobody has \
         kept went back after all",
        "SELECT format('account %s: holds %s, stray payments say %s', account_id, coalesce(booked.amount, 0),
                       coalesce(stray.amount, 0))
         FROM (SELECT 'SUSPENSE:' || channel || ':' || currency AS account_id, sum(amount) AS amount
               FROM (SELECT channel, currency, amount FROM stray_payments WHERE status IN ('HELD', 'REFUNDING')
                     UNION ALL
                     SELECT channel, currency, -refunds.amount
                     FROM refunds JOIN stray_payments AS stray USING (stray_id, currency)
                     WHERE made_after_all_at IS NOT NULL AND stray.status <> 'KEPT') AS held
               GROUP BY 1) AS stray
         FULL JOIN (SELECT account_id, balance + coalesce(moved.amount, 0) AS amount
                    FROM accounts
                    LEFT JOIN (SELECT account_id, sum(amount) AS amount FROM account_movements GROUP BY account_id)
                         AS moved USING (account_id)
                    WHERE kind = 'SUSPENSE') AS booked USING (account_id)
         WHERE coalesce(stray.amount, 0) <> coalesce(booked.amount, 0)",
    ),
    check!(
        "reversal_mirrors",
        Always,
        "a reversal books the opposite of one booking, which has no other reversal",
        "SELECT format('reversal of %s: %s on %s, which had %s', transaction_id, coalesce(undone.amount, 0),
                       account_id, coalesce(done.amount, 0))
         FROM (SELECT reverses AS transaction_id, account_id, amount
               FROM ledger_entries WHERE reverses IS NOT NULL) AS undone
         FULL JOIN (SELECT entry.transaction_id, entry.account_id, entry.amount
                    FROM ledger_transactions AS reversal
                    JOIN ledger_entries AS entry ON entry.transaction_id = reversal.reverses) AS done
              USING (transaction_id, account_id)
         WHERE done.amount IS DISTINCT FROM -undone.amount
         UNION ALL
         SELECT format('booking %s: %s reversals', reverses, count(*))
         FROM ledger_transactions WHERE reverses IS NOT NULL GROUP BY reverses HAVING count(*) > 1",
    ),
];
