//! Violations on the way to the outside.

use super::{Seed, seed};

pub(super) const SEEDS: &[Seed] = &[
    // Shown once, seen to, and given up again later.
    seed(
        "dead_task_reported",
        "UPDATE exceptions
         SET status = 'RESOLVED', action = 'NONE', resolved_by = 'ann', reason = 'seen', updated_at = '2029-12-31 12:00'
         WHERE subject = 'po_d0';
         UPDATE compensations SET updated_at = '2029-12-31 12:01' WHERE subject = 'po_d0' AND status = 'DEAD'",
    ),
    seed(
        "event_relayed",
        "INSERT INTO outbox_queue SELECT false, id, merchant_id, order_no, created_at FROM outbox
         WHERE order_no = 'D' AND event = 'order.paid'",
    ),
    seed(
        "event_relayed",
        "INSERT INTO outbox_queue SELECT true, id, merchant_id, order_no, created_at FROM outbox
         WHERE order_no = 'D' AND event = 'order.paid'",
    ),
    seed(
        "lane_tried",
        "INSERT INTO deliveries (event_id, kind, event, merchant_id, order_no, lane, body, status, due_at, created_at,
                                 updated_at)
         SELECT id, 'REPLAY_CALLBACK', event, merchant_id, order_no, merchant_id, '{}', 'PENDING', '2029-12-31 12:00',
                '2029-12-31 12:00', '2029-12-31 12:00'
         FROM outbox WHERE order_no = 'D' AND event = 'order.paid'",
    ),
    // Its endpoint was failing, and its pause is over.
    seed(
        "lane_tried",
        "INSERT INTO resting_lanes VALUES ('m', 'm', '2029-12-31 12:30');
         INSERT INTO deliveries (event_id, kind, event, merchant_id, order_no, lane, body, status, due_at, last_error,
                                 log, created_at, updated_at)
         SELECT id, 'REPLAY_CALLBACK', event, 'm', order_no, 'm', '{}', 'PENDING', '2029-12-31 12:00', 'no',
                '[{\"at\": \"2029-12-31T12:00:00Z\"}]', '2029-12-31 12:00', '2029-12-31 12:00'
         FROM outbox WHERE order_no = 'D' AND event = 'order.paid'",
    ),
    seed(
        "delivery_late",
        "INSERT INTO deliveries (event_id, kind, event, lane, body, status, due_at, leased_until, last_error,
                                 created_at, updated_at)
         SELECT id, 'RESEND_EVENT', event, '*', '{}', 'PENDING', '2029-12-31 12:00', '2029-12-31 12:01', 'away',
                '2029-12-31 12:00', '2029-12-31 12:00'
         FROM outbox WHERE order_no = 'D' AND event = 'order.paid'",
    ),
    seed(
        "event_in_one_place",
        "INSERT INTO outbox_queue SELECT true, max(id) + 1, NULL, NULL, '2030-01-01' FROM outbox",
    ),
    seed(
        "event_in_one_place",
        "INSERT INTO outbox_queue SELECT is_again, id, merchant_id, order_no, '2030-01-01'
         FROM outbox, (VALUES (false), (true)) AS queue (is_again) WHERE order_no = 'D' AND event = 'order.paid'",
    ),
    seed(
        "event_in_one_place",
        "INSERT INTO outbox_queue SELECT true, id, merchant_id, order_no, '2030-01-01'
         FROM outbox WHERE order_no = 'D' AND event = 'order.paid';
         INSERT INTO deliveries (event_id, kind, event, lane, body, status, due_at, created_at, updated_at)
         SELECT id, 'RESEND_EVENT', event, '*', '{}', 'PENDING', '2030-01-02', '2029-12-31 12:00', '2029-12-31 12:00'
         FROM outbox WHERE order_no = 'D' AND event = 'order.paid'",
    ),
    seed("event_handed_out", "UPDATE orders SET notify_url = 'https://shop' WHERE order_no = 'D'"),
    seed("event_handed_out", "UPDATE merchants SET notify_url = 'https://shop', updated_at = '2029-12-31 09:00'"),
    seed(
        "dead_delivery_reported",
        "INSERT INTO deliveries (event_id, kind, event, lane, body, status, due_at, created_at, updated_at)
         SELECT id, 'RESEND_EVENT', event, '*', '{}', 'DEAD', '2029-12-31 12:00', '2029-12-31 12:00', '2029-12-31 12:00'
         FROM outbox WHERE order_no = 'D' AND event = 'order.paid'",
    ),
];
