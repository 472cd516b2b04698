//! What is read across the tables of all features.

use serde_json::Value;
use time::OffsetDateTime;

use super::overview::Counted;
use super::timeline::{TimelineEntry, TimelineKind};
use crate::infra::db::{Conn, DbError};
use crate::orders::OrderKey;
use crate::webhooks::InboxId;

/// An entry as it is read.
struct TimelineRow {
    at: OffsetDateTime,
    kind: TimelineKind,
    subject: String,
    event: String,
    status: Option<String>,
    details: Value,
    /// Of callbacks alone.
    channel: Option<String>,
}

/// Everything about an order. Every branch is found by the order's key and bounded by itself.
#[expect(clippy::too_many_lines, reason = "one statement and its parameters")]
pub(super) async fn list_timeline(
    conn: &mut Conn,
    key: &OrderKey,
    limit: i64,
) -> Result<Vec<TimelineEntry>, DbError> {
    let rows = sqlx::query_as!(
        TimelineRow,
        r#"SELECT at AS "at!", kind AS "kind!: TimelineKind", subject AS "subject!", event AS "event!",
                  status, details AS "details!", channel
           FROM (
             (SELECT step.at, 0 AS rank, 0 AS seq, 'CALLBACK' AS kind, event_id AS subject, step.event,
                     step.status, jsonb_build_object('speaks_of', subject) AS details, channel
              FROM webhook_inbox,
                   -- A verdict that was found later is an entry of its own.
                   LATERAL (VALUES (received_at, 'RECEIVED',
                                    CASE WHEN updated_at = received_at THEN verdict ELSE 'UNMATCHED' END),
                                   (nullif(updated_at, received_at), 'JUDGED', verdict)) AS step (at, event, status)
              WHERE merchant_id = $1 AND order_no = $2 AND step.at IS NOT NULL ORDER BY step.at LIMIT $3)
             UNION ALL
             (SELECT created_at, 1, id, 'ADMIN', target, action, NULL,
                     jsonb_build_object('actor', actor, 'reason', reason, 'request_id', request_id), NULL
              FROM admin_log WHERE merchant_id = $1 AND order_no = $2 ORDER BY created_at LIMIT $3)
             UNION ALL
             (SELECT created_at, 2, seq, CASE pay_order_id WHEN '' THEN 'ORDER' ELSE 'ATTEMPT' END,
                     CASE pay_order_id WHEN '' THEN order_no ELSE pay_order_id END, event, to_status,
                     jsonb_build_object('from', from_status), NULL
              FROM order_history WHERE merchant_id = $1 AND order_no = $2 ORDER BY created_at, seq LIMIT $3)
             UNION ALL
             (SELECT step.at, 3, 0, 'STRAY_PAYMENT', stray_id, step.event, step.status,
                     jsonb_build_object('amount', amount, 'currency', currency, 'channel', channel,
                                        'transaction_id', transaction_id, 'pay_order_id', pay_order_id), NULL
              FROM stray_payments,
                   LATERAL (VALUES (created_at, reason, 'HELD'),
                                   (CASE WHEN status <> 'HELD' THEN updated_at END, 'MOVED', status))
                   AS step (at, event, status)
              WHERE merchant_id = $1 AND order_no = $2 AND step.at IS NOT NULL ORDER BY step.at LIMIT $3)
             UNION ALL
             (SELECT step.at, 4, 0, 'REFUND', refund_id, step.event, step.status,
                     jsonb_build_object('amount', amount, 'currency', currency, 'reason', reason,
                                        'refund_no', refund_no, 'failure', failure), NULL
              FROM refunds,
                   LATERAL (VALUES (created_at, 'ASKED', CASE WHEN version = 1 THEN status END),
                                   (CASE WHEN version > 1 THEN updated_at END, 'MOVED', status))
                   AS step (at, event, status)
              WHERE merchant_id = $1 AND order_no = $2 AND step.at IS NOT NULL ORDER BY step.at LIMIT $3)
             UNION ALL
             (SELECT step.at, 5, id, 'TASK', subject, step.event, step.status,
                     jsonb_build_object('action', action, 'attempts', attempts, 'last_error', last_error), NULL
              FROM compensations,
                   LATERAL (VALUES (created_at, 'WRITTEN', 'READY'),
                                   (CASE WHEN (status, attempts) <> ('READY', 0) THEN updated_at END, 'MOVED', status))
                   AS step (at, event, status)
              WHERE merchant_id = $1 AND order_no = $2 AND step.at IS NOT NULL ORDER BY step.at LIMIT $3)
             UNION ALL
             (SELECT step.at, 6, 0, 'EXCEPTION', exception_id, step.event, step.status,
                     jsonb_build_object('detail', detail, 'subject', subject) || step.more, NULL
              FROM exceptions,
                   LATERAL (VALUES (created_at, kind, 'OPEN', '{}'::jsonb),
                                   (CASE WHEN status = 'RESOLVED' THEN updated_at END, action, status,
                                    jsonb_build_object('resolved_by', resolved_by, 'reason', reason)))
                   AS step (at, event, status, more)
              WHERE merchant_id = $1 AND order_no = $2 AND step.at IS NOT NULL ORDER BY step.at LIMIT $3)
             UNION ALL
             (SELECT step.at, 7, id, 'EVENT', id::text, outbox.event, step.status, payload, NULL
              FROM outbox,
                   LATERAL (VALUES (created_at, 'WRITTEN'), (published_at, 'PUBLISHED')) AS step (at, status)
              WHERE merchant_id = $1 AND order_no = $2 AND step.at IS NOT NULL ORDER BY step.at LIMIT $3)
           ) AS entry
           ORDER BY at, rank, seq, subject LIMIT $3"#,
        key.merchant_id.as_str(),
        key.order_no.as_str(),
        limit,
    )
    .fetch_all(conn)
    .await?;
    let entry = |row: TimelineRow| {
        // A callback is known by the name that its own route takes.
        let subject = match row.channel {
            Some(channel) => InboxId { channel, event_id: row.subject }.to_string(),
            None => row.subject,
        };
        TimelineEntry { at: row.at, kind: row.kind, subject, event: row.event, status: row.status, details: row.details }
    };
    Ok(rows.into_iter().map(entry).collect())
}

