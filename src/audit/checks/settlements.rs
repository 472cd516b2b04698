//! Invariants 1, 2, 6 and 7, commissions: one an order, computed and booked as it says, claimed back as refunds ask for.

use super::{Definition, check};

pub(super) const CHECKS: &[Definition] = &[
    check!(
        "settlement_once",
        Always,
        "an order is SETTLED exactly when it has a settlement, and has no other",
        "SELECT format('order %s/%s: %s, with %s settlements', merchant_id, order_no,
                       coalesce(settle_status, 'not there'), coalesce(times, 0))
         FROM orders
         FULL JOIN (SELECT merchant_id, order_no, count(*) AS times FROM settlements
                    GROUP BY merchant_id, order_no) AS given USING (merchant_id, order_no)
         WHERE coalesce(times, 0) <> CASE settle_status WHEN 'SETTLED' THEN 1 ELSE 0 END",
    ),
    check!(
        "settlement_of_order",
        Always,
        "a settlement is of a paid sale, in its currency, of no more than was paid, for who earns by it",
        "SELECT format('settlement of %s/%s: %s of %s %s for %s does not fit the order', merchant_id, order_no,
                       commission, base_amount, given.currency, given.user_id)
         FROM settlements AS given JOIN orders USING (merchant_id, order_no)
         WHERE orders.kind <> 'SALE' OR orders.paid_at IS NULL OR given.currency <> orders.currency
            OR given.user_id <> coalesce(orders.rebate_user_id, orders.user_id) OR base_amount > orders.amount",
    ),
    check!(
        "settlement_computed",
        Always,
        "a commission is what its frozen rates make of its base, rounded down once",
        "SELECT format('settlement of %s/%s: %s of %s, its rates make %s', merchant_id, order_no, commission,
                       base_amount, due)
         FROM (
             SELECT merchant_id, order_no, commission, base_amount, rate, line_rates, count(*) AS lines,
                    -- div() cuts off exactly where / would round.
                    div(sum(coalesce(quantity * unit_price, amount) * line_rates[coalesce(line_no, 1)])
                        * factor * base_amount, amount) AS due,
                    div(sum(coalesce(quantity * unit_price, amount) * line_rates[coalesce(line_no, 1)])
                        * 100000000, amount) / 100000000 AS whole_rate
             FROM settlements JOIN orders USING (merchant_id, order_no)
                  LEFT JOIN order_items USING (merchant_id, order_no)
             GROUP BY merchant_id, order_no, commission, base_amount, rate, line_rates, factor, amount
         ) AS given
         WHERE due IS DISTINCT FROM commission OR whole_rate IS DISTINCT FROM rate
            OR lines <> cardinality(line_rates)",
    ),
    check!(
        "settlement_posted",
        Always,
        "a commission has one booking from the merchant's expense to the user's balance, nothing has none",
        "SELECT format('%s: %s is booked where %s was given', transaction_id, coalesce(booked.entries, 'nothing'),
                       coalesce(given.entries, 'nothing'))
         FROM (SELECT format('SETTLEMENT:%s:%s', merchant_id, order_no) AS transaction_id,
                      CASE WHEN commission > 0
                           THEN format('COMMISSION_EXPENSE:%1$s:%3$s %4$s, USER_AVAILABLE:%1$s:%2$s:%3$s -%4$s of %1$s/%5$s',
                                       merchant_id, user_id, currency, commission, order_no) END AS entries
               FROM settlements) AS given
         FULL JOIN (SELECT transaction_id, string_agg(format('%s %s', account_id, amount), ', ' ORDER BY account_id)
                           || format(' of %s/%s', merchant_id, order_no) AS entries
                    FROM ledger_entries WHERE starts_with(transaction_id, 'SETTLEMENT:')
                    GROUP BY transaction_id, merchant_id, order_no) AS booked USING (transaction_id)
         WHERE given.entries IS DISTINCT FROM booked.entries
         UNION ALL
         SELECT format('%s takes a commission back: that is claimed back, not reversed', transaction_id)
         FROM ledger_transactions WHERE starts_with(reverses, 'SETTLEMENT:')",
    ),
    check!(
        "settlement_clawed_back",
        Always,
        "what is claimed back of a commission is the sum of its bookings that stand, on accounts of its user, and their \
         merchant's where it gets what had been written off",
        "SELECT format('settlement of %s/%s: %s claimed back, bookings say %s', merchant_id, order_no,
                       coalesce(clawed_back, 0), coalesce(amount, 0))
         FROM settlements
         FULL JOIN (SELECT entry.merchant_id, entry.order_no, -sum(amount) AS amount
                    FROM ledger_entries AS entry
                    LEFT JOIN ledger_transactions AS reversal ON reversal.reverses = entry.transaction_id
                    WHERE entry.kind = 'CLAW_BACK' AND reversal.transaction_id IS NULL
                      AND starts_with(entry.account_id, 'COMMISSION_EXPENSE:')
                    GROUP BY entry.merchant_id, entry.order_no) AS booked USING (merchant_id, order_no)
         WHERE coalesce(clawed_back, 0) <> coalesce(amount, 0)
         UNION ALL
         SELECT format('%s of %s/%s moves %s', transaction_id, merchant_id, order_no, account_id)
         FROM ledger_entries AS entry
         LEFT JOIN settlements AS given USING (merchant_id, order_no)
         WHERE kind = 'CLAW_BACK'
           AND entry.account_id NOT IN (format('COMMISSION_EXPENSE:%s:%s', merchant_id, currency),
                                        format('USER_AVAILABLE:%s:%s:%s', merchant_id, user_id, currency),
                                        format('USER_RECEIVABLE:%s:%s:%s', merchant_id, user_id, currency))
           -- Of what is given again the merchant gets what had been written off.
           AND NOT (entry.account_id = format('MERCHANT:%s:%s', merchant_id, currency) AND entry.amount < 0
                    AND EXISTS (SELECT 1 FROM ledger_entries AS expense
                                WHERE expense.transaction_id = entry.transaction_id
                                  AND expense.account_id = format('COMMISSION_EXPENSE:%s:%s', merchant_id, currency)
                                  AND expense.amount >= -entry.amount))",
    ),
    check!(
        "settlement_follows_refunds",
        Always,
        "in all, so much of a commission is claimed back as it exceeds that on what is left of its order",
        "SELECT format('settlement of %s/%s: %s of %s claimed back, but %s is due on what is left', merchant_id,
                       order_no, clawed_back, commission, due)
         FROM (
             SELECT merchant_id, order_no, commission, clawed_back,
                    div(sum(coalesce(quantity * unit_price, amount) * line_rates[coalesce(line_no, 1)])
                        * factor * (amount - refunded_amount), amount) AS due
             FROM settlements JOIN orders USING (merchant_id, order_no)
                  LEFT JOIN order_items USING (merchant_id, order_no)
             GROUP BY merchant_id, order_no, commission, clawed_back, factor, amount, refunded_amount
         ) AS given
         WHERE clawed_back IS DISTINCT FROM greatest(commission - due, 0)",
    ),
    check!(
        "settlement_announced",
        Always,
        "a settled order has one event order.settled, and one settlement.clawed_back of each change of what is claimed back",
        "SELECT format('settlement of %s/%s: %s claimed back, announced %s times, claimed back by events %s',
                       merchant_id, order_no, coalesce(clawed_back, 0), coalesce(times, 0), coalesce(amount, 0))
         FROM settlements
         FULL JOIN (SELECT merchant_id, order_no, count(*) FILTER (WHERE event = 'order.settled') AS times,
                           sum((payload ->> 'amount')::bigint)
                               FILTER (WHERE event = 'settlement.clawed_back') AS amount
                    FROM outbox WHERE event IN ('order.settled', 'settlement.clawed_back')
                    GROUP BY merchant_id, order_no) AS told USING (merchant_id, order_no)
         WHERE status IS NULL OR times IS DISTINCT FROM 1 OR clawed_back <> coalesce(amount, 0)
         UNION ALL
         -- What is given again takes away from the sum: each must have been told. Both are written under the order's lock.
         SELECT format('settlement of %s/%s: claimed back in all %s, by events %s', merchant_id, order_no,
                       coalesce(changes, 'nothing'), coalesce(events, 'nothing'))
         FROM (SELECT merchant_id, order_no, string_agg(clawed_back::text, ', ' ORDER BY seq) AS changes,
                      bool_or(event = 'CARRIED_OVER') AS is_carried
               FROM settlement_history GROUP BY merchant_id, order_no) AS history
         FULL JOIN (SELECT merchant_id, order_no, string_agg(payload ->> 'clawed_back', ', ' ORDER BY id) AS events
                    FROM outbox WHERE event = 'settlement.clawed_back' GROUP BY merchant_id, order_no) AS told
                   USING (merchant_id, order_no)
         WHERE changes IS DISTINCT FROM events AND is_carried IS NOT TRUE",
    ),
    check!(
        "settlement_run_late",
        Eventual,
        "no run waits for a worker, or fails again and again",
        "SELECT format('run %s: taken until %s, has not moved on since %s%s', run_id, leased_until, updated_at,
                       ': ' || last_error)
         FROM settlement_runs
         WHERE status = 'RUNNING'
           AND (leased_until < $1 - interval '5 minutes'
                -- Whoever fails takes it again, and again.
                OR last_error IS NOT NULL AND updated_at < $1 - interval '5 minutes')",
    ),
];
