//! What a shop that has lived long has beside its paid orders: their callbacks, a third of their kept answers, a tenth of
//! them settled, a hundredth refunded, and a hold that was charged for every tenth.
//!
//! Statements with the parameters of [`super::fill`]: merchant, prefix, count, amount, an instant.

use time::OffsetDateTime;

use super::{AMOUNT, Failure, fill};

/// Users' accounts that are moved, beside those that have wallets: all in one order, as by everybody.
const ACCOUNTS: &str = "INSERT INTO accounts (account_id, created_at, updated_at)
     SELECT account_id, $5, $5
     FROM (SELECT DISTINCT format(account.id, $1::text, g % 10000 * 10) AS account_id
           FROM generate_series(1, $3 / 10) AS g,
                (VALUES ('USER_AVAILABLE:%s:u%s:CNY'), ('USER_HELD:%s:u%s:CNY')) AS account (id)
           UNION SELECT format('COMMISSION_EXPENSE:%s:CNY', $1::text)) AS named
     WHERE $2 <> '' AND $4::bigint > 0 ORDER BY account_id ON CONFLICT DO NOTHING";

/// Bookings: what was earned, given back, held and charged. The triggers of the books are on.
const BOOKED: [&str; 3] = [
    "INSERT INTO ledger_transactions (transaction_id, kind, merchant_id, order_no, created_at, account_ids, amounts)
     SELECT 'SETTLEMENT:' || $1 || ':' || $2 || g, 'SETTLEMENT', $1, $2 || g, $5,
            ARRAY['COMMISSION_EXPENSE:' || $1 || ':CNY', format('USER_AVAILABLE:%s:u%s:CNY', $1::text, g % 100000)],
            ARRAY[$4::bigint / 10, -$4::bigint / 10]
     FROM generate_series(10, $3, 10) AS g",
    "INSERT INTO ledger_transactions (transaction_id, kind, merchant_id, order_no, created_at, account_ids, amounts)
     SELECT 'REFUND:rf_' || lpad($2 || g, 26, '0'), 'REFUND', $1, $2 || g, $5,
            ARRAY['CHANNEL:sandbox:CNY', 'MERCHANT:' || $1 || ':CNY'], ARRAY[-$4::bigint, $4::bigint]
     FROM generate_series(1, $3, 100) AS g",
    "INSERT INTO ledger_transactions (transaction_id, kind, merchant_id, created_at, account_ids, amounts)
     SELECT step.kind || ':uh_' || lpad($2 || g, 26, '0'), step.kind, $1, $5, step.account_ids, step.amounts
     FROM generate_series(1, $3 / 10) AS g,
          LATERAL (SELECT format('MERCHANT:%s:CNY', $1::text) AS merchant,
                          format('USER_AVAILABLE:%s:u%s:CNY', $1::text, g % 10000 * 10) AS available,
                          format('USER_HELD:%s:u%s:CNY', $1::text, g % 10000 * 10) AS held) AS name,
          LATERAL (VALUES ('USAGE_HOLD', ARRAY[available, held], ARRAY[500, -500]),
                          ('USAGE_CHARGE', ARRAY[merchant, available, held], ARRAY[-321, -179, 500]))
                  AS step (kind, account_ids, amounts)
     WHERE $4::bigint > 0",
];

/// What became of orders. From here on no trigger writes a history, and no event sets out.
const ENDED: [&str; 5] = [
    "WITH quiet AS MATERIALIZED (SELECT set_config('session_replication_role', 'replica', true))
     UPDATE orders SET settle_status = 'SETTLED', updated_at = $5
     FROM quiet
     WHERE merchant_id = $1 AND order_no = ANY (ARRAY(SELECT $2 || g FROM generate_series(10, $3, 10) AS g))
       AND $4::bigint > 0",
    "INSERT INTO settlements (merchant_id, order_no, user_id, base_amount, rate, line_rates, factor, commission,
                              currency, created_at, updated_at)
     SELECT $1, $2 || g, 'u' || g % 100000, $4, 0.1, '{0.1}', 1, $4 / 10, 'CNY', $5, $5
     FROM generate_series(10, $3, 10) AS g",
    "UPDATE orders SET status = 'REFUNDED', refunded_amount = $4, version = version + 1, updated_at = $5
     WHERE merchant_id = $1 AND order_no = ANY (ARRAY(SELECT $2 || g FROM generate_series(1, $3, 100) AS g))",
    "INSERT INTO order_history (merchant_id, order_no, seq, from_status, to_status, event, created_at)
     SELECT $1, $2 || g, 3, 'PAID', 'REFUNDED', 'REFUNDED_IN_FULL', $5
     FROM generate_series(1, $3, 100) AS g WHERE $4::bigint > 0",
    "WITH refund AS (
         INSERT INTO refunds (refund_id, merchant_id, refund_no, order_no, pay_order_id, amount, currency, status, reason,
                              channel_refund_id, created_at, updated_at, version)
         SELECT 'rf_' || lpad($2 || g, 26, '0'), $1, $2 || g, $2 || g, 'po_' || lpad($2 || g, 26, '0'), $4, 'CNY',
                'SUCCEEDED', 'requested', 'sr_rf_' || lpad($2 || g, 26, '0'), $5, $5, 3
         FROM generate_series(1, $3, 100) AS g RETURNING refund_id
     )
     INSERT INTO refund_history (refund_id, seq, from_status, to_status, event, created_at)
     SELECT refund_id, seq, before, after, event, $5
     FROM refund, (VALUES (1, NULL, 'PENDING', 'ASKED'), (2, 'PENDING', 'PROCESSING', 'REQUESTED'),
                          (3, 'PROCESSING', 'SUCCEEDED', 'SUCCEEDED')) AS step (seq, before, after, event)",
];

