//! Invariant 4, its second half: money that no order accepts has an owner until it has come to rest.

use super::{Definition, check};

pub(super) const CHECKS: &[Definition] = &[
    check!(
        "stray_refund",
        Always,
        "a stray payment is REFUNDED by one SUCCEEDED refund of all of it, REFUNDING by one under way, else by none",
        "SELECT format('stray payment %s: %s %s %s, its refund is %s of %s', stray.stray_id, stray.status,
                       stray.amount, stray.currency, coalesce(refund.status, 'not there'), refund.amount)
         FROM stray_payments AS stray
         LEFT JOIN refunds AS refund ON refund.stray_id = stray.stray_id AND refund.status <> 'FAILED'
         WHERE CASE stray.status
                   WHEN 'REFUNDED' THEN (refund.status, refund.amount) IS DISTINCT FROM ('SUCCEEDED', stray.amount)
                   WHEN 'REFUNDING' THEN refund.status IS NULL OR refund.status = 'SUCCEEDED'
                                         OR refund.amount <> stray.amount
                   ELSE refund.status IS NOT NULL END",
    ),
    check!(
        "stray_kept_by_a_person",
        Always,
        "a stray payment is KEPT only by an exception that a person resolved so",
        "SELECT format('stray payment %s: KEPT %s %s by nobody', stray_id, amount, currency)
         FROM stray_payments
         WHERE status = 'KEPT'
           AND NOT EXISTS (SELECT 1 FROM exceptions
                           WHERE subject = stray_id AND exceptions.status = 'RESOLVED' AND action = 'KEEP')",
    ),
    check!(
        "stray_reason",
        Always,
        "a stray payment's reason is true of its order and attempt",
        "SELECT format('stray payment %s: %s of %s %s for %s, whose order is %s', stray_id, stray.reason,
                       stray.amount, stray.currency, out_trade_no, coalesce(orders.status, 'unknown'))
         FROM stray_payments AS stray
         LEFT JOIN pay_orders AS attempt ON attempt.pay_order_id = stray.pay_order_id
                                        AND attempt.channel = stray.channel
                                        AND attempt.merchant_id = stray.merchant_id
                                        AND attempt.order_no = stray.order_no
         LEFT JOIN orders ON orders.merchant_id = attempt.merchant_id AND orders.order_no = attempt.order_no
         WHERE CASE stray.reason
                   WHEN 'LATE_PAYMENT' THEN orders.status IS DISTINCT FROM 'CLOSED'
                   WHEN 'DUPLICATE_PAYMENT' THEN orders.status IS NULL OR orders.status IN ('PENDING', 'CLOSED')
                   WHEN 'AMOUNT_MISMATCH' THEN attempt.amount IS NULL
                       OR (attempt.amount, attempt.currency) = (stray.amount, stray.currency)
                   ELSE coalesce(stray.pay_order_id, stray.merchant_id, stray.order_no) IS NOT NULL END",
    ),
    check!(
        "stray_owned",
        Eventual,
        "a stray payment that is neither back, be it after all, nor kept is being refunded by a task, or shown to a person",
        "SELECT format('stray payment %s: %s %s %s since %s and nobody sees to it', stray.stray_id,
                       stray.status, stray.amount, stray.currency, stray.updated_at)
         FROM stray_payments AS stray
         LEFT JOIN refunds AS refund
                ON refund.stray_id = stray.stray_id AND refund.status NOT IN ('FAILED', 'SUCCEEDED')
         WHERE stray.status IN ('HELD', 'REFUNDING') AND stray.updated_at < $1 - interval '60 s'
           AND NOT EXISTS (SELECT 1 FROM refunds AS gone
                           WHERE gone.stray_id = stray.stray_id AND gone.made_after_all_at IS NOT NULL)
           AND NOT (stray.status = 'HELD'
                    AND EXISTS (SELECT 1 FROM exceptions
                                WHERE exceptions.subject = stray.stray_id AND exceptions.status = 'OPEN'))
           AND NOT EXISTS (SELECT 1 FROM owned WHERE subject = refund.refund_id)",
    ),
    check!(
        "stray_exception_outlived",
        Always,
        "what was open about a stray payment is resolved once it is back or kept",
        "SELECT format('exception %s: still OPEN although stray payment %s is %s', exception_id, subject,
                       stray_payments.status)
         FROM exceptions JOIN stray_payments ON stray_id = subject
         WHERE exceptions.status = 'OPEN' AND stray_payments.status IN ('REFUNDED', 'KEPT')",
    ),
];
