//! Violations of the histories of refunds, stray money and commissions.

use super::{Seed, seed, seed_with};

/// Every change was told of.
const TOLD_OF_ALL: &[&str] = &["settlement_announced"];

pub(super) const SEEDS: &[Seed] = &[
    seed("refund_history", "DELETE FROM refund_history WHERE refund_id = 'rf_r'"),
    seed("refund_history", "DELETE FROM refund_history WHERE refund_id = 'rf_c1' AND seq = 2"),
    seed("refund_history", "DELETE FROM refund_history WHERE refund_id = 'rf_cx' AND seq = 3"),
    seed(
        "refund_history",
        "UPDATE refund_history SET event = 'BY_HAND' WHERE refund_id = 'rf_d' AND seq = 2",
    ),
    seed(
        "refund_history",
        "UPDATE refund_history SET from_status = 'PENDING' WHERE refund_id = 'rf_c1' AND seq = 4",
    ),
    seed(
        "refund_history",
        "UPDATE refund_history SET event = 'CARRIED_OVER' WHERE refund_id = 'rf_d' AND seq = 2",
    ),
    seed(
        "refund_history",
        "UPDATE refund_history SET to_status = 'AWAITING_APPROVAL' WHERE refund_id = 'rf_r'",
    ),
    seed("refund_history", "UPDATE refund_history SET event = 'FOUND' WHERE refund_id = 'rf_r'"),
    seed(
        "refund_history",
        "UPDATE refund_history SET event = 'APPROVED' WHERE refund_id = 'rf_d' AND seq = 1",
    ),
    seed(
        "refund_history",
        "INSERT INTO refund_history VALUES ('rf_none', 1, NULL, 'PENDING', 'ASKED', '2029-12-31 12:00')",
    ),
    seed("stray_history", "DELETE FROM stray_history WHERE stray_id = 'sp_d'"),
    seed("stray_history", "DELETE FROM stray_history WHERE stray_id = 'sp_c' AND seq = 5"),
    seed("stray_history", "DELETE FROM stray_history WHERE stray_id = 'sp_k' AND seq = 2"),
    seed(
        "stray_history",
        "UPDATE stray_history SET event = 'REFUND_ASKED' WHERE stray_id = 'sp_k' AND seq = 2",
    ),
    seed(
        "stray_history",
        "UPDATE stray_history SET from_status = 'REFUNDED' WHERE stray_id = 'sp_c' AND seq = 3",
    ),
    seed(
        "stray_history",
        "UPDATE stray_history SET event = 'CARRIED_OVER' WHERE stray_id = 'sp_r' AND seq = 2",
    ),
    seed("stray_history", "UPDATE stray_history SET to_status = 'KEPT' WHERE stray_id = 'sp_d'"),
    seed("stray_history", "UPDATE stray_history SET event = 'FOUND' WHERE stray_id = 'sp_d'"),
    seed("stray_history", "UPDATE stray_history SET event = 'KEPT' WHERE stray_id = 'sp_r' AND seq = 1"),
    seed(
        "stray_history",
        "INSERT INTO stray_history VALUES ('sp_none', 1, NULL, 'HELD', 'RECEIVED', '2029-12-31 12:00')",
    ),
    // It was to go back, was refused, and is held again: as if nothing had been.
    seed(
        "stray_history",
        "UPDATE stray_history SET event = 'RECEIVED' WHERE stray_id = 'sp_d';
         INSERT INTO refunds (refund_id, merchant_id, refund_no, order_no, stray_id, amount, currency, status, reason, failure,
                              created_at, updated_at)
         VALUES ('rf_x', 'm', 'rf_x', 'D', 'sp_d', 100, 'CNY', 'FAILED', 'R', 'no', '2029-12-31 12:00', '2029-12-31 12:00');
         INSERT INTO refund_history VALUES ('rf_x', 1, NULL, 'PENDING', 'ASKED', '2029-12-31 12:00'),
                                           ('rf_x', 2, 'PENDING', 'FAILED', 'FAILED', '2029-12-31 12:00');
         INSERT INTO outbox (merchant_id, order_no, event, event_version, payload, created_at)
         VALUES ('m', 'D', 'refund.finished', 1, '{\"refund_no\": \"rf_x\", \"status\": \"FAILED\"}', '2029-12-31 12:00')",
    ),
    // All that was claimed back was given again: as if nothing had been.
    seed_with("settlement_history", TOLD_OF_ALL, "DELETE FROM settlement_history"),
    seed_with("settlement_history", TOLD_OF_ALL, "DELETE FROM settlement_history WHERE seq = 4"),
    seed_with("settlement_history", TOLD_OF_ALL, "DELETE FROM settlement_history WHERE seq = 1"),
    seed_with("settlement_history", TOLD_OF_ALL, "DELETE FROM settlement_history WHERE seq = 2"),
    seed("settlement_history", "UPDATE settlement_history SET event = 'RESTORED' WHERE seq = 1"),
    seed_with("settlement_history", TOLD_OF_ALL, "UPDATE settlement_history SET clawed_back = 6 WHERE seq = 3"),
    seed("settlement_history", "UPDATE settlement_history SET from_status = 'SETTLED' WHERE seq = 3"),
    seed("settlement_history", "UPDATE settlement_history SET event = 'CARRIED_OVER' WHERE seq = 4"),
    seed_with("settlement_history", TOLD_OF_ALL, "UPDATE settlement_history SET clawed_back = 1 WHERE seq = 4"),
    seed_with(
        "settlement_history",
        TOLD_OF_ALL,
        "INSERT INTO settlement_history
         VALUES ('m', 'NONE', 1, 'SETTLED', 'SETTLED', 'PART_CLAWED_BACK', 1, '2029-12-31 12:00')",
    ),
];
