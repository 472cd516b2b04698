//! Violations of usage, one after the other.

use super::{Seed, seed, seed_with};

pub(super) const SEEDS: &[Seed] = &[
    seed_with(
        "usage_booked",
        &["account_balance", "held_is_open"],
        "INSERT INTO ledger_transactions (transaction_id, kind, merchant_id, created_at)
         VALUES ('USAGE_EXTENSION:uh_h:1', 'USAGE_EXTENSION', 'm', '2029-12-31 12:00');
         INSERT INTO ledger_entries (transaction_id, account_id, amount)
         VALUES ('USAGE_EXTENSION:uh_h:1', 'USER_AVAILABLE:m:u:CNY', 1), ('USAGE_EXTENSION:uh_h:1', 'USER_HELD:m:u:CNY', -1);
         UPDATE accounts SET balance = balance + 1 WHERE account_id = 'USER_HELD:m:u:CNY'",
    ),
    // Charged late, what its user had and what they owe, and all of it given back; a cycle's fee given back.
    seed(
        "usage_booked",
        "INSERT INTO ledger_transactions (transaction_id, kind, merchant_id, reverses, created_at)
         VALUES ('REVERSAL:USAGE_CHARGE:uh_l', 'REVERSAL', 'm', 'USAGE_CHARGE:uh_l', '2029-12-31 12:00');
         INSERT INTO ledger_entries (transaction_id, account_id, amount)
         SELECT 'REVERSAL:USAGE_CHARGE:uh_l', account_id, -amount
         FROM ledger_entries WHERE transaction_id = 'USAGE_CHARGE:uh_l';
         UPDATE accounts SET balance = balance + 5 WHERE account_id = 'USER_AVAILABLE:m:u:CNY';
         UPDATE accounts SET balance = balance - 5 WHERE account_id = 'USER_RECEIVABLE:m:u:CNY';
         UPDATE accounts SET balance = balance - 10 WHERE account_id = 'MERCHANT:m:CNY'",
    ),
    seed(
        "usage_booked",
        "INSERT INTO ledger_transactions (transaction_id, kind, merchant_id, reverses, created_at)
         VALUES ('REVERSAL:USAGE_CHARGE:uh_m', 'REVERSAL', 'm', 'USAGE_CHARGE:uh_m', '2029-12-31 12:00');
         INSERT INTO ledger_entries (transaction_id, account_id, amount)
         SELECT 'REVERSAL:USAGE_CHARGE:uh_m', account_id, -amount
         FROM ledger_entries WHERE transaction_id = 'USAGE_CHARGE:uh_m';
         UPDATE accounts SET balance = balance + 40 WHERE account_id = 'USER_AVAILABLE:m:u:CNY';
         UPDATE accounts SET balance = balance - 40 WHERE account_id = 'MERCHANT:m:CNY'",
    ),
    seed("usage_booked", "UPDATE ledger_transactions SET order_no = 'P' WHERE transaction_id = 'USAGE_CHARGE:uh_m'"),
    // Two holds of one key, and keys that are not what their product makes of them.
    seed(
        "usage_key_once",
        "ALTER TABLE usage_holds DROP CONSTRAINT usage_holds_key;
         UPDATE usage_holds SET idempotency_key = 'uh_c' WHERE hold_id = 'uh_h'",
    ),
    seed("usage_key_once", "UPDATE products SET key_scope = 'REQUEST' WHERE product_code = 'abroad'"),
    seed("usage_key_once", "UPDATE usage_holds SET currency = 'CNY' WHERE hold_id = 'uh_USD'"),
    // One charge in two bookings, and one in none.
    seed(
        "usage_key_once",
        "UPDATE ledger_entries SET amount = 20 * sign(amount) WHERE transaction_id = 'USAGE_CHARGE:uh_m';
         INSERT INTO ledger_transactions (transaction_id, kind, merchant_id, created_at)
         VALUES ('USAGE_CHARGE:uh_m:2', 'USAGE_CHARGE', 'm', '2029-12-31 12:00');
         INSERT INTO ledger_entries (transaction_id, account_id, amount)
         SELECT 'USAGE_CHARGE:uh_m:2', account_id, amount FROM ledger_entries WHERE transaction_id = 'USAGE_CHARGE:uh_m'",
    ),
    seed(
        "usage_key_once",
        "UPDATE ledger_transactions SET transaction_id = 'USAGE_RELEASE:uh_c', kind = 'USAGE_RELEASE'
         WHERE transaction_id = 'USAGE_CHARGE:uh_c'",
    ),
    seed_with(
        "held_is_open",
        &["usage_booked", "usage_priced"],
        "UPDATE usage_holds SET held = 11 WHERE hold_id = 'uh_h'",
    ),
    seed_with(
        "usage_priced",
        &["usage_announced", "usage_booked"],
        "UPDATE usage_holds SET charged = 6 WHERE hold_id = 'uh_c'",
    ),
    seed("usage_priced", "UPDATE usage_holds SET unit_price = 0.6 WHERE hold_id = 'uh_c'"),
    seed_with(
        "usage_priced",
        &["usage_announced", "usage_booked", "usage_key_once"],
        "ALTER TABLE usage_holds DROP CONSTRAINT usage_holds_charge_matches;
         UPDATE usage_holds SET charged = 1 WHERE hold_id = 'uh_r'",
    ),
    seed_with(
        "usage_priced",
        &["held_is_open", "usage_booked"],
        "UPDATE usage_holds SET held = 9 WHERE hold_id = 'uh_h'",
    ),
    // Each way of pricing by itself: what is charged, and what is held.
    seed("usage_priced", "UPDATE usage_holds SET unit_price = 41 WHERE hold_id = 'uh_m'"),
    seed_with("usage_priced", &["usage_cycle"], "UPDATE usage_holds SET pricing = 'PER_CYCLE' WHERE hold_id = 'uh_c'"),
    seed_with("usage_priced", &["usage_cycle"], "UPDATE usage_holds SET pricing = 'PER_CYCLE' WHERE hold_id = 'uh_h'"),
    seed_with("usage_priced", &["usage_cycle"], "UPDATE usage_holds SET pricing = 'PER_CALL' WHERE hold_id = 'uh_c'"),
    seed("usage_priced", "UPDATE usage_holds SET pricing = 'PER_CALL' WHERE hold_id = 'uh_h'"),
    seed("usage_messages_heard", "UPDATE usage_messages SET units = 6 WHERE hold_id = 'uh_h'"),
    seed("usage_messages_heard", "INSERT INTO usage_messages VALUES ('uh_none', 'm1', 0, '2029-12-31 12:00')"),
    seed("usage_messages_heard", "DELETE FROM usage_messages WHERE hold_id = 'uh_h'"),
    seed("usage_cycle", "UPDATE usage_cycles SET used_units = 54 WHERE product_code = 'tokens'"),
    seed("usage_cycle", "UPDATE usage_cycles SET fee_hold_id = NULL WHERE product_code = 'monthly'"),
    seed("usage_history", "DELETE FROM usage_history WHERE hold_id = 'uh_l' AND seq = 2"),
    seed("usage_history", "UPDATE usage_holds SET version = 9 WHERE hold_id = 'uh_h'"),
    seed("usage_history", "UPDATE usage_history SET from_status = 'EXPIRED' WHERE hold_id = 'uh_c' AND seq = 2"),
    seed("usage_history", "UPDATE usage_history SET event = 'CONFIRMED' WHERE hold_id = 'uh_r' AND seq = 2"),
    seed(
        "usage_history",
        "INSERT INTO usage_history VALUES ('uh_none', 1, NULL, 'HELD', 'TAKEN', '2029-12-31 12:00')",
    ),
    seed_with(
        "usage_history",
        &["usage_announced"],
        "UPDATE usage_holds SET status = 'EXPIRED' WHERE hold_id = 'uh_r'",
    ),
    seed_with(
        "usage_history",
        &["usage_announced"],
        "UPDATE usage_holds SET late = false WHERE hold_id = 'uh_l'"),
    seed(
        "usage_announced",
        "DELETE FROM outbox WHERE event = 'usage.charged' AND payload ->> 'hold_id' = 'uh_c'",
    ),
    seed(
        "usage_announced",
        "INSERT INTO outbox (merchant_id, event, event_version, payload, created_at)
         VALUES ('m', 'usage.charged', 1, '{\"hold_id\": \"uh_c\"}', '2029-12-31 12:00')",
    ),
    seed(
        "usage_announced",
        "UPDATE outbox SET payload = payload || '{\"charged\": 8}' WHERE event = 'usage.charged' AND payload ->> 'hold_id' = 'uh_c'",
    ),
    seed(
        "usage_announced",
        "INSERT INTO outbox (merchant_id, event, event_version, payload, created_at)
         VALUES ('m', 'usage.charged', 1, '{\"hold_id\": \"uh_none\", \"charged\": 0}', '2029-12-31 12:00')",
    ),
    seed("usage_announced", "UPDATE usage_holds SET exhausted = true WHERE hold_id = 'uh_h'"),
    seed("usage_announced", "UPDATE usage_holds SET recoveries = 1 WHERE hold_id = 'uh_h'"),
    // Exhausted twice and told once, and the other way round.
    seed(
        "usage_announced",
        "INSERT INTO outbox (merchant_id, event, event_version, payload, created_at)
         VALUES ('m', 'usage.hold_exhausted', 1, '{\"hold_id\": \"uh_h\"}', '2029-12-31 12:00');
         UPDATE usage_holds SET exhausted = true, recoveries = 1 WHERE hold_id = 'uh_h'",
    ),
    seed(
        "usage_announced",
        "INSERT INTO outbox (merchant_id, event, event_version, payload, created_at)
         SELECT 'm', 'usage.hold_exhausted', 1, '{\"hold_id\": \"uh_h\"}', '2029-12-31 12:00' FROM generate_series(1, 2);
         UPDATE usage_holds SET exhausted = true WHERE hold_id = 'uh_h'",
    ),
    seed(
        "usage_announced",
        "INSERT INTO outbox (merchant_id, event, event_version, payload, created_at)
         VALUES ('m', 'usage.hold_exhausted', 1, '{\"hold_id\": \"uh_c\"}', '2029-12-31 12:00')",
    ),
    seed("usage_shortfall_reported", "UPDATE exceptions SET kind = 'CONTRADICTION' WHERE subject = 'uh_l'"),
    seed("usage_shortfall_reported", "DELETE FROM exceptions WHERE subject = 'uh_l'"),
    seed("hold_overdue", "UPDATE usage_holds SET expires_at = '2029-12-31 23:58' WHERE hold_id = 'uh_h'"),
    seed(
        "hold_overdue",
        "INSERT INTO exceptions (exception_id, kind, merchant_id, subject, detail, created_at, updated_at)
         VALUES ('ex_h', 'USAGE_REPORT_REFUSED', 'm', 'uh_h', 'shrinks', '2029-12-31 12:00', '2029-12-31 12:00');
         UPDATE usage_holds SET expires_at = '2029-12-31 23:58' WHERE hold_id = 'uh_h'",
    ),
    // Its first hold pays for a cycle that is sold as a whole, and here none did.
    seed(
        "usage_cycle",
        "DELETE FROM ledger_transactions WHERE transaction_id = 'USAGE_CHARGE:uh_m';
         DELETE FROM outbox WHERE event = 'usage.cycle_charged';
         UPDATE usage_holds SET carries_fee = false, charged = 0 WHERE hold_id = 'uh_m';
         UPDATE usage_cycles SET fee_hold_id = NULL WHERE product_code = 'monthly';
         UPDATE accounts SET balance = balance + 40 WHERE account_id = 'USER_AVAILABLE:m:u:CNY';
         UPDATE accounts SET balance = balance - 40 WHERE account_id = 'MERCHANT:m:CNY'",
    ),
    // Less, or more, of a quota is used up than was charged for, and the cycle says the same.
    seed(
        "usage_cycle",
        "UPDATE usage_holds SET counted_units = 0 WHERE hold_id = 'uh_c';
         UPDATE usage_cycles SET used_units = used_units - 13 WHERE product_code = 'tokens'",
    ),
    seed(
        "usage_cycle",
        "UPDATE usage_holds SET counted_units = 50 WHERE hold_id = 'uh_r';
         UPDATE usage_cycles SET used_units = used_units + 50 WHERE product_code = 'tokens'",
    ),
    // Reported beyond what is set aside, and nobody was told.
    seed(
        "usage_priced",
        "UPDATE usage_holds SET units = 90, counted_units = 20 WHERE hold_id = 'uh_h';
         UPDATE usage_messages SET units = 90 WHERE hold_id = 'uh_h'",
    ),
];
