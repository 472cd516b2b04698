-- `make`: new holds with the birth of each, the answers that are kept, and the booking. What users can spend is locked before
-- keys are taken, both in their order, as by everybody; what is set aside for them is locked last, by the booking's trigger.
WITH patient AS MATERIALIZED (
    SELECT set_config('lock_timeout', $23, true)
  ), new AS MATERIALIZED (
    SELECT unnest($1::text[]) AS hold_id, unnest($2::text[]) AS merchant_id, unnest($3::text[]) AS request_id,
           unnest($4::text[]) AS user_id, unnest($5::text[]) AS product_code, unnest($6::text[]) AS idempotency_key,
           unnest($7::text[]) AS key_currency, unnest($8::text[]) AS key_fx_version, unnest($9::text[]) AS currency,
           unnest($10::text[]) AS fx_version, unnest($11::text[]) AS cycle, unnest($12::text[]) AS pricing,
           unnest($13::numeric[]) AS unit_price, unnest($14::bigint[]) AS cycle_quota,
           unnest($15::bigint[]) AS estimated_units, unnest($16::bigint[]) AS counted_units,
           unnest($17::boolean[]) AS carries_fee, unnest($18::bigint[]) AS held, unnest($19::bigint[]) AS charged,
           unnest($20::timestamptz[]) AS expires_at, unnest($21::timestamptz[]) AS created_at
  ), opened AS MATERIALIZED (
    SELECT open_accounts(array_agg(account_id ORDER BY account_id), $22)
    FROM unnest($36::text[]) AS named (account_id)
    -- To look is cheaper than an insert that comes to nothing. No join: its plan could walk. Patience is asked before
    -- anything else is, also where nothing is opened.
    WHERE (SELECT count(*) FROM patient) = 1
      AND (SELECT account_id FROM accounts WHERE accounts.account_id = named.account_id) IS NULL
    HAVING count(*) > 0
  ), locked AS MATERIALIZED (
    SELECT accounts.account_id FROM accounts
    -- Asked before anything is looked up, also where nothing is found.
    WHERE (SELECT count(*) FROM opened) >= 0 AND accounts.account_id = ANY($24)
    ORDER BY accounts.account_id FOR NO KEY UPDATE OF accounts
  ), made AS (
    INSERT INTO usage_holds (hold_id, merchant_id, request_id, user_id, product_code, idempotency_key, key_currency,
                             key_fx_version, currency, fx_version, cycle, pricing, unit_price, cycle_quota,
                             estimated_units, counted_units, carries_fee, held, charged, expires_at, created_at,
                             updated_at)
    SELECT new.*, created_at FROM new WHERE (SELECT count(*) FROM locked) >= 0
    RETURNING 1
  ), born AS (
    INSERT INTO usage_history (hold_id, seq, to_status, event, created_at)
    SELECT hold_id, 1, 'HELD', 'TAKEN', created_at FROM new
  ), kept AS (
    INSERT INTO idempotency_keys (merchant_id, key, request_hash, status, body, created_at)
    SELECT unnest($25::text[]), unnest($26::text[]), unnest($27::bytea[]), unnest($28::smallint[]),
           unnest($29::bytea[]), $22::timestamptz
    WHERE (SELECT count(*) FROM patient) = 1
  )
INSERT INTO ledger_transactions (transaction_id, kind, merchant_id, order_no, account_ids, amounts, created_at)
-- After the holds: it is their key that says that one was made before.
SELECT transaction_id, kind, new.merchant_id, order_no, account_ids::text[], amounts::bigint[], $22
FROM (SELECT unnest($30::text[]) AS transaction_id, unnest($31::text[]) AS kind, unnest($32::text[]) AS merchant_id,
             unnest($33::text[]) AS order_no, unnest($34::text[]) AS account_ids, unnest($35::text[]) AS amounts) AS new
WHERE (SELECT count(*) FROM made) >= 0
