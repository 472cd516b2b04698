//! The rows of `outbox`.

use time::OffsetDateTime;

use super::event::Event;
use crate::infra::db::{Conn, DbError, Tx};

/// Appends an event to the transaction of its fact.
pub(crate) async fn append_in_tx(
    tx: &mut Tx,
    merchant_id: Option<&str>,
    order_no: Option<&str>,
    event: &Event,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    let conn: &mut Conn = tx;
    sqlx::query!(
        "INSERT INTO outbox (merchant_id, order_no, event, event_version, payload, created_at)
         VALUES ($1, $2, $3, $4, $5, $6)",
        merchant_id,
        order_no,
        event.name(),
        event.version(),
        event.payload(),
        now,
    )
    .execute(conn)
    .await?;
    Ok(())
}
