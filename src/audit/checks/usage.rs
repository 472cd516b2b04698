//! Invariants 1, 2, 6, 7 and 8, as far as usage goes: what is held and charged is what the holds say, at their own prices,
//! and no hold is left behind.

use super::{Definition, check};

pub(super) const CHECKS: &[Definition] = &[
    check!(
        "usage_booked",
        Always,
        "a hold's bookings are its merchant's, and come to what it holds, what it was charged and what its user owes for it, \
         and to nothing else",
        "SELECT format('hold %s: its bookings come to %s on %s, it says %s', hold_id, coalesce(booked.amount, 0),
                       account_id, coalesce(due.amount, 0))
         FROM (SELECT hold_id, side.account_id, side.amount
               FROM usage_holds AS hold
               CROSS JOIN LATERAL (VALUES
                   (format('USER_AVAILABLE:%s:%s:%s', merchant_id, user_id, currency), held + charged),
                   (format('USER_HELD:%s:%s:%s', merchant_id, user_id, currency), -held),
                   (format('USER_RECEIVABLE:%s:%s:%s', merchant_id, user_id, currency), shortfall),
                   (format('MERCHANT:%s:%s', merchant_id, currency), -charged - shortfall)) AS side (account_id, amount)
               WHERE side.amount <> 0) AS due
         FULL JOIN (SELECT split_part(coalesce(reverses, transaction_id), ':', 2) AS hold_id, account_id,
                           sum(amount) AS amount
                    FROM ledger_entries
                    -- Nothing of a hold is ever taken back: what was would show here.
                    WHERE coalesce(split_part(reverses, ':', 1), kind)
                          IN ('USAGE_HOLD', 'USAGE_EXTENSION', 'USAGE_CHARGE', 'USAGE_RELEASE')
                    GROUP BY 1, 2 HAVING sum(amount) <> 0) AS booked
              USING (hold_id, account_id)
         WHERE due.amount IS DISTINCT FROM booked.amount
         UNION ALL
         SELECT format('%s is booked for %s/%s', transaction_id, booked.merchant_id, booked.order_no)
         FROM ledger_transactions AS booked JOIN usage_holds AS hold ON hold_id = split_part(transaction_id, ':', 2)
         WHERE booked.kind IN ('USAGE_HOLD', 'USAGE_EXTENSION', 'USAGE_CHARGE', 'USAGE_RELEASE')
           AND (booked.merchant_id, booked.order_no) IS DISTINCT FROM (hold.merchant_id, NULL)",
    ),
    check!(
        "usage_key_once",
        Always,
        "a key, which is what its product makes of it, has one hold, and what that was charged is one booking",
        "SELECT format('key %s of %s/%s, %s: %s holds', idempotency_key, merchant_id, user_id, product_code, count(*))
         FROM usage_holds
         GROUP BY merchant_id, user_id, product_code, idempotency_key, key_currency, key_fx_version
         HAVING count(*) > 1
         UNION ALL
         SELECT format('hold %s: its key is of %s and %s, which its product does not say', hold_id,
                       coalesce(nullif(key_currency, ''), 'any currency'), coalesce(nullif(key_fx_version, ''), 'any rates'))
         FROM usage_holds LEFT JOIN products USING (merchant_id, product_code)
         WHERE CASE key_scope WHEN 'REQUEST' THEN (key_currency, key_fx_version) = ('', '')
                              WHEN 'REQUEST_CURRENCY_FX' THEN (key_currency, key_fx_version) = (currency, fx_version)
               END IS NOT TRUE
         UNION ALL
         SELECT format('hold %s: charged %s and owed %s by %s bookings', hold_id, charged, shortfall, coalesce(times, 0))
         FROM usage_holds
         LEFT JOIN (SELECT split_part(transaction_id, ':', 2) AS hold_id, count(*) AS times
                    FROM ledger_transactions WHERE kind = 'USAGE_CHARGE' GROUP BY 1) AS booked USING (hold_id)
         WHERE times > 1 OR charged + shortfall > 0 AND times IS NULL",
    ),
    check!(
        "usage_priced",
        Always,
        "a charge is its units at the hold's own price, rounded half up once; a hold covers its estimate or what it was extended to, \
         and whatever was reported, unless it said that it is exhausted",
        "SELECT format('hold %s: %s of %s units at %s, holds %s, charged %s and owed %s', hold_id, pricing,
                       coalesce(units, estimated_units), unit_price, held, charged, shortfall)
         FROM usage_holds
         WHERE charged + shortfall <>
               CASE WHEN pricing = 'PER_CYCLE' THEN CASE WHEN carries_fee THEN round(unit_price) ELSE 0 END
                    WHEN status <> 'CONFIRMED' THEN 0
                    WHEN pricing = 'PER_CALL' THEN round(unit_price * least(units, 1))
                    ELSE round(unit_price * units) END
            OR status = 'HELD' AND CASE pricing
                   WHEN 'PER_CYCLE' THEN held <> 0
                   WHEN 'PER_CALL' THEN held <> ceil(unit_price)
                   -- Each extension is for what was reported then, as far as there was something.
                   ELSE held < ceil(unit_price * estimated_units)
                        OR held > ceil(unit_price * greatest(estimated_units, units))
                        OR NOT exhausted AND held < ceil(unit_price * units) END",
    ),
    check!(
        "usage_messages_heard",
        Always,
        "no message of a hold said more than what the hold has heard, and one said that, as long as messages are kept",
        "SELECT format('hold %s: message %s said %s, the hold says %s', heard.hold_id, message_id, heard.units,
                       coalesce(hold.units::text, 'nothing'))
         FROM usage_messages AS heard
         LEFT JOIN usage_holds AS hold ON hold.hold_id = heard.hold_id
         WHERE coalesce(hold.units, -1) < heard.units
         UNION ALL
         SELECT format('hold %s: heard of %s units, and none of its messages said so', hold_id, units)
         FROM usage_holds AS hold
         -- They are kept for 14 days.
         WHERE status = 'HELD' AND units IS NOT NULL AND created_at > $1 - interval '13 days'
           AND NOT EXISTS (SELECT 1 FROM usage_messages AS heard
                           WHERE heard.hold_id = hold.hold_id AND heard.units = hold.units)",
    ),
    check!(
        "usage_cycle",
        Always,
        "a cycle is used as its holds count, each what it was charged for, and paid for by one of them at most, which says so; one \
         that is sold as a whole is paid for by one of its holds",
        "SELECT format('cycle %s of %s/%s, %s: %s used and paid by %s, its holds say %s and %s', cycle, merchant_id, user_id,
                       product_code, coalesce(used_units, 0), coalesce(fee_hold_id, 'nobody'), coalesce(counted, 0),
                       coalesce(payers, 'nobody'))
         FROM usage_cycles
         FULL JOIN (SELECT merchant_id, user_id, product_code, cycle, sum(counted_units) AS counted,
                           string_agg(hold_id, ' ' ORDER BY hold_id) FILTER (WHERE carries_fee) AS payers
                    FROM usage_holds WHERE counted_units <> 0 OR carries_fee
                    GROUP BY merchant_id, user_id, product_code, cycle) AS holds
              USING (merchant_id, user_id, product_code, cycle)
         WHERE coalesce(used_units, 0) <> coalesce(counted, 0) OR fee_hold_id IS DISTINCT FROM payers
         UNION ALL
         SELECT format('hold %s: %s of %s units counts %s', hold_id, status, units, counted_units)
         FROM usage_holds
         WHERE status <> 'HELD'
           AND counted_units <> CASE WHEN status <> 'CONFIRMED' THEN 0
                                     WHEN pricing = 'PER_CALL' THEN least(units, 1) ELSE units END
         UNION ALL
         SELECT format('cycle %s of %s/%s, %s: %s of its holds carry its fee', cycle, merchant_id, user_id, product_code,
                       count(*) FILTER (WHERE carries_fee))
         FROM usage_holds WHERE pricing = 'PER_CYCLE'
         GROUP BY merchant_id, user_id, product_code, cycle HAVING count(*) FILTER (WHERE carries_fee) <> 1",
    ),
    check!(
        "usage_history",
        Always,
        "every change of a hold's state has its row, along allowed edges and by its event, ending in the present state",
        "SELECT format('hold %s: %s at version %s, its history is %s', hold_id, status, version,
                       coalesce(history.tale, 'not there'))
         FROM usage_holds AS hold
         FULL JOIN (SELECT hold_id, count(*) AS changes, max(seq) AS last,
                           string_agg(to_status, ' ' ORDER BY seq) AS tale,
                           string_agg(coalesce(from_status, ''), ' ' ORDER BY seq) AS past,
                           bool_and(event = CASE to_status WHEN 'HELD' THEN 'TAKEN' WHEN 'EXPIRED' THEN 'DEADLINE_PASSED'
                                                           ELSE to_status END) AS is_by_its_events
                    FROM usage_history GROUP BY hold_id) AS history USING (hold_id)
         WHERE (history.changes = version AND history.last = version AND history.is_by_its_events
                AND ltrim(history.past) || CASE version WHEN 1 THEN '' ELSE ' ' END || status = history.tale
                AND history.tale = ANY (CASE status
                        -- `HoldStatus::after`.
                        WHEN 'HELD' THEN ARRAY['HELD']
                        WHEN 'RELEASED' THEN ARRAY['HELD RELEASED']
                        WHEN 'EXPIRED' THEN ARRAY['HELD EXPIRED']
                        ELSE ARRAY[CASE WHEN late THEN 'HELD EXPIRED CONFIRMED' ELSE 'HELD CONFIRMED' END] END)) IS NOT TRUE",
    ),
    check!(
        "usage_announced",
        Always,
        "a hold's charge, its expiry, its cycle's fee and each time it was exhausted are told once with what they took, and \
         nothing else of it",
        "SELECT format('hold %s: %s and charged %s, announced as %s with %s', coalesce(hold.hold_id, told.hold_id),
                       coalesce(hold.status, 'not there'), coalesce(hold.charged, 0), coalesce(tale, 'nothing'),
                       coalesce(told.charged, 0))
         FROM (SELECT hold_id, status, charged,
                      concat_ws(' ', CASE WHEN carries_fee THEN 'usage.cycle_charged' END,
                                -- Each time before the last one all that was wanted was there in the end.
                                nullif(rtrim(repeat('usage.hold_exhausted ', recoveries + exhausted::integer)), ''),
                                CASE WHEN status = 'EXPIRED' OR late THEN 'usage.hold_expired' END,
                                CASE WHEN status = 'CONFIRMED' THEN 'usage.charged' END) AS due
               FROM usage_holds) AS hold
         FULL JOIN (SELECT payload ->> 'hold_id' AS hold_id, string_agg(event, ' ' ORDER BY id) AS tale,
                           sum((payload ->> 'charged')::bigint) AS charged
                    FROM outbox
                    WHERE event IN ('usage.charged', 'usage.hold_exhausted', 'usage.hold_expired', 'usage.cycle_charged')
                    GROUP BY 1) AS told ON told.hold_id = hold.hold_id
         WHERE hold.due IS DISTINCT FROM coalesce(tale, '') OR hold.charged <> coalesce(told.charged, 0)",
    ),
    check!(
        "usage_shortfall_reported",
        Always,
        "whatever usage left unpaid was shown to a person",
        "SELECT format('hold %s: %s %s owed in silence', hold_id, shortfall, currency)
         FROM usage_holds AS hold
         WHERE shortfall > 0
           AND NOT EXISTS (SELECT 1 FROM exceptions
                           WHERE exceptions.subject = hold.hold_id AND exceptions.kind = 'USAGE_SHORTFALL')",
    ),
    check!(
        "hold_overdue",
        Eventual,
        "no hold is HELD 60 s past its expiry",
        "SELECT format('hold %s: HELD although it ran out at %s', hold_id, expires_at)
         FROM usage_holds
         -- Also where a person is shown something of it: nobody but the service frees it.
         WHERE status = 'HELD' AND expires_at < $1 - interval '60 s'",
    ),
];
