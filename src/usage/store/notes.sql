-- `write_notes`: holds as they stand now, and all that a batch noted beside them. Gives how many holds it met.
WITH moved AS (
    UPDATE usage_holds AS hold
    SET status = new.status, units = new.units, counted_units = new.counted_units, held = new.held,
        charged = new.charged, shortfall = new.shortfall, late = new.late, extensions = new.extensions,
        exhausted = new.exhausted, recoveries = new.recoveries, version = new.version, updated_at = $29
    FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[],
                $8::boolean[], $9::integer[], $10::integer[], $35::boolean[], $36::integer[])
         AS new (hold_id, status, units, counted_units, held, charged, shortfall, late, extensions, version, exhausted,
                 recoveries)
    WHERE hold.hold_id = new.hold_id
    RETURNING 1
  ), changed AS (
    INSERT INTO usage_history (hold_id, seq, from_status, to_status, event, created_at)
    SELECT *, $29::timestamptz FROM unnest($11::text[], $12::integer[], $13::text[], $14::text[], $15::text[])
  ), heard AS (
    INSERT INTO usage_messages (hold_id, message_id, units, created_at)
    SELECT *, $29::timestamptz FROM unnest($16::text[], $17::text[], $18::bigint[])
  ), counted AS (
    UPDATE usage_cycles AS taken
    SET used_units = new.used_units, fee_hold_id = new.fee_hold_id
    FROM unnest($19::text[], $20::text[], $21::text[], $22::text[], $23::bigint[], $24::text[])
         AS new (merchant_id, user_id, product_code, cycle, used_units, fee_hold_id)
    WHERE taken.merchant_id = new.merchant_id AND taken.user_id = new.user_id
      AND taken.product_code = new.product_code AND taken.cycle = new.cycle
  ), added AS (
    -- Nobody looked at these: there was no quota.
    INSERT INTO usage_cycles AS taken (merchant_id, user_id, product_code, cycle, used_units)
    SELECT * FROM unnest($30::text[], $31::text[], $32::text[], $33::text[], $34::bigint[])
    ON CONFLICT (merchant_id, user_id, product_code, cycle)
    DO UPDATE SET used_units = taken.used_units + excluded.used_units
  ), announced AS (
    INSERT INTO outbox (merchant_id, event, event_version, payload, created_at)
    SELECT *, $29::timestamptz FROM unnest($25::text[], $26::text[], $27::smallint[], $28::jsonb[])
  )
SELECT count(*) AS "count!" FROM moved
