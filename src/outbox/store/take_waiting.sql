-- `take_waiting`: takes events from one of the relay's two queues, and says what decides where they go.
WITH relaxed AS MATERIALIZED (
  -- A crash of the database may take this back: then the event is looked at again, which is harmless, as it may always
  -- arrive more than once. The event itself was flushed with its fact.
  SELECT set_config('synchronous_commit', 'off', true)
), oldest AS MATERIALIZED (
  SELECT place, event_id, order_no IS NULL
                OR row_number() OVER (PARTITION BY merchant_id, order_no ORDER BY event_id) = 1 AS is_first
  FROM (SELECT ctid AS place, event_id, merchant_id, order_no FROM outbox_queue
        WHERE is_again = $2 AND event_id >= $3 ORDER BY event_id LIMIT 2 * $1::bigint) AS waiting
), chosen AS MATERIALIZED (
  SELECT queue.ctid AS place
  -- The oldest first, so that no more of them are looked at than are taken.
  FROM unnest(ARRAY(SELECT place FROM oldest WHERE is_first ORDER BY event_id)) AS first (place)
  JOIN outbox_queue AS queue
    ON queue.ctid = first.place
    -- Behind what waits in the other queue, and in this one before what is looked at.
    AND (SELECT earlier.id FROM outbox AS earlier
         WHERE earlier.merchant_id = queue.merchant_id AND earlier.order_no = queue.order_no
           AND earlier.id < queue.event_id
           AND (SELECT other.event_id FROM outbox_queue AS other
                WHERE other.is_again = ANY('{false,true}') AND other.event_id = earlier.id
                  AND (other.is_again <> $2 OR other.event_id < $3)
                LIMIT 1) IS NOT NULL
         LIMIT 1) IS NULL
  LIMIT $1
  -- Any number of relays work side by side.
  FOR UPDATE OF queue SKIP LOCKED
), taken AS (
  DELETE FROM outbox_queue AS queue USING chosen
  -- Locked, so they stay where they are; and no plan can walk to them.
  WHERE queue.ctid = chosen.place
  RETURNING queue.event_id
)
SELECT event.id, event.merchant_id, event.order_no, event.event AS name, event.event_version AS version,
       event.payload AS "payload!", event.created_at, $2 AS "is_again!",
       orders.notify_url AS "order_url?", merchants.notify_url AS "merchant_url?",
       (SELECT url FROM disabled_endpoints AS disabled
        WHERE disabled.merchant_id = event.merchant_id
          AND disabled.url = coalesce(orders.notify_url, merchants.notify_url) LIMIT 1) IS NOT NULL AS "is_disabled!",
       behind.callback AS callback_behind, behind.message AS message_behind,
       (SELECT count(*) = 2 * $1::bigint OR bool_or(NOT is_first) FROM oldest) AS "has_more!"
FROM relaxed, taken,
     -- Look-ups, one for each: as joins their plans could walk.
     LATERAL (SELECT id, merchant_id, order_no, event, event_version, payload::text, created_at
              FROM outbox WHERE id = taken.event_id LIMIT 1) AS event
LEFT JOIN LATERAL (SELECT notify_url FROM merchants
                   WHERE merchants.merchant_id = event.merchant_id LIMIT 1) AS merchants ON true
LEFT JOIN LATERAL (SELECT notify_url FROM orders
                   WHERE orders.merchant_id = event.merchant_id AND orders.order_no = event.order_no
                     -- Few orders have one of their own: an index has these.
                     AND orders.notify_url IS NOT NULL
                   LIMIT 1) AS orders ON true
CROSS JOIN LATERAL (SELECT max(due_at) FILTER (WHERE kind = 'REPLAY_CALLBACK') AS callback,
                           max(due_at) FILTER (WHERE kind = 'RESEND_EVENT') AS message
                    FROM deliveries AS ahead
                    WHERE ahead.merchant_id = event.merchant_id AND ahead.order_no = event.order_no
                      AND coalesce(ahead.status, 'order') = 'PENDING' AND ahead.event_id < event.id) AS behind
ORDER BY event.id
