//! Violations of withdrawals, one after the other.

use super::{Seed, seed, seed_with};

pub(super) const SEEDS: &[Seed] = &[
    seed_with(
        "withdrawal_booked",
        &["payouts_in_transit"],
        "INSERT INTO ledger_transactions (transaction_id, kind, merchant_id, created_at)
         VALUES ('PAYOUT:wd_d', 'PAYOUT', 'm', '2029-12-31 12:00');
         INSERT INTO ledger_entries (transaction_id, account_id, amount)
         VALUES ('PAYOUT:wd_d', 'PAYOUTS_IN_TRANSIT:sandbox:CNY', 20), ('PAYOUT:wd_d', 'CHANNEL:sandbox:CNY', -20);
         UPDATE accounts SET balance = balance - 20 WHERE account_id = 'CHANNEL:sandbox:CNY';
         UPDATE accounts SET balance = balance + 20 WHERE account_id = 'PAYOUTS_IN_TRANSIT:sandbox:CNY'",
    ),
    seed_with(
        "withdrawal_booked",
        &["payouts_in_transit"],
        "DELETE FROM ledger_transactions WHERE transaction_id = 'PAYOUT:wd_p';
         UPDATE accounts SET balance = balance + 30 WHERE account_id = 'CHANNEL:sandbox:CNY';
         UPDATE accounts SET balance = balance - 30 WHERE account_id = 'PAYOUTS_IN_TRANSIT:sandbox:CNY'",
    ),
    // Nothing says that it arrived, or that it came back.
    seed_with(
        "withdrawal_booked",
        &["held_is_open", "payouts_in_transit"],
        "DELETE FROM ledger_transactions WHERE transaction_id = 'PAYOUT_DONE:wd_s';
         UPDATE accounts SET balance = balance + 10
         WHERE account_id IN ('USER_HELD:m:u:CNY', 'PAYOUTS_IN_TRANSIT:sandbox:CNY')",
    ),
    seed_with(
        "withdrawal_booked",
        &["held_is_open"],
        "DELETE FROM ledger_transactions WHERE transaction_id = 'REVERSAL:WITHDRAWAL:wd_r';
         UPDATE accounts SET balance = balance + 40 WHERE account_id = 'USER_HELD:m:u:CNY';
         UPDATE accounts SET balance = balance - 40 WHERE account_id = 'USER_AVAILABLE:m:u:CNY'",
    ),
    // It went out after all, and was taken from nobody; or it did not, and was.
    seed_with(
        "withdrawal_booked",
        &["withdrawal_announced"],
        "UPDATE withdrawals SET channel_payout_id = 'P-r' WHERE withdrawal_id = 'wd_r'",
    ),
    seed_with(
        "withdrawal_booked",
        &["withdrawal_announced"],
        "UPDATE withdrawals SET channel_payout_id = NULL WHERE withdrawal_id = 'wd_a'",
    ),
    // It came back, and is its user's again, says nothing; nor that it did once more, or did not.
    seed_with(
        "withdrawal_booked",
        &["withdrawal_announced", "withdrawal_legs"],
        "UPDATE withdrawals SET returned_at = '2029-12-31 12:00', returned_times = 1 WHERE withdrawal_id = 'wd_s'",
    ),
    seed_with(
        "withdrawal_booked",
        &["withdrawal_announced"],
        "UPDATE withdrawals SET returned_at = '2029-12-31 12:00', returned_times = 1 WHERE withdrawal_id = 'wd_a'",
    ),
    seed_with(
        "withdrawal_booked",
        &["withdrawal_announced"],
        "UPDATE withdrawals SET returned_at = NULL WHERE withdrawal_id = 'wd_b'",
    ),
    seed_with(
        "withdrawal_booked",
        &["withdrawal_announced"],
        "UPDATE withdrawals SET returned_times = 3 WHERE withdrawal_id = 'wd_b'",
    ),
    seed_with(
        "withdrawal_booked",
        &["held_is_open"],
        "DELETE FROM ledger_transactions WHERE transaction_id = 'REVERSAL:WITHDRAWAL:wd_b';
         UPDATE accounts SET balance = balance + 35 WHERE account_id = 'USER_HELD:m:u:CNY';
         UPDATE accounts SET balance = balance - 35 WHERE account_id = 'USER_AVAILABLE:m:u:CNY'",
    ),
    seed("withdrawal_booked_right", "UPDATE withdrawals SET channel = 'other' WHERE withdrawal_id = 'wd_s'"),
    seed(
        "withdrawal_booked_right",
        "UPDATE ledger_transactions SET amounts = '{-25,30,-5}' WHERE transaction_id = 'PAYOUT_AFTER_ALL:wd_a';
         UPDATE accounts SET balance = balance - 10
         WHERE account_id IN ('USER_AVAILABLE:m:u:CNY', 'USER_RECEIVABLE:m:u:CNY')",
    ),
    seed_with(
        "withdrawal_booked_right",
        &["held_is_open"],
        "UPDATE withdrawals SET user_id = 'v' WHERE withdrawal_id = 'wd_p'",
    ),
    seed_with(
        "held_is_open",
        &["account_balance"],
        "UPDATE accounts SET balance = balance + 1 WHERE kind = 'USER_HELD'"),
    seed_with(
        "held_is_open",
        &["withdrawal_booked_right"],
        "UPDATE withdrawals SET amount = 21 WHERE withdrawal_id = 'wd_d'",
    ),
    // Of a top-up that goes back nothing was set aside.
    seed_with(
        "held_is_open",
        &["refund_history", "refund_hold_booked"],
        "INSERT INTO refunds (refund_id, merchant_id, refund_no, order_no, pay_order_id, amount, currency, status, reason,
                              created_at, updated_at)
         VALUES ('rf_t', 'm', 'rf_t', 'T', 'po_t1', 1, 'CNY', 'AWAITING_APPROVAL', 'R', '2029-12-31 12:00',
                 '2029-12-31 12:00')",
    ),
    seed_with(
        "payouts_in_transit",
        &["account_balance"],
        "INSERT INTO account_movements VALUES ('PAYOUTS_IN_TRANSIT:sandbox:CNY', 1)",
    ),
    seed("withdrawal_legs", "UPDATE withdrawal_legs SET status = 'SUCCEEDED' WHERE withdrawal_id = 'wd_p'"),
    seed("withdrawal_legs", "UPDATE withdrawal_legs SET status = 'FAILED' WHERE withdrawal_id = 'wd_d' AND leg = 'PAYOUT'"),
    seed("withdrawal_legs", "UPDATE withdrawal_legs SET status = 'FAILED' WHERE withdrawal_id = 'wd_s' AND leg = 'PAYOUT'"),
    seed("withdrawal_legs", "DELETE FROM withdrawal_legs WHERE withdrawal_id = 'wd_r' AND leg = 'REVERSAL'"),
    // It came back, and no leg says so.
    seed("withdrawal_legs", "DELETE FROM withdrawal_legs WHERE withdrawal_id = 'wd_b' AND leg = 'REVERSAL'"),
    // Of a withdrawal that is not there.
    seed(
        "withdrawal_legs",
        "INSERT INTO withdrawal_legs (withdrawal_id, leg, status, created_at, updated_at)
         VALUES ('wd_none', 'DEBIT', 'SUCCEEDED', '2029-12-31 12:00', '2029-12-31 12:00')",
    ),
    seed(
        "withdrawal_history",
        "INSERT INTO withdrawal_history (withdrawal_id, seq, from_status, to_status, event, created_at)
         VALUES ('wd_none', 1, NULL, 'CREATED', 'CREATED', '2029-12-31 12:00')",
    ),
    seed("withdrawal_history", "DELETE FROM withdrawal_history WHERE withdrawal_id = 'wd_s' AND seq = 4"),
    seed("withdrawal_history", "UPDATE withdrawals SET version = 9 WHERE withdrawal_id = 'wd_d'"),
    seed(
        "withdrawal_history",
        "UPDATE withdrawal_history SET from_status = 'CREATED' WHERE withdrawal_id = 'wd_p' AND seq = 3",
    ),
    seed(
        "withdrawal_history",
        "UPDATE withdrawal_history SET to_status = 'SUCCEEDED' WHERE withdrawal_id = 'wd_r' AND seq = 4;
         UPDATE withdrawal_history SET from_status = 'SUCCEEDED' WHERE withdrawal_id = 'wd_r' AND seq = 5",
    ),
    seed(
        "withdrawal_announced",
        "UPDATE outbox SET payload = payload || '{\"status\": \"REVERSED\"}' WHERE payload ->> 'withdrawal_no' = 'wd_s'",
    ),
    seed(
        "withdrawal_announced",
        "UPDATE outbox SET payload = payload || '{\"withdrawal_no\": \"none\"}' WHERE payload ->> 'withdrawal_no' = 'wd_s'",
    ),
    seed(
        "withdrawal_announced",
        "DELETE FROM outbox WHERE event = 'withdrawal.finished' AND payload ->> 'withdrawal_no' = 'wd_s'",
    ),
    seed(
        "withdrawal_announced",
        "INSERT INTO outbox (merchant_id, event, event_version, payload, created_at)
         VALUES ('m', 'withdrawal.finished', 1, '{\"withdrawal_no\": \"wd_p\", \"status\": \"SUCCEEDED\"}', '2029-12-31 12:00')",
    ),
    seed(
        "withdrawal_announced",
        "DELETE FROM outbox WHERE event = 'withdrawal.made_after_all' AND payload ->> 'withdrawal_no' = 'wd_a'",
    ),
    // It came back twice, and was told once, or before it had gone out after all.
    seed(
        "withdrawal_announced",
        "DELETE FROM outbox WHERE id = (SELECT max(id) FROM outbox WHERE event = 'withdrawal.returned')",
    ),
    seed(
        "withdrawal_announced",
        "INSERT INTO outbox (id, merchant_id, order_no, event, event_version, payload, created_at) OVERRIDING SYSTEM VALUE
         SELECT -1, merchant_id, order_no, event, event_version, payload, created_at FROM outbox
         WHERE event = 'withdrawal.made_after_all' AND payload ->> 'withdrawal_no' = 'wd_b';
         DELETE FROM outbox
         WHERE event = 'withdrawal.made_after_all' AND payload ->> 'withdrawal_no' = 'wd_b' AND id > 0",
    ),
    seed("withdrawal_unfinished", "DELETE FROM compensations WHERE subject = 'wd_p'"),
    seed("withdrawal_unfinished", "DELETE FROM compensations WHERE subject = 'wd_d'"),
];
