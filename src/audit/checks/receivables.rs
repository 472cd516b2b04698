//! Invariants 1, 2 and 7, debts of users: what is cleared is booked as it says, told, and shown to nobody any more.

use super::{Definition, check};

pub(super) const CHECKS: &[Definition] = &[
    check!(
        "receivable_cleared",
        Always,
        "a clearing takes its amount off what its user owes, once, from what they have or as their merchant's loss, and nothing \
         else does",
        "SELECT format('booking %s: comes to %s on %s for %s, its clearing says %s', transaction_id, coalesce(booked.amount, 0),
                       account_id, coalesce(booked.merchant_id, 'nobody'), coalesce(due.amount, 0))
         FROM (SELECT format('%s:%s:%s', kind, merchant_id, clearing_no) AS transaction_id, side.account_id, side.amount,
                      merchant_id
               FROM receivable_clearings
               CROSS JOIN LATERAL (VALUES
                   (CASE kind WHEN 'COLLECTION' THEN format('USER_AVAILABLE:%s:%s:%s', merchant_id, user_id, currency)
                              ELSE format('MERCHANT:%s:%s', merchant_id, currency) END, amount),
                   (format('USER_RECEIVABLE:%s:%s:%s', merchant_id, user_id, currency), -amount))
                   AS side (account_id, amount)) AS due
         FULL JOIN (SELECT coalesce(reverses, entry.transaction_id) AS transaction_id, account_id,
                           min(merchant_id) AS merchant_id, sum(amount) AS amount
                    FROM ledger_entries AS entry
                    -- Nothing of it is ever taken back: what was would show here.
                    WHERE coalesce(split_part(reverses, ':', 1), kind) IN ('COLLECTION', 'WRITE_OFF')
                    GROUP BY 1, 2 HAVING sum(amount) <> 0) AS booked
              USING (transaction_id, account_id)
         WHERE (due.amount, due.merchant_id) IS DISTINCT FROM (booked.amount, booked.merchant_id)",
    ),
    check!(
        "write_off_stands",
        Always,
        "a merchant bears what was written off and did not come back",
        "SELECT format('account %s: bears %s, and %s was written off and did not come back', account_id,
                       coalesce(booked.amount, 0), coalesce(standing.amount, 0))
         FROM (SELECT account_id, sum(amount) AS amount
               FROM ledger_entries
               -- No other entry of these is on a merchant's account.
               WHERE coalesce(split_part(reverses, ':', 1), kind) IN ('WRITE_OFF', 'CLAW_BACK', 'CHARGE_PAID_BACK')
                 AND starts_with(account_id, 'MERCHANT:')
               GROUP BY account_id) AS booked
         FULL JOIN (SELECT format('MERCHANT:%s:%s', merchant_id, currency) AS account_id, sum(amount - recovered) AS amount
                    FROM receivable_clearings WHERE kind = 'WRITE_OFF' GROUP BY 1) AS standing USING (account_id)
         WHERE coalesce(booked.amount, 0) <> coalesce(standing.amount, 0)",
    ),
    check!(
        "receivable_announced",
        Always,
        "a clearing is told once, with its amount, and so is whatever came back of it, and nothing else",
        "SELECT format('clearing %s of %s: %s of %s with %s recovered, announced as %s of %s with %s', clearing_no, merchant_id,
                       coalesce(kind, 'not there'), cleared.amount, cleared.recovered, coalesce(tale, 'nothing'),
                       told.amount, coalesce(told.recovered, 0))
         FROM receivable_clearings AS cleared
         FULL JOIN (SELECT merchant_id, payload ->> 'clearing_no' AS clearing_no,
                           string_agg(event, ' ' ORDER BY id) FILTER (WHERE event <> 'receivable.recovered') AS tale,
                           sum((payload ->> 'amount')::bigint) FILTER (WHERE event <> 'receivable.recovered') AS amount,
                           sum((payload ->> 'amount')::bigint) FILTER (WHERE event = 'receivable.recovered') AS recovered
                    FROM outbox
                    WHERE event IN ('receivable.collected', 'receivable.written_off', 'receivable.recovered')
                    GROUP BY 1, 2) AS told USING (merchant_id, clearing_no)
         WHERE tale IS DISTINCT FROM CASE kind WHEN 'COLLECTION' THEN 'receivable.collected'
                                               WHEN 'WRITE_OFF' THEN 'receivable.written_off' END
            OR told.amount IS DISTINCT FROM cleared.amount
            OR coalesce(told.recovered, 0) IS DISTINCT FROM cleared.recovered",
    ),
    check!(
        "shortfall_outlived",
        Always,
        "what is open about a user's shortfall is resolved once they owe nothing in its currency",
        "SELECT format('exception %s: still OPEN although user %s of %s owes no %s', exception_id, debt.user_id,
                       debt.merchant_id, debt.currency)
         FROM exceptions
         JOIN (SELECT hold_id AS subject, merchant_id, user_id, currency FROM usage_holds WHERE shortfall > 0
               UNION
               SELECT item.our_id, item.merchant_id, orders.user_id, item.currency
               FROM reconciliation_items AS item
               JOIN orders ON orders.merchant_id = item.merchant_id AND orders.order_no = item.order_no
               WHERE item.action = 'CHARGE') AS debt ON debt.subject = exceptions.subject
         LEFT JOIN accounts
                ON accounts.account_id = format('USER_RECEIVABLE:%s:%s:%s', debt.merchant_id, debt.user_id, debt.currency)
         WHERE exceptions.kind = 'USAGE_SHORTFALL' AND exceptions.status = 'OPEN'
           AND coalesce(accounts.balance, 0) = 0",
    ),
];
