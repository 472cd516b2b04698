//! Endpoints that want nothing more.

use time::OffsetDateTime;

use crate::infra::db::{Conn, DbError, Tx};

/// Whether the merchant is as it was in that version; then it stays so until the transaction ends.
pub(in crate::outbox) async fn is_still_of_version(
    tx: &mut Tx,
    merchant_id: &str,
    version: i32,
) -> Result<bool, DbError> {
    let conn: &mut Conn = tx;
    let merchant = sqlx::query!(
        "SELECT FROM merchants WHERE merchant_id = $1 AND version = $2 FOR SHARE",
        merchant_id,
        version,
    );
    Ok(merchant.fetch_optional(conn).await?.is_some())
}

/// Nothing goes to this endpoint of the merchant from now on.
pub(in crate::outbox) async fn disable(
    tx: &mut Tx,
    merchant_id: &str,
    url: &str,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    let conn: &mut Conn = tx;
    sqlx::query!(
        "INSERT INTO disabled_endpoints (merchant_id, url, reason, created_at) VALUES ($1, $2, 'it answered 410', $3)
         ON CONFLICT (merchant_id, url) DO NOTHING",
        merchant_id,
        url,
        now,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Lets an endpoint of a merchant be told again.
pub(in crate::outbox) async fn enable(tx: &mut Tx, merchant_id: &str, url: &str) -> Result<(), DbError> {
    let conn: &mut Conn = tx;
    sqlx::query!("DELETE FROM disabled_endpoints WHERE merchant_id = $1 AND url = $2", merchant_id, url)
        .execute(conn)
        .await?;
    Ok(())
}
