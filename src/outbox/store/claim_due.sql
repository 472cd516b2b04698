-- `claim_due`: takes what is due, each lane its share, each order in its turn.
WITH RECURSIVE lane (name, first_due_at, place, mark) AS (
  SELECT $7::text COLLATE "C", NULL::timestamptz, 0, 1
  UNION ALL
  -- From one lane to the next, whatever waits in them. One that has a mark is come to at its mark, so that nobody walks
  -- past all that it had; and also where nothing is behind it.
  SELECT next.name, next.first_due_at, place + 1,
         lane.mark + CASE WHEN next.name = ($9::text[])[lane.mark] THEN 1 ELSE 0 END
  FROM lane, LATERAL (
      (SELECT delivery.lane, delivery.due_at FROM deliveries AS delivery
       WHERE coalesce(delivery.status, 'due') = 'PENDING'
         -- Up to the next mark; and no name is behind this.
         AND delivery.lane > lane.name AND delivery.lane < coalesce(($9::text[])[lane.mark], chr(1114111))
       ORDER BY delivery.lane, delivery.due_at LIMIT 1)
      UNION ALL
      SELECT ($9::text[])[lane.mark] COLLATE "C",
             (SELECT delivery.due_at FROM deliveries AS delivery
              WHERE coalesce(delivery.status, 'due') = 'PENDING'
                AND delivery.lane = ($9::text[])[lane.mark] AND delivery.due_at >= ($10::timestamptz[])[lane.mark]
              ORDER BY delivery.due_at LIMIT 1)
      WHERE ($9::text[])[lane.mark] IS NOT NULL
      ORDER BY 1 LIMIT 1) AS next (name, first_due_at)
  WHERE place < $6
), due AS MATERIALIZED (
  SELECT one.place_of_row
  FROM lane
  LEFT JOIN (SELECT unnest($3::text[]) AS name, unnest($4::bigint[]) AS room) AS known ON known.name = lane.name
  CROSS JOIN LATERAL (
      SELECT delivery.ctid AS place_of_row
      FROM deliveries AS delivery
      WHERE delivery.lane = lane.name AND coalesce(delivery.status, 'due') = 'PENDING'
        -- What came before was walked past to find the lane.
        AND delivery.due_at >= lane.first_due_at AND delivery.due_at <= $1
        AND (delivery.leased_until IS NULL OR delivery.leased_until <= $1)
        -- No joins: their plans could walk.
        AND (SELECT resting.lane FROM resting_lanes AS resting
             WHERE resting.lane = lane.name AND resting.rests_until > $1) IS NULL
        AND (SELECT ahead.event_id FROM deliveries AS ahead
             WHERE ahead.merchant_id = delivery.merchant_id AND ahead.order_no = delivery.order_no
               AND ahead.kind = delivery.kind AND coalesce(ahead.status, 'order') = 'PENDING'
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
-- The lanes that were come to, and what was taken of them.
SELECT name AS "seen?", first_due_at AS "first_due_at?", place = $6 AS "is_last?", NULL::bigint AS "event_id?",
       NULL AS "kind?: DeliveryKind", NULL AS "event?", NULL AS "merchant_id?", NULL AS "order_no?", NULL AS "lane?",
       NULL AS "url?", NULL AS "body?", NULL::integer AS "attempts?", NULL::timestamptz AS "leased_until?"
FROM lane WHERE place > 0
UNION ALL
SELECT NULL, NULL, NULL, event_id, kind, event, merchant_id, order_no, lane, url, body, attempts, leased_until
FROM taken
