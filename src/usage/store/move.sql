-- `move_all`: holds as they stand now, all that a batch noted beside them, the answers that are kept, and the booking.
-- Nothing of it where a hold is not as it was read. Holds come in the order of their ids, as by everybody.
WITH patient AS MATERIALIZED (
    SELECT set_config('lock_timeout', $44, true)
  ), moved AS (
    UPDATE usage_holds AS hold
    SET status = new.status, units = new.units, counted_units = new.counted_units, held = new.held,
        charged = new.charged, shortfall = new.shortfall, late = new.late, extensions = new.extensions,
        exhausted = new.exhausted, recoveries = new.recoveries, version = new.version, updated_at = $13
    FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[],
                $8::boolean[], $9::integer[], $10::boolean[], $11::integer[], $12::integer[], $14::bigint[])
         AS new (hold_id, status, units, counted_units, held, charged, shortfall, late, extensions, exhausted,
                 recoveries, version, written_by), patient
    WHERE hold.hold_id = new.hold_id AND hold.xmin::text::bigint = new.written_by
    RETURNING 1
  ), changed AS (
    INSERT INTO usage_history (hold_id, seq, from_status, to_status, event, created_at)
    SELECT *, $13::timestamptz FROM unnest($15::text[], $16::integer[], $17::text[], $18::text[], $19::text[])
  ), heard AS (
    INSERT INTO usage_messages (hold_id, message_id, units, created_at)
    SELECT *, $13::timestamptz FROM unnest($20::text[], $21::text[], $22::bigint[])
  ), added AS (
    -- Nobody looked at these: there was no quota.
    INSERT INTO usage_cycles AS taken (merchant_id, user_id, product_code, cycle, used_units)
    SELECT * FROM unnest($23::text[], $24::text[], $25::text[], $26::text[], $27::bigint[])
    ON CONFLICT (merchant_id, user_id, product_code, cycle)
    DO UPDATE SET used_units = taken.used_units + excluded.used_units
    RETURNING 1
  ), announced AS (
    INSERT INTO outbox (merchant_id, event, event_version, payload, created_at)
    SELECT *, $13::timestamptz FROM unnest($28::text[], $29::text[], $30::smallint[], $31::jsonb[])
  ), kept AS (
    INSERT INTO idempotency_keys (merchant_id, key, request_hash, status, body, created_at)
    SELECT *, $13::timestamptz FROM unnest($32::text[], $33::text[], $34::bytea[], $35::smallint[], $36::bytea[])
    WHERE (SELECT count(*) FROM patient) = 1
  ), opened AS MATERIALIZED (
    -- After the cycles, as by everybody.
    SELECT open_accounts(array_agg(account_id ORDER BY account_id), $13)
    FROM unnest($43::text[]) AS named (account_id)
    -- To look is cheaper than an insert that comes to nothing. No join: its plan could walk.
    WHERE (SELECT count(*) FROM added) >= 0
      AND (SELECT account_id FROM accounts WHERE accounts.account_id = named.account_id) IS NULL
    HAVING count(*) > 0
  ), booked AS (
    INSERT INTO ledger_transactions (transaction_id, kind, merchant_id, order_no, account_ids, amounts, created_at)
    SELECT transaction_id, kind, merchant_id, order_no, account_ids::text[], amounts::bigint[], $13
    FROM unnest($37::text[], $38::text[], $39::text[], $40::text[], $41::text[], $42::text[])
         AS new (transaction_id, kind, merchant_id, order_no, account_ids, amounts)
    WHERE (SELECT count(*) FROM opened) >= 0
  )
SELECT require_all(count(*), cardinality($1)) AS "met!" FROM moved