/// What has not come to its end, by kind and state: each through the small index that its own duty walks. Counting
/// stops, because a hundred thousand of anything says enough.
pub(super) async fn count_unfinished(conn: &mut Conn) -> Result<Vec<Counted>, DbError> {
    let rows = sqlx::query_as!(
        Counted,
        r#"SELECT thing AS "thing!", status AS "status!", count(*) AS "count!", min(at) AS oldest_at
           FROM (
             (SELECT 'order' AS thing, status, expires_at AS at FROM orders WHERE status = 'PENDING'
              ORDER BY expires_at LIMIT 100000)
             UNION ALL
             (SELECT 'attempt', status, expires_at FROM pay_orders WHERE is_live ORDER BY expires_at LIMIT 100000)
             UNION ALL
             (SELECT 'stray_payment', status, created_at FROM stray_payments WHERE status IN ('HELD', 'REFUNDING')
              ORDER BY created_at LIMIT 100000)
             UNION ALL
             (SELECT 'refund', status, created_at FROM refunds
              WHERE status IN ('AWAITING_APPROVAL', 'PENDING', 'PROCESSING') ORDER BY created_at LIMIT 100000)
             UNION ALL
             (SELECT 'task', status, created_at FROM compensations WHERE status IN ('READY', 'RUNNING')
              ORDER BY due_at LIMIT 100000)
             UNION ALL
             (SELECT 'task', status, created_at FROM compensations WHERE status = 'DEAD' ORDER BY id LIMIT 100000)
             UNION ALL
             (SELECT 'exception', status, created_at FROM exceptions WHERE status = 'OPEN' LIMIT 100000)
             UNION ALL
             (SELECT 'callback', verdict, received_at FROM webhook_inbox
              WHERE verdict = 'UNMATCHED' AND verdict <> 'APPLIED' ORDER BY received_at LIMIT 100000)
             UNION ALL
             (SELECT 'event', 'UNPUBLISHED', created_at FROM outbox WHERE published_at IS NULL
              ORDER BY id LIMIT 100000)
           ) AS unfinished
           GROUP BY thing, status ORDER BY thing, status"#,
    )
    .fetch_all(conn)
    .await?;
    Ok(rows)
}

/// Orders made since then, by state.
pub(super) async fn count_orders_since(conn: &mut Conn, since: OffsetDateTime) -> Result<Vec<Counted>, DbError> {
    let rows = sqlx::query_as!(
        Counted,
        r#"SELECT 'order' AS "thing!", status AS "status!", count(*) AS "count!", min(created_at) AS oldest_at
           FROM (SELECT status, created_at FROM orders WHERE created_at >= $1 LIMIT 1000000) AS recent
           GROUP BY status ORDER BY status"#,
        since,
    )
    .fetch_all(conn)
    .await?;
    Ok(rows)
}

/// Whether the service runs as its own role.
pub(super) async fn is_guarded(conn: &mut Conn) -> Result<bool, DbError> {
    let is_guarded = sqlx::query_scalar!(r#"SELECT current_user = 'payonce_service' AS "is_guarded!""#);
    Ok(is_guarded.fetch_one(conn).await?)
}
