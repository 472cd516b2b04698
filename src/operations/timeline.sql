-- The timeline of an order: one statement, so one snapshot. Every branch is found by the order's key; of one instant, the
-- cause comes before what it brought about. No two entries have the same instant, rank, seq and subject.
SELECT at AS "at!", rank AS "rank!", seq AS "seq!", kind AS "kind!: TimelineKind", subject AS "subject!", event AS "event!",
       status, details AS "details!", channel
FROM (
  (SELECT step.at, 0 AS rank, step.seq::bigint AS seq, 'CALLBACK' AS kind, event_id AS subject, step.event,
          step.status, jsonb_build_object('speaks_of', subject) AS details, channel
   FROM webhook_inbox,
        -- A verdict that was found later is an entry of its own.
        LATERAL (VALUES (0, received_at, 'RECEIVED',
                         CASE WHEN updated_at = received_at THEN verdict END),
                        (1, nullif(updated_at, received_at), 'JUDGED', verdict)) AS step (seq, at, event, status)
   WHERE merchant_id = $1 AND order_no = $2 AND step.at IS NOT NULL)
  UNION ALL
  (SELECT created_at, 1, id, 'ADMIN', target, action, NULL,
          jsonb_build_object('actor', actor, 'reason', reason, 'request_id', request_id), NULL
   FROM admin_log WHERE merchant_id = $1 AND order_no = $2)
  UNION ALL
  (SELECT created_at, 2, seq, CASE pay_order_id WHEN '' THEN 'ORDER' ELSE 'ATTEMPT' END,
          CASE pay_order_id WHEN '' THEN order_no ELSE pay_order_id END, event, to_status,
          jsonb_build_object('from', from_status), NULL
   FROM order_history WHERE merchant_id = $1 AND order_no = $2)
  UNION ALL
  -- How a refund ends decides how its stray payment stands; that it is asked for is decided here.
  (SELECT change.created_at, CASE WHEN change.event IN ('REFUND_SUCCEEDED', 'REFUND_FAILED') THEN 5 ELSE 3 END, change.seq,
          'STRAY_PAYMENT', stray_id, change.event, change.to_status,
          jsonb_build_object('from', change.from_status, 'reason', reason, 'amount', amount, 'currency', currency,
                             'channel', channel, 'transaction_id', transaction_id, 'pay_order_id', pay_order_id), NULL
   FROM stray_payments JOIN stray_history AS change USING (stray_id)
   WHERE merchant_id = $1 AND order_no = $2)
  UNION ALL
  (SELECT change.created_at, 4, change.seq, 'REFUND', refund_id, change.event, change.to_status,
          jsonb_build_object('from', change.from_status, 'amount', amount, 'currency', currency, 'reason', reason,
                             'refund_no', refund_no,
                             'failure', CASE change.to_status WHEN 'FAILED' THEN failure END), NULL
   FROM refunds JOIN refund_history AS change USING (refund_id)
   WHERE merchant_id = $1 AND order_no = $2)
  UNION ALL
  (SELECT step.at, 5, step.seq, 'SETTLEMENT', order_no, step.event, step.status,
          jsonb_build_object('from', step.before, 'user_id', user_id, 'base_amount', base_amount,
                             'commission', commission, 'clawed_back', step.clawed_back, 'currency', currency), NULL
   FROM (SELECT * FROM settlements WHERE merchant_id = $1 AND order_no = $2) AS given,
        -- Its own birth, and what came after.
        LATERAL (SELECT given.created_at, 0, NULL, 'GIVEN', 'SETTLED', 0
                 UNION ALL
                 SELECT created_at, seq, from_status, event, to_status, clawed_back
                 FROM settlement_history WHERE merchant_id = $1 AND order_no = $2)
        AS step (at, seq, before, event, status, clawed_back))
  UNION ALL
  -- Found by the names of what may have been booked of the order: an index by order would cost every payment.
  (SELECT booked.created_at, 6, 0, 'BOOKING', booked.transaction_id, booked.kind, NULL,
          jsonb_object_agg(entry.account_id, entry.amount), NULL
   FROM (SELECT 'PAYMENT:' || paid_by FROM orders WHERE merchant_id = $1 AND order_no = $2
         UNION ALL
         SELECT kind || stray_id FROM stray_payments, (VALUES ('STRAY_PAYMENT:'), ('STRAY_KEPT:')) AS of (kind)
         WHERE merchant_id = $1 AND order_no = $2
         UNION ALL
         SELECT kind || refund_id
         FROM refunds, (VALUES ('REFUND:'), ('REVERSAL:REFUND:'), ('REFUND_HOLD:'), ('REVERSAL:REFUND_HOLD:'),
                               ('CLAW_BACK:')) AS of (kind)
         WHERE merchant_id = $1 AND order_no = $2
         UNION ALL
         SELECT format('CLAW_BACK:%s:taken-back', refund_id) FROM refunds
         WHERE merchant_id = $1 AND order_no = $2
         UNION ALL
         SELECT format(after_all.kind, refund_id, times)
         FROM refunds
         CROSS JOIN LATERAL generate_series(1, made_after_all_times) AS times
         CROSS JOIN (VALUES ('REFUND_AFTER_ALL:%s:%s'), ('REVERSAL:REFUND_AFTER_ALL:%s:%s'), ('CHARGE_PAID_BACK:%s:%s'))
                    AS after_all (kind)
         WHERE merchant_id = $1 AND order_no = $2
         UNION ALL
         SELECT charge.prefix || item_id
         FROM reconciliation_items, (VALUES ('COMPENSATING_CHARGE:'), ('REVERSAL:COMPENSATING_CHARGE:'), ('CHARGE_PAID_BACK:'))
                                    AS charge (prefix)
         WHERE merchant_id = $1 AND order_no = $2 AND action = 'CHARGE'
         UNION ALL
         SELECT format('SETTLEMENT:%s:%s', $1, $2)) AS bookable (transaction_id)
   -- One by one: a plan that joins them may walk all of them.
   CROSS JOIN LATERAL (SELECT transaction_id, kind, created_at, account_ids, amounts FROM ledger_transactions
                       WHERE ledger_transactions.transaction_id = bookable.transaction_id LIMIT 1) AS booked
   CROSS JOIN LATERAL unnest(booked.account_ids, booked.amounts) AS entry (account_id, amount)
   GROUP BY booked.transaction_id, booked.kind, booked.created_at)
  UNION ALL
  (SELECT step.at, 7, 2 * id + step.seq, 'TASK', subject, step.event, step.status,
          jsonb_build_object('action', action, 'attempts', attempts, 'last_error', last_error), NULL
   FROM (SELECT * FROM compensations
         WHERE merchant_id = $1 AND order_no = $2 AND (attempts > 0 OR action <> 'DRIVE_PAY_ORDER')
         UNION ALL
         -- Guards that were not tried yet are found by their attempts only.
         SELECT guard.*
         FROM pay_orders,
              LATERAL (SELECT * FROM compensations
                       WHERE subject = pay_orders.pay_order_id AND action = 'DRIVE_PAY_ORDER'
                         AND status NOT IN ('DONE', 'DEAD') AND attempts = 0
                       LIMIT 1) AS guard
         WHERE pay_orders.merchant_id = $1 AND pay_orders.order_no = $2) AS task,
        LATERAL (VALUES (0, created_at, 'WRITTEN', 'READY'),
                        (1, CASE WHEN (status, attempts) <> ('READY', 0) THEN updated_at END, 'MOVED', status))
        AS step (seq, at, event, status)
   WHERE step.at IS NOT NULL)
  UNION ALL
  (SELECT step.at, 8, step.seq, 'DIFFERENCE', item_id, step.event, step.status,
          jsonb_build_object('kind', kind, 'ours', ours, 'theirs', theirs, 'currency', currency, 'channel', channel,
                             'channel_id', channel_id, 'action', action, 'outcome', outcome), NULL
   FROM reconciliation_items,
        LATERAL (VALUES (0, created_at, class, CASE WHEN updated_at = created_at THEN status END),
                        (1, nullif(updated_at, created_at), 'MOVED', status)) AS step (seq, at, event, status)
   WHERE merchant_id = $1 AND order_no = $2 AND step.at IS NOT NULL)
  UNION ALL
  (SELECT step.at, 8, step.seq, 'EXCEPTION', exception_id, step.event, step.status,
          jsonb_build_object('detail', detail, 'subject', subject) || step.more, NULL
   FROM exceptions,
        LATERAL (VALUES (0, created_at, kind, 'OPEN', '{}'::jsonb),
                        (1, CASE WHEN status = 'RESOLVED' THEN updated_at END, action, status,
                         jsonb_build_object('resolved_by', resolved_by, 'reason', reason)))
        AS step (seq, at, event, status, more)
   WHERE merchant_id = $1 AND order_no = $2 AND step.at IS NOT NULL)
  UNION ALL
  (SELECT step.at, 9, 2 * id + step.seq, 'EVENT', id::text, outbox.event, step.status, payload, NULL
   FROM outbox
   -- Where its way ended: not everybody has what was given up, or what an endpoint that was taken away did not get.
   LEFT JOIN LATERAL (SELECT max(updated_at) AS at, CASE WHEN bool_or(status = 'DEAD') THEN 'DEAD'
                                                         WHEN bool_or(status = 'DROPPED') THEN 'DROPPED'
                                                         ELSE 'PUBLISHED' END AS status
                      FROM deliveries WHERE event_id = outbox.id
                      HAVING bool_and(status <> 'PENDING')
                         AND NOT EXISTS (SELECT FROM outbox_queue
                                         WHERE is_again = ANY('{false,true}') AND event_id = outbox.id)
                     ) AS ended ON true
   CROSS JOIN LATERAL (VALUES (0, created_at, 'WRITTEN'), (1, ended.at, ended.status)) AS step (seq, at, status)
   WHERE merchant_id = $1 AND order_no = $2 AND step.at IS NOT NULL)
) AS entry
WHERE $4::timestamptz IS NULL OR (at, rank, seq, subject) > ($4, $5::integer, $6::bigint, $7::text)
ORDER BY at, rank, seq, subject LIMIT $3
