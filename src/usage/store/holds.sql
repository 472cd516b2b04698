-- `insert_holds`: new holds with the birth of each, in the order of their keys, as by everybody.
WITH new AS MATERIALIZED (
    SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[],
                         $9::text[], $10::text[], $11::text[], $12::text[], $13::numeric[], $14::bigint[], $15::bigint[],
                         $16::bigint[], $17::boolean[], $18::bigint[], $19::bigint[], $20::timestamptz[],
                         $21::timestamptz[])
                  AS new (hold_id, merchant_id, request_id, user_id, product_code, idempotency_key, key_currency,
                          key_fx_version, currency, fx_version, cycle, pricing, unit_price, cycle_quota, estimated_units,
                          counted_units, carries_fee, held, charged, expires_at, created_at)
  ), born AS (
    INSERT INTO usage_history (hold_id, seq, to_status, event, created_at)
    SELECT hold_id, 1, 'HELD', 'TAKEN', created_at FROM new
  )
INSERT INTO usage_holds (hold_id, merchant_id, request_id, user_id, product_code, idempotency_key, key_currency,
                         key_fx_version, currency, fx_version, cycle, pricing, unit_price, cycle_quota, estimated_units,
                         counted_units, carries_fee, held, charged, expires_at, created_at, updated_at)
SELECT new.*, created_at FROM new
