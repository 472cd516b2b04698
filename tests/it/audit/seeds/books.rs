//! Violations of the books, one after the other. Where only one check is meant, balances are made to fit.

use super::{Seed, seed, seed_with};

pub(super) const SEEDS: &[Seed] = &[
    // 1
    seed(
        "booking_balanced",
        "INSERT INTO ledger_transactions (transaction_id, kind, created_at)
         VALUES ('PAYOUT:x', 'PAYOUT', '2029-12-31 12:00')",
    ),
    seed_with(
        "booking_balanced",
        &["withdrawal_booked_right"],
        "INSERT INTO ledger_transactions (transaction_id, kind, created_at)
         VALUES ('PAYOUT:x', 'PAYOUT', '2029-12-31 12:00');
         INSERT INTO ledger_entries (transaction_id, account_id, amount)
         VALUES ('PAYOUT:x', 'CHANNEL:sandbox:CNY', 1), ('PAYOUT:x', 'PLATFORM_REVENUE:USD', -1);
         UPDATE accounts SET balance = balance + 1
         WHERE account_id IN ('CHANNEL:sandbox:CNY', 'PLATFORM_REVENUE:USD')",
    ),
    seed_with(
        "booking_balanced",
        &["account_balance", "payment_booked"],
        "UPDATE ledger_entries SET amount = 99 WHERE transaction_id = 'PAYMENT:po_d1' AND amount = 100",
    ),
    // From one user to another.
    seed_with(
        "booking_balanced",
        &["withdrawal_booked_right"],
        "INSERT INTO ledger_transactions (transaction_id, kind, created_at)
         VALUES ('PAYOUT:x', 'PAYOUT', '2029-12-31 12:00');
         INSERT INTO ledger_entries (transaction_id, account_id, amount)
         VALUES ('PAYOUT:x', 'USER_AVAILABLE:m:u:CNY', 1), ('PAYOUT:x', 'USER_AVAILABLE:m:v:CNY', -1);
         UPDATE accounts SET balance = balance - 1 WHERE account_id = 'USER_AVAILABLE:m:u:CNY';
         INSERT INTO accounts (account_id, balance, created_at, updated_at)
         VALUES ('USER_AVAILABLE:m:v:CNY', 1, '2029-12-31 12:00', '2029-12-31 12:00')",
    ),
    // Of another kind than its name says.
    seed_with(
        "booking_balanced",
        &["withdrawal_booked_right"],
        "INSERT INTO ledger_transactions (transaction_id, kind, created_at) VALUES ('x', 'PAYOUT', '2029-12-31 12:00');
         INSERT INTO ledger_entries (transaction_id, account_id, amount)
         VALUES ('x', 'CHANNEL:sandbox:CNY', 1), ('x', 'MERCHANT:m:CNY', -1);
         UPDATE accounts SET balance = balance + 1 WHERE account_id IN ('CHANNEL:sandbox:CNY', 'MERCHANT:m:CNY')",
    ),
    // Nothing, moved.
    seed_with(
        "booking_balanced",
        &["refund_hold_booked"],
        "INSERT INTO ledger_transactions (transaction_id, kind, created_at)
         VALUES ('REFUND_HOLD:x', 'REFUND_HOLD', '2029-12-31 12:00');
         INSERT INTO ledger_entries (transaction_id, account_id, amount)
         VALUES ('REFUND_HOLD:x', 'USER_AVAILABLE:m:u:CNY', 0), ('REFUND_HOLD:x', 'USER_HELD:m:u:CNY', 0)",
    ),
    seed("account_balance", "UPDATE accounts SET balance = balance + 1 WHERE kind = 'MERCHANT'"),
    seed("account_balance", "DELETE FROM account_movements WHERE account_id = 'MERCHANT:m:CNY' AND amount = 40"),
    seed("account_balance", "INSERT INTO account_movements VALUES ('USER_AVAILABLE:m:u:CNY', 0)"),
    seed("account_balance", "INSERT INTO account_movements VALUES ('MERCHANT:nobody:CNY', 1)"),
    seed("account_balance", "DELETE FROM accounts WHERE account_id = 'PLATFORM_REVENUE:USD'"),
    seed_with(
        "user_balance_not_negative",
        &["withdrawal_booked_right"],
        "ALTER TABLE accounts DROP CONSTRAINT accounts_user_balance_not_negative;
         INSERT INTO ledger_transactions (transaction_id, kind, created_at)
         VALUES ('PAYOUT:x', 'PAYOUT', '2029-12-31 12:00');
         INSERT INTO ledger_entries (transaction_id, account_id, amount)
         VALUES ('PAYOUT:x', 'USER_AVAILABLE:m:v:CNY', 1), ('PAYOUT:x', 'MERCHANT:m:CNY', -1);
         INSERT INTO accounts (account_id, balance, created_at, updated_at)
         VALUES ('USER_AVAILABLE:m:v:CNY', -1, '2029-12-31 12:00', '2029-12-31 12:00');
         UPDATE accounts SET balance = balance + 1 WHERE account_id = 'MERCHANT:m:CNY'",
    ),
    // 2
    seed(
        "payment_booked",
        "DELETE FROM ledger_transactions WHERE transaction_id = 'PAYMENT:po_d1';
         UPDATE accounts SET balance = balance - 100 WHERE account_id IN ('CHANNEL:sandbox:CNY', 'MERCHANT:m:CNY')",
    ),
    seed(
        "payment_booked",
        "INSERT INTO ledger_transactions (transaction_id, kind, merchant_id, order_no, created_at)
         VALUES ('PAYMENT:po_p1', 'PAYMENT', 'm', 'P', '2029-12-31 12:00');
         INSERT INTO ledger_entries (transaction_id, account_id, amount)
         VALUES ('PAYMENT:po_p1', 'CHANNEL:sandbox:CNY', 100), ('PAYMENT:po_p1', 'MERCHANT:m:CNY', -100);
         UPDATE accounts SET balance = balance + 100 WHERE account_id IN ('CHANNEL:sandbox:CNY', 'MERCHANT:m:CNY')",
    ),
    seed(
        "payment_booked",
        "UPDATE ledger_entries SET amount = sign(amount) * 90 WHERE transaction_id = 'PAYMENT:po_d1';
         UPDATE accounts SET balance = balance - 10 WHERE account_id IN ('CHANNEL:sandbox:CNY', 'MERCHANT:m:CNY')",
    ),
    seed_with(
        "payment_booked",
        &["account_balance"],
        "UPDATE ledger_entries SET account_id = 'MERCHANT:m:CNY'
         WHERE transaction_id = 'PAYMENT:po_t1' AND account_id = 'USER_AVAILABLE:m:u:CNY';
         UPDATE accounts SET balance = balance + 300 WHERE account_id = 'MERCHANT:m:CNY';
         UPDATE accounts SET balance = 0 WHERE account_id = 'USER_AVAILABLE:m:u:CNY'",
    ),
    seed(
        "payment_booked",
        "UPDATE ledger_transactions SET order_no = 'P' WHERE transaction_id = 'PAYMENT:po_d1'",
    ),
    seed(
        "payment_booked",
        "INSERT INTO ledger_transactions (transaction_id, kind, merchant_id, order_no, reverses, created_at)
         SELECT 'REVERSAL:' || transaction_id, 'REVERSAL', merchant_id, order_no, transaction_id, created_at
         FROM ledger_transactions WHERE transaction_id = 'PAYMENT:po_d1';
         INSERT INTO ledger_entries (transaction_id, account_id, amount)
         SELECT 'REVERSAL:' || transaction_id, account_id, -amount
         FROM ledger_entries WHERE transaction_id = 'PAYMENT:po_d1';
         UPDATE accounts SET balance = balance - 100 WHERE account_id IN ('CHANNEL:sandbox:CNY', 'MERCHANT:m:CNY')",
    ),
    seed(
        "stray_booked",
        "UPDATE ledger_transactions SET order_no = 'P' WHERE transaction_id = 'STRAY_PAYMENT:sp_d'",
    ),
    seed_with(
        "stray_booked",
        &["suspense_is_stray_money"],
        "DELETE FROM ledger_transactions WHERE transaction_id = 'STRAY_PAYMENT:sp_d';
         UPDATE accounts SET balance = balance - 100
         WHERE account_id IN ('CHANNEL:sandbox:CNY', 'SUSPENSE:sandbox:CNY')",
    ),
    seed_with(
        "stray_booked",
        &["suspense_is_stray_money"],
        "INSERT INTO ledger_transactions (transaction_id, kind, merchant_id, order_no, created_at)
         VALUES ('STRAY_KEPT:sp_d', 'STRAY_KEPT', 'm', 'D', '2029-12-31 12:00');
         INSERT INTO ledger_entries (transaction_id, account_id, amount)
         VALUES ('STRAY_KEPT:sp_d', 'SUSPENSE:sandbox:CNY', 100), ('STRAY_KEPT:sp_d', 'MERCHANT:m:CNY', -100);
         UPDATE accounts SET balance = balance - 100 WHERE account_id = 'SUSPENSE:sandbox:CNY';
         UPDATE accounts SET balance = balance + 100 WHERE account_id = 'MERCHANT:m:CNY'",
    ),
    seed_with(
        "stray_booked",
        &["suspense_is_stray_money"],
        "INSERT INTO ledger_transactions (transaction_id, kind, merchant_id, order_no, reverses, created_at)
         VALUES ('REVERSAL:STRAY_PAYMENT:sp_d', 'REVERSAL', 'm', 'D', 'STRAY_PAYMENT:sp_d', '2029-12-31 12:00');
         INSERT INTO ledger_entries (transaction_id, account_id, amount)
         SELECT 'REVERSAL:' || transaction_id, account_id, -amount
         FROM ledger_entries WHERE transaction_id = 'STRAY_PAYMENT:sp_d';
         UPDATE accounts SET balance = balance - 100
         WHERE account_id IN ('CHANNEL:sandbox:CNY', 'SUSPENSE:sandbox:CNY')",
    ),
    // Kept by the platform, and the merchant is known.
    seed_with(
        "stray_booked",
        &["stray_history"],
        "UPDATE stray_payments SET status = 'KEPT' WHERE stray_id = 'sp_d';
         UPDATE exceptions SET status = 'RESOLVED', action = 'KEEP' WHERE subject = 'sp_d';
         INSERT INTO ledger_transactions (transaction_id, kind, merchant_id, order_no, created_at)
         VALUES ('STRAY_KEPT:sp_d', 'STRAY_KEPT', 'm', 'D', '2029-12-31 12:00');
         INSERT INTO ledger_entries (transaction_id, account_id, amount)
         VALUES ('STRAY_KEPT:sp_d', 'SUSPENSE:sandbox:CNY', 100), ('STRAY_KEPT:sp_d', 'PLATFORM_REVENUE:CNY', -100);
         UPDATE accounts SET balance = balance - 100 WHERE account_id = 'SUSPENSE:sandbox:CNY';
         INSERT INTO accounts (account_id, balance, created_at, updated_at)
         VALUES ('PLATFORM_REVENUE:CNY', 100, '2029-12-31 12:00', '2029-12-31 12:00')",
    ),
    seed_with(
        "stray_booked",
        &["suspense_is_stray_money"],
        "DELETE FROM ledger_transactions WHERE transaction_id = 'STRAY_KEPT:sp_k';
         UPDATE accounts SET balance = 5 - balance
         WHERE account_id IN ('SUSPENSE:sandbox:USD', 'PLATFORM_REVENUE:USD')",
    ),
    seed(
        "refund_booked",
        "UPDATE ledger_transactions SET merchant_id = NULL WHERE transaction_id = 'REFUND:rf_c1'",
    ),
    seed_with(
        "refund_booked",
        &["suspense_is_stray_money"],
        "DELETE FROM ledger_transactions WHERE transaction_id = 'REFUND:rf_c1';
         UPDATE accounts SET balance = balance + 100
         WHERE account_id IN ('CHANNEL:sandbox:CNY', 'SUSPENSE:sandbox:CNY')",
    ),
    seed_with(
        "refund_booked",
        &["suspense_is_stray_money"],
        "DELETE FROM ledger_transactions WHERE transaction_id = 'REVERSAL:REFUND:rf_cx';
         UPDATE accounts SET balance = balance - 100
         WHERE account_id IN ('CHANNEL:sandbox:CNY', 'SUSPENSE:sandbox:CNY')",
    ),
    // A sale's refund from its channel's suspense, and a top-up's from what its user can spend.
    seed_with(
        "refund_booked",
        &["suspense_is_stray_money"],
        "UPDATE ledger_entries SET account_id = 'SUSPENSE:sandbox:CNY'
         WHERE transaction_id = 'REFUND:rf_R' AND account_id = 'MERCHANT:m:CNY';
         UPDATE accounts SET balance = balance - 40 WHERE account_id = 'SUSPENSE:sandbox:CNY';
         UPDATE accounts SET balance = balance + 40 WHERE account_id = 'MERCHANT:m:CNY'",
    ),
    seed_with(
        "refund_booked",
        &["held_is_open"],
        "UPDATE ledger_entries SET account_id = 'USER_AVAILABLE:m:u:CNY'
         WHERE transaction_id = 'REFUND:rf_V' AND account_id = 'USER_HELD:m:u:CNY';
         UPDATE accounts SET balance = balance - 50 WHERE account_id = 'USER_AVAILABLE:m:u:CNY';
         UPDATE accounts SET balance = balance + 50 WHERE account_id = 'USER_HELD:m:u:CNY'",
    ),
    // Set aside for nobody's refund, and with the merchant; for one that failed; for another order; not at all.
    seed(
        "refund_hold_booked",
        "INSERT INTO ledger_transactions (transaction_id, kind, merchant_id, created_at)
         VALUES ('REFUND_HOLD:x', 'REFUND_HOLD', 'm', '2029-12-31 12:00');
         INSERT INTO ledger_entries (transaction_id, account_id, amount)
         VALUES ('REFUND_HOLD:x', 'USER_AVAILABLE:m:u:CNY', 10), ('REFUND_HOLD:x', 'MERCHANT:m:CNY', -10);
         UPDATE accounts SET balance = balance - 10 WHERE account_id = 'USER_AVAILABLE:m:u:CNY';
         UPDATE accounts SET balance = balance + 10 WHERE account_id = 'MERCHANT:m:CNY'",
    ),
    seed_with(
        "refund_hold_booked",
        &["held_is_open"],
        "INSERT INTO refunds (refund_id, merchant_id, refund_no, order_no, pay_order_id, amount, currency, status, reason,
                              failure, created_at, updated_at)
         VALUES ('rf_t', 'm', 'rf_t', 'T', 'po_t1', 1, 'CNY', 'FAILED', 'R', 'no', '2029-12-31 12:00', '2029-12-31 12:00');
         INSERT INTO refund_history VALUES ('rf_t', 1, NULL, 'PENDING', 'ASKED', '2029-12-31 12:00'),
                                           ('rf_t', 2, 'PENDING', 'FAILED', 'FAILED', '2029-12-31 12:00');
         INSERT INTO outbox (merchant_id, order_no, event, event_version, payload, created_at)
         VALUES ('m', 'T', 'refund.finished', 1, '{\"refund_no\": \"rf_t\", \"status\": \"FAILED\"}', '2029-12-31 12:00');
         INSERT INTO ledger_transactions (transaction_id, kind, merchant_id, order_no, created_at)
         VALUES ('REFUND_HOLD:rf_t', 'REFUND_HOLD', 'm', 'T', '2029-12-31 12:00');
         INSERT INTO ledger_entries (transaction_id, account_id, amount)
         VALUES ('REFUND_HOLD:rf_t', 'USER_AVAILABLE:m:u:CNY', 1), ('REFUND_HOLD:rf_t', 'USER_HELD:m:u:CNY', -1);
         UPDATE accounts SET balance = balance - 1 WHERE account_id = 'USER_AVAILABLE:m:u:CNY';
         UPDATE accounts SET balance = balance + 1 WHERE account_id = 'USER_HELD:m:u:CNY'",
    ),
    seed(
        "refund_hold_booked",
        "UPDATE ledger_transactions SET order_no = 'T' WHERE transaction_id = 'REFUND_HOLD:rf_V'",
    ),
    seed_with(
        "refund_hold_booked",
        &["held_is_open"],
        "INSERT INTO ledger_transactions (transaction_id, kind, merchant_id, order_no, reverses, created_at)
         VALUES ('REVERSAL:REFUND_HOLD:rf_V', 'REVERSAL', 'm', 'V', 'REFUND_HOLD:rf_V', '2029-12-31 12:00');
         INSERT INTO ledger_entries (transaction_id, account_id, amount)
         SELECT 'REVERSAL:REFUND_HOLD:rf_V', account_id, -amount
         FROM ledger_entries WHERE transaction_id = 'REFUND_HOLD:rf_V';
         UPDATE accounts SET balance = balance + 50 WHERE account_id = 'USER_AVAILABLE:m:u:CNY';
         UPDATE accounts SET balance = balance - 50 WHERE account_id = 'USER_HELD:m:u:CNY'",
    ),
    seed_with(
        "suspense_is_stray_money",
        &["withdrawal_booked_right"],
        "INSERT INTO ledger_transactions (transaction_id, kind, created_at)
         VALUES ('PAYOUT:x', 'PAYOUT', '2029-12-31 12:00');
         INSERT INTO ledger_entries (transaction_id, account_id, amount)
         VALUES ('PAYOUT:x', 'SUSPENSE:sandbox:CNY', 1), ('PAYOUT:x', 'MERCHANT:m:CNY', -1);
         UPDATE accounts SET balance = balance - 1 WHERE account_id = 'SUSPENSE:sandbox:CNY';
         UPDATE accounts SET balance = balance + 1 WHERE account_id = 'MERCHANT:m:CNY'",
    ),
    seed(
        "reversal_mirrors",
        "INSERT INTO accounts (account_id, balance, created_at, updated_at)
         VALUES ('PLATFORM_REVENUE:CNY', -100, '2029-12-31 12:00', '2029-12-31 12:00');
         UPDATE accounts SET balance = balance - 100 WHERE account_id = 'CHANNEL:sandbox:CNY';
         UPDATE ledger_entries SET account_id = 'PLATFORM_REVENUE:CNY'
         WHERE transaction_id = 'REVERSAL:REFUND:rf_cx' AND account_id = 'CHANNEL:sandbox:CNY'",
    ),
    seed_with(
        "reversal_mirrors",
        &["booking_balanced", "suspense_is_stray_money"],
        "INSERT INTO ledger_transactions (transaction_id, kind, reverses, created_at)
         VALUES ('REVERSAL:again', 'REVERSAL', 'REFUND:rf_cx', '2029-12-31 12:00');
         INSERT INTO ledger_entries (transaction_id, account_id, amount)
         VALUES ('REVERSAL:again', 'CHANNEL:sandbox:CNY', 100), ('REVERSAL:again', 'SUSPENSE:sandbox:CNY', -100);
         UPDATE accounts SET balance = balance + 100
         WHERE account_id IN ('CHANNEL:sandbox:CNY', 'SUSPENSE:sandbox:CNY')",
    ),
    // Of what was never booked.
    seed(
        "reversal_mirrors",
        "INSERT INTO ledger_transactions (transaction_id, kind, reverses, created_at)
         VALUES ('REVERSAL:PAYMENT:none', 'REVERSAL', 'PAYMENT:none', '2029-12-31 12:00');
         INSERT INTO ledger_entries (transaction_id, account_id, amount)
         VALUES ('REVERSAL:PAYMENT:none', 'CHANNEL:sandbox:CNY', -1), ('REVERSAL:PAYMENT:none', 'MERCHANT:m:CNY', 1);
         UPDATE accounts SET balance = balance - 1 WHERE account_id IN ('CHANNEL:sandbox:CNY', 'MERCHANT:m:CNY')",
    ),
];
