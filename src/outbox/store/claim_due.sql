-- `claim_due`: takes what is due, each lane its share, each order in its turn.
WITH RECURSIVE lane (name, place) AS (
  SELECT (SELECT lane FROM deliveries WHERE status = 'PENDING' AND lane > $7 ORDER BY lane LIMIT 1), 1
  UNION ALL
  -- From one lane to the next, whatever waits in them.
  SELECT (SELECT next.lane FROM deliveries AS next
          WHERE next.status = 'PENDING' AND next.lane > lane.name ORDER BY next.lane LIMIT 1), place + 1
  FROM lane WHERE lane.name IS NOT NULL AND place < $6
), due AS MATERIALIZED (
  SELECT one.place_of_row
  FROM lane
  LEFT JOIN unnest($3::text[], $4::bigint[]) AS known (name, room) ON known.name = lane.name
  CROSS JOIN LATERAL (
      SELECT delivery.ctid AS place_of_row
      FROM deliveries AS delivery
      WHERE delivery.lane = lane.name AND delivery.status = 'PENDING' AND delivery.due_at <= $1
        AND (delivery.leased_until IS NULL OR delivery.leased_until <= $1)
        -- No joins: their plans could walk.
        AND (SELECT resting.lane FROM resting_lanes AS resting
             WHERE resting.lane = lane.name AND resting.rests_until > $1) IS NULL
        AND (SELECT ahead.event_id FROM deliveries AS ahead
             WHERE ahead.merchant_id = delivery.merchant_id AND ahead.order_no = delivery.order_no
               AND ahead.kind = delivery.kind AND ahead.status = 'PENDING'
               AND ahead.event_id < delivery.event_id LIMIT 1) IS NULL
      ORDER BY delivery.due_at, delivery.event_id
      LIMIT coalesce(known.room, $5)
      FOR UPDATE OF delivery SKIP LOCKED
  ) AS one
  -- Lane by lane, up to what this process may have in hand.
  LIMIT $8
), taken AS (
  UPDATE deliveries AS delivery SET leased_until = $2
  -- Locked, so they stay where they are; and no plan can walk to them.
  FROM due WHERE delivery.ctid = due.place_of_row
  RETURNING delivery.event_id, delivery.kind, delivery.event, delivery.merchant_id, delivery.order_no,
            delivery.lane, delivery.url, delivery.body, delivery.attempts, delivery.leased_until
)
SELECT turn.last_lane, event_id AS "event_id?", kind AS "kind?: DeliveryKind", event AS "event?",
       merchant_id AS "merchant_id?", order_no AS "order_no?", taken.lane AS "lane?", url AS "url?",
       body AS "body?", attempts AS "attempts?", leased_until AS "leased_until?"
FROM (SELECT (SELECT name FROM lane WHERE place = $6) AS last_lane) AS turn
LEFT JOIN taken ON true
