//! Invariant 7, the past: every change of state has its row, and the rows lead from the birth to the present.

use super::{Definition, check};

pub(super) const CHECKS: &[Definition] = &[
    check!(
        "history_edges",
        Always,
        "every change of state is one that the tables of orders and attempts allow",
        "SELECT format('order %s/%s %s change %s: %s by %s to %s is not allowed', merchant_id, order_no,
                       pay_order_id, seq, coalesce(from_status, 'nothing'), event, to_status)
         FROM order_history
         -- `OrderStatus::after` and `PayStatus::after`; a test walks them.
         WHERE (coalesce(from_status, ''), event, to_status) NOT IN (
                   ('', 'CREATED', 'PENDING'),
                   ('PENDING', 'PAYMENT_CONFIRMED', 'PAID'),
                   ('PENDING', 'DEADLINE_PASSED', 'CLOSED'),
                   ('PENDING', 'CANCELLED', 'CLOSED'),
                   ('PAID', 'REFUNDED_IN_PART', 'PARTIALLY_REFUNDED'),
                   ('PAID', 'REFUNDED_IN_FULL', 'REFUNDED'),
                   ('PARTIALLY_REFUNDED', 'REFUNDED_IN_PART', 'PARTIALLY_REFUNDED'),
                   ('PARTIALLY_REFUNDED', 'REFUNDED_IN_FULL', 'REFUNDED'),
                   ('PARTIALLY_REFUNDED', 'REFUND_REVERSED_IN_PART', 'PARTIALLY_REFUNDED'),
                   ('REFUNDED', 'REFUND_REVERSED_IN_PART', 'PARTIALLY_REFUNDED'),
                   ('PARTIALLY_REFUNDED', 'REFUND_REVERSED_IN_FULL', 'PAID'),
                   ('REFUNDED', 'REFUND_REVERSED_IN_FULL', 'PAID'))
           AND pay_order_id = ''
            OR (coalesce(from_status, ''), event, to_status) NOT IN (
                   ('', 'BEGUN', 'INIT'),
                   ('INIT', 'LINK_MADE', 'PAYING'),
                   ('INIT', 'PAYMENT_CONFIRMED', 'PAID'),
                   ('PAYING', 'PAYMENT_CONFIRMED', 'PAID'),
                   ('CLOSED', 'PAYMENT_CONFIRMED', 'PAID'),
                   ('FAILED', 'PAYMENT_CONFIRMED', 'PAID'),
                   ('INIT', 'ATTEMPT_FAILED', 'FAILED'),
                   ('PAYING', 'ATTEMPT_FAILED', 'FAILED'),
                   ('INIT', 'ATTEMPT_CLOSED', 'CLOSED'),
                   ('PAYING', 'ATTEMPT_CLOSED', 'CLOSED'))
           AND pay_order_id <> ''",
    ),
    check!(
        "history_chain",
        Always,
        "every change but the first follows the one before it",
        "SELECT format('order %s/%s %s change %s: from %s, but the one before led to %s', change.merchant_id,
                       change.order_no, change.pay_order_id, change.seq, change.from_status,
                       coalesce(before.to_status, 'nowhere'))
         FROM order_history AS change
         LEFT JOIN order_history AS before
                ON before.merchant_id = change.merchant_id AND before.order_no = change.order_no
               AND before.pay_order_id = change.pay_order_id AND before.seq = change.seq - 1
         WHERE change.seq <> 1 AND before.to_status IS DISTINCT FROM change.from_status",
    ),
    check!(
        "order_history_ends",
        Always,
        "an order's history has as many changes as its version says, and the last led to its present state",
        "SELECT format('order %s/%s: %s at version %s, its last change led to %s', orders.merchant_id,
                       orders.order_no, orders.status, version, coalesce(last.to_status, 'nowhere'))
         FROM orders
         LEFT JOIN order_history AS last
                ON last.merchant_id = orders.merchant_id AND last.order_no = orders.order_no
               AND last.pay_order_id = '' AND last.seq = orders.version
         WHERE last.to_status IS DISTINCT FROM orders.status
         UNION ALL
         SELECT format('order %s/%s: change %s, but its version is %s', change.merchant_id, change.order_no,
                       change.seq, version)
         FROM order_history AS change
         LEFT JOIN orders ON orders.merchant_id = change.merchant_id AND orders.order_no = change.order_no
         WHERE pay_order_id = '' AND change.seq > coalesce(version, 0)
           -- Asked first, and enough to skip the join: with no last change missing (above) and no gap (the
           -- chain), there is a change too many exactly when there are more of them than versions.
           AND (SELECT count(*) FROM order_history WHERE pay_order_id = '')
               <> (SELECT coalesce(sum(version), 0) FROM orders)",
    ),
    check!(
        "attempt_history_ends",
        Always,
        "an attempt's history has as many changes as its version says, and the last led to its present state",
        "SELECT format('pay order %s: %s at version %s, its last change led to %s', attempt.pay_order_id,
                       attempt.status, version, coalesce(last.to_status, 'nowhere'))
         FROM pay_orders AS attempt
         LEFT JOIN order_history AS last
                ON last.pay_order_id = attempt.pay_order_id AND last.seq = attempt.version
         WHERE (last.to_status, last.merchant_id, last.order_no)
               IS DISTINCT FROM (attempt.status, attempt.merchant_id, attempt.order_no)
         UNION ALL
         SELECT format('pay order %s: change %s, but its version is %s', change.pay_order_id, change.seq, version)
         FROM order_history AS change
         LEFT JOIN pay_orders AS attempt ON attempt.pay_order_id = change.pay_order_id
         WHERE change.pay_order_id <> '' AND change.seq > coalesce(version, 0)
           -- As above.
           AND (SELECT count(*) FROM order_history WHERE pay_order_id <> '')
               <> (SELECT coalesce(sum(version), 0) FROM pay_orders)",
    ),
];
