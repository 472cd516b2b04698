//! Sending again what was published: the relay looks at it once more.

use time::OffsetDateTime;

use crate::infra::db::{Conn, DbError, Tx};

/// Whether there is such an event, and whose.
pub(in crate::outbox) async fn exists(
    conn: &mut Conn,
    id: i64,
) -> Result<Option<(Option<String>, Option<String>)>, DbError> {
    let row = sqlx::query!("SELECT merchant_id, order_no FROM outbox WHERE id = $1", id)
        .fetch_optional(conn)
        .await?;
    Ok(row.map(|row| (row.merchant_id, row.order_no)))
}

/// Has an event sent again; one that is on its way is due at once, with those of its order behind it.
pub(in crate::outbox) async fn send_again(tx: &mut Tx, id: i64, now: OffsetDateTime) -> Result<(), DbError> {
    tx.ring_after_commit();
    let conn: &mut Conn = tx;
    sqlx::query!(
        "WITH again AS (
             UPDATE outbox SET open_deliveries = NULL, published_at = NULL WHERE id = $1 AND open_deliveries = 0
         )
         UPDATE deliveries AS delivery SET due_at = $2
         FROM outbox AS event
         WHERE event.id = $1 AND delivery.status = 'PENDING' AND delivery.due_at > $2
           AND (delivery.event_id = event.id
                OR delivery.merchant_id = event.merchant_id AND delivery.order_no = event.order_no)",
        id,
        now,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Has up to `limit` events of a merchant sent again that happened since then, in their order from behind `after` on,
/// all or those that did not arrive. Without `is_real` nothing is changed. Gives how many, and the last.
pub(in crate::outbox) async fn send_all_again(
    tx: &mut Tx,
    merchant_id: &str,
    since: OffsetDateTime,
    after: i64,
    only_undelivered: bool,
    is_real: bool,
    limit: i64,
) -> Result<(i64, Option<i64>), DbError> {
    tx.ring_after_commit();
    let conn: &mut Conn = tx;
    let row = sqlx::query!(
        r#"WITH wanted AS MATERIALIZED (
             SELECT id FROM outbox AS event
             WHERE event.merchant_id = $1 AND event.created_at >= $2 AND event.id > $3 AND event.open_deliveries = 0
               AND (NOT $4 OR EXISTS (SELECT 1 FROM deliveries
                                      WHERE event_id = event.id AND deliveries.status IN ('DEAD', 'DROPPED')))
             ORDER BY id LIMIT $5
             FOR UPDATE SKIP LOCKED
           ), again AS (
             UPDATE outbox SET open_deliveries = NULL, published_at = NULL
             FROM wanted WHERE outbox.id = wanted.id AND $6
           )
           SELECT count(*) AS "count!", max(id) AS last FROM wanted"#,
        merchant_id,
        since,
        after,
        only_undelivered,
        limit,
        is_real,
    )
    .fetch_one(conn)
    .await?;
    Ok((row.count, row.last))
}
