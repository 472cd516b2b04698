-- `move_all`: holds as they stand now, all that a batch noted beside them, the answers that are kept, and the booking.
-- Nothing of it where a hold is not as it was read. Holds come in the order of their ids, as by everybody.
WITH patient AS MATERIALIZED (
    SELECT set_config('lock_timeout', $44, true)
  ), moved AS (
    UPDATE usage_holds AS hold
    SET status = new.status, units = new.units, counted_units = new.counted_units, held = new.held,
        charged = new.charged, shortfall = new.shortfall, late = new.late, extensions = new.extensions,
        exhausted = new.exhausted, recoveries = new.recoveries, version = new.version, updated_at = $13
    FROM (SELECT unnest($1::text[]) AS hold_id, unnest($2::text[]) AS status, unnest($3::bigint[]) AS units,
                 unnest($4::bigint[]) AS counted_units, unnest($5::bigint[]) AS held, unnest($6::bigint[]) AS charged,
                 unnest($7::bigint[]) AS shortfall, unnest($8::boolean[]) AS late,
                 unnest($9::integer[]) AS extensions, unnest($10::boolean[]) AS exhausted,
                 unnest($11::integer[]) AS recoveries, unnest($12::integer[]) AS version,
                 unnest($14::bigint[]) AS written_by) AS new, patient
    WHERE hold.hold_id = new.hold_id AND hold.xmin::text::bigint = new.written_by
    RETURNING 1
  ), changed AS (
    INSERT INTO usage_history (hold_id, seq, from_status, to_status, event, created_at)
    SELECT unnest($15::text[]), unnest($16::integer[]), unnest($17::text[]), unnest($18::text[]), unnest($19::text[]),
           $13::timestamptz
  ), heard AS (
    INSERT INTO usage_messages (hold_id, message_id, units, created_at)
    SELECT unnest($20::text[]), unnest($21::text[]), unnest($22::bigint[]), $13::timestamptz
  ), added AS (
    -- Nobody looked at these: there was no quota.
    INSERT INTO usage_cycles AS taken (merchant_id, user_id, product_code, cycle, used_units)
    SELECT unnest($23::text[]), unnest($24::text[]), unnest($25::text[]), unnest($26::text[]), unnest($27::bigint[])
    ON CONFLICT (merchant_id, user_id, product_code, cycle)
    DO UPDATE SET used_units = taken.used_units + excluded.used_units
    RETURNING 1
  ), announced AS (
    INSERT INTO outbox (merchant_id, event, event_version, payload, created_at)
    SELECT unnest($28::text[]), unnest($29::text[]), unnest($30::smallint[]), unnest($31::jsonb[]), $13::timestamptz
  ), kept AS (
    INSERT INTO idempotency_keys (merchant_id, key, request_hash, status, body, created_at)
    SELECT unnest($32::text[]), unnest($33::text[]), unnest($34::bytea[]), unnest($35::smallint[]),
           unnest($36::bytea[]), $13::timestamptz
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
    FROM (SELECT unnest($37::text[]) AS transaction_id, unnest($38::text[]) AS kind,
                 unnest($39::text[]) AS merchant_id, unnest($40::text[]) AS order_no,
                 unnest($41::text[]) AS account_ids, unnest($42::text[]) AS amounts) AS new
    WHERE (SELECT count(*) FROM opened) >= 0
  )
SELECT require_all(count(*), cardinality($1)) AS "met!" FROM moved
