//! Violations of what the outside must hear of.

use super::{Seed, seed};

pub(super) const SEEDS: &[Seed] = &[
    seed("order_announced", "DELETE FROM outbox WHERE event = 'order.paid'"),
    seed(
        "order_announced",
        "INSERT INTO outbox (merchant_id, order_no, event, event_version, payload, created_at)
         VALUES ('m', 'P', 'order.closed', 1, '{}', '2029-12-31 12:00')",
    ),
    seed("order_announced", "DELETE FROM outbox WHERE event = 'order.closed'"),
    seed(
        "order_announced",
        "INSERT INTO outbox (merchant_id, order_no, event, event_version, payload, created_at)
         SELECT merchant_id, order_no, event, 1, payload, created_at FROM outbox WHERE event = 'order.paid' AND order_no = 'D'",
    ),
    seed(
        "order_announced",
        "INSERT INTO outbox (merchant_id, order_no, event, event_version, payload, created_at)
         VALUES ('m', 'NONE', 'order.paid', 1, '{}', '2029-12-31 12:00')",
    ),
    seed(
        "stray_announced",
        "INSERT INTO outbox (merchant_id, order_no, event, event_version, payload, created_at)
         SELECT merchant_id, order_no, event, 1, payload, created_at FROM outbox WHERE payload ->> 'stray_id' = 'sp_d'",
    ),
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
    seed(
        "charge_announced",
        "INSERT INTO outbox (merchant_id, order_no, event, event_version, payload, created_at)
         SELECT 'm', 'D', 'compensating_charge.made', 1, jsonb_build_object('charge_id', split_part(transaction_id, ':', 2)),
                '2029-12-31 12:00'
         FROM ledger_transactions, generate_series(1, 2) WHERE kind = 'COMPENSATING_CHARGE'",
    ),
    seed(
        "charge_announced",
        "INSERT INTO outbox (merchant_id, order_no, event, event_version, payload, created_at)
         VALUES ('m', 'D', 'compensating_charge.reversed', 1, '{\"charge_id\": \"ri_none\"}', '2029-12-31 12:00')",
    ),
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
    seed(
        "refund_announced",
        "INSERT INTO outbox (merchant_id, order_no, event, event_version, payload, created_at)
         SELECT merchant_id, order_no, event, 1, payload, created_at FROM outbox WHERE payload ->> 'refund_no' = 'rf_c1'",
    ),
    seed(
        "refund_announced",
        "INSERT INTO outbox (merchant_id, order_no, event, event_version, payload, created_at)
         VALUES ('m', 'D', 'refund.finished', 1, '{\"refund_no\": \"none\", \"status\": \"FAILED\"}', '2029-12-31 12:00')",
    ),
];
