//! Invariant 6, idempotency keys: one effect for one key, and no answer without its effect.

use super::{Definition, check};

pub(super) const CHECKS: &[Definition] = &[
    check!(
        "request_once",
        Always,
        "a merchant's idempotency key has one answer",
        "SELECT format('key %s of %s: %s answers are kept', key, merchant_id, count(*))
         FROM idempotency_keys GROUP BY merchant_id, key HAVING count(*) > 1",
    ),
    check!(
        "request_effect",
        Always,
        "what a kept answer says was done was done, and an order was made by one request",
        "SELECT format('key %s of %s: speaks of order %s, which is not there', key, kept.merchant_id, kept.order_no)
         FROM idempotency_keys AS kept LEFT JOIN orders USING (merchant_id, order_no)
         WHERE kept.order_no IS NOT NULL AND orders.order_no IS NULL
         UNION ALL
         -- Both times are of one statement.
         SELECT format('key %s of %s: made order %s at %s, which was made at %s', key, kept.merchant_id,
                       kept.order_no, kept.created_at, orders.created_at)
         FROM idempotency_keys AS kept JOIN orders USING (merchant_id, order_no)
         -- Answers that are an order's, and not of something else that belongs to one.
         WHERE kept.status = 201 AND convert_from(kept.body, 'UTF8')::jsonb ? 'close_reason'
           AND orders.created_at <> kept.created_at
         UNION ALL
         SELECT format('order %s/%s: made by %s requests', merchant_id, order_no, count(*))
         FROM idempotency_keys AS kept
         WHERE kept.status = 201 AND convert_from(kept.body, 'UTF8')::jsonb ? 'close_reason'
         GROUP BY merchant_id, order_no HAVING count(*) > 1
         UNION ALL
         SELECT format('key %s of %s: closed order %s, which is %s', key, kept.merchant_id, kept.order_no,
                       orders.status)
         FROM idempotency_keys AS kept JOIN orders USING (merchant_id, order_no)
         WHERE convert_from(kept.body, 'UTF8')::jsonb ->> 'close_reason' IS NOT NULL AND orders.status <> 'CLOSED'
         UNION ALL
         SELECT format('key %s of %s: settled order %s by %s, which has %s', key, kept.merchant_id, kept.order_no,
                       answer ->> 'commission', coalesce(given.commission::text, 'no settlement'))
         FROM idempotency_keys AS kept
              CROSS JOIN LATERAL (SELECT convert_from(kept.body, 'UTF8')::jsonb) AS said (answer)
              LEFT JOIN settlements AS given
                     ON given.merchant_id = kept.merchant_id AND given.order_no = kept.order_no
         WHERE answer ->> 'commission' IS NOT NULL AND given.commission::text IS DISTINCT FROM answer ->> 'commission'
         UNION ALL
         SELECT format('key %s of %s: gave a link of attempt %s, which has another', key, kept.merchant_id,
                       answer ->> 'pay_order_id')
         FROM idempotency_keys AS kept, LATERAL (SELECT convert_from(kept.body, 'UTF8')::jsonb) AS said (answer)
              LEFT JOIN pay_orders ON pay_orders.pay_order_id = answer ->> 'pay_order_id'
         WHERE answer ->> 'pay_url' IS NOT NULL AND pay_orders.pay_url IS DISTINCT FROM answer ->> 'pay_url'",
    ),
];
