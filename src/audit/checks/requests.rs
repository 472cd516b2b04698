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
        "WITH said AS MATERIALIZED (
             SELECT merchant_id, key, order_no, status, created_at, answer ? 'close_reason' AS is_order,
                    answer ->> 'close_reason' AS close_reason, answer ->> 'commission' AS commission,
                    answer ->> 'pay_order_id' AS pay_order_id, answer ->> 'pay_url' AS pay_url,
                    answer ->> 'refund_no' AS refund_no, answer ->> 'withdrawal_no' AS withdrawal_no,
                    answer ->> 'hold_id' AS hold_id, answer ->> 'status' AS thing_status,
                    (answer ->> 'amount')::numeric AS amount, (answer ->> 'charged')::numeric AS charged
             FROM idempotency_keys,
                  -- Each body is read once, and not once for every word of it.
                  LATERAL (SELECT convert_from(body, 'UTF8')::jsonb OFFSET 0) AS kept (answer)
         )
         SELECT format('key %s of %s: speaks of order %s, which is not there', key, said.merchant_id, said.order_no)
         FROM said LEFT JOIN orders USING (merchant_id, order_no)
         WHERE said.order_no IS NOT NULL AND orders.order_no IS NULL
         UNION ALL
         -- Both times are of one statement.
         SELECT format('key %s of %s: made order %s at %s, which was made at %s', key, said.merchant_id,
                       said.order_no, said.created_at, orders.created_at)
         FROM said JOIN orders USING (merchant_id, order_no)
         -- Answers that are an order's, and not of something else that belongs to one.
         WHERE said.status = 201 AND is_order AND orders.created_at <> said.created_at
         UNION ALL
         SELECT format('order %s/%s: made by %s requests', merchant_id, order_no, count(*))
         FROM said WHERE status = 201 AND is_order
         GROUP BY merchant_id, order_no HAVING count(*) > 1
         UNION ALL
         SELECT format('key %s of %s: closed order %s, which is %s', key, said.merchant_id, said.order_no,
                       orders.status)
         FROM said JOIN orders USING (merchant_id, order_no)
         WHERE said.close_reason IS NOT NULL AND orders.status <> 'CLOSED'
         UNION ALL
         SELECT format('key %s of %s: settled order %s by %s, which has %s', key, said.merchant_id, said.order_no,
                       said.commission, coalesce(given.commission::text, 'no settlement'))
         FROM said LEFT JOIN settlements AS given USING (merchant_id, order_no)
         WHERE said.commission IS NOT NULL AND given.commission::text IS DISTINCT FROM said.commission
         UNION ALL
         SELECT format('key %s of %s: gave a link of attempt %s, which has another', key, said.merchant_id,
                       said.pay_order_id)
         FROM said LEFT JOIN pay_orders ON pay_orders.pay_order_id = said.pay_order_id
         WHERE said.pay_url IS NOT NULL AND pay_orders.pay_url IS DISTINCT FROM said.pay_url
         UNION ALL
         SELECT format('key %s of %s: asked for refund %s of %s, which is of %s', key, said.merchant_id, said.refund_no,
                       said.amount, coalesce(refunds.amount::text, 'nothing'))
         FROM said LEFT JOIN refunds USING (merchant_id, refund_no)
         WHERE said.refund_no IS NOT NULL AND (refunds.refund_no IS NULL OR refunds.amount <> said.amount)
         UNION ALL
         SELECT format('key %s of %s: sent withdrawal %s of %s, which is of %s', key, said.merchant_id, said.withdrawal_no,
                       said.amount, coalesce(withdrawals.amount::text, 'nothing'))
         FROM said LEFT JOIN withdrawals USING (merchant_id, withdrawal_no)
         WHERE said.withdrawal_no IS NOT NULL
           AND (withdrawals.withdrawal_no IS NULL OR withdrawals.amount <> said.amount)
         UNION ALL
         SELECT format('%s: made by %s requests', made.thing, count(*))
         FROM said, LATERAL (SELECT CASE WHEN refund_no IS NOT NULL THEN format('refund %s/%s', merchant_id, refund_no)
                                         ELSE format('withdrawal %s/%s', merchant_id, withdrawal_no) END AS thing) AS made
         WHERE status = 201 AND coalesce(refund_no, withdrawal_no) IS NOT NULL
         GROUP BY made.thing HAVING count(*) > 1
         UNION ALL
         -- What is over stays so.
         SELECT format('key %s of %s: speaks of hold %s as %s, which %s', key, said.merchant_id, said.hold_id, said.thing_status,
                       coalesce('is ' || hold.status, 'is not there'))
         FROM said LEFT JOIN usage_holds AS hold USING (merchant_id, hold_id)
         WHERE said.hold_id IS NOT NULL
           AND (hold.hold_id IS NULL OR said.thing_status = 'RELEASED' AND hold.status <> 'RELEASED'
                OR said.thing_status = 'CONFIRMED' AND (hold.status <> 'CONFIRMED' OR hold.charged <> said.charged))",
    ),
];
