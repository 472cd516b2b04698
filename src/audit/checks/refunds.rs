//! Invariant 3: what goes back never exceeds what was collected.

use super::{Definition, check};

pub(super) const CHECKS: &[Definition] = &[
    check!(
        "refunds_within_source",
        Always,
        "refunds that are not FAILED, and those that are let go with those that were made after all, never exceed what their pay \
         order or stray payment collected",
        "WITH counted AS (
             SELECT pay_order_id, stray_id, CASE WHEN status <> 'FAILED' THEN amount ELSE 0 END AS asked,
                    -- One that waits for an approval is not let go where there is no room for it any more.
                    CASE WHEN status NOT IN ('AWAITING_APPROVAL', 'FAILED') OR made_after_all_at IS NOT NULL
                         THEN amount ELSE 0 END AS let_go
             FROM refunds
             WHERE status <> 'FAILED' OR made_after_all_at IS NOT NULL
         )
         SELECT format('%s: refunds of %s take from %s collected', source, refunded, collected)
         FROM (
             SELECT 'pay order ' || pay_order_id AS source, greatest(sum(asked), sum(let_go)) AS refunded,
                    max(CASE pay_orders.status WHEN 'PAID' THEN pay_orders.amount ELSE 0 END) AS collected
             FROM counted JOIN pay_orders USING (pay_order_id)
             GROUP BY pay_order_id
             UNION ALL
             SELECT 'stray payment ' || stray_id, greatest(sum(asked), sum(let_go)), max(stray_payments.amount)
             FROM counted JOIN stray_payments USING (stray_id)
             GROUP BY stray_id
         ) AS source
         WHERE refunded > collected",
    ),
    check!(
        "refund_source",
        Always,
        "a refund is of the order and currency of its source, which is the paying attempt or a stray payment",
        "SELECT format('refund %s: order %s/%s in %s is not what %s says', refund_id, refunds.merchant_id,
                       refunds.order_no, refunds.currency, coalesce(refunds.pay_order_id, refunds.stray_id))
         FROM refunds
         LEFT JOIN pay_orders AS payer ON payer.pay_order_id = refunds.pay_order_id
         LEFT JOIN orders ON orders.merchant_id = payer.merchant_id AND orders.order_no = payer.order_no
         LEFT JOIN stray_payments AS stray ON stray.stray_id = refunds.stray_id
         WHERE (refunds.merchant_id, refunds.order_no, refunds.currency) IS DISTINCT FROM
               CASE WHEN refunds.stray_id IS NULL
                    THEN (payer.merchant_id, payer.order_no, payer.currency)
                    ELSE (stray.merchant_id, stray.order_no, stray.currency) END
            OR orders.paid_by IS DISTINCT FROM refunds.pay_order_id",
    ),
    check!(
        "order_refunded_amount",
        Always,
        "an order's refunded_amount is the sum of its paying attempt's SUCCEEDED refunds, and its status says so",
        "SELECT format('order %s/%s: %s with refunded_amount %s of %s, refunds say %s', orders.merchant_id,
                       orders.order_no, orders.status, refunded_amount, orders.amount, coalesce(back.amount, 0))
         FROM orders
         LEFT JOIN (SELECT pay_order_id, sum(amount) AS amount FROM refunds
                    WHERE status = 'SUCCEEDED' AND pay_order_id IS NOT NULL
                    GROUP BY pay_order_id) AS back ON back.pay_order_id = orders.paid_by
         WHERE refunded_amount <> coalesce(back.amount, 0)
            OR CASE orders.status
                   WHEN 'PARTIALLY_REFUNDED' THEN refunded_amount NOT BETWEEN 1 AND orders.amount - 1
                   WHEN 'REFUNDED' THEN refunded_amount <> orders.amount
                   ELSE refunded_amount <> 0 END",
    ),
];
