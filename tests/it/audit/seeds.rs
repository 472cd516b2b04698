//! One violation after the other.

mod after_all;
mod announced;
mod books;
mod histories;
mod once;
mod receivables;
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
    let money = books::SEEDS.iter().chain(withdrawals::SEEDS).chain(after_all::SEEDS).chain(usage::SEEDS);
    money
        .chain(receivables::SEEDS)
        .chain(reconciliations::SEEDS)
        .chain(SEEDS)
        .chain(announced::SEEDS)
        .chain(histories::SEEDS)
        .chain(once::SEEDS)
        .chain(told::SEEDS)
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
    seed("refund_source", "UPDATE refunds SET order_no = 'P' WHERE refund_id = 'rf_r'"),
    seed(
        "order_refunded_amount",
        "ALTER TABLE orders DROP CONSTRAINT orders_refunded_matches;
         UPDATE orders SET refunded_amount = 1 WHERE order_no = 'D'",
    ),
    seed("order_refunded_amount", "UPDATE orders SET refunded_amount = 41 WHERE order_no = 'R'"),
    seed_with(
        "order_refunded_amount",
        &["order_history_ends"],
        "ALTER TABLE orders DROP CONSTRAINT orders_refunded_matches;
         UPDATE orders SET status = 'REFUNDED' WHERE order_no = 'R'",
    ),
    seed_with(
        "order_refunded_amount",
        &["order_history_ends"],
        "ALTER TABLE orders DROP CONSTRAINT orders_refunded_matches;
         UPDATE orders SET status = 'PARTIALLY_REFUNDED' WHERE order_no = 'V'",
    ),
    seed_with(
        "order_refunded_amount",
        &["order_history_ends"],
        "ALTER TABLE orders DROP CONSTRAINT orders_refunded_matches;
         UPDATE orders SET status = 'PAID' WHERE order_no = 'V'",
    ),
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
    seed_with(
        "order_paid_by",
        &["attempt_asks_for_its_order"],
        "UPDATE pay_orders SET amount = 99 WHERE pay_order_id = 'po_d1'",
    ),
    seed_with(
        "order_paid_by",
        &["attempt_history_ends", "refunds_within_source"],
        "ALTER TABLE pay_orders DROP CONSTRAINT pay_orders_paid_names_its_trade;
         UPDATE pay_orders SET status = 'CLOSED' WHERE pay_order_id = 'po_d1'",
    ),
    seed_with(
        "order_paid_by",
        &["paid_attempt_owned", "payment_booked", "trade_owner"],
        "UPDATE orders SET paid_by = CASE order_no WHEN 'S' THEN 'po_z' ELSE 'po_s' END WHERE order_no IN ('S', 'Z')",
    ),
    seed("order_lines_add_up", "UPDATE order_items SET unit_price = 51 WHERE order_no = 'P'"),
    seed_with(
        "stray_refund",
        &["refund_booked"],
        "UPDATE refunds SET amount = 99 WHERE refund_id = 'rf_c1'"),
    seed_with(
        "stray_refund",
        &["stray_announced", "stray_booked", "stray_history", "trade_owner"],
        "INSERT INTO stray_payments (stray_id, channel, transaction_id, out_trade_no, amount, currency, reason,
                                     status, paid_at, created_at, updated_at)
         VALUES ('sp_x', 'sandbox', 'T-x', 'x', 1, 'CNY', 'UNKNOWN_ORDER', 'REFUNDED', '2029-12-31 12:00',
                 '2029-12-31 12:00', '2029-12-31 12:00')",
    ),
    seed("stray_refund", "UPDATE refunds SET amount = 69 WHERE refund_id = 'rf_r'"),
    seed_with(
        "stray_refund",
        &["stray_history", "stray_owned", "suspense_is_stray_money"],
        "UPDATE stray_payments SET status = 'REFUNDING' WHERE stray_id = 'sp_c'",
    ),
    seed_with(
        "stray_refund",
        &["stray_exception_outlived", "stray_history", "suspense_is_stray_money"],
        "UPDATE stray_payments SET status = 'REFUNDED' WHERE stray_id = 'sp_r'",
    ),
    seed_with(
        "stray_refund",
        &["refund_history", "stray_history", "stray_owned"],
        "DELETE FROM refunds WHERE refund_id = 'rf_r'",
    ),
    seed_with(
        "stray_refund",
        &["stray_history"],
        "UPDATE stray_payments SET status = 'HELD' WHERE stray_id = 'sp_r'"),
    seed("stray_kept_by_a_person", "UPDATE exceptions SET action = 'NONE' WHERE subject = 'sp_k'"),
    seed("stray_kept_by_a_person", "DELETE FROM exceptions WHERE subject = 'sp_k'"),
    seed_with(
        "stray_kept_by_a_person",
        &["stray_exception_outlived"],
        "ALTER TABLE exceptions DROP CONSTRAINT exceptions_resolution_matches;
         UPDATE exceptions SET status = 'OPEN' WHERE subject = 'sp_k'",
    ),
    seed("stray_reason", "UPDATE stray_payments SET reason = 'LATE_PAYMENT' WHERE stray_id = 'sp_d'"),
    seed("stray_reason", "UPDATE stray_payments SET reason = 'DUPLICATE_PAYMENT' WHERE stray_id = 'sp_c'"),
    seed("stray_reason", "UPDATE stray_payments SET reason = 'AMOUNT_MISMATCH' WHERE stray_id = 'sp_d'"),
    seed_with(
        "stray_reason",
        &["callback_money_kept"],
        "UPDATE stray_payments SET reason = 'AMOUNT_MISMATCH' WHERE stray_id = 'sp_k'",
    ),
    seed("stray_reason", "UPDATE stray_payments SET reason = 'UNKNOWN_ORDER' WHERE stray_id = 'sp_d'"),
    seed("stray_owned", "DELETE FROM exceptions WHERE subject = 'sp_d'"),
    seed_with(
        "stray_owned",
        &["refund_unfinished"],
        "DELETE FROM compensations WHERE subject = 'rf_r'",
    ),
    seed(
        "stray_exception_outlived",
        "INSERT INTO exceptions (exception_id, kind, subject, detail, created_at, updated_at)
         VALUES ('ex_c', 'STRAY_MONEY', 'sp_c', 'late', '2029-12-31 12:00', '2029-12-31 12:00')",
    ),
    seed(
        "stray_exception_outlived",
        "INSERT INTO exceptions (exception_id, kind, subject, detail, created_at, updated_at)
         VALUES ('ex_k2', 'STRAY_MONEY', 'sp_k', 'refused', '2029-12-31 12:00', '2029-12-31 12:00')",
    ),
    // 5
    seed(
        "stock_bounds",
        "ALTER TABLE skus DROP CONSTRAINT skus_lock_stock_within_stock; UPDATE skus SET stock = 1",
    ),
    seed_with(
        "stock_bounds",
        &["stock_held_by_orders", "stock_held_by_reservations"],
        "ALTER TABLE skus DROP CONSTRAINT skus_lock_stock_within_stock; UPDATE skus SET lock_stock = -1",
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
    seed("reservation_of_line", "DELETE FROM order_items WHERE order_no = 'C'"),
    seed("reservation_of_line", "UPDATE stock_reservations SET quantity = 5 WHERE order_no = 'C'"),
    seed("reservation_state", "UPDATE stock_reservations SET status = 'RELEASED' WHERE order_no = 'D'"),
    seed_with(
        "reservation_state",
        &["stock_held_by_reservations"],
        "UPDATE stock_reservations SET status = 'RELEASED' WHERE order_no = 'P'",
    ),
    seed("reservation_state", "UPDATE stock_reservations SET status = 'DEDUCTED' WHERE order_no = 'C'"),
    seed(
        "reservation_state",
        "UPDATE order_items SET order_no = 'NONE' WHERE order_no = 'D';
         UPDATE stock_reservations SET order_no = 'NONE' WHERE order_no = 'D'",
    ),
    // Stock that nobody wanted back, and that came back too early; stock that was wanted and never came.
    seed("stock_returned", "UPDATE stock_reservations SET status = 'RETURNED' WHERE order_no = 'D'"),
    seed("stock_returned", "UPDATE refunds SET return_stock = false WHERE refund_id = 'rf_B'"),
    seed(
        "stock_returned",
        "UPDATE refunds SET return_stock = true WHERE refund_id = 'rf_R';
         INSERT INTO order_items VALUES ('m', 'R', 1, 'a', 1, 100);
         INSERT INTO stock_reservations VALUES ('m', 'R', 1, 'a', 1, 'RETURNED', '2029-12-31 12:00', '2029-12-31 12:00')",
    ),
    seed("stock_returned", "UPDATE stock_reservations SET status = 'DEDUCTED' WHERE order_no = 'B'"),
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
    seed("attempt_history_ends", "UPDATE order_history SET order_no = 'P' WHERE pay_order_id = 'po_d0'"),
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
    seed("attempt_outlives_order", "UPDATE pay_orders SET expires_at = '2029-12-31 23:58' WHERE pay_order_id = 'po_p1'"),
    seed("refund_unfinished", "DELETE FROM compensations WHERE subject = 'rf_d'"),
    seed(
        "callback_unmatched",
        "UPDATE webhook_inbox SET received_at = '2029-12-31 23:40' WHERE event_id = 'e5'",
    ),
    seed(
        "callback_unmatched",
        "UPDATE webhook_inbox SET received_at = '2029-12-31 23:58' WHERE event_id = 'e5';
         DELETE FROM compensations WHERE subject = 'sandbox/e5'",
    ),
    seed("task_lease", "UPDATE compensations SET due_at = '2029-12-31 23:58:59' WHERE subject = 'rf_d'"),
    seed("task_late", "UPDATE compensations SET due_at = '2029-12-31 23:54' WHERE subject = 'rf_r'"),
    // An order's in the lane that makes way while nobody works there; a refund's there, and an order's elsewhere, although
    // somebody does.
    seed(
        "task_late",
        "UPDATE compensations SET lane = 'SWEEP', action = 'EXPIRE_ORDER', due_at = '2029-12-31 23:54' WHERE subject = 'rf_r'",
    ),
    seed(
        "task_late",
        "UPDATE compensations SET lane = 'SWEEP' WHERE subject IN ('rf_r', 'rf_d');
         UPDATE compensations SET due_at = '2029-12-31 23:54' WHERE subject = 'rf_r'",
    ),
    seed(
        "task_late",
        "UPDATE compensations SET action = 'EXPIRE_ORDER', due_at = '2029-12-31 23:54' WHERE subject = 'rf_r';
         UPDATE compensations SET lane = 'SWEEP' WHERE subject = 'rf_d'",
    ),
    // While another lane rests.
    seed(
        "task_late",
        "UPDATE compensations SET due_at = '2029-12-31 23:54' WHERE subject = 'rf_r';
         UPDATE compensation_lanes SET paused_at = '2029-12-31 12:00', paused_by = 'ann', reason = 'quiet' WHERE lane = 'SWEEP'",
    ),
    seed("dead_task_reported", "UPDATE exceptions SET kind = 'CONTRADICTION' WHERE subject = 'po_d0'"),
    seed("dead_task_reported", "DELETE FROM exceptions WHERE subject = 'po_d0'"),
    seed(
        "dead_task_reported",
        "UPDATE exceptions
         SET status = 'RESOLVED', action = 'NONE', resolved_by = 'payonce', reason = 'it is tried again'
         WHERE subject = 'po_d0'",
    ),
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
    seed_with(
        "settlement_once",
        &["settlement_announced"],
        "INSERT INTO settlements
         SELECT (jsonb_populate_record(given, '{\"order_no\": \"NONE\"}')).* FROM settlements AS given WHERE order_no = 'Z'",
    ),
    seed("settlement_of_order", "UPDATE orders SET rebate_user_id = 'v' WHERE order_no = 'Z'"),
    seed_with(
        "settlement_of_order",
        &["payment_booked"],
        "UPDATE orders SET kind = 'TOPUP' WHERE order_no = 'Z'"),
    seed("settlement_of_order", "UPDATE settlements SET currency = 'USD' WHERE order_no = 'Z'"),
    seed("settlement_of_order", "UPDATE settlements SET base_amount = 201 WHERE order_no = 'Z'"),
    seed(
        "settlement_of_order",
        "ALTER TABLE orders DROP CONSTRAINT orders_paid_at_matches, DROP CONSTRAINT orders_paid_by_matches;
         UPDATE orders SET paid_at = NULL WHERE order_no = 'Z'",
    ),
    seed("settlement_computed", "UPDATE settlements SET line_rates = line_rates || 0.05 WHERE order_no = 'S'"),
    seed("settlement_computed", "UPDATE settlements SET rate = 0.04 WHERE order_no = 'S'"),
    seed("settlement_computed", "UPDATE settlements SET factor = 0.6 WHERE order_no = 'S'"),
    seed_with(
        "settlement_computed",
        &["settlement_posted", "request_effect"],
        "UPDATE settlements SET commission = 4 WHERE order_no = 'S'",
    ),
    seed_with(
        "settlement_posted",
        &["account_balance", "booking_balanced"],
        "DELETE FROM ledger_entries WHERE transaction_id = 'SETTLEMENT:m:S'"),
    // Nothing was earned, and something is booked; and what was booked is taken back as if it had never been.
    seed_with(
        "settlement_posted",
        &["account_balance"],
        "INSERT INTO ledger_transactions (transaction_id, kind, merchant_id, order_no, created_at)
         VALUES ('SETTLEMENT:m:Z', 'SETTLEMENT', 'm', 'Z', '2029-12-31 12:00');
         INSERT INTO ledger_entries (transaction_id, account_id, amount)
         VALUES ('SETTLEMENT:m:Z', 'COMMISSION_EXPENSE:m:CNY', 1), ('SETTLEMENT:m:Z', 'USER_AVAILABLE:m:u:CNY', -1)",
    ),
    seed(
        "settlement_posted",
        "INSERT INTO ledger_transactions (transaction_id, kind, merchant_id, order_no, reverses, created_at)
         VALUES ('REVERSAL:SETTLEMENT:m:S', 'REVERSAL', 'm', 'S', 'SETTLEMENT:m:S', '2029-12-31 12:00');
         INSERT INTO ledger_entries (transaction_id, account_id, amount)
         VALUES ('REVERSAL:SETTLEMENT:m:S', 'COMMISSION_EXPENSE:m:CNY', -5),
                ('REVERSAL:SETTLEMENT:m:S', 'USER_AVAILABLE:m:u:CNY', 5);
         UPDATE accounts SET balance = balance - 5
         WHERE account_id IN ('COMMISSION_EXPENSE:m:CNY', 'USER_AVAILABLE:m:u:CNY')",
    ),
    // What was claimed back was given back.
    seed_with(
        "settlement_clawed_back",
        &["settlement_announced", "settlement_follows_refunds", "settlement_history"],
        "UPDATE settlements SET clawed_back = 1 WHERE order_no = 'S';
         INSERT INTO ledger_transactions (transaction_id, kind, merchant_id, order_no, reverses, created_at)
         VALUES ('CLAW_BACK:rf_x', 'CLAW_BACK', 'm', 'S', NULL, '2029-12-31 12:00'),
                ('REVERSAL:CLAW_BACK:rf_x', 'REVERSAL', 'm', 'S', 'CLAW_BACK:rf_x', '2029-12-31 12:00');
         INSERT INTO ledger_entries (transaction_id, account_id, amount)
         VALUES ('CLAW_BACK:rf_x', 'USER_AVAILABLE:m:u:CNY', 1), ('CLAW_BACK:rf_x', 'COMMISSION_EXPENSE:m:CNY', -1),
                ('REVERSAL:CLAW_BACK:rf_x', 'USER_AVAILABLE:m:u:CNY', -1),
                ('REVERSAL:CLAW_BACK:rf_x', 'COMMISSION_EXPENSE:m:CNY', 1)",
    ),
    // Of an order that earned nobody anything.
    seed_with(
        "settlement_clawed_back",
        &["write_off_stands"],
        "INSERT INTO ledger_transactions (transaction_id, kind, merchant_id, order_no, created_at)
         VALUES ('CLAW_BACK:rf_x', 'CLAW_BACK', 'm', 'D', '2029-12-31 12:00');
         INSERT INTO ledger_entries (transaction_id, account_id, amount)
         VALUES ('CLAW_BACK:rf_x', 'USER_AVAILABLE:m:u:CNY', 1), ('CLAW_BACK:rf_x', 'MERCHANT:m:CNY', -1);
         UPDATE accounts SET balance = balance - 1 WHERE account_id = 'USER_AVAILABLE:m:u:CNY';
         UPDATE accounts SET balance = balance + 1 WHERE account_id = 'MERCHANT:m:CNY'",
    ),
    // From the merchant's money, and from another user's.
    seed_with(
        "settlement_clawed_back",
        &["write_off_stands"],
        "INSERT INTO ledger_transactions (transaction_id, kind, merchant_id, order_no, created_at)
         VALUES ('CLAW_BACK:rf_x', 'CLAW_BACK', 'm', 'S', '2029-12-31 12:00');
         INSERT INTO ledger_entries (transaction_id, account_id, amount)
         VALUES ('CLAW_BACK:rf_x', 'USER_AVAILABLE:m:u:CNY', 1), ('CLAW_BACK:rf_x', 'MERCHANT:m:CNY', -1);
         UPDATE accounts SET balance = balance - 1 WHERE account_id = 'USER_AVAILABLE:m:u:CNY';
         UPDATE accounts SET balance = balance + 1 WHERE account_id = 'MERCHANT:m:CNY'",
    ),
    seed_with(
        "settlement_clawed_back",
        &["settlement_announced", "settlement_follows_refunds", "settlement_history"],
        "UPDATE settlements SET clawed_back = 1 WHERE order_no = 'S';
         INSERT INTO ledger_transactions (transaction_id, kind, merchant_id, order_no, created_at)
         VALUES ('CLAW_BACK:rf_x', 'CLAW_BACK', 'm', 'S', '2029-12-31 12:00');
         INSERT INTO ledger_entries (transaction_id, account_id, amount)
         VALUES ('CLAW_BACK:rf_x', 'USER_RECEIVABLE:m:v:CNY', 1), ('CLAW_BACK:rf_x', 'COMMISSION_EXPENSE:m:CNY', -1);
         INSERT INTO accounts (account_id, balance, created_at, updated_at)
         VALUES ('USER_RECEIVABLE:m:v:CNY', 1, '2029-12-31 12:00', '2029-12-31 12:00');
         UPDATE accounts SET balance = balance - 1 WHERE account_id = 'COMMISSION_EXPENSE:m:CNY'",
    ),
    seed_with(
        "settlement_clawed_back",
        &["account_balance"],
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
    // One is missing that gave nothing and took nothing in sum, and one was told in two.
    seed("settlement_announced", "DELETE FROM outbox WHERE payload ->> 'amount' IN ('2', '-2') AND order_no = 'S'"),
    seed(
        "settlement_announced",
        "UPDATE outbox SET payload = '{\"amount\": 1, \"clawed_back\": 1}' WHERE payload ->> 'amount' = '3' AND order_no = 'S';
         INSERT INTO outbox (merchant_id, order_no, event, event_version, payload, created_at)
         VALUES ('m', 'S', 'settlement.clawed_back', 1, '{\"amount\": 2, \"clawed_back\": 3}', '2029-12-31 12:00')",
    ),
    seed(
        "settlement_announced",
        "INSERT INTO outbox (merchant_id, order_no, event, event_version, payload, created_at)
         VALUES ('m', 'S', 'order.settled', 1, '{}', '2029-12-31 12:00')",
    ),
    seed(
        "settlement_announced",
        "INSERT INTO outbox (merchant_id, order_no, event, event_version, payload, created_at)
         VALUES ('m', 'D', 'order.settled', 1, '{}', '2029-12-31 12:00')",
    ),
    seed("settlement_run_late", "UPDATE settlement_runs SET leased_until = '2029-12-31 23:54' WHERE run_id = 'sr_2'"),
    seed("settlement_run_late", "UPDATE settlement_runs SET last_error = 'it answered 401' WHERE run_id = 'sr_2'"),
];
