//! The rows of `idempotency_keys`. Use cases whose effect is one statement write theirs within it.

use time::OffsetDateTime;

use super::model::{Answer, Found, Kept, RequestKey};
use crate::infra::db::{Conn, DbError};

/// What is kept under the request's key.
///
/// # Errors
/// When the database cannot be reached.
pub async fn find(conn: &mut Conn, request: &RequestKey) -> Result<Option<Found>, DbError> {
    let row = sqlx::query!(
        "SELECT request_hash, status, body FROM idempotency_keys WHERE merchant_id = $1 AND key = $2",
        request.merchant_id.as_str(),
        request.key,
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(|row| match u16::try_from(row.status) {
        Ok(status) if row.request_hash == request.request_hash => {
            Found::Answer(Answer { status, body: row.body })
        }
        _ => Found::OtherRequest,
    }))
}

/// Keeps an answer: in the transaction of its effect, or by itself where there was nothing left to do.
///
/// # Errors
/// `idempotency_keys_pkey` refuses when a request with this key was answered meanwhile: the effect, where there is
/// one, must not commit.
pub async fn insert(
    conn: &mut Conn,
    kept: &Kept,
    order_no: Option<&str>,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    sqlx::query!(
        "INSERT INTO idempotency_keys (merchant_id, key, request_hash, order_no, status, body, created_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7)",
        kept.request.merchant_id.as_str(),
        kept.request.key,
        &kept.request.request_hash,
        order_no,
        kept.status(),
        kept.answer.body,
        now,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Forgets up to `limit` answers that were given before `horizon`.
pub(super) async fn delete_before(
    conn: &mut Conn,
    horizon: OffsetDateTime,
    limit: i64,
) -> Result<u64, DbError> {
    let deleted = sqlx::query!(
        "DELETE FROM idempotency_keys WHERE ctid = ANY(ARRAY(
             SELECT ctid FROM idempotency_keys WHERE created_at < $1 ORDER BY created_at LIMIT $2))",
        horizon,
        limit,
    )
    .execute(conn)
    .await?;
    Ok(deleted.rows_affected())
}
