//! What refunds write to orders and their stock.

use time::OffsetDateTime;

use crate::infra::db::{Conn, DbError, Tx, expect_one_row};
use crate::orders::model::{Order, OrderEvent, OrderKey, OrderStatus};

/// Locks the order of that number and reads it then.
pub(in crate::orders) async fn lock(tx: &mut Tx, key: &OrderKey) -> Result<Option<Order>, DbError> {
    let conn: &mut Conn = tx;
    sqlx::query!(
        "SELECT 1 AS one FROM orders WHERE merchant_id = $1 AND order_no = $2 FOR UPDATE",
        key.merchant_id.as_str(),
        key.order_no.as_str(),
    )
    .fetch_optional(&mut *conn)
    .await?;
    super::find(conn, key).await
}

/// Writes how much of a locked order has gone back, and the state that this leads to.
pub(in crate::orders) async fn set_refunded(
    tx: &mut Tx,
    order: &Order,
    refunded_amount: i64,
    to: OrderStatus,
    event: OrderEvent,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    let conn: &mut Conn = tx;
    expect_one_row(
        &sqlx::query!(
            "WITH history AS (
                 -- A second part that goes back changes the amount and no state.
                 INSERT INTO order_history (merchant_id, order_no, seq, from_status, to_status, event, created_at)
                 SELECT $1, $2, $5 + 1, $3, $4, $8, $9 WHERE $3 <> $4
             )
             UPDATE orders
             SET refunded_amount = $6, status = $4, updated_at = $9,
                 version = version + CASE WHEN $3 <> $4 THEN 1 ELSE 0 END
             WHERE merchant_id = $1 AND order_no = $2 AND status = $3 AND version = $5 AND refunded_amount = $7",
            order.merchant_id.as_str(),
            order.order_no.as_str(),
            order.status.as_str(),
            to.as_str(),
            order.version,
            refunded_amount,
            order.refunded_amount,
            event.as_str(),
            now,
        )
        .execute(conn)
        .await?,
    )
}

/// Puts what a locked order had sold back on sale, each line once.
pub(in crate::orders) async fn return_stock(
    tx: &mut Tx,
    key: &OrderKey,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    let conn: &mut Conn = tx;
    sqlx::query!(
        "WITH returned AS (
             UPDATE stock_reservations SET status = 'RETURNED', updated_at = $3
             WHERE merchant_id = $1 AND order_no = $2 AND status = 'DEDUCTED'
             RETURNING sku, quantity
         ), given_back AS MATERIALIZED (
             -- Locked in the order of their names, as everywhere.
             SELECT skus.sku, back.quantity
             FROM (SELECT sku, sum(quantity)::bigint AS quantity FROM returned GROUP BY sku) AS back
             JOIN skus ON skus.merchant_id = $1 AND skus.sku = back.sku
             ORDER BY skus.sku FOR UPDATE OF skus
         )
         UPDATE skus SET stock = skus.stock + given_back.quantity, updated_at = $3
         FROM given_back WHERE skus.merchant_id = $1 AND skus.sku = given_back.sku",
        key.merchant_id.as_str(),
        key.order_no.as_str(),
        now,
    )
    .execute(conn)
    .await?;
    Ok(())
}
