-- `make`: new holds with the birth of each, the answers that are kept, and the booking. What users can spend is locked before
-- keys are taken, both in their order, as by everybody; what is set aside for them is locked last, by the booking's trigger.
WITH patient AS MATERIALIZED (
    SELECT set_config('lock_timeout', $23, true)
  ), new AS MATERIALIZED (
    SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[],
                         $9::text[], $10::text[], $11::text[], $12::text[], $13::numeric[], $14::bigint[], $15::bigint[],
                         $16::bigint[], $17::boolean[], $18::bigint[], $19::bigint[], $20::timestamptz[],
                         $21::timestamptz[])
                  AS new (hold_id, merchant_id, request_id, user_id, product_code, idempotency_key, key_currency,
                          key_fx_version, currency, fx_version, cycle, pricing, unit_price, cycle_quota, estimated_units,
                          counted_units, carries_fee, held, charged, expires_at, created_at)
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
    SELECT *, $22::timestamptz FROM unnest($25::text[], $26::text[], $27::bytea[], $28::smallint[], $29::bytea[])
    WHERE (SELECT count(*) FROM patient) = 1
  )
INSERT INTO ledger_transactions (transaction_id, kind, merchant_id, order_no, account_ids, amounts, created_at)
-- After the holds: it is their key that says that one was made before.
SELECT transaction_id, kind, new.merchant_id, order_no, account_ids::text[], amounts::bigint[], $22
FROM unnest($30::text[], $31::text[], $32::text[], $33::text[], $34::text[], $35::text[])
          AS new (transaction_id, kind, merchant_id, order_no, account_ids, amounts)
WHERE (SELECT count(*) FROM made) >= 0
