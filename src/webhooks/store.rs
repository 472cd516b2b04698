//! The rows of `webhook_inbox` that no payment writes.

use sqlx::{Postgres, QueryBuilder};
use time::OffsetDateTime;

use super::inbox::{InboxFilter, Kept, Position};
use super::inbox_id::InboxId;
use crate::infra::db::{Conn, DbError};
use crate::pay::report::Verdict;

mod keep;
mod verdict;

pub(super) use keep::Keep;
pub(super) use verdict::FindVerdict;

/// The callback of that name.
pub(super) async fn find(conn: &mut Conn, id: &InboxId) -> Result<Option<Kept>, DbError> {
    let kept = sqlx::query_as!(
        Kept,
        r#"SELECT channel, event_id, subject, merchant_id, order_no, verdict AS "verdict: Verdict", body,
                  received_at, updated_at
           FROM webhook_inbox WHERE channel = $1 AND event_id = $2"#,
        id.channel,
        id.event_id,
    )
    .fetch_optional(conn)
    .await?;
    Ok(kept)
}

/// A page, newest first, of callbacks that came after `since`. Put together from what is asked for, so that each
/// form has its own plan: by the order's index, by the one of uncommon verdicts, or by age.
pub(super) async fn list(
    conn: &mut Conn,
    filter: &InboxFilter,
    after: Option<&Position>,
    since: OffsetDateTime,
    limit: usize,
) -> Result<Vec<Kept>, DbError> {
    let mut query = QueryBuilder::<Postgres>::new(
        "SELECT channel, event_id, subject, merchant_id, order_no, verdict, body, received_at, updated_at
         FROM webhook_inbox WHERE received_at >= ",
    );
    query.push_bind(since);
    if let Some(key) = &filter.order {
        query.push(" AND merchant_id = ").push_bind(key.merchant_id.as_str());
        query.push(" AND order_no = ").push_bind(key.order_no.as_str());
    }
    if let Some(verdict) = filter.verdict {
        query.push(" AND verdict = ").push_bind(verdict.as_str());
        if verdict != Verdict::Applied && filter.order.is_none() {
            // Names the index's own condition: the verdict itself is not known to the plan. Those of an order have an index
            // of their own.
            query.push(" AND verdict <> 'APPLIED'");
        }
    }
    if let Some(channel) = &filter.channel {
        query.push(" AND channel = ").push_bind(channel);
    }
    if let Some(Position { received_at, id }) = after {
        query.push(" AND (received_at, channel, event_id) < (").push_bind(*received_at);
        query.push(", ").push_bind(&id.channel).push(", ").push_bind(&id.event_id).push(")");
    }
    query.push(" ORDER BY received_at DESC, channel DESC, event_id DESC LIMIT ");
    query.push_bind(i64::try_from(limit).unwrap_or(i64::MAX));
    Ok(query.build_query_as::<Kept>().fetch_all(conn).await?)
}

/// Writes what a kept callback was judged when it was read again.
pub(super) async fn set_verdict(
    conn: &mut Conn,
    kept: &Kept,
    verdict: Verdict,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    // Zero rows: another replay was faster, and judged it the same.
    sqlx::query!(
        "UPDATE webhook_inbox SET verdict = $4, updated_at = $5
         WHERE channel = $1 AND event_id = $2 AND verdict = $3",
        kept.channel,
        kept.event_id,
        kept.verdict.as_str(),
        verdict.as_str(),
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

/// The callback of that name, while it waits for its pay order. The verdict is a parameter, because the word would let the
/// plan walk all that are uncommon.
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
           WHERE channel = $1 AND event_id = $2 AND verdict = $3"#,
        channel,
        event_id,
        Verdict::Unmatched.as_str(),
    )
    .fetch_optional(conn)
    .await?;
    Ok(kept)
}

/// Forgets up to `limit` callbacks that came in before `horizon`, but for those that wait for their pay order, or for a person: of
/// another account's nothing else is kept.
pub(super) async fn delete_before(
    conn: &mut Conn,
    horizon: OffsetDateTime,
    limit: i64,
) -> Result<u64, DbError> {
    let deleted = sqlx::query!(
        "DELETE FROM webhook_inbox WHERE ctid = ANY(ARRAY(
             SELECT ctid FROM webhook_inbox AS inbox WHERE received_at < $1 AND verdict <> 'UNMATCHED'
               AND (verdict <> 'WRONG_ACCOUNT'
                    OR (SELECT true FROM exceptions
                        WHERE exceptions.subject = inbox.subject AND exceptions.kind = 'WRONG_ACCOUNT'
                          AND exceptions.status = 'OPEN' LIMIT 1) IS NULL)
             ORDER BY received_at LIMIT $2))",
        horizon,
        limit,
    )
    .execute(conn)
    .await?;
    Ok(deleted.rows_affected())
}
