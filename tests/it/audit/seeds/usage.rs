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
    seed("usage_messages_heard", "UPDATE usage_messages SET units = 6 WHERE hold_id = 'uh_h'"),
    seed("usage_cycle", "UPDATE usage_cycles SET used_units = 54 WHERE product_code = 'tokens'"),
    seed("usage_cycle", "UPDATE usage_cycles SET fee_hold_id = NULL WHERE product_code = 'monthly'"),
    seed("usage_history", "DELETE FROM usage_history WHERE hold_id = 'uh_l' AND seq = 2"),
    seed("usage_history", "UPDATE usage_holds SET version = 9 WHERE hold_id = 'uh_h'"),
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
    seed("usage_shortfall_reported", "DELETE FROM exceptions WHERE subject = 'uh_l'"),
    seed("hold_overdue", "UPDATE usage_holds SET expires_at = '2029-12-31 23:58' WHERE hold_id = 'uh_h'"),
];
