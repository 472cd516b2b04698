//! One violation after the other.

mod books;
mod reconciliations;
mod told;
mod usage;
mod withdrawals;

/// A way to break the healthy world, and what must notice.
pub(super) struct Seed {
    /// The check that it is for.
    pub(super) check: &'static str,
    /// Other checks that the same harm breaks.
    pub(super) also: &'static [&'static str],
    pub(super) sql: &'static str,
}

const fn seed(check: &'static str, sql: &'static str) -> Seed {
    Seed { check, also: &[], sql }
}

const fn seed_with(check: &'static str, also: &'static [&'static str], sql: &'static str) -> Seed {
    Seed { check, also, sql }
}

/// All of them, in the order of the invariants.
pub(super) fn all() -> impl Iterator<Item = &'static Seed> {
    let money = books::SEEDS.iter().chain(withdrawals::SEEDS).chain(usage::SEEDS);
    money.chain(reconciliations::SEEDS).chain(SEEDS).chain(told::SEEDS)
}

const SEEDS: &[Seed] = &[
    // 3
    seed("refunds_within_source", "UPDATE refunds SET amount = 101 WHERE refund_id = 'rf_d'"),
    seed_with(
        "refunds_within_source",
        &["refund_booked", "stray_refund"],
        "UPDATE refunds SET amount = 101 WHERE refund_id = 'rf_c1'",
    ),
    seed("refund_source", "UPDATE refunds SET currency = 'USD' WHERE refund_id = 'rf_d'"),
    seed_with(
        "refund_source",
        &["refunds_within_source"],
        "UPDATE refunds SET pay_order_id = 'po_d0' WHERE refund_id = 'rf_d'",
    ),
    seed("order_refunded_amount", "UPDATE orders SET refunded_amount = 1 WHERE order_no = 'D'"),
    // 4
    seed_with(
        "order_paid_by",
        &["attempt_asks_for_its_order", "payment_booked"],
        "UPDATE orders SET currency = 'USD' WHERE order_no = 'D'",
    ),
    seed_with(
        "order_paid_by",
        &["callback_applied", "paid_attempt_owned", "payment_booked", "refund_source", "trade_owner"],
        "ALTER TABLE orders DROP CONSTRAINT orders_paid_by_matches;
         UPDATE orders SET paid_by = NULL WHERE order_no = 'D'",
    ),
    seed("order_lines_add_up", "UPDATE order_items SET unit_price = 51 WHERE order_no = 'P'"),
    seed_with("stray_refund", &["refund_booked"], "UPDATE refunds SET amount = 99 WHERE refund_id = 'rf_c1'"),
    seed_with(
        "stray_refund",
        &["stray_announced", "stray_booked", "stray_history", "trade_owner"],
        "INSERT INTO stray_payments (stray_id, channel, transaction_id, out_trade_no, amount, currency, reason,
                                     status, paid_at, created_at, updated_at)
         VALUES ('sp_x', 'sandbox', 'T-x', 'x', 1, 'CNY', 'UNKNOWN_ORDER', 'REFUNDED', '2029-12-31 12:00',
                 '2029-12-31 12:00', '2029-12-31 12:00')",
    ),
    seed("stray_kept_by_a_person", "DELETE FROM exceptions WHERE subject = 'sp_k'"),
    seed("stray_reason", "UPDATE stray_payments SET reason = 'LATE_PAYMENT' WHERE stray_id = 'sp_d'"),
    seed("stray_owned", "DELETE FROM exceptions WHERE subject = 'sp_d'"),
    seed_with(
        "stray_owned",
        &["refund_unfinished"],
        "DELETE FROM exceptions WHERE subject = 'sp_r'; DELETE FROM compensations WHERE subject = 'rf_r'",
    ),
    seed(
        "stray_exception_outlived",
        "INSERT INTO exceptions (exception_id, kind, subject, detail, created_at, updated_at)
         VALUES ('ex_c', 'STRAY_MONEY', 'sp_c', 'late', '2029-12-31 12:00', '2029-12-31 12:00')",
    ),
    // 5
    seed(
        "stock_bounds",
        "ALTER TABLE skus DROP CONSTRAINT skus_lock_stock_within_stock; UPDATE skus SET stock = 1",
    ),
    seed_with(
        "stock_held_by_reservations",
        &["stock_held_by_orders"],
        "UPDATE skus SET lock_stock = 3",
    ),
    seed_with(
        "stock_held_by_orders",
        &["reservation_of_line"],
        "UPDATE order_items SET quantity = 4, unit_price = 25 WHERE order_no = 'P'",
    ),
    seed("reservation_of_line", "DELETE FROM stock_reservations WHERE order_no = 'D'"),
    seed("reservation_state", "UPDATE stock_reservations SET status = 'RELEASED' WHERE order_no = 'D'"),
    // 6
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
    seed_with("trade_owner", &["difference_applied"], "DELETE FROM trades WHERE transaction_id = 'T-d1'"),
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
    seed("callback_money_kept", "UPDATE webhook_inbox SET subject = 'po_none' WHERE event_id = 'e2'"),
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
    // 7
    seed(
        "history_edges",
        "UPDATE order_history SET event = 'CANCELLED' WHERE order_no = 'D' AND pay_order_id = '' AND seq = 2",
    ),
    seed(
        "history_chain",
        "UPDATE order_history SET from_status = 'INIT' WHERE pay_order_id = 'po_d1' AND seq = 3",
    ),
    seed(
        "history_chain",
        "DELETE FROM order_history WHERE order_no = 'D' AND pay_order_id = '' AND seq = 1",
    ),
    seed("order_history_ends", "UPDATE orders SET version = 3 WHERE order_no = 'D'"),
    seed("order_history_ends", "DELETE FROM order_history WHERE order_no = 'P' AND pay_order_id = ''"),
    seed(
        "order_history_ends",
        "INSERT INTO order_history (merchant_id, order_no, seq, to_status, event, created_at)
         VALUES ('m', 'nowhere', 1, 'PENDING', 'CREATED', '2029-12-31 12:00')",
    ),
    seed("attempt_history_ends", "UPDATE pay_orders SET version = 4 WHERE pay_order_id = 'po_d1'"),
    seed(
        "attempt_history_ends",
        "INSERT INTO order_history (merchant_id, order_no, pay_order_id, seq, to_status, event, created_at)
         VALUES ('m', 'P', 'po_x', 1, 'INIT', 'BEGUN', '2029-12-31 12:00')",
    ),
    seed("refund_history", "DELETE FROM refund_history WHERE refund_id = 'rf_r'"),
    seed("refund_history", "DELETE FROM refund_history WHERE refund_id = 'rf_c1' AND seq = 2"),
    seed("refund_history", "DELETE FROM refund_history WHERE refund_id = 'rf_cx' AND seq = 3"),
    seed("refund_history", "UPDATE refund_history SET event = 'BY_HAND' WHERE refund_id = 'rf_d' AND seq = 2"),
    seed("refund_history", "UPDATE refund_history SET from_status = 'PENDING' WHERE refund_id = 'rf_c1' AND seq = 4"),
    seed("refund_history", "UPDATE refund_history SET event = 'CARRIED_OVER' WHERE refund_id = 'rf_d' AND seq = 2"),
    seed("refund_history", "UPDATE refund_history SET to_status = 'AWAITING_APPROVAL' WHERE refund_id = 'rf_r'"),
    seed("refund_history", "UPDATE refund_history SET event = 'FOUND' WHERE refund_id = 'rf_r'"),
    seed("refund_history", "UPDATE refund_history SET event = 'APPROVED' WHERE refund_id = 'rf_d' AND seq = 1"),
    seed(
        "refund_history",
        "INSERT INTO refund_history VALUES ('rf_none', 1, NULL, 'PENDING', 'ASKED', '2029-12-31 12:00')",
    ),
    seed("stray_history", "DELETE FROM stray_history WHERE stray_id = 'sp_d'"),
    seed("stray_history", "DELETE FROM stray_history WHERE stray_id = 'sp_c' AND seq = 5"),
    seed("stray_history", "DELETE FROM stray_history WHERE stray_id = 'sp_k' AND seq = 2"),
    seed("stray_history", "UPDATE stray_history SET event = 'REFUND_ASKED' WHERE stray_id = 'sp_k' AND seq = 2"),
    seed("stray_history", "UPDATE stray_history SET from_status = 'REFUNDED' WHERE stray_id = 'sp_c' AND seq = 3"),
    seed("stray_history", "UPDATE stray_history SET event = 'CARRIED_OVER' WHERE stray_id = 'sp_r' AND seq = 2"),
    seed("stray_history", "UPDATE stray_history SET to_status = 'KEPT' WHERE stray_id = 'sp_d'"),
    seed("stray_history", "UPDATE stray_history SET event = 'FOUND' WHERE stray_id = 'sp_d'"),
    seed("stray_history", "UPDATE stray_history SET event = 'KEPT' WHERE stray_id = 'sp_r' AND seq = 1"),
    seed(
        "stray_history",
        "INSERT INTO stray_history VALUES ('sp_none', 1, NULL, 'HELD', 'RECEIVED', '2029-12-31 12:00')",
    ),
    seed("settlement_history", "DELETE FROM settlement_history WHERE seq = 4"),
    seed("settlement_history", "DELETE FROM settlement_history WHERE seq = 1"),
    seed("settlement_history", "DELETE FROM settlement_history WHERE seq = 2"),
    seed("settlement_history", "UPDATE settlement_history SET event = 'RESTORED' WHERE seq = 1"),
    seed("settlement_history", "UPDATE settlement_history SET clawed_back = 6 WHERE seq = 3"),
    seed("settlement_history", "UPDATE settlement_history SET from_status = 'SETTLED' WHERE seq = 3"),
    seed("settlement_history", "UPDATE settlement_history SET event = 'CARRIED_OVER' WHERE seq = 4"),
    seed("settlement_history", "UPDATE settlement_history SET clawed_back = 1 WHERE seq = 4"),
    seed(
        "settlement_history",
        "INSERT INTO settlement_history
         VALUES ('m', 'NONE', 1, 'SETTLED', 'SETTLED', 'PART_CLAWED_BACK', 1, '2029-12-31 12:00')",
    ),
    seed("order_announced", "DELETE FROM outbox WHERE event = 'order.paid'"),
    seed(
        "order_announced",
        "INSERT INTO outbox (merchant_id, order_no, event, event_version, payload, created_at)
         VALUES ('m', 'P', 'order.closed', 1, '{}', '2029-12-31 12:00')",
    ),
    seed("stray_announced", "DELETE FROM outbox WHERE payload ->> 'stray_id' = 'sp_k'"),
    seed(
        "refund_announced",
        "UPDATE outbox SET payload = '{\"refund_no\": \"rf_c1\", \"status\": \"FAILED\"}'
         WHERE payload ->> 'refund_no' = 'rf_c1'",
    ),
    seed(
        "refund_announced",
        "INSERT INTO outbox (merchant_id, order_no, event, event_version, payload, created_at)
         VALUES ('m', 'D', 'refund.finished', 1, '{\"refund_no\": \"rf_r\", \"status\": \"FAILED\"}',
                 '2029-12-31 12:00')",
    ),
    // 8
    seed("order_overdue", "UPDATE orders SET expires_at = '2029-12-31 23:58' WHERE order_no = 'P'"),
    seed(
        "attempt_without_link",
        "UPDATE pay_orders SET status = 'INIT', version = 1 WHERE pay_order_id = 'po_p1';
         DELETE FROM order_history WHERE pay_order_id = 'po_p1' AND seq = 2",
    ),
    seed(
        "attempt_outlives_order",
        "UPDATE pay_orders SET status = 'PAYING', version = 2 WHERE pay_order_id = 'po_d0';
         DELETE FROM order_history WHERE pay_order_id = 'po_d0' AND seq = 3",
    ),
    seed("refund_unfinished", "DELETE FROM compensations WHERE subject = 'rf_d'"),
    seed(
        "callback_unmatched",
        "UPDATE webhook_inbox SET received_at = '2029-12-31 23:40' WHERE event_id = 'e5'",
    ),
    seed("callback_unmatched", "DELETE FROM compensations WHERE subject = 'sandbox/e5'"),
    seed("task_lease", "UPDATE compensations SET due_at = '2029-12-31 23:58:59' WHERE subject = 'rf_d'"),
    seed("task_late", "UPDATE compensations SET due_at = '2029-12-31 23:54' WHERE subject = 'rf_r'"),
    seed("dead_task_reported", "DELETE FROM exceptions WHERE subject = 'po_d0'"),
    // Commissions.
    seed_with(
        "settlement_once",
        &["settlement_computed"],
        "ALTER TABLE settlements DROP CONSTRAINT settlements_pkey;
         INSERT INTO settlements SELECT * FROM settlements WHERE order_no = 'Z'",
    ),
    seed("settlement_once", "UPDATE orders SET settle_status = 'UNSETTLED' WHERE order_no = 'Z'"),
    seed_with(
        "settlement_once",
        &["settlement_announced"],
        "DELETE FROM settlements WHERE order_no = 'Z'",
    ),
    seed("settlement_of_order", "UPDATE orders SET rebate_user_id = 'v' WHERE order_no = 'Z'"),
    seed_with("settlement_of_order", &["payment_booked"], "UPDATE orders SET kind = 'TOPUP' WHERE order_no = 'Z'"),
    seed("settlement_computed", "UPDATE settlements SET rate = 0.04 WHERE order_no = 'S'"),
    seed("settlement_computed", "UPDATE settlements SET factor = 0.6 WHERE order_no = 'S'"),
    seed_with(
        "settlement_computed",
        &["settlement_posted", "request_effect"],
        "UPDATE settlements SET commission = 4 WHERE order_no = 'S'",
    ),
    seed_with("settlement_posted", &["account_balance", "booking_balanced"], "DELETE FROM ledger_entries WHERE transaction_id = 'SETTLEMENT:m:S'"),
    seed_with(
        "settlement_clawed_back", &["account_balance"],
        "INSERT INTO ledger_transactions (transaction_id, kind, merchant_id, order_no, created_at)
         VALUES ('CLAW_BACK:rf_x', 'CLAW_BACK', 'm', 'S', '2029-12-31 12:00');
         INSERT INTO ledger_entries (transaction_id, account_id, amount)
         VALUES ('CLAW_BACK:rf_x', 'USER_AVAILABLE:m:u:CNY', 1), ('CLAW_BACK:rf_x', 'COMMISSION_EXPENSE:m:CNY', -1)",
    ),
    seed_with(
        "settlement_follows_refunds",
        &["settlement_announced", "settlement_clawed_back", "settlement_history"],
        "UPDATE settlements SET clawed_back = 1 WHERE order_no = 'S'",
    ),
    seed("settlement_announced", "DELETE FROM outbox WHERE event = 'order.settled' AND order_no = 'Z'"),
    seed(
        "settlement_announced",
        "INSERT INTO outbox (merchant_id, order_no, event, event_version, payload, created_at)
         VALUES ('m', 'S', 'settlement.clawed_back', 1, '{\"amount\": 1}', '2029-12-31 12:00')",
    ),
    seed("settlement_run_late", "UPDATE settlement_runs SET leased_until = '2029-12-31 23:54' WHERE run_id = 'sr_2'"),
    seed_with(
        "request_effect",
        &[],
        "UPDATE idempotency_keys SET body = '{\"commission\": 7}' WHERE key = 'settled S'",
    ),
];
