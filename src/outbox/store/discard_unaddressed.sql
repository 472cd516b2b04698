-- `discard_unaddressed`: takes new events from the relay's queue that nobody is to be told of.
WITH relaxed AS MATERIALIZED (
  -- As where events are taken to be told: a crash of the database may take it back, and they are looked at again.
  SELECT set_config('synchronous_commit', 'off', true)
), oldest AS MATERIALIZED (
  SELECT ctid AS place, merchant_id, order_no FROM outbox_queue
  WHERE is_again = false AND event_id >= $2
  ORDER BY event_id LIMIT $1
  -- Any number of relays work side by side.
  FOR UPDATE SKIP LOCKED
), discarded AS (
  DELETE FROM outbox_queue AS queue USING oldest
  -- Locked, so they stay where they are; and no plan can walk to them.
  WHERE queue.ctid = oldest.place
    -- Look-ups, one for each: as joins their plans could walk.
    AND (SELECT notify_url FROM merchants
         WHERE merchants.merchant_id = oldest.merchant_id LIMIT 1) IS NULL
    AND (SELECT notify_url FROM orders
         WHERE orders.merchant_id = oldest.merchant_id AND orders.order_no = oldest.order_no
           -- Few orders have one of their own: an index has these.
           AND orders.notify_url IS NOT NULL
         LIMIT 1) IS NULL
  RETURNING 1
)
-- Where nothing went, nothing would go in the next turn.
SELECT (SELECT count(*) FROM oldest) = $1::bigint AND (SELECT count(*) FROM discarded) > 0 AS "has_more!",
       (SELECT count(*) FROM oldest) > (SELECT count(*) FROM discarded) AS "leaves_some!"
FROM relaxed
