//! Invariant 4, its first half: an order is paid by exactly one attempt.

use super::{Definition, check};

pub(super) const CHECKS: &[Definition] = &[
    check!(
        "order_paid_by",
        Always,
        "an order is paid exactly when it names a PAID attempt of its own, of its amount and currency",
        "SELECT format('order %s/%s: %s, paid by %s which is %s with %s %s', orders.merchant_id,
                       orders.order_no, orders.status, coalesce(paid_by, 'nothing'),
                       coalesce(payer.status, 'not there'), payer.amount, payer.currency)
         FROM orders LEFT JOIN pay_orders AS payer ON payer.pay_order_id = orders.paid_by
         WHERE (orders.status IN ('PAID', 'PARTIALLY_REFUNDED', 'REFUNDED')) <> (paid_by IS NOT NULL)
            OR paid_by IS NOT NULL
               AND (payer.status, payer.merchant_id, payer.order_no, payer.amount, payer.currency)
                   IS DISTINCT FROM
                   ('PAID', orders.merchant_id, orders.order_no, orders.amount, orders.currency)",
    ),
    check!(
        "order_lines_add_up",
        Always,
        "an order with lines costs what its lines cost",
        "SELECT format('order %s/%s: costs %s, its lines %s', merchant_id, order_no, amount, total)
         FROM orders
         JOIN (SELECT merchant_id, order_no, sum(quantity * unit_price) AS total
               FROM order_items GROUP BY merchant_id, order_no) AS lines USING (merchant_id, order_no)
         WHERE amount <> total",
    ),
];
