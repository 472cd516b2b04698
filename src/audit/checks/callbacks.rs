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
        // Joined with the attempts: callbacks about refunds are none of this.
        "SELECT format('order %s/%s: paid by %s, APPLIED are callbacks of %s', orders.merchant_id,
                       orders.order_no, coalesce(paid_by, 'nothing'), string_agg(inbox.subject, ', '))
         FROM webhook_inbox AS inbox
         JOIN pay_orders AS attempt ON attempt.pay_order_id = inbox.subject
         JOIN orders ON orders.merchant_id = attempt.merchant_id AND orders.order_no = attempt.order_no
         WHERE verdict = 'APPLIED'
         GROUP BY orders.merchant_id, orders.order_no
         HAVING count(*) > 1
             OR bool_or((paid_by, orders.merchant_id, orders.order_no)
                        IS DISTINCT FROM (inbox.subject, inbox.merchant_id, inbox.order_no))",
    ),
    check!(
        "callback_money_kept",
        Always,
        "a callback of money that no order accepts has its stray payment",
        "SELECT format('callback %s of %s: %s, but nothing of %s is stray', event_id, channel, verdict, subject)
         FROM webhook_inbox AS inbox
         WHERE verdict IN ('STRAY', 'AMOUNT_MISMATCH', 'UNKNOWN_ORDER')
           AND NOT EXISTS (SELECT 1 FROM stray_payments AS stray
                           WHERE stray.channel = inbox.channel AND stray.out_trade_no = inbox.subject)",
    ),
];
