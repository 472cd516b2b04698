//! Invariant 5: stock is held while an order waits, and taken or given back once, when it ends.

use super::{Definition, check};

pub(super) const CHECKS: &[Definition] = &[
    check!(
        "stock_bounds",
        Always,
        "no more is held than there is, and nothing is negative",
        "SELECT format('sku %s/%s: %s held of %s', merchant_id, sku, lock_stock, stock)
         FROM skus WHERE lock_stock < 0 OR lock_stock > stock",
    ),
    check!(
        "stock_held_by_reservations",
        Always,
        "what a sku holds is the sum of its LOCKED reservations",
        "SELECT format('sku %s/%s: lock_stock %s, reservations hold %s', merchant_id, sku,
                       coalesce(lock_stock, 0), coalesce(held, 0))
         FROM skus
         FULL JOIN (SELECT merchant_id, sku, sum(quantity) AS held FROM stock_reservations
                    WHERE status = 'LOCKED' GROUP BY merchant_id, sku) AS reserved USING (merchant_id, sku)
         WHERE coalesce(lock_stock, 0) <> coalesce(held, 0)",
    ),
    check!(
        "stock_held_by_orders",
        Always,
        "what a sku holds is what the lines of PENDING orders want of it",
        "SELECT format('sku %s/%s: lock_stock %s, pending orders want %s', merchant_id, sku,
                       coalesce(lock_stock, 0), coalesce(wanted, 0))
         FROM skus
         FULL JOIN (SELECT merchant_id, sku, sum(quantity) AS wanted
                    FROM order_items JOIN orders USING (merchant_id, order_no)
                    WHERE status = 'PENDING' GROUP BY merchant_id, sku) AS lines USING (merchant_id, sku)
         WHERE coalesce(lock_stock, 0) <> coalesce(wanted, 0)",
    ),
    check!(
        "reservation_of_line",
        Always,
        "every order line has one reservation, of the same sku and quantity",
        "SELECT format('order %s/%s line %s: %s x %s wanted, %s x %s reserved', merchant_id, order_no, line_no,
                       line.quantity, line.sku, reservation.quantity, reservation.sku)
         FROM order_items AS line
         FULL JOIN stock_reservations AS reservation USING (merchant_id, order_no, line_no)
         WHERE (line.sku, line.quantity) IS DISTINCT FROM (reservation.sku, reservation.quantity)",
    ),
    check!(
        "reservation_state",
        Always,
        "a reservation is LOCKED while its order is PENDING, RELEASED when CLOSED, DEDUCTED or RETURNED when paid",
        "SELECT format('order %s/%s line %s: %s although the order is %s', merchant_id, order_no, line_no,
                       reservation.status, coalesce(orders.status, 'not there'))
         FROM stock_reservations AS reservation LEFT JOIN orders USING (merchant_id, order_no)
         WHERE CASE orders.status
                   WHEN 'PENDING' THEN reservation.status <> 'LOCKED'
                   WHEN 'CLOSED' THEN reservation.status <> 'RELEASED'
                   ELSE orders.status IS NULL OR reservation.status NOT IN ('DEDUCTED', 'RETURNED') END",
    ),
    check!(
        "stock_returned",
        Always,
        "stock comes back when the last of its order's money has gone back, where a refund asked for that, and only then",
        "SELECT format('order %s/%s line %s: %s x %s is RETURNED, %s', merchant_id, order_no, line_no,
                       reservation.quantity, reservation.sku,
                       CASE WHEN wanted.order_no IS NULL THEN 'and no refund that was made asked for that'
                            ELSE 'and the order was never REFUNDED' END)
         FROM stock_reservations AS reservation
         -- It stays on sale where the channel takes a refund back: that refund keeps the channel's number.
         LEFT JOIN (SELECT DISTINCT merchant_id, order_no FROM refunds
                    WHERE return_stock AND (status = 'SUCCEEDED' OR channel_refund_id IS NOT NULL)) AS wanted
              USING (merchant_id, order_no)
         LEFT JOIN (SELECT DISTINCT merchant_id, order_no FROM order_history WHERE event = 'REFUNDED_IN_FULL') AS ended
              USING (merchant_id, order_no)
         WHERE reservation.status = 'RETURNED' AND (wanted.order_no IS NULL OR ended.order_no IS NULL)
         UNION ALL
         SELECT format('order %s/%s line %s: REFUNDED, and %s x %s that a refund wants back is DEDUCTED', merchant_id,
                       order_no, line_no, reservation.quantity, reservation.sku)
         FROM stock_reservations AS reservation
         JOIN orders USING (merchant_id, order_no)
         JOIN (SELECT DISTINCT merchant_id, order_no FROM refunds
               WHERE return_stock AND status = 'SUCCEEDED') AS wanted USING (merchant_id, order_no)
         WHERE reservation.status = 'DEDUCTED' AND orders.status = 'REFUNDED'",
    ),
];
