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
        "one callback at most is APPLIED to an order, and it speaks of the attempt that paid",
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
         HAVING count(*) > 1 AND EXISTS (SELECT 1 FROM pay_orders WHERE pay_order_id = inbox.subject)",
    ),
    check!(
        "callback_money_kept",
        Always,
        "a callback of money that no order accepts has its stray payment, one that misfits its refund an exception",
        "SELECT format('callback %s of %s: %s, but nothing of %s is stray', event_id, channel, verdict, subject)
         FROM webhook_inbox AS inbox
         WHERE verdict IN ('STRAY', 'AMOUNT_MISMATCH', 'UNKNOWN_ORDER')
           AND NOT EXISTS (SELECT 1 FROM stray_payments AS stray
                           WHERE stray.channel = inbox.channel AND stray.out_trade_no = inbox.subject)
           AND NOT EXISTS (SELECT 1 FROM refunds JOIN exceptions ON exceptions.subject = refund_id
                           WHERE refund_id = inbox.subject AND exceptions.kind = 'AMOUNT_MISMATCH')
         UNION ALL
         -- One of a trade at most: whatever else speaks of it repeats.
         SELECT format('callbacks of %s about %s: %s tell of stray money, which is there %s times', told.channel,
                       told.subject, told.times, coalesce(kept.times, 0))
         FROM (SELECT channel, subject, count(*) AS times FROM webhook_inbox
               WHERE verdict IN ('STRAY', 'UNKNOWN_ORDER') GROUP BY channel, subject) AS told
         LEFT JOIN (SELECT channel, out_trade_no AS subject, count(*) AS times FROM stray_payments
                    GROUP BY channel, out_trade_no) AS kept USING (channel, subject)
         WHERE told.times > 1 AND told.times > coalesce(kept.times, 0)",
    ),
];
