//! Violations of reconciliation, one after the other.

use super::{Seed, seed, seed_with};

pub(super) const SEEDS: &[Seed] = &[
    seed("difference_shown", "UPDATE reconciliation_items SET status = 'WAITING' WHERE item_id = 'ri_a'"),
    seed("difference_shown", "DELETE FROM exceptions WHERE subject = 'ri_e'"),
    seed(
        "difference_exception_outlived",
        "INSERT INTO exceptions (exception_id, kind, subject, detail, created_at, updated_at)
         VALUES ('ex_ri_a', 'RECONCILIATION', 'ri_a', 'gone', '2029-12-31 12:00', '2029-12-31 12:00')",
    ),
    seed(
        "difference_unfinished",
        "UPDATE reconciliation_items SET status = 'APPLYING', decided_by = 'anna' WHERE item_id = 'ri_a'",
    ),
    seed(
        "difference_unfinished",
        "UPDATE reconciliation_items SET status = 'PROPOSED' WHERE item_id = 'ri_a';
         UPDATE reconciliations SET status = 'OPEN', finished_at = NULL, fault = 'LATE', detail = 'not there',
                                    leased_until = '2030-01-01 00:10';
         DELETE FROM reconciliation_history WHERE seq > 1",
    ),
    seed(
        "difference_unfinished",
        "UPDATE reconciliation_items SET status = 'PROPOSED' WHERE item_id = 'ri_a';
         UPDATE reconciliations SET status = 'OPEN', finished_at = NULL, attempts = 10, leased_until = '2030-01-01 00:10';
         DELETE FROM reconciliation_history WHERE seq > 1",
    ),
    seed_with(
        "difference_unfinished",
        &["reconciliation_done"],
        "UPDATE reconciliation_items SET status = 'PROPOSED' WHERE item_id = 'ri_a'",
    ),
    seed(
        "difference_charged",
        "UPDATE reconciliation_items SET class = 'MISSING_THERE', action = 'CHARGE', ours = 100, order_no = 'O'
         WHERE item_id = 'ri_a'",
    ),
    seed_with(
        "charged_and_refunded",
        &["difference_charged"],
        "UPDATE reconciliation_items SET class = 'MISSING_THERE', action = 'CHARGE', ours = 100 WHERE item_id = 'ri_a'",
    ),
    seed_with(
        "difference_charged",
        &["account_balance", "charge_of_its_user"],
        "INSERT INTO ledger_transactions (transaction_id, kind, created_at)
         VALUES ('COMPENSATING_CHARGE:ri_a', 'COMPENSATING_CHARGE', '2029-12-31 12:00');
         INSERT INTO ledger_entries (transaction_id, account_id, amount)
         VALUES ('COMPENSATING_CHARGE:ri_a', 'CHANNEL:sandbox:CNY', -1),
                ('COMPENSATING_CHARGE:ri_a', 'PLATFORM_REVENUE:CNY', 1)",
    ),
    seed(
        "difference_charged",
        "UPDATE reconciliation_items SET class = 'MISSING_THERE', action = 'CHARGE', status = 'REVERSED', ours = 100
         WHERE item_id = 'ri_a'",
    ),
    seed_with(
        "difference_charged",
        &["account_balance", "charge_of_its_user"],
        "UPDATE reconciliation_items SET class = 'MISSING_THERE', action = 'CHARGE', ours = 1, order_no = 'O'
         WHERE item_id = 'ri_a';
         INSERT INTO ledger_transactions (transaction_id, kind, reverses, created_at)
         VALUES ('COMPENSATING_CHARGE:ri_a', 'COMPENSATING_CHARGE', NULL, '2029-12-31 12:00'),
                ('REVERSAL:COMPENSATING_CHARGE:ri_a', 'REVERSAL', 'COMPENSATING_CHARGE:ri_a', '2029-12-31 12:00');
         INSERT INTO ledger_entries (transaction_id, account_id, amount)
         VALUES ('COMPENSATING_CHARGE:ri_a', 'CHANNEL:sandbox:CNY', -1),
                ('COMPENSATING_CHARGE:ri_a', 'PLATFORM_REVENUE:CNY', 1),
                ('REVERSAL:COMPENSATING_CHARGE:ri_a', 'CHANNEL:sandbox:CNY', 1),
                ('REVERSAL:COMPENSATING_CHARGE:ri_a', 'PLATFORM_REVENUE:CNY', -1)",
    ),
    // Of a charge that was given back, what was taken and what was paid off: of another user, or of another order.
    seed_with(
        "charge_of_its_user",
        &["booking_balanced"],
        "INSERT INTO accounts (account_id, created_at, updated_at)
         VALUES ('USER_AVAILABLE:m:v:CNY', '2029-12-31 12:00', '2029-12-31 12:00');
         UPDATE ledger_entries SET account_id = 'USER_AVAILABLE:m:v:CNY'
         WHERE account_id = 'USER_AVAILABLE:m:u:CNY'
           AND transaction_id IN ('COMPENSATING_CHARGE:ri_c', 'REVERSAL:COMPENSATING_CHARGE:ri_c')",
    ),
    seed_with(
        "charge_of_its_user",
        &["charge_announced"],
        "UPDATE ledger_transactions SET order_no = 'D'
         WHERE transaction_id IN ('COMPENSATING_CHARGE:ri_c', 'REVERSAL:COMPENSATING_CHARGE:ri_c',
                                  'CHARGE_PAID_BACK:ri_c')",
    ),
    seed(
        "charge_paid_back",
        "UPDATE ledger_entries SET amount = 101 * sign(amount) WHERE transaction_id = 'CHARGE_PAID_BACK:ri_c';
         UPDATE accounts SET balance = balance + 61
         WHERE account_id IN ('USER_AVAILABLE:m:u:CNY', 'USER_RECEIVABLE:m:u:CNY')",
    ),
    seed_with(
        "charge_paid_back",
        &["booking_balanced"],
        "INSERT INTO accounts (account_id, balance, created_at, updated_at)
         VALUES ('USER_AVAILABLE:m:v:CNY', 40, '2029-12-31 12:00', '2029-12-31 12:00');
         UPDATE accounts SET balance = balance - 40 WHERE account_id = 'USER_AVAILABLE:m:u:CNY';
         UPDATE ledger_entries SET account_id = 'USER_AVAILABLE:m:v:CNY'
         WHERE account_id = 'USER_AVAILABLE:m:u:CNY' AND transaction_id = 'CHARGE_PAID_BACK:ri_c'",
    ),
    seed(
        "charge_paid_back",
        "UPDATE ledger_transactions SET order_no = 'D' WHERE transaction_id = 'CHARGE_PAID_BACK:ri_c'",
    ),
    seed_with(
        "charge_paid_back",
        &["charge_announced", "difference_charged"],
        "DELETE FROM ledger_transactions WHERE transaction_id = 'REVERSAL:COMPENSATING_CHARGE:ri_c';
         UPDATE accounts SET balance = balance - 300 WHERE account_id = 'CHANNEL:sandbox:CNY';
         UPDATE accounts SET balance = balance - 200 WHERE account_id = 'USER_AVAILABLE:m:u:CNY';
         UPDATE accounts SET balance = balance + 100 WHERE account_id = 'USER_RECEIVABLE:m:u:CNY'",
    ),
    // Taken from them once more.
    seed(
        "charge_paid_back",
        "INSERT INTO ledger_transactions (transaction_id, kind, merchant_id, order_no, reverses, created_at)
         VALUES ('REVERSAL:CHARGE_PAID_BACK:ri_c', 'REVERSAL', 'm', 'T', 'CHARGE_PAID_BACK:ri_c', '2029-12-31 12:00');
         INSERT INTO ledger_entries (transaction_id, account_id, amount)
         SELECT 'REVERSAL:CHARGE_PAID_BACK:ri_c', account_id, -amount
         FROM ledger_entries WHERE transaction_id = 'CHARGE_PAID_BACK:ri_c';
         UPDATE accounts SET balance = balance - 40
         WHERE account_id IN ('USER_AVAILABLE:m:u:CNY', 'USER_RECEIVABLE:m:u:CNY')",
    ),
    seed(
        "difference_applied",
        "UPDATE reconciliation_items SET channel_id = 'T-none' WHERE item_id = 'ri_a'",
    ),
    seed(
        "reconciliation_done",
        "UPDATE reconciliation_items SET status = 'APPLYING', due_at = '2030-01-01 00:01' WHERE item_id = 'ri_a'",
    ),
    seed("reconciliation_history", "DELETE FROM reconciliation_history WHERE seq = 3"),
    seed("reconciliation_history", "UPDATE reconciliation_history SET event = 'MATCHED' WHERE seq = 3"),
    seed("reconciliation_history", "UPDATE reconciliation_history SET from_status = 'OPEN' WHERE seq = 3"),
    seed("reconciliation_history", "DELETE FROM reconciliation_history WHERE seq = 5"),
    seed("reconciliation_history", "DELETE FROM reconciliation_history"),
    seed(
        "reconciliation_unfinished",
        "UPDATE reconciliations SET status = 'ACTING', finished_at = NULL; DELETE FROM reconciliation_history WHERE seq = 5",
    ),
    seed(
        "reconciliation_unfinished",
        "UPDATE reconciliations SET status = 'OPEN', finished_at = NULL, source = 'UPLOAD', format = 'sandbox', file_id = NULL;
         DELETE FROM reconciliation_history WHERE seq > 1",
    ),
];
