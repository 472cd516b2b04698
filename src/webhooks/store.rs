//! The rows of `webhook_inbox` that no payment writes.

use time::OffsetDateTime;

use crate::infra::db::{Conn, DbError};
use crate::pay::report::Verdict;

/// Keeps a callback; a repeat changes nothing.
pub(super) async fn insert(
    conn: &mut Conn,
    channel: &str,
    event_id: &str,
    subject: &str,
    verdict: Verdict,
    body: &[u8],
    now: OffsetDateTime,
) -> Result<(), DbError> {
    sqlx::query!(
        "INSERT INTO webhook_inbox (channel, event_id, subject, verdict, body, received_at, updated_at)
         VALUES ($1, $2, $3, $4, $5, $6, $6)
         ON CONFLICT (channel, event_id) DO NOTHING",
        channel,
        event_id,
        subject,
        verdict.as_str(),
        body,
        now,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// A kept callback that has no pay order yet.
pub(super) struct Unmatched {
    pub(super) body: Vec<u8>,
    pub(super) received_at: OffsetDateTime,
    pub(super) has_pay_order: bool,
}

/// The callback of that name, while it waits for its pay order.
pub(super) async fn find_unmatched(
    conn: &mut Conn,
    channel: &str,
    event_id: &str,
) -> Result<Option<Unmatched>, DbError> {
    let kept = sqlx::query_as!(
        Unmatched,
        r#"SELECT body, received_at,
                  EXISTS (SELECT 1 FROM pay_orders
                          WHERE pay_order_id = inbox.subject AND pay_orders.channel = inbox.channel)
                  AS "has_pay_order!"
           FROM webhook_inbox AS inbox
           WHERE channel = $1 AND event_id = $2 AND verdict = 'UNMATCHED'"#,
        channel,
        event_id,
    )
    .fetch_optional(conn)
    .await?;
    Ok(kept)
}

/// Forgets up to `limit` callbacks that came in before `horizon`.
pub(super) async fn delete_before(
    conn: &mut Conn,
    horizon: OffsetDateTime,
    limit: i64,
) -> Result<u64, DbError> {
    let deleted = sqlx::query!(
        "DELETE FROM webhook_inbox WHERE ctid IN (
             SELECT ctid FROM webhook_inbox WHERE received_at < $1 AND verdict <> 'UNMATCHED' LIMIT $2)",
        horizon,
        limit,
    )
    .execute(conn)
    .await?;
    Ok(deleted.rows_affected())
}
