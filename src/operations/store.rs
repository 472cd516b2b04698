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

/// Everything about an order, by one statement.
pub(super) async fn list_timeline(
    conn: &mut Conn,
    key: &OrderKey,
    limit: i64,
) -> Result<Vec<TimelineEntry>, DbError> {
    let rows = sqlx::query_file_as!(
        TimelineRow,
        "src/operations/timeline.sql",
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
        TimelineEntry {
            at: row.at,
            kind: row.kind,
            subject,
            event: row.event,
            status: row.status,
            details: row.details,
        }
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
             (SELECT 'withdrawal', status, created_at FROM withdrawals
              WHERE status IN ('CREATED', 'DEBITED', 'PAYING', 'REVERSING') ORDER BY created_at LIMIT 100000)
             UNION ALL
             (SELECT 'task', status, created_at FROM compensations WHERE status IN ('READY', 'RUNNING')
              ORDER BY due_at LIMIT 100000)
             UNION ALL
             (SELECT 'task', status, created_at FROM compensations WHERE status = 'DEAD' ORDER BY id LIMIT 100000)
             UNION ALL
             (SELECT 'reconciliation', status, created_at FROM reconciliations WHERE status <> 'DONE' LIMIT 100000)
             UNION ALL
             (SELECT 'difference', status, created_at FROM reconciliation_items
              WHERE status IN ('PROPOSED', 'WAITING', 'APPLYING', 'ESCALATED') ORDER BY created_at LIMIT 100000)
             UNION ALL
             (SELECT 'exception', status, created_at FROM exceptions WHERE status = 'OPEN' LIMIT 100000)
             UNION ALL
             (SELECT 'callback', verdict, received_at FROM webhook_inbox
              WHERE verdict = 'UNMATCHED' AND verdict <> 'APPLIED' ORDER BY received_at LIMIT 100000)
             UNION ALL
             (SELECT 'event', 'NEW', created_at FROM outbox WHERE open_deliveries IS NULL ORDER BY id LIMIT 100000)
             UNION ALL
             (SELECT 'delivery', status, created_at FROM deliveries WHERE status = 'PENDING' LIMIT 100000)
             UNION ALL
             (SELECT 'delivery', status, created_at FROM deliveries WHERE status = 'DEAD' LIMIT 100000)
           ) AS unfinished
           GROUP BY thing, status ORDER BY thing, status"#,
    )
    .fetch_all(conn)
    .await?;
    Ok(rows)
}

/// Orders made since then, by state.
pub(super) async fn count_orders_since(
    conn: &mut Conn,
    since: OffsetDateTime,
) -> Result<Vec<Counted>, DbError> {
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