/// What was metered.
const METERED: [&str; 2] = [
    "WITH hold AS (
         INSERT INTO usage_holds (hold_id, merchant_id, request_id, user_id, product_code, idempotency_key, key_currency,
                                  key_fx_version, currency, fx_version, cycle, pricing, unit_price, estimated_units,
                                  units, counted_units, carries_fee, held, charged, status, expires_at, created_at,
                                  updated_at, version)
         SELECT 'uh_' || lpad($2 || g, 26, '0'), $1, 'r', 'u' || g % 10000 * 10, 'tokens', $2 || g, '', '', 'CNY', '',
                'past', 'PER_UNIT', 1, 500, 321, 321, false, 0, 321, 'CONFIRMED', $5, $5, $5, 2
         FROM generate_series(1, $3 / 10) AS g WHERE $4::bigint > 0 RETURNING hold_id
     )
     INSERT INTO usage_history (hold_id, seq, from_status, to_status, event, created_at)
     SELECT hold_id, seq, before, after, event, $5
     FROM hold, (VALUES (1, NULL, 'HELD', 'TAKEN'), (2, 'HELD', 'CONFIRMED', 'CONFIRMED')) AS step (seq, before, after, event)",
    "INSERT INTO usage_cycles (merchant_id, user_id, product_code, cycle, used_units)
     SELECT $1, 'u' || g % 10000 * 10, 'tokens', 'past', 321 * count(*)
     FROM generate_series(1, $3 / 10) AS g WHERE $2 <> '' AND $4::bigint > 0 AND $5::timestamptz IS NOT NULL
     GROUP BY g % 10000 ORDER BY 2
     ON CONFLICT (merchant_id, user_id, product_code, cycle)
     DO UPDATE SET used_units = usage_cycles.used_units + excluded.used_units",
];

/// What was heard, answered and told.
const SAID: [&str; 3] = [
    r#"INSERT INTO webhook_inbox (channel, event_id, subject, merchant_id, order_no, verdict, body, received_at, updated_at)
     SELECT 'sandbox', 'evt_' || $2 || g, 'po_' || lpad($2 || g, 26, '0'), $1, $2 || g, 'APPLIED',
            convert_to(format('{"event_id":"evt_%s","transaction_id":"txn_%1$s","out_trade_no":"po_%s","total_fee":%s,"currency":"CNY","trade_status":"SUCCESS","paid_at":"2026-01-01T00:00:00.000000Z"}',
                              $2 || g, lpad($2 || g, 26, '0'), $4::bigint), 'UTF8'), $5, $5
     FROM generate_series(1, $3) AS g"#,
    r#"INSERT INTO idempotency_keys (merchant_id, key, request_hash, order_no, status, body, created_at)
     SELECT $1, 'key-' || $2 || g, sha256(convert_to($2 || g, 'UTF8')), $2 || g, 200,
            convert_to(format('{"pay_order_id":"po_%s","order_no":"%s","channel":"sandbox","status":"PAYING","pay_url":"https://pay","amount":%s,"currency":"CNY","expires_at":"2026-01-01T00:00:00.000000Z"}',
                              lpad($2 || g, 26, '0'), $2 || g, $4::bigint), 'UTF8'), $5
     FROM generate_series(3, $3, 3) AS g"#,
    "INSERT INTO outbox (merchant_id, order_no, event, event_version, payload, created_at)
     SELECT $1, $2 || g, 'order.settled', 1,
            jsonb_build_object('order_no', $2 || g, 'user_id', 'u' || g % 100000, 'base_amount', $4::bigint,
                               'commission', $4::bigint / 10, 'currency', 'CNY'), $5
     FROM generate_series(10, $3, 10) AS g
     UNION ALL
     SELECT $1, $2 || g, 'refund.finished', 1,
            jsonb_build_object('order_no', $2 || g, 'refund_no', $2 || g, 'amount', $4::bigint, 'currency', 'CNY',
                               'status', 'SUCCEEDED'), $5
     FROM generate_series(1, $3, 100) AS g
     UNION ALL
     SELECT $1, NULL, 'usage.charged', 1,
            jsonb_build_object('hold_id', 'uh_' || lpad($2 || g, 26, '0'), 'user_id', 'u' || g % 10000 * 10,
                               'product_code', 'tokens', 'units', 321, 'charged', 321, 'shortfall', 0,
                               'currency', 'CNY', 'late', false), $5
     FROM generate_series(1, $3 / 10) AS g",
];

/// Gives the orders of [`super::paid_orders`] a past. Their users have [`super::wallets`], and there is
/// [`super::product`].
pub async fn lived(database_url: &str, at: OffsetDateTime, prefix: &str, count: i32) -> Result<(), Failure> {
    let statements = [&[ACCOUNTS][..], &BOOKED, &ENDED, &METERED, &SAID].concat();
    fill(database_url, &statements, at, (prefix, count, AMOUNT)).await
}
