-- `Settle`: settles a batch of orders, whose places it gives back. What a partial index names comes as a parameter.
WITH patient AS MATERIALIZED (
    SELECT set_config('lock_timeout', $19, true)
  ), settled AS (
    UPDATE orders SET settle_status = 'SETTLED', updated_at = new.now
    FROM (SELECT unnest($1::text[]) AS merchant_id, unnest($2::text[]) AS order_no, unnest($3::text[]) AS user_id,
                 unnest($4::bigint[]) AS base_amount, unnest($5::numeric[]) AS rate, unnest($6::text[]) AS line_rates,
                 unnest($7::numeric[]) AS factor, unnest($8::bigint[]) AS commission, unnest($9::text[]) AS currency,
                 unnest($10::timestamptz[]) AS now, unnest($11::bigint[]) AS refunded_seen,
                 unnest($12::jsonb[]) AS payload, unnest($13::text[]) AS expense, unnest($14::text[]) AS earnings,
                 unnest($15::text[]) AS key, unnest($16::bytea[]) AS request_hash,
                 unnest($17::smallint[]) AS answer_status, unnest($18::bytea[]) AS body,
                 unnest($25::bigint[]) AS place) AS new,
         patient
    WHERE orders.merchant_id = new.merchant_id AND orders.order_no = new.order_no
      AND orders.status = ANY($20) AND orders.settle_status = $21
      AND orders.refunded_amount = new.refunded_seen
      AND ($24::boolean IS NOT TRUE
           OR (SELECT refund_id FROM refunds
               WHERE refunds.merchant_id = new.merchant_id AND refunds.order_no = new.order_no
                 AND refunds.stray_id IS NULL AND refunds.status IN ('AWAITING_APPROVAL', 'FAILED')
                 AND may_have_gone(refunds.refund_id, refunds.made_after_all_at)
               LIMIT 1) IS NULL)
    RETURNING new.*
  ), given AS (
    INSERT INTO settlements (merchant_id, order_no, user_id, base_amount, rate, line_rates, factor,
                             commission, currency, created_at, updated_at)
    SELECT merchant_id, order_no, user_id, base_amount, rate, line_rates::numeric[], factor, commission,
           currency, now, now
    FROM settled
  ), announced AS (
    INSERT INTO outbox (merchant_id, order_no, event, event_version, payload, created_at)
    SELECT merchant_id, order_no, $22, $23, payload, now FROM settled
  ), kept AS (
    INSERT INTO idempotency_keys (merchant_id, key, request_hash, order_no, status, body, created_at)
    SELECT merchant_id, key, request_hash, order_no, answer_status, body, now
    FROM settled WHERE key IS NOT NULL
  ), opened AS MATERIALIZED (
    -- Users' accounts, in the order of their names, as by everybody.
    SELECT open_accounts(array_agg(earnings ORDER BY earnings), min(now))
    FROM (SELECT earnings, min(now) AS now FROM settled WHERE commission > 0 GROUP BY earnings) AS named
    -- To look is cheaper than an insert that comes to nothing. No join: its plan could walk.
    WHERE (SELECT account_id FROM accounts WHERE accounts.account_id = named.earnings) IS NULL
    HAVING count(*) > 0
  ), booked AS (
    INSERT INTO ledger_transactions (transaction_id, kind, merchant_id, order_no, account_ids, amounts, created_at)
    SELECT format('SETTLEMENT:%s:%s', merchant_id, order_no), 'SETTLEMENT', merchant_id, order_no, ARRAY[expense, earnings],
           ARRAY[commission, -commission], now
    FROM settled WHERE (SELECT count(*) FROM opened) >= 0 AND commission > 0
  )
  SELECT place AS "place!" FROM settled
