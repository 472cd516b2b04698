//! Violations of what there is once: live attempts, trades, callbacks and requests.

use super::{Seed, seed, seed_with};

pub(super) const SEEDS: &[Seed] = &[
    seed(
        "closed_order_without_live_attempt",
        "UPDATE pay_orders SET status = 'PAYING', version = 2, updated_at = '2029-12-31 23:59:30'
         WHERE pay_order_id = 'po_c0';
         DELETE FROM order_history WHERE pay_order_id = 'po_c0' AND seq = 3",
    ),
    seed(
        "one_live_attempt",
        "DROP INDEX pay_orders_one_live_per_order;
         INSERT INTO pay_orders (pay_order_id, merchant_id, order_no, payer_id, channel, amount, currency,
                                 expires_at, created_at, updated_at)
         VALUES ('po_p2', 'm', 'P', 'u', 'sandbox', 100, 'CNY', '2030-01-02', '2029-12-31 23:59:30',
                 '2029-12-31 23:59:30');
         INSERT INTO order_history (merchant_id, order_no, pay_order_id, seq, to_status, event, created_at)
         VALUES ('m', 'P', 'po_p2', 1, 'INIT', 'BEGUN', '2029-12-31 23:59:30');
         UPDATE orders SET attempts = 2 WHERE order_no = 'P'",
    ),
    seed("attempts_counted", "UPDATE orders SET attempts = 7 WHERE order_no = 'P'"),
    // An attempt of an order that is not there.
    seed(
        "attempts_counted",
        "INSERT INTO pay_orders (pay_order_id, merchant_id, order_no, payer_id, channel, status, amount, currency,
                                 expires_at, created_at, updated_at, version)
         VALUES ('po_x', 'm', 'NONE', 'u', 'sandbox', 'FAILED', 100, 'CNY', '2030-01-02', '2029-12-31 12:00',
                 '2029-12-31 12:00', 2);
         INSERT INTO order_history (merchant_id, order_no, pay_order_id, seq, from_status, to_status, event, created_at)
         VALUES ('m', 'NONE', 'po_x', 1, NULL, 'INIT', 'BEGUN', '2029-12-31 12:00'),
                ('m', 'NONE', 'po_x', 2, 'INIT', 'FAILED', 'ATTEMPT_FAILED', '2029-12-31 12:00')",
    ),
    seed("attempt_asks_for_its_order", "UPDATE pay_orders SET amount = 99 WHERE pay_order_id = 'po_p1'"),
    seed_with(
        "trade_once",
        &["trade_owner"],
        "UPDATE stray_payments SET transaction_id = 'T-d1' WHERE stray_id = 'sp_d'",
    ),
    seed_with(
        "trade_owner",
        &["difference_applied"],
        "DELETE FROM trades WHERE transaction_id = 'T-d1'"),
    seed(
        "trade_owner",
        "INSERT INTO trades (channel, transaction_id, pay_order_id, created_at)
         VALUES ('sandbox', 'T-x', 'po_p1', '2029-12-31 12:00')",
    ),
    seed_with(
        "trade_once",
        &["paid_attempt_owned"],
        "UPDATE pay_orders SET transaction_id = 'T-d1' WHERE pay_order_id = 'po_c1'",
    ),
    seed_with(
        "trade_once",
        &["trade_owner"],
        "ALTER TABLE stray_payments DROP CONSTRAINT stray_payments_trade_once;
         UPDATE stray_payments SET transaction_id = 'T-d2' WHERE stray_id = 'sp_r'",
    ),
    seed("paid_attempt_owned", "UPDATE pay_orders SET transaction_id = 'T-x' WHERE pay_order_id = 'po_c1'"),
    // Stray, while its order waits for the first right money.
    seed_with(
        "paid_attempt_owned",
        &["attempt_history_ends", "attempts_counted", "stray_reason"],
        "UPDATE pay_orders SET order_no = 'P' WHERE pay_order_id = 'po_c1'",
    ),
    seed(
        "callback_once",
        "ALTER TABLE webhook_inbox DROP CONSTRAINT webhook_inbox_pkey;
         INSERT INTO webhook_inbox SELECT * FROM webhook_inbox WHERE event_id = 'e5'",
    ),
    seed("callback_applied", "UPDATE webhook_inbox SET subject = 'po_p1' WHERE event_id = 'e1'"),
    seed(
        "callback_applied",
        "INSERT INTO webhook_inbox (channel, event_id, subject, merchant_id, order_no, verdict, body, received_at,
                                    updated_at)
         SELECT channel, 'e9', subject, merchant_id, order_no, verdict, body, received_at, updated_at
         FROM webhook_inbox WHERE event_id = 'e1'",
    ),
    seed(
        "callback_applied",
        "INSERT INTO webhook_inbox (channel, event_id, subject, verdict, body, received_at, updated_at)
         SELECT 'sandbox', 'e-' || refund_id, refund_id, 'APPLIED', '{}', created_at, created_at FROM refunds
         WHERE status = 'PROCESSING'",
    ),
    seed(
        "callback_applied",
        "INSERT INTO webhook_inbox (channel, event_id, subject, verdict, body, received_at, updated_at)
         VALUES ('sandbox', 'e-gone', 'po_gone', 'APPLIED', '{}', '2029-12-31 12:00', '2029-12-31 12:00')",
    ),
    seed("callback_money_kept", "UPDATE webhook_inbox SET subject = 'po_none' WHERE event_id = 'e2'"),
    seed("callback_money_kept", "UPDATE webhook_inbox SET subject = 'po_none' WHERE event_id = 'e3'"),
    // Another trade of the same attempt, of which nothing was kept.
    seed(
        "callback_money_kept",
        "INSERT INTO webhook_inbox (channel, event_id, subject, merchant_id, order_no, verdict, body, received_at, updated_at)
         SELECT channel, 'e2b', subject, merchant_id, order_no, verdict, body, received_at, updated_at
         FROM webhook_inbox WHERE event_id = 'e2'",
    ),
    // What is kept of the attempt is of another reason.
    seed(
        "callback_money_kept",
        "INSERT INTO webhook_inbox (channel, event_id, subject, verdict, body, received_at, updated_at)
         SELECT channel, 'e-late', out_trade_no, 'STRAY', '{}', created_at, created_at FROM stray_payments
         WHERE out_trade_no = 'po_d0' AND reason = 'AMOUNT_MISMATCH'",
    ),
    // It misfits a refund, and the exception says something else.
    seed(
        "callback_money_kept",
        "UPDATE webhook_inbox SET subject = 'rf_r' WHERE event_id = 'e4';
         UPDATE exceptions SET subject = 'rf_r', kind = 'CONTRADICTION' WHERE subject = 'sp_r'",
    ),
    seed(
        "request_once",
        "ALTER TABLE idempotency_keys DROP CONSTRAINT idempotency_keys_pkey;
         INSERT INTO idempotency_keys SELECT * FROM idempotency_keys WHERE key = 'closed C'",
    ),
    seed("request_effect", "UPDATE idempotency_keys SET order_no = 'nowhere' WHERE key = 'closed C'"),
    seed("request_effect", "UPDATE idempotency_keys SET created_at = '2029-12-31 12:01' WHERE key = 'made P'"),
    seed(
        "request_effect",
        "INSERT INTO idempotency_keys
         SELECT merchant_id, 'other', request_hash, order_no, status, body, created_at
         FROM idempotency_keys WHERE key = 'made P'",
    ),
    seed("request_effect", "UPDATE idempotency_keys SET order_no = 'P' WHERE key = 'closed C'"),
    seed("request_effect", "UPDATE pay_orders SET pay_url = 'https://other' WHERE pay_order_id = 'po_p1'"),
    seed("request_effect", "UPDATE idempotency_keys SET body = '{\"commission\": 7}' WHERE key = 'settled S'"),
    seed("request_effect", "UPDATE idempotency_keys SET body = '{\"refund_no\": \"none\"}' WHERE key = 'refunded R'"),
    seed("request_effect", "UPDATE idempotency_keys SET body = '{\"withdrawal_no\": \"none\"}' WHERE key = 'sent wd_s'"),
    seed("request_effect", "UPDATE idempotency_keys SET body = '{\"hold_id\": \"none\"}' WHERE key = 'held uh_h'"),
    // Charged or freed, by what was answered, and held still; of another amount; and twice as new.
    seed(
        "request_effect",
        "UPDATE idempotency_keys SET body = '{\"hold_id\": \"uh_h\", \"status\": \"CONFIRMED\", \"charged\": 5}'
         WHERE key = 'held uh_h'",
    ),
    seed(
        "request_effect",
        "UPDATE idempotency_keys SET body = '{\"hold_id\": \"uh_h\", \"status\": \"RELEASED\"}' WHERE key = 'held uh_h'",
    ),
    seed(
        "request_effect",
        "UPDATE idempotency_keys
         SET body = convert_to((convert_from(body, 'UTF8')::jsonb || '{\"amount\": 7}')::text, 'UTF8')
         WHERE key = 'refunded R'",
    ),
    seed(
        "request_effect",
        "UPDATE idempotency_keys SET body = '{\"withdrawal_no\": \"wd_s\", \"amount\": 7}' WHERE key = 'sent wd_s'",
    ),
    seed(
        "request_effect",
        "INSERT INTO idempotency_keys
         SELECT merchant_id, 'other', request_hash, order_no, 201, body, created_at
         FROM idempotency_keys WHERE key = 'sent wd_s';
         UPDATE idempotency_keys SET status = 201 WHERE key = 'sent wd_s'",
    ),
];
