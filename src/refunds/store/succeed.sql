-- `Succeed`: the ends of refunds, and their orders as they stand then; all of them are locked. What a partial index
-- names comes as a parameter.
WITH ended AS (
    UPDATE refunds SET status = $21, channel_refund_id = new.channel_refund_id, version = refunds.version + 1,
                       updated_at = $20
    FROM (SELECT unnest($1::text[]) AS refund_id, unnest($2::text[]) AS channel_refund_id) AS new
    WHERE refunds.refund_id = new.refund_id
    RETURNING 1
  ), moved AS (
    UPDATE orders SET refunded_amount = new.refunded_amount, status = new.status, version = new.version, updated_at = $20
    FROM (SELECT unnest($3::text[]) AS merchant_id, unnest($4::text[]) AS order_no,
                 unnest($5::bigint[]) AS refunded_amount, unnest($6::text[]) AS status,
                 unnest($7::integer[]) AS version, unnest($8::boolean[]) AS wants_stock) AS new
    WHERE orders.merchant_id = new.merchant_id AND orders.order_no = new.order_no
    RETURNING orders.merchant_id, orders.order_no, orders.status, new.wants_stock
  ), changed AS (
    INSERT INTO order_history (merchant_id, order_no, seq, from_status, to_status, event, created_at)
    SELECT unnest($9::text[]), unnest($10::text[]), unnest($11::integer[]), unnest($12::text[]), unnest($13::text[]),
           unnest($14::text[]), $20::timestamptz
  ), returned AS (
    -- The stock comes back with the last of the money, where a refund asked for that.
    UPDATE stock_reservations AS reservation SET status = 'RETURNED', updated_at = $20
    FROM moved
    WHERE reservation.merchant_id = moved.merchant_id AND reservation.order_no = moved.order_no
      AND reservation.status = 'DEDUCTED' AND moved.status = $22
      AND (moved.wants_stock
           OR EXISTS (SELECT 1 FROM refunds AS earlier
                      WHERE earlier.merchant_id = moved.merchant_id AND earlier.order_no = moved.order_no
                        AND earlier.stray_id IS NULL AND earlier.status = $21 AND earlier.return_stock
                      -- Of these orders alone, whatever the planner believes.
                      OFFSET 0))
    RETURNING reservation.merchant_id, reservation.sku, reservation.quantity
  ), given_back AS MATERIALIZED (
    -- Locked in the order of their names, as everywhere.
    SELECT skus.merchant_id, skus.sku, back.quantity
    FROM (SELECT merchant_id, sku, sum(quantity)::bigint AS quantity FROM returned GROUP BY merchant_id, sku) AS back
    JOIN skus ON skus.merchant_id = back.merchant_id AND skus.sku = back.sku
    ORDER BY skus.merchant_id, skus.sku FOR UPDATE OF skus
  ), stock AS (
    UPDATE skus SET stock = skus.stock + given_back.quantity, updated_at = $20
    FROM given_back WHERE skus.merchant_id = given_back.merchant_id AND skus.sku = given_back.sku
  ), announced AS (
    INSERT INTO outbox (merchant_id, order_no, event, event_version, payload, created_at)
    SELECT unnest($15::text[]), unnest($16::text[]), unnest($17::text[]), unnest($18::smallint[]),
           unnest($19::jsonb[]), $20::timestamptz
  )
SELECT (SELECT count(*) FROM ended) AS "ended!", (SELECT count(*) FROM moved) AS "moved!",
       -- Their tasks may have been given up before.
       ARRAY(SELECT given_up.subject
             FROM unnest($1::text[]) AS made (refund_id),
                  -- The limit makes it a look-up each.
                  LATERAL (SELECT subject FROM exceptions
                           WHERE kind = $23 AND subject = made.refund_id AND status = 'OPEN' LIMIT 1) AS given_up)
           AS "given_up!"
