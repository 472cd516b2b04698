//! Seeds of refunds that failed and were made after all.

use super::{Seed, seed, seed_with};

pub(super) const SEEDS: &[Seed] = &[
    // It failed, was made after all, and another one has gone out since.
    seed_with(
        "refunds_within_source",
        &["refund_after_all_booked", "refund_announced", "suspense_is_stray_money"],
        "UPDATE refunds SET channel_refund_id = 'c', made_after_all_at = updated_at WHERE refund_id = 'rf_c0'",
    ),
    // Told once too often, once too rarely, and taken back in silence.
    seed(
        "refund_announced",
        "INSERT INTO outbox (merchant_id, order_no, event, event_version, payload, created_at)
         SELECT 'm', 'T', event, 1, '{\"refund_no\": \"rf_a\"}', '2029-12-31 12:00'
         FROM (VALUES ('refund.reversed'), ('refund.made_after_all')) AS told (event)",
    ),
    seed(
        "refund_announced",
        "DELETE FROM outbox WHERE id IN (SELECT max(id) FROM outbox WHERE payload ->> 'refund_no' = 'rf_a' GROUP BY event)
                              AND event <> 'refund.finished'",
    ),
    seed(
        "refund_announced",
        "DELETE FROM outbox WHERE event = 'refund.reversed' AND payload ->> 'refund_no' = 'rf_a'",
    ),
    // Known, and not booked; booked, and not known any more.
    seed(
        "refund_after_all_booked",
        "DELETE FROM ledger_transactions WHERE transaction_id = 'REFUND_AFTER_ALL:rf_a:2';
         UPDATE accounts SET balance = balance + 30 WHERE account_id = 'CHANNEL:sandbox:CNY';
         UPDATE accounts SET balance = balance + 1 WHERE account_id = 'USER_AVAILABLE:m:u:CNY';
         UPDATE accounts SET balance = balance - 29 WHERE account_id = 'USER_RECEIVABLE:m:u:CNY'",
    ),
    seed_with(
        "refund_after_all_booked",
        &["refund_announced"],
        "UPDATE refunds SET made_after_all_at = NULL WHERE refund_id = 'rf_a'",
    ),
    // The first one stands beside the last.
    seed_with(
        "refund_after_all_booked",
        &["charge_paid_back"],
        "DELETE FROM ledger_transactions WHERE transaction_id = 'REVERSAL:REFUND_AFTER_ALL:rf_a:1';
         UPDATE accounts SET balance = balance - 30 WHERE account_id = 'CHANNEL:sandbox:CNY';
         UPDATE accounts SET balance = balance - 20 WHERE account_id = 'USER_AVAILABLE:m:u:CNY';
         UPDATE accounts SET balance = balance + 10 WHERE account_id = 'USER_RECEIVABLE:m:u:CNY'",
    ),
    // More is owed than was given back; another order; what was set aside.
    seed(
        "refund_after_all_booked",
        "UPDATE ledger_transactions SET amounts = '{-30,-5,35}' WHERE transaction_id = 'REFUND_AFTER_ALL:rf_a:2';
         UPDATE accounts SET balance = balance + 6
         WHERE account_id IN ('USER_AVAILABLE:m:u:CNY', 'USER_RECEIVABLE:m:u:CNY')",
    ),
    seed(
        "refund_after_all_booked",
        "UPDATE ledger_transactions SET order_no = 'D' WHERE transaction_id = 'REFUND_AFTER_ALL:rf_a:2'",
    ),
    seed_with(
        "refund_after_all_booked",
        &["held_is_open"],
        "UPDATE ledger_entries SET account_id = 'USER_HELD:m:u:CNY'
         WHERE transaction_id = 'REFUND_AFTER_ALL:rf_a:2' AND account_id = 'USER_AVAILABLE:m:u:CNY';
         UPDATE accounts SET balance = balance + 1 WHERE account_id = 'USER_AVAILABLE:m:u:CNY';
         UPDATE accounts SET balance = balance - 1 WHERE account_id = 'USER_HELD:m:u:CNY'",
    ),
    // More than it had left owing.
    seed(
        "charge_paid_back",
        "UPDATE ledger_entries SET amount = 11 * sign(amount) WHERE transaction_id = 'CHARGE_PAID_BACK:rf_a:1';
         UPDATE accounts SET balance = balance + 7
         WHERE account_id IN ('USER_AVAILABLE:m:u:CNY', 'USER_RECEIVABLE:m:u:CNY')",
    ),
];
