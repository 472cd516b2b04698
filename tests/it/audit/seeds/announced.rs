//! Violations of what the outside must hear of.

use super::{Seed, seed};

/// Tells it once more.
macro_rules! again {
    ($which:literal) => {
        concat!(
            "INSERT INTO outbox (merchant_id, order_no, event, event_version, payload, created_at)
             SELECT merchant_id, order_no, event, 1, payload, created_at FROM outbox WHERE ",
            $which
        )
    };
}

pub(super) const SEEDS: &[Seed] = &[
    seed("order_announced", "DELETE FROM outbox WHERE event = 'order.paid'"),
    seed(
        "order_announced",
        "INSERT INTO outbox (merchant_id, order_no, event, event_version, payload, created_at)
         VALUES ('m', 'P', 'order.closed', 1, '{}', '2029-12-31 12:00')",
    ),
    seed("order_announced", "DELETE FROM outbox WHERE event = 'order.closed'"),
    seed("order_announced", again!("event = 'order.paid' AND order_no = 'D'")),
    seed(
        "order_announced",
        "INSERT INTO outbox (merchant_id, order_no, event, event_version, payload, created_at)
         VALUES ('m', 'NONE', 'order.paid', 1, '{}', '2029-12-31 12:00')",
    ),
    seed("stray_announced", again!("payload ->> 'stray_id' = 'sp_d'")),
    seed(
        "stray_announced",
        "INSERT INTO outbox (merchant_id, order_no, event, event_version, payload, created_at)
         VALUES ('m', 'D', 'stray_payment.received', 1, '{\"stray_id\": \"sp_none\"}', '2029-12-31 12:00')",
    ),
    seed("stray_announced", "DELETE FROM outbox WHERE payload ->> 'stray_id' = 'sp_k'"),
    seed(
        "stray_announced",
        "INSERT INTO outbox (merchant_id, order_no, event, event_version, payload, created_at)
         VALUES ('m', 'D', 'stray_payment.kept', 1, '{\"stray_id\": \"sp_d\"}', '2029-12-31 12:00')",
    ),
    seed("stray_announced", again!("event = 'stray_payment.kept'")),
    seed("charge_announced", again!("event = 'compensating_charge.made'")),
    seed("charge_announced", again!("event = 'compensating_charge.reversed'")),
    seed(
        "charge_announced",
        "UPDATE outbox SET payload = payload || '{\"amount\": 299}' WHERE event = 'compensating_charge.made'",
    ),
    seed("charge_announced", "UPDATE outbox SET order_no = 'D' WHERE event = 'compensating_charge.reversed'"),
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
    seed("refund_announced", "DELETE FROM outbox WHERE event = 'refund.reversed'"),
    seed("refund_announced", again!("payload ->> 'refund_no' = 'rf_c1'")),
    seed(
        "refund_announced",
        "INSERT INTO outbox (merchant_id, order_no, event, event_version, payload, created_at)
         VALUES ('m', 'D', 'refund.finished', 1, '{\"refund_no\": \"none\", \"status\": \"FAILED\"}', '2029-12-31 12:00')",
    ),
];
