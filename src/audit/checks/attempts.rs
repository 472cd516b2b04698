//! Invariant 6, attempts: one live at most, and each trade of a channel counted once.

use super::{Definition, check};

pub(super) const CHECKS: &[Definition] = &[
    check!(
        "closed_order_without_live_attempt",
        Always,
        "a CLOSED order has no live attempt",
        "SELECT format('order %s/%s: CLOSED, but %s is %s', merchant_id, order_no, pay_order_id,
                       pay_orders.status)
         FROM pay_orders JOIN orders USING (merchant_id, order_no)
         WHERE is_live AND orders.status = 'CLOSED'",
    ),
    check!(
        "one_live_attempt",
        Always,
        "at most one attempt of an order is live",
        "SELECT format('order %s/%s: %s live attempts', merchant_id, order_no, count(*))
         FROM pay_orders WHERE is_live GROUP BY merchant_id, order_no HAVING count(*) > 1",
    ),
    check!(
        "attempts_counted",
        Always,
        "an order counts every attempt that was ever begun",
        "SELECT format('order %s/%s: counts %s attempts and has %s', merchant_id, order_no,
                       coalesce(attempts, 0), coalesce(begun, 0))
         FROM orders
         FULL JOIN (SELECT merchant_id, order_no, count(*) AS begun
                    FROM pay_orders GROUP BY merchant_id, order_no) AS made USING (merchant_id, order_no)
         WHERE coalesce(attempts, 0) <> coalesce(begun, 0)",
    ),
    check!(
        "attempt_asks_for_its_order",
        Always,
        "every attempt asks for its order's amount and currency",
        "SELECT format('pay order %s: asks for %s %s, order %s/%s costs %s %s', pay_order_id, pay_orders.amount,
                       pay_orders.currency, merchant_id, order_no, orders.amount, orders.currency)
         FROM pay_orders JOIN orders USING (merchant_id, order_no)
         WHERE (pay_orders.amount, pay_orders.currency) <> (orders.amount, orders.currency)",
    ),
    check!(
        "trade_once",
        Always,
        "a channel's trade number stands on one attempt at most, and never both pays an order and is stray",
        "SELECT format('trade %s of %s: on %s attempts', transaction_id, channel, count(*))
         FROM pay_orders WHERE transaction_id IS NOT NULL
         GROUP BY channel, transaction_id HAVING count(*) > 1
         UNION ALL
         SELECT format('trade %s of %s: on %s stray payments', transaction_id, channel, count(*))
         FROM stray_payments
         GROUP BY channel, transaction_id HAVING count(*) > 1
         UNION ALL
         SELECT format('trade %s of %s: pays order %s/%s and is stray payment %s', stray.transaction_id,
                       stray.channel, orders.merchant_id, orders.order_no, stray_id)
         FROM stray_payments AS stray
         JOIN pay_orders AS payer
              ON payer.channel = stray.channel AND payer.transaction_id = stray.transaction_id
         JOIN orders ON orders.merchant_id = payer.merchant_id AND orders.order_no = payer.order_no
         WHERE orders.paid_by = payer.pay_order_id",
    ),
    check!(
        "trade_owner",
        Always,
        "every trade that pays an order or is stray has its one row in trades, and no other trade has one",
        "SELECT format('trade %s of %s: owned by %s, written down as %s', transaction_id, channel,
                       coalesce(owner.id, 'nobody'),
                       coalesce(trades.pay_order_id, trades.stray_id, 'nothing'))
         FROM (SELECT payer.channel, payer.transaction_id, payer.pay_order_id AS id
               FROM pay_orders AS payer
               JOIN orders ON orders.merchant_id = payer.merchant_id AND orders.order_no = payer.order_no
               WHERE orders.paid_by = payer.pay_order_id
               UNION ALL
               SELECT channel, transaction_id, stray_id FROM stray_payments) AS owner
         FULL JOIN trades USING (channel, transaction_id)
         WHERE owner.id IS DISTINCT FROM coalesce(trades.pay_order_id, trades.stray_id)",
    ),
    check!(
        "paid_attempt_owned",
        Always,
        "the money of a PAID attempt pays its order, or is a stray payment of that attempt",
        "SELECT format('pay order %s: PAID by trade %s, which neither pays order %s/%s (%s) nor is stray',
                       payer.pay_order_id, payer.transaction_id, payer.merchant_id, payer.order_no,
                       coalesce(orders.status, 'not there'))
         FROM pay_orders AS payer
         LEFT JOIN orders ON orders.merchant_id = payer.merchant_id AND orders.order_no = payer.order_no
         LEFT JOIN stray_payments AS stray ON stray.channel = payer.channel
                                          AND stray.transaction_id = payer.transaction_id
                                          AND stray.pay_order_id = payer.pay_order_id
         WHERE payer.status = 'PAID' AND orders.paid_by IS DISTINCT FROM payer.pay_order_id
           -- The first right money pays a PENDING order: it cannot be stray.
           AND (stray.stray_id IS NULL OR orders.status = 'PENDING')",
    ),
];
