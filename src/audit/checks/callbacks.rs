//! Invariant 6, callbacks: each kept once, and what its verdict says did happen.

use super::{Definition, check};

pub(super) const CHECKS: &[Definition] = &[
    check!(
        "callback_once",
        Always,
        "a callback is recorded once",
        "SELECT format('callback %s of %s: recorded %s times', event_id, channel, count(*))
         FROM webhook_inbox GROUP BY channel, event_id HAVING count(*) > 1",
    ),
    check!(
        "callback_applied",
        Always,
        "one callback at most is APPLIED to an order, and it speaks of the attempt that paid; one that is APPLIED to a refund \
         found it at its end, or waiting for an approval that somebody may have given since",
        "SELECT format('callback %s of %s: APPLIED to order %s/%s, which %s did not pay', event_id,
                       inbox.channel, inbox.merchant_id, inbox.order_no, inbox.subject)
         FROM webhook_inbox AS inbox LEFT JOIN orders ON paid_by = inbox.subject
         WHERE verdict = 'APPLIED'
           AND (orders.merchant_id, orders.order_no) IS DISTINCT FROM (inbox.merchant_id, inbox.order_no)
           -- Callbacks about refunds are none of this.
           AND EXISTS (SELECT 1 FROM pay_orders WHERE pay_order_id = inbox.subject)
         UNION ALL
         SELECT format('pay order %s: %s callbacks are APPLIED', inbox.subject, count(*))
         FROM webhook_inbox AS inbox WHERE verdict = 'APPLIED'
         GROUP BY subject
         HAVING count(*) > 1 AND EXISTS (SELECT 1 FROM pay_orders WHERE pay_order_id = inbox.subject)
         UNION ALL
         SELECT format('callback %s of %s: APPLIED to %s, which %s', event_id, channel, subject,
                       coalesce('is ' || refunds.status, 'is neither a pay order nor a refund'))
         FROM webhook_inbox AS inbox LEFT JOIN refunds ON refund_id = inbox.subject
         WHERE verdict = 'APPLIED' AND coalesce(refunds.status, '') NOT IN ('SUCCEEDED', 'FAILED', 'AWAITING_APPROVAL')
           AND NOT EXISTS (SELECT 1 FROM refund_history AS history
                           WHERE history.refund_id = inbox.subject AND history.event = 'APPROVED'
                             AND history.created_at >= inbox.updated_at)
           AND NOT EXISTS (SELECT 1 FROM pay_orders WHERE pay_order_id = inbox.subject)",
    ),
    check!(
        "callback_money_kept",
        Always,
        "a callback of money that no order accepts has its stray payment, one that misfits its refund an exception",
        "SELECT format('callback %s of %s: %s, but nothing of %s is stray', event_id, channel, verdict, subject)
         FROM webhook_inbox AS inbox
         WHERE verdict IN ('STRAY', 'AMOUNT_MISMATCH', 'UNKNOWN_ORDER')
           AND NOT EXISTS (SELECT 1 FROM stray_payments AS stray
                           WHERE stray.channel = inbox.channel AND stray.out_trade_no = inbox.subject
                             AND CASE verdict WHEN 'STRAY' THEN stray.reason IN ('LATE_PAYMENT', 'DUPLICATE_PAYMENT')
                                              ELSE stray.reason = verdict END)
           AND NOT EXISTS (SELECT 1 FROM refunds JOIN exceptions ON exceptions.subject = refund_id
                           WHERE refund_id = inbox.subject AND exceptions.kind = 'AMOUNT_MISMATCH')
         UNION ALL
         -- One of a trade at most: whatever else speaks of it repeats.
         SELECT format('callbacks of %s about %s: %s are %s, money of which is there %s times', told.channel,
                       told.subject, told.times, verdict, coalesce(kept.times, 0))
         FROM (SELECT channel, subject, verdict, count(*) AS times FROM webhook_inbox
               WHERE verdict IN ('STRAY', 'UNKNOWN_ORDER') GROUP BY channel, subject, verdict) AS told
         LEFT JOIN (SELECT channel, out_trade_no AS subject,
                           CASE WHEN reason IN ('LATE_PAYMENT', 'DUPLICATE_PAYMENT') THEN 'STRAY' ELSE reason END AS verdict,
                           count(*) AS times
                    FROM stray_payments GROUP BY 1, 2, 3) AS kept USING (channel, subject, verdict)
         WHERE told.times > 1 AND told.times > coalesce(kept.times, 0)",
    ),
];
