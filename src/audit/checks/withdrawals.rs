//! Invariants 1, 2, 7 and 8, as far as users' money goes out: what is set aside, what is on its way, and nothing of it
//! twice.

use super::{Definition, check};

pub(super) const CHECKS: &[Definition] = &[
    check!(
        "withdrawal_booked",
        Always,
        "a withdrawal's bookings are those of its state: set aside, handed to the channel, arrived, or taken back; its money taken \
         once more each time that it went out after all, and back each time that it came back",
        "SELECT format('withdrawal %s: %s, but booked are %s', withdrawal_id, status, coalesce(booked.kinds, 'nothing'))
         FROM withdrawals
         -- How often it went out after all, be it that it came back since: of what had arrived, only once it had come back.
         CROSS JOIN LATERAL (
             SELECT channel_payout_id IS NOT NULL AND returned_at IS NULL AS is_out
         ) AS how
         CROSS JOIN LATERAL (
             SELECT returned_times + (status = 'REVERSED')::int - (NOT is_out)::int AS times
         ) AS after_all
         LEFT JOIN (
             SELECT split_part(coalesce(reverses, transaction_id), ':', 2) AS withdrawal_id,
                    string_agg(CASE WHEN reverses IS NULL THEN kind ELSE 'no ' || split_part(reverses, ':', 1) END,
                               ', ' ORDER BY kind = 'REVERSAL', kind <> 'WITHDRAWAL', transaction_id) AS kinds
             FROM ledger_transactions
             WHERE split_part(coalesce(reverses, transaction_id), ':', 1) IN ('WITHDRAWAL', 'PAYOUT', 'PAYOUT_DONE',
                                                                                'PAYOUT_AFTER_ALL')
             GROUP BY 1
         ) AS booked USING (withdrawal_id)
         WHERE booked.kinds IS DISTINCT FROM
               CASE status WHEN 'DEBITED' THEN 'WITHDRAWAL'
                           WHEN 'PAYING' THEN 'WITHDRAWAL, PAYOUT'
                           WHEN 'SUCCEEDED' THEN 'WITHDRAWAL, PAYOUT, ' || repeat('PAYOUT_AFTER_ALL, ', times) || 'PAYOUT_DONE'
                               || CASE WHEN returned_times > 0
                                       THEN ', no PAYOUT' || repeat(', no PAYOUT_AFTER_ALL', times - is_out::int)
                                            || ', no PAYOUT_DONE, no WITHDRAWAL' ELSE '' END
                           WHEN 'REVERSED' THEN 'WITHDRAWAL, PAYOUT, ' || repeat('PAYOUT_AFTER_ALL, ', times)
                               || 'no PAYOUT, ' || repeat('no PAYOUT_AFTER_ALL, ', times - is_out::int)
                               || 'no WITHDRAWAL' END",
    ),
    check!(
        "withdrawal_booked_right",
        Always,
        "a withdrawal's bookings are its merchant's, and move its amount between the accounts of its user and its channel",
        "SELECT format('%s moves %s on %s', transaction_id, entry.amount, entry.account_id)
         FROM ledger_entries AS entry
         LEFT JOIN withdrawals AS w ON w.withdrawal_id = split_part(transaction_id, ':', 2)
         WHERE entry.kind IN ('WITHDRAWAL', 'PAYOUT', 'PAYOUT_DONE', 'PAYOUT_AFTER_ALL')
           AND (entry.account_id, entry.amount) NOT IN (
                   (format('USER_AVAILABLE:%s:%s:%s', w.merchant_id, w.user_id, w.currency),
                    -- What they could pay, and what they owe, are the channel's together: a booking sums to zero.
                    CASE entry.kind WHEN 'WITHDRAWAL' THEN w.amount
                                    WHEN 'PAYOUT_AFTER_ALL' THEN greatest(entry.amount, 1) END),
                   (format('USER_RECEIVABLE:%s:%s:%s', w.merchant_id, w.user_id, w.currency),
                    CASE entry.kind WHEN 'PAYOUT_AFTER_ALL' THEN greatest(entry.amount, 1) END),
                   (format('USER_HELD:%s:%s:%s', w.merchant_id, w.user_id, w.currency),
                    CASE entry.kind WHEN 'WITHDRAWAL' THEN -w.amount WHEN 'PAYOUT_DONE' THEN w.amount END),
                   (format('PAYOUTS_IN_TRANSIT:%s:%s', w.channel, w.currency),
                    CASE entry.kind WHEN 'PAYOUT' THEN w.amount WHEN 'PAYOUT_DONE' THEN -w.amount END),
                   (format('CHANNEL:%s:%s', w.channel, w.currency),
                    CASE WHEN entry.kind IN ('PAYOUT', 'PAYOUT_AFTER_ALL') THEN -w.amount END))
               IS NOT FALSE
         UNION ALL
         SELECT format('%s is booked for %s/%s', transaction_id, booked.merchant_id, booked.order_no)
         FROM ledger_transactions AS booked JOIN withdrawals AS w ON w.withdrawal_id = split_part(transaction_id, ':', 2)
         WHERE booked.kind IN ('WITHDRAWAL', 'PAYOUT', 'PAYOUT_DONE', 'PAYOUT_AFTER_ALL')
           AND (booked.merchant_id, booked.order_no) IS DISTINCT FROM (w.merchant_id, NULL)",
    ),
    check!(
        "held_is_open",
        Always,
        "what is held of a user's money is the open part of withdrawals, of holds for usage and of top-ups that go back",
        "SELECT format('%s holds %s, open are %s', coalesce(held.account_id, open.account_id),
                       coalesce(held.balance, 0), coalesce(open.amount, 0))
         FROM (SELECT account_id, balance FROM accounts WHERE kind = 'USER_HELD' AND balance <> 0) AS held
         FULL JOIN (SELECT format('USER_HELD:%s:%s:%s', merchant_id, user_id, currency) AS account_id,
                           sum(amount) AS amount
                    FROM (SELECT merchant_id, user_id, currency, amount FROM withdrawals
                          WHERE status IN ('DEBITED', 'PAYING', 'REVERSING')
                          UNION ALL
                          SELECT merchant_id, user_id, currency, held FROM usage_holds WHERE held > 0
                          UNION ALL
                          SELECT orders.merchant_id, user_id, refunds.currency, refunds.amount
                          FROM refunds JOIN orders ON orders.paid_by = refunds.pay_order_id
                          WHERE kind = 'TOPUP'
                            AND refunds.status IN ('AWAITING_APPROVAL', 'PENDING', 'PROCESSING')) AS kept
                    GROUP BY 1) AS open
                USING (account_id)
         WHERE coalesce(held.balance, 0) <> coalesce(open.amount, 0)",
    ),
    check!(
        "payouts_in_transit",
        Always,
        "what is on its way out through a channel is what its withdrawals in PAYING say",
        "SELECT format('%s has %s, on their way are %s', coalesce(transit.account_id, asked.account_id),
                       coalesce(transit.balance, 0), coalesce(asked.amount, 0))
         FROM (SELECT account_id, accounts.balance + coalesce(sum(moved.amount), 0) AS balance
               FROM accounts LEFT JOIN account_movements AS moved USING (account_id)
               WHERE kind = 'PAYOUTS_IN_TRANSIT' GROUP BY account_id, accounts.balance) AS transit
         FULL JOIN (SELECT format('PAYOUTS_IN_TRANSIT:%s:%s', channel, currency) AS account_id,
                           sum(amount) AS amount
                    FROM withdrawals WHERE status = 'PAYING' GROUP BY 1) AS asked
                USING (account_id)
         WHERE coalesce(transit.balance, 0) <> coalesce(asked.amount, 0)",
    ),
    check!(
        "withdrawal_legs",
        Always,
        "a withdrawal's legs are where its state says",
        "SELECT format('withdrawal %s: %s, its legs are %s', withdrawal_id, coalesce(withdrawals.status, 'not there'),
                       coalesce(legs.tale, 'not there'))
         FROM withdrawals
         FULL JOIN (SELECT withdrawal_id, string_agg(leg || ' ' || status, ', ' ORDER BY leg) AS tale
                    FROM withdrawal_legs GROUP BY withdrawal_id) AS legs USING (withdrawal_id)
         WHERE legs.tale IS DISTINCT FROM
               CASE withdrawals.status
                   WHEN 'DEBITED' THEN 'DEBIT SUCCEEDED, PAYOUT PENDING'
                   WHEN 'PAYING' THEN 'DEBIT SUCCEEDED, PAYOUT PROCESSING'
                   WHEN 'SUCCEEDED' THEN 'DEBIT SUCCEEDED, PAYOUT SUCCEEDED'
                       || CASE WHEN returned_times > 0 THEN ', REVERSAL SUCCEEDED' ELSE '' END
                   WHEN 'REVERSED' THEN 'DEBIT SUCCEEDED, PAYOUT FAILED, REVERSAL SUCCEEDED' END",
    ),
    check!(
        "withdrawal_history",
        Always,
        "every change of a withdrawal's state has its row, along allowed edges, ending in the present state",
        "SELECT format('withdrawal %s: %s at version %s, its history is %s', withdrawal_id, coalesce(status, 'not there'),
                       version, coalesce(history.tale, 'not there'))
         FROM withdrawals
         FULL JOIN (SELECT withdrawal_id, count(*) AS changes, max(seq) AS last,
                           string_agg(to_status, ' ' ORDER BY seq) AS tale,
                           string_agg(coalesce(from_status, ''), ' ' ORDER BY seq) AS past
                    FROM withdrawal_history GROUP BY withdrawal_id) AS history USING (withdrawal_id)
         WHERE (history.changes = version AND history.last = version
                AND ltrim(history.past) || ' ' || status = history.tale
                AND history.tale = CASE status
                        WHEN 'DEBITED' THEN 'CREATED DEBITED'
                        WHEN 'PAYING' THEN 'CREATED DEBITED PAYING'
                        WHEN 'SUCCEEDED' THEN 'CREATED DEBITED PAYING SUCCEEDED'
                        WHEN 'REVERSED' THEN 'CREATED DEBITED PAYING REVERSING REVERSED' END) IS NOT TRUE",
    ),
    check!(
        "withdrawal_announced",
        Always,
        "a withdrawal's end is told once, and each time that it was made after it had been given back, or came back, in turn; and \
         nothing else of it",
        "SELECT format('withdrawal %s: %s, announced as %s', coalesce(w.withdrawal_no, told.withdrawal_no),
                       coalesce(w.status, 'not there'), coalesce(tale, 'nothing'))
         FROM withdrawals AS w
         FULL JOIN (SELECT merchant_id, payload ->> 'withdrawal_no' AS withdrawal_no,
                           string_agg(coalesce(payload ->> 'status', event), ' ' ORDER BY id) AS tale
                    FROM outbox WHERE event IN ('withdrawal.finished', 'withdrawal.made_after_all', 'withdrawal.returned')
                    GROUP BY 1, 2) AS told
                ON told.merchant_id = w.merchant_id AND told.withdrawal_no = w.withdrawal_no
         WHERE (CASE WHEN w.status IN ('SUCCEEDED', 'REVERSED')
                     THEN -- What had arrived is told to have come back before it can be told to be made after all.
                          CASE w.status WHEN 'REVERSED' THEN tale ELSE replace(tale, 'SUCCEEDED', 'SUCCEEDED withdrawal.made_after_all') END
                          = w.status || repeat(' withdrawal.made_after_all withdrawal.returned', w.returned_times)
                            || CASE WHEN w.channel_payout_id IS NOT NULL AND w.returned_at IS NULL
                                    THEN ' withdrawal.made_after_all' ELSE '' END
                     ELSE tale IS NULL AND w.withdrawal_id IS NOT NULL END) IS NOT TRUE",
    ),
    check!(
        "withdrawal_unfinished",
        Eventual,
        "no withdrawal is under way for 60 s and left alone",
        "SELECT format('withdrawal %s: %s since %s', withdrawal_id, status, updated_at)
         FROM withdrawals
         WHERE status IN ('CREATED', 'DEBITED', 'PAYING', 'REVERSING') AND updated_at < $1 - interval '60 s'
           AND NOT EXISTS (SELECT 1 FROM owned WHERE subject = withdrawal_id)",
    ),
];
