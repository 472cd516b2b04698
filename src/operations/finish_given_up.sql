-- `finish_given_up`: ends what was given up about things that have ended since.
WITH page AS MATERIALIZED (
  SELECT id, action, subject, merchant_id, order_no, payload, created_at FROM compensations
  WHERE status = 'DEAD' AND subject > $1
  ORDER BY subject FETCH FIRST ($2) ROWS WITH TIES
), ended AS MATERIALIZED (
  SELECT page.subject FROM page GROUP BY page.subject
  -- All that was given up about it, because one exception shows it. Looked up one by one: a join could walk.
  HAVING bool_and(coalesce(CASE page.action
      WHEN 'EXPIRE_ORDER' THEN
          (SELECT orders.status <> 'PENDING' FROM orders
           WHERE orders.merchant_id = page.merchant_id AND orders.order_no = page.order_no)
      WHEN 'DRIVE_PAY_ORDER' THEN
          (SELECT attempt.status <> 'INIT' FROM pay_orders AS attempt
           WHERE attempt.pay_order_id = page.subject)
      WHEN 'CLOSE_PAY_ORDER' THEN
          -- One that had ended before was to be closed at its channel once more.
          (SELECT attempt.status = 'PAID' OR NOT attempt.is_live AND attempt.updated_at > page.created_at
           FROM pay_orders AS attempt WHERE attempt.pay_order_id = page.subject)
      WHEN 'REMATCH_CALLBACK' THEN
          -- Also one that is forgotten.
          (SELECT inbox.verdict FROM webhook_inbox AS inbox
           WHERE inbox.channel = split_part(page.subject, '/', 1)
             AND inbox.event_id = substr(page.subject, strpos(page.subject, '/') + 1))
          IS DISTINCT FROM 'UNMATCHED'
      WHEN 'APPLY_UPDATE' THEN
          -- What the channel said is known by now. Of what cannot be read nobody knows.
          CASE page.payload->>'what'
              WHEN 'LINK_MADE' THEN
                  (SELECT attempt.status <> 'INIT' FROM pay_orders AS attempt
                   WHERE attempt.pay_order_id = page.payload->>'pay_order_id')
              WHEN 'REFUND_MADE' THEN
                  -- Also of one that was taken back since.
                  (SELECT refund.status = 'SUCCEEDED'
                          OR refund.channel_refund_id = page.payload->>'channel_refund_id'
                   FROM refunds AS refund WHERE refund.refund_id = page.payload->>'refund_id')
              WHEN 'PAYOUT_MADE' THEN
                  -- Also of one that was made after it had been given back.
                  (SELECT withdrawal.status = 'SUCCEEDED'
                          OR withdrawal.channel_payout_id = page.payload->>'channel_payout_id'
                   FROM withdrawals AS withdrawal
                   WHERE withdrawal.withdrawal_id = page.payload->>'withdrawal_id')
          END
  END, false))
     -- Nor does a worker have it, which may just be giving it up.
     AND (SELECT count(*) FROM compensations AS living
          WHERE living.subject = page.subject AND living.status NOT IN ('DONE', 'DEAD')) = 0
), settled AS (
  UPDATE compensations SET status = 'DONE', updated_at = $3
  WHERE id = ANY(ARRAY(SELECT page.id FROM page JOIN ended ON ended.subject = page.subject))
    -- A parameter, because the word would let the plan walk an index of the dead.
    AND status = $4
  RETURNING subject
), resolved AS (
  -- The task before what is open about it, as by whoever has it tried again.
  UPDATE exceptions
  SET status = 'RESOLVED', action = 'NONE', resolved_by = 'payonce', reason = 'it came to its end by itself',
      updated_at = $3
  WHERE subject = ANY(ARRAY(SELECT subject FROM settled)) AND kind = 'DEAD_TASK' AND status = 'OPEN'
)
SELECT (SELECT count(*) FROM settled) AS "settled!", max(subject) AS last FROM page
