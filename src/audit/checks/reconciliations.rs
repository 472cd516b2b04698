//! Reconciliation: every difference comes to an end, or a person is shown it.

use super::{Definition, check};

pub(super) const CHECKS: &[Definition] = &[
    check!(
        "difference_shown",
        Always,
        "a difference that waits for a person, or that nothing came of, was shown to one",
        "SELECT format('difference %s: %s of %s %s %s, and nobody was shown it', item_id, class, kind, our_id, status)
         FROM reconciliation_items AS item
         WHERE status IN ('WAITING', 'ESCALATED')
           AND NOT EXISTS (SELECT 1 FROM exceptions
                           WHERE exceptions.kind = 'RECONCILIATION' AND exceptions.subject = item.item_id)",
    ),
    check!(
        "difference_exception_outlived",
        Always,
        "what was open about a difference is resolved with it; of one whose charge was given back it may be open that its \
         money is nowhere",
        "SELECT format('exception %s: still OPEN although difference %s is %s', exception_id, item_id, item.status)
         FROM exceptions JOIN reconciliation_items AS item ON item_id = exceptions.subject
         WHERE exceptions.status = 'OPEN' AND item.status IN ('APPLIED', 'RESOLVED', 'DISMISSED')",
    ),
    check!(
        "difference_unfinished",
        Eventual,
        "no difference that the service works on lies 5 min past its time",
        "SELECT format('difference %s: %s since %s, due at %s', item_id, item.status, item.updated_at, item.due_at)
         FROM reconciliation_items AS item JOIN reconciliations AS run USING (reconciliation_id)
         WHERE item.due_at < $1 - interval '5 min' AND item.status IN ('PROPOSED', 'APPLYING')
           -- What is compared anew is carried out behind that; where that does not go on, a person knows.
           AND (run.status IN ('ACTING', 'DONE')
                OR (run.fault IS NOT NULL OR run.attempts >= 10)
                   AND NOT EXISTS (SELECT 1 FROM exceptions
                                   WHERE exceptions.subject = run.reconciliation_id
                                     AND (exceptions.status = 'OPEN' OR exceptions.created_at >= (
                                          SELECT max(begun.created_at) FROM reconciliation_history AS begun
                                          WHERE begun.reconciliation_id = run.reconciliation_id
                                            AND begun.event IN ('BEGUN', 'BEGUN_AGAIN')))))",
    ),
    check!(
        "difference_applied",
        Always,
        "money of a difference that was applied is a trade of ours",
        "SELECT format('difference %s: APPLIED, and trade %s of %s is not here', item_id, item.channel_id, item.channel)
         FROM reconciliation_items AS item
         LEFT JOIN trades ON trades.channel = item.channel AND trades.transaction_id = item.channel_id
         WHERE item.class = 'MISSING_HERE' AND item.kind = 'PAYMENT' AND item.status = 'APPLIED'
           AND trades.transaction_id IS NULL",
    ),
    check!(
        "difference_charged",
        Always,
        "a user is charged for money that never came once, what the top-up gave, by a difference that says so, and also \
         says when that was given back",
        "SELECT format('difference %s: %s %s by %s, and %s was booked as a charge and %s', coalesce(item_id, booked.difference),
                       coalesce(item.action, 'not there'), item.status, item.ours, coalesce(booked.amount, 0),
                       CASE WHEN booked.is_reversed THEN 'given back' ELSE 'kept' END)
         FROM (SELECT * FROM reconciliation_items
               WHERE action = 'CHARGE' AND status IN ('APPLYING', 'APPLIED', 'REVERSED')) AS item
         FULL JOIN (SELECT split_part(entry.transaction_id, ':', 2) AS difference, -sum(entry.amount) AS amount,
                           EXISTS (SELECT 1 FROM ledger_transactions AS reversal
                                   WHERE reversal.transaction_id = 'REVERSAL:' || entry.transaction_id) AS is_reversed
                    FROM ledger_entries AS entry
                    WHERE entry.kind = 'COMPENSATING_CHARGE' AND starts_with(entry.account_id, 'CHANNEL:')
                    GROUP BY entry.transaction_id) AS booked ON booked.difference = item_id
         -- What was given back may be another difference by now, of another amount.
         WHERE item_id IS NULL AND NOT booked.is_reversed
            OR (booked.amount, booked.is_reversed) IS DISTINCT FROM (item.ours, item.status = 'REVERSED')
               AND item_id IS NOT NULL AND (item.status <> 'APPLYING' OR booked.amount IS NOT NULL)",
    ),
    check!(
        "charge_of_its_user",
        Always,
        "a charge takes from the user of its difference's top-up, and from nobody else",
        "SELECT format('booking %s: %s on %s, for top-up %s of %s, whose user is %s', entry.transaction_id, entry.amount,
                       entry.account_id, entry.order_no, entry.merchant_id, coalesce(orders.user_id, 'nobody'))
         FROM ledger_entries AS entry
         LEFT JOIN reconciliation_items AS item ON item.item_id = split_part(entry.transaction_id, ':', 2)
         LEFT JOIN orders ON orders.merchant_id = item.merchant_id AND orders.order_no = item.order_no
                         AND orders.kind = 'TOPUP'
         WHERE entry.kind = 'COMPENSATING_CHARGE'
           AND ((entry.merchant_id, entry.order_no) IS DISTINCT FROM (orders.merchant_id, orders.order_no)
                OR (entry.account_id, sign(entry.amount)) NOT IN (
                    (format('CHANNEL:%s:%s', item.channel, orders.currency), -1),
                    (format('USER_AVAILABLE:%s:%s:%s', orders.merchant_id, orders.user_id, orders.currency), 1),
                    (format('USER_RECEIVABLE:%s:%s:%s', orders.merchant_id, orders.user_id, orders.currency), 1)))",
    ),
    check!(
        "charge_paid_back",
        Always,
        "what a user has paid off of a charge, or of a refund or payout that was made after all, is theirs again where that was undone, and \
         what was written off of it their merchant's, up to what it left owing, and stays so",
        "SELECT format('booking %s: %s on %s, and the charge %s left %s owing', entry.transaction_id, entry.amount,
                       entry.account_id,
                       CASE WHEN reversal.transaction_id IS NULL THEN 'stands and' ELSE 'was given back and had' END,
                       coalesce(owed.account_id || ' ' || owed.amount, 'nobody'))
         FROM (SELECT *, regexp_replace(transaction_id, '^CHARGE_PAID_BACK',
                                        -- A difference has no number behind it, nor has the first payout after all.
                                        CASE WHEN split_part(transaction_id, ':', 2) ^@ 'wd_' THEN 'PAYOUT_AFTER_ALL'
                                             WHEN split_part(transaction_id, ':', 3) = '' THEN 'COMPENSATING_CHARGE'
                                             ELSE 'REFUND_AFTER_ALL' END) AS charge
               FROM ledger_entries WHERE kind = 'CHARGE_PAID_BACK') AS entry
         LEFT JOIN ledger_transactions AS reversal ON reversal.reverses = entry.charge
         LEFT JOIN ledger_entries AS owed
                ON owed.transaction_id = entry.charge AND starts_with(owed.account_id, 'USER_RECEIVABLE:')
         WHERE reversal.transaction_id IS NULL OR abs(entry.amount) > coalesce(owed.amount, 0)
            OR (entry.account_id, sign(entry.amount)) NOT IN (
                (owed.account_id, 1), (replace(owed.account_id, 'USER_RECEIVABLE:', 'USER_AVAILABLE:'), -1),
                (format('MERCHANT:%s:%s', entry.merchant_id, split_part(owed.account_id, ':', -1)), -1))
            OR (entry.merchant_id, entry.order_no) IS DISTINCT FROM (reversal.merchant_id, reversal.order_no)
         UNION ALL
         SELECT format('%s takes from a user what was theirs again', transaction_id)
         FROM ledger_transactions WHERE starts_with(reverses, 'CHARGE_PAID_BACK:')",
    ),
    check!(
        "charged_and_refunded",
        Always,
        "of a top-up that its user was charged for, because its money never came, nothing is given back",
        "SELECT format('difference %s: its user was charged for top-up %s of %s, and refund %s of it is %s', item_id,
                       item.order_no, item.merchant_id, refund.refund_id, refund.status)
         FROM reconciliation_items AS item JOIN refunds AS refund USING (merchant_id, order_no)
         WHERE item.action = 'CHARGE' AND item.status = 'APPLIED'
           AND refund.stray_id IS NULL AND refund.status <> 'FAILED'",
    ),
    check!(
        "reconciliation_done",
        Always,
        "a day that was compared to its end has no difference that the service still works on, but what a person let go",
        "SELECT format('reconciliation %s: DONE with difference %s %s', run.reconciliation_id, item_id, item.status)
         FROM reconciliations AS run JOIN reconciliation_items AS item USING (reconciliation_id)
         WHERE run.status = 'DONE'
           AND (item.status = 'PROPOSED' OR item.status = 'APPLYING' AND item.decided_by IS NULL)",
    ),
    check!(
        "reconciliation_history",
        Always,
        "the history of a channel's day is contiguous, along allowed edges, and ends in its present state",
        "SELECT format('reconciliation %s: %s, its history says %s', coalesce(run.reconciliation_id, told.reconciliation_id),
                       coalesce(run.status, 'not there'), coalesce(told.tale, 'nothing'))
         FROM reconciliations AS run
         FULL JOIN (SELECT reconciliation_id, string_agg(to_status, ' ' ORDER BY seq) AS tale,
                           (array_agg(to_status ORDER BY seq DESC))[1] AS last,
                           bool_and(seq = place AND from_status IS NOT DISTINCT FROM before
                                    AND (from_status, event, to_status) IN (
                                        ('OPEN', 'FETCH_BEGUN', 'FETCHING'), ('OPEN', 'STATEMENT_REFUSED', 'OPEN'),
                                        ('FETCHING', 'STATEMENT_REFUSED', 'OPEN'), ('FETCHING', 'FETCHED', 'MATCHING'),
                                        ('MATCHING', 'MATCHED', 'ACTING'), ('ACTING', 'FINISHED', 'DONE'))
                                    OR seq = place AND from_status IS NOT DISTINCT FROM before
                                       AND (event = 'BEGUN_AGAIN' AND to_status = 'OPEN'
                                            OR seq = 1 AND (event, to_status) = ('BEGUN', 'OPEN'))) AS is_right
                    FROM (SELECT *, row_number() OVER walk AS place, lag(to_status) OVER walk AS before
                          FROM reconciliation_history
                          WINDOW walk AS (PARTITION BY reconciliation_id ORDER BY seq)) AS step
                    GROUP BY reconciliation_id) AS told USING (reconciliation_id)
         WHERE (told.last = run.status AND told.is_right) IS NOT TRUE",
    ),
    check!(
        "reconciliation_unfinished",
        Eventual,
        "no day that could go on is left alone for 10 min, and none that waits for another file without a person being told",
        "SELECT format('reconciliation %s: %s of %s %s, untouched since %s', reconciliation_id, status, channel, day,
                       leased_until)
         FROM reconciliations
         WHERE status <> 'DONE' AND leased_until < $1 - interval '10 min'
           AND (source = 'CHANNEL' OR file_id IS NOT NULL
                OR NOT EXISTS (SELECT 1 FROM exceptions
                               WHERE exceptions.kind = 'LATE_STATEMENT'
                                 AND exceptions.subject = reconciliations.reconciliation_id))",
    ),
];
