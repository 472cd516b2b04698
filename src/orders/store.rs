//! The rows of `orders`, `order_items`, and of the stock that they hold.
//!
//! Statements that move an order also move its reservations, its stock, its history and its outbox row: one
//! statement instead of six, because each round trip inside a transaction costs as much as all of these rows.

use std::collections::HashMap;

use rust_decimal::Decimal;
use serde_json::Value;
use time::OffsetDateTime;

use super::model::{
    CloseReason, NewOrder, Order, OrderItem, OrderKey, OrderKind, OrderStatus, SettleStatus,
};
use crate::ids::{MerchantId, OrderNo, Sku, UserId};
use crate::infra::db::{Conn, DbError, Tx};
use crate::money::Currency;
use crate::outbox::Event;

/// Writes a new order with its lines, reservations and first line of history, and holds its stock.
///
/// The primary key refuses a number that is taken; the foreign key of the reservations an unknown sku; the
/// CHECK on `skus` more than there is. Any refusal leaves nothing behind.
#[expect(clippy::too_many_lines, reason = "one statement and its parameters")]
pub(super) async fn insert(
    conn: &mut Conn,
    key: &OrderKey,
    new: &NewOrder,
    expires_at: OffsetDateTime,
    now: OffsetDateTime,
) -> Result<Order, DbError> {
    let skus: Vec<String> = new.items.iter().map(|item| item.sku.to_string()).collect();
    let quantities: Vec<i64> = new.items.iter().map(|item| item.quantity).collect();
    let unit_prices: Vec<i64> = new.items.iter().map(|item| item.unit_price).collect();
    let order = sqlx::query_as!(
        Order,
        r#"WITH line AS (
             SELECT line_no::smallint, sku, quantity, unit_price
             FROM unnest($11::text[], $12::bigint[], $13::bigint[]) WITH ORDINALITY
                  AS line (sku, quantity, unit_price, line_no)
           ), held AS MATERIALIZED (
             -- Locked in the order of their names, so that two orders over the same things cannot deadlock.
             SELECT skus.sku, wanted.quantity
             FROM skus JOIN (SELECT sku, sum(quantity)::bigint AS quantity FROM line GROUP BY sku) AS wanted
                       USING (sku)
             WHERE skus.merchant_id = $1
             ORDER BY skus.sku
             FOR UPDATE OF skus
           ), taken AS (
             UPDATE skus SET lock_stock = skus.lock_stock + held.quantity, updated_at = $10
             FROM held WHERE skus.merchant_id = $1 AND skus.sku = held.sku
           ), made AS (
             INSERT INTO orders (merchant_id, order_no, user_id, kind, amount, currency, rebate_user_id, rebate_rate,
                                 subject, notify_url, metadata, expires_at, created_at, updated_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $14, $15, $16, $9, $10, $10)
             RETURNING *
           ), items AS (
             INSERT INTO order_items (merchant_id, order_no, line_no, sku, quantity, unit_price)
             SELECT $1, $2, line_no, sku, quantity, unit_price FROM line
           ), reserved AS (
             INSERT INTO stock_reservations (merchant_id, order_no, line_no, sku, quantity, created_at, updated_at)
             SELECT $1, $2, line_no, sku, quantity, $10, $10 FROM line
           ), history AS (
             INSERT INTO order_history (merchant_id, order_no, seq, to_status, event, created_at)
             VALUES ($1, $2, 1, 'PENDING', 'CREATED', $10)
           )
           SELECT merchant_id AS "merchant_id: MerchantId", order_no AS "order_no: OrderNo",
                  user_id AS "user_id: UserId", kind AS "kind: OrderKind", status AS "status: OrderStatus",
                  close_reason AS "close_reason: CloseReason", amount, currency AS "currency: Currency",
                  refunded_amount, rebate_user_id AS "rebate_user_id: UserId", rebate_rate, subject,
                  metadata AS "metadata: Value", paid_by, paid_at, expires_at,
                  settle_status AS "settle_status: SettleStatus", created_at, version, attempts
           FROM made"#,
        key.merchant_id.as_str(),
        key.order_no.as_str(),
        new.user_id.as_str(),
        new.kind.as_str(),
        new.amount.minor(),
        new.currency.as_str(),
        new.rebate_user_id.as_ref().map(UserId::as_str),
        new.rebate_rate as Option<Decimal>,
        expires_at,
        now,
        &skus,
        &quantities,
        &unit_prices,
        new.subject.as_deref(),
        new.notify_url.as_deref(),
        new.metadata as Option<Value>,
    )
    .fetch_one(conn)
    .await?;
    Ok(order)
}
