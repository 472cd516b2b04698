//! Violations of debts that were cleared, one after the other.

use super::{Seed, seed, seed_with};

pub(super) const SEEDS: &[Seed] = &[
    // Not booked; booked for nobody's merchant; of another amount; booked and unsaid; taken back.
    seed(
        "receivable_cleared",
        "DELETE FROM ledger_transactions WHERE transaction_id = 'COLLECTION:m:C1';
         UPDATE accounts SET balance = balance + 3
         WHERE account_id IN ('USER_AVAILABLE:m:u:CNY', 'USER_RECEIVABLE:m:u:CNY')",
    ),
    seed(
        "receivable_cleared",
        "UPDATE ledger_transactions SET merchant_id = NULL WHERE transaction_id = 'WRITE_OFF:m:C2'",
    ),
    seed_with(
        "receivable_cleared",
        &["receivable_announced"],
        "UPDATE receivable_clearings SET amount = 4 WHERE clearing_no = 'C1'",
    ),
    seed_with(
        "receivable_cleared",
        &["write_off_stands"],
        "INSERT INTO ledger_transactions (transaction_id, kind, merchant_id, created_at)
         VALUES ('WRITE_OFF:m:C9', 'WRITE_OFF', 'm', '2029-12-31 12:00');
         INSERT INTO ledger_entries (transaction_id, account_id, amount)
         VALUES ('WRITE_OFF:m:C9', 'MERCHANT:m:CNY', 1), ('WRITE_OFF:m:C9', 'USER_RECEIVABLE:m:u:CNY', -1);
         UPDATE accounts SET balance = balance - 1 WHERE account_id IN ('MERCHANT:m:CNY', 'USER_RECEIVABLE:m:u:CNY')",
    ),
    seed(
        "receivable_cleared",
        "INSERT INTO ledger_transactions (transaction_id, kind, merchant_id, reverses, created_at)
         VALUES ('REVERSAL:COLLECTION:m:C1', 'REVERSAL', 'm', 'COLLECTION:m:C1', '2029-12-31 12:00');
         INSERT INTO ledger_entries (transaction_id, account_id, amount)
         SELECT 'REVERSAL:COLLECTION:m:C1', account_id, -amount
         FROM ledger_entries WHERE transaction_id = 'COLLECTION:m:C1';
         UPDATE accounts SET balance = balance + 3
         WHERE account_id IN ('USER_AVAILABLE:m:u:CNY', 'USER_RECEIVABLE:m:u:CNY')",
    ),
    // What came back is not noted, or not booked: the user got a part of it.
    seed_with(
        "write_off_stands",
        &["receivable_announced"],
        "UPDATE receivable_clearings SET recovered = 1 WHERE clearing_no = 'C2'",
    ),
    seed(
        "write_off_stands",
        "UPDATE ledger_entries SET amount = amount + CASE account_id WHEN 'MERCHANT:m:CNY' THEN 1 ELSE -1 END
         WHERE transaction_id = 'CLAW_BACK:rf_s:taken-back'
           AND account_id IN ('MERCHANT:m:CNY', 'USER_AVAILABLE:m:u:CNY');
         UPDATE accounts SET balance = balance + CASE account_id WHEN 'MERCHANT:m:CNY' THEN -1 ELSE 1 END
         WHERE account_id IN ('MERCHANT:m:CNY', 'USER_AVAILABLE:m:u:CNY')",
    ),
    seed("receivable_announced", "DELETE FROM outbox WHERE event = 'receivable.collected'"),
    seed(
        "receivable_announced",
        "INSERT INTO outbox (merchant_id, order_no, event, event_version, payload, created_at)
         SELECT merchant_id, order_no, event, 1, payload, created_at FROM outbox WHERE event = 'receivable.recovered'",
    ),
    seed(
        "receivable_announced",
        "UPDATE outbox SET event = 'receivable.collected' WHERE event = 'receivable.written_off'",
    ),
    seed(
        "receivable_announced",
        "UPDATE outbox SET payload = payload || '{\"amount\": 4}' WHERE event = 'receivable.written_off'",
    ),
    seed(
        "receivable_announced",
        "INSERT INTO outbox (merchant_id, order_no, event, event_version, payload, created_at)
         VALUES ('m', NULL, 'receivable.recovered', 1, '{\"clearing_no\": \"C9\", \"amount\": 1}', '2029-12-31 12:00')",
    ),
    // All of it was collected, and is still shown: of a hold, and of a top-up.
    seed(
        "shortfall_outlived",
        "INSERT INTO receivable_clearings (merchant_id, clearing_no, kind, user_id, amount, currency, created_at, updated_at)
         SELECT 'm', 'C9', 'COLLECTION', 'u', balance, 'CNY', '2029-12-31 12:00', '2029-12-31 12:00'
         FROM accounts WHERE account_id = 'USER_RECEIVABLE:m:u:CNY';
         INSERT INTO outbox (merchant_id, order_no, event, event_version, payload, created_at)
         SELECT 'm', NULL, 'receivable.collected', 1, jsonb_build_object('clearing_no', 'C9', 'amount', amount),
                '2029-12-31 12:00'
         FROM receivable_clearings WHERE clearing_no = 'C9';
         INSERT INTO ledger_transactions (transaction_id, kind, merchant_id, created_at)
         VALUES ('COLLECTION:m:C9', 'COLLECTION', 'm', '2029-12-31 12:00');
         INSERT INTO ledger_entries (transaction_id, account_id, amount)
         SELECT 'COLLECTION:m:C9', side.account_id, sign * amount
         FROM receivable_clearings,
              (VALUES ('USER_AVAILABLE:m:u:CNY', 1), ('USER_RECEIVABLE:m:u:CNY', -1)) AS side (account_id, sign)
         WHERE clearing_no = 'C9';
         UPDATE accounts SET balance = balance - (SELECT amount FROM receivable_clearings WHERE clearing_no = 'C9')
         WHERE account_id IN ('USER_AVAILABLE:m:u:CNY', 'USER_RECEIVABLE:m:u:CNY')",
    ),
    seed(
        "shortfall_outlived",
        "UPDATE reconciliation_items SET currency = 'USD' WHERE item_id = 'ri_c';
         INSERT INTO exceptions (exception_id, kind, merchant_id, subject, detail, created_at, updated_at)
         VALUES ('ex_t1', 'USAGE_SHORTFALL', 'm', 'po_t1', 'owed', '2029-12-31 12:00', '2029-12-31 12:00')",
    ),
];
