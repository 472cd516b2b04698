//! The rows of `orders`, `order_items`, and of the stock that they hold.
//!
//! Statements that move an order also move its reservations, its stock, its history and its outbox row: one
//! statement instead of six, because each round trip inside a transaction costs as much as all of these rows.

use std::collections::HashMap;

use serde_json::Value;
use time::OffsetDateTime;

use super::metadata::Metadata;
use super::model::{CloseReason, Order, OrderItem, OrderKey, OrderKind, OrderStatus, SettleStatus};
use crate::compensation::TaskStatus;
use crate::ids::{MerchantId, OrderNo, Sku, UserId};
use crate::infra::db::{Conn, DbError, Tx, in_state};
use crate::money::Currency;
use crate::outbox::Event;

mod fingerprint;
mod make;
pub(super) mod refunded;

pub(super) use fingerprint::{FindFingerprint, Fingerprint};
pub(super) use make::Make;

/// The order of that number.
pub(super) async fn find(conn: &mut Conn, key: &OrderKey) -> Result<Option<Order>, DbError> {
    let order = sqlx::query_as!(
        Order,
        r#"SELECT merchant_id AS "merchant_id: MerchantId", order_no AS "order_no: OrderNo",
                  user_id AS "user_id: UserId", kind AS "kind: OrderKind", status AS "status: OrderStatus",
                  close_reason AS "close_reason: CloseReason", amount, currency AS "currency: Currency",
                  refunded_amount, rebate_user_id AS "rebate_user_id: UserId", rebate_rate, subject,
                  metadata AS "metadata: Metadata", paid_by, paid_at, expires_at,
                  settle_status AS "settle_status: SettleStatus", created_at, version, attempts
           FROM orders WHERE merchant_id = $1 AND order_no = $2"#,
        key.merchant_id.as_str(),
        key.order_no.as_str(),
    )
    .fetch_optional(conn)
    .await?;
    Ok(order)
}

/// A page of orders, by merchant and number.
pub(super) async fn list_keys(conn: &mut Conn, filter: &ListFilter<'_>) -> Result<Vec<OrderKey>, DbError> {
    let select = "SELECT merchant_id, order_no FROM orders";
    let (mut query, hidden) = in_state(select, filter.status, &[OrderStatus::Pending]);
    let (merchant_id, order_no) = (format!("merchant_id{hidden}"), format!("order_no{hidden}"));
    if let Some(merchant) = filter.merchant_id {
        query.push(format_args!(" AND {merchant_id} = ")).push_bind(merchant.to_owned());
    }
    if let Some(after) = filter.starting_after {
        query.push(format_args!(" AND ({merchant_id}, {order_no}) > ("));
        query.push_bind(after.merchant_id.to_string()).push(", ");
        query.push_bind(after.order_no.to_string()).push(")");
    }
    query.push(format_args!(" ORDER BY {merchant_id}, {order_no} LIMIT ")).push_bind(filter.limit);
    let keys = query.build_query_as::<(MerchantId, OrderNo)>().fetch_all(conn).await?;
    Ok(keys.into_iter().map(|(merchant_id, order_no)| OrderKey { merchant_id, order_no }).collect())
}

/// Whose orders have that number: one look-up by the primary key for each merchant.
pub(super) async fn list_of_number(
    conn: &mut Conn,
    order_no: &OrderNo,
    merchant_id: Option<&MerchantId>,
) -> Result<Vec<OrderKey>, DbError> {
    let keys = sqlx::query_as!(
        OrderKey,
        r#"SELECT shop AS "merchant_id: MerchantId", order_no AS "order_no: OrderNo"
           FROM (SELECT merchant_id AS shop FROM merchants WHERE $2::text IS NULL OR merchant_id = $2) AS of_each
           CROSS JOIN LATERAL (SELECT order_no FROM orders
                               WHERE orders.merchant_id = shop AND orders.order_no = $1 LIMIT 1) AS found
           ORDER BY shop LIMIT 2"#,
        order_no.as_str(),
        merchant_id.map(MerchantId::as_str),
    )
    .fetch_all(conn)
    .await?;
    Ok(keys)
}

/// What to list.
#[derive(Clone, Copy, Debug, Default)]
pub struct ListFilter<'a> {
    /// Of one merchant.
    pub merchant_id: Option<&'a str>,
    /// In one state.
    pub status: Option<OrderStatus>,
    /// After this one: the last of the page before.
    pub starting_after: Option<&'a OrderKey>,
    /// How many.
    pub limit: i64,
}

/// The lines of an order, in their order.
pub(super) async fn list_items(conn: &mut Conn, key: &OrderKey) -> Result<Vec<OrderItem>, DbError> {
    let items = sqlx::query_as!(
        OrderItem,
        r#"SELECT sku AS "sku: Sku", quantity, unit_price
           FROM order_items WHERE merchant_id = $1 AND order_no = $2 ORDER BY line_no"#,
        key.merchant_id.as_str(),
        key.order_no.as_str(),
    )
    .fetch_all(conn)
    .await?;
    Ok(items)
}

/// What is free of these things, by name; unknown ones are missing from the answer.
pub(super) async fn free_stock(
    conn: &mut Conn,
    merchant_id: &MerchantId,
    skus: &[String],
) -> Result<HashMap<String, i64>, DbError> {
    let rows = sqlx::query!(
        r#"SELECT sku, stock - lock_stock AS "free!" FROM skus WHERE merchant_id = $1 AND sku = ANY($2)"#,
        merchant_id.as_str(),
        skus,
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|row| (row.sku, row.free)).collect())
}

/// An order that is about to be closed.
#[derive(Clone, Debug)]
pub(super) struct Closable {
    /// Its name.
    pub key: OrderKey,
    /// The buyer.
    pub user_id: String,
}

/// Locks those of the given orders that are `PENDING` and past their deadline. Rows that somebody else works on
/// are skipped: whatever becomes of them, they are looked at again.
pub(super) async fn lock_due(
    tx: &mut Tx,
    keys: &[OrderKey],
    now: OffsetDateTime,
) -> Result<Vec<Closable>, DbError> {
    let conn: &mut Conn = tx;
    let (merchants, numbers) = split(keys);
    let rows = sqlx::query!(
        r#"SELECT orders.merchant_id AS "merchant_id: MerchantId", orders.order_no AS "order_no: OrderNo", user_id
           FROM orders JOIN (SELECT unnest($1::text[]) AS merchant_id, unnest($2::text[]) AS order_no) AS due
                       USING (merchant_id, order_no)
           WHERE orders.status = $4 AND orders.expires_at <= $3
           ORDER BY orders.merchant_id, orders.order_no
           FOR UPDATE OF orders SKIP LOCKED"#,
        &merchants,
        &numbers,
        now,
        OrderStatus::Pending.as_str(),
    )
    .fetch_all(conn)
    .await?;
    let closable = rows.into_iter().map(|row| Closable {
        key: OrderKey { merchant_id: row.merchant_id, order_no: row.order_no },
        user_id: row.user_id,
    });
    Ok(closable.collect())
}

fn split(keys: &[OrderKey]) -> (Vec<String>, Vec<String>) {
    keys.iter().map(|key| (key.merchant_id.to_string(), key.order_no.to_string())).unzip()
}

/// Closes those of the locked orders that have no live attempt, gives their stock back, and answers which.
///
/// The rows are locked by an earlier statement of the same transaction, so this one's snapshot sees every
/// attempt that was begun before: an attempt begins with a write to the order's row.
pub(super) async fn close_locked(
    tx: &mut Tx,
    orders: &[Closable],
    reason: CloseReason,
    now: OffsetDateTime,
) -> Result<Vec<OrderKey>, DbError> {
    let keys: Vec<OrderKey> = orders.iter().map(|order| order.key.clone()).collect();
    let (merchants, numbers) = split(&keys);
    let payloads: Vec<Value> = orders
        .iter()
        .map(|order| {
            let (order_no, user_id) = (order.key.order_no.to_string(), order.user_id.clone());
            Event::OrderClosed { order_no, user_id, close_reason: reason.as_str() }.payload()
        })
        .collect();
    tx.ring_after_commit();
    let conn: &mut Conn = tx;
    let closed = sqlx::query_as!(
        OrderKey,
        r#"WITH closed AS (
             UPDATE orders
             SET status = 'CLOSED', close_reason = $4, version = orders.version + 1, updated_at = $5
             FROM (SELECT unnest($1::text[]) AS merchant_id, unnest($2::text[]) AS order_no,
                          unnest($3::jsonb[]) AS payload) AS due
             WHERE orders.merchant_id = due.merchant_id AND orders.order_no = due.order_no
               AND orders.status = $7
               AND NOT EXISTS (
                   SELECT 1 FROM pay_orders
                   WHERE pay_orders.merchant_id = orders.merchant_id AND pay_orders.order_no = orders.order_no
                     AND pay_orders.is_live)
             RETURNING orders.merchant_id, orders.order_no, orders.version, due.payload
           ), released AS (
             UPDATE stock_reservations AS reservation SET status = 'RELEASED', updated_at = $5
             FROM closed
             WHERE reservation.merchant_id = closed.merchant_id AND reservation.order_no = closed.order_no
               AND reservation.status = 'LOCKED'
             RETURNING reservation.merchant_id, reservation.sku, reservation.quantity
           ), given_back AS MATERIALIZED (
             -- Locked in the order of their names, as everywhere.
             SELECT skus.merchant_id, skus.sku, freed.quantity
             FROM skus JOIN (SELECT merchant_id, sku, sum(quantity)::bigint AS quantity
                             FROM released GROUP BY merchant_id, sku) AS freed USING (merchant_id, sku)
             ORDER BY skus.merchant_id, skus.sku
             FOR UPDATE OF skus
           ), stock AS (
             UPDATE skus SET lock_stock = skus.lock_stock - given_back.quantity, updated_at = $5
             FROM given_back
             WHERE skus.merchant_id = given_back.merchant_id AND skus.sku = given_back.sku
           ), history AS (
             INSERT INTO order_history (merchant_id, order_no, seq, from_status, to_status, event, created_at)
             SELECT merchant_id, order_no, version, 'PENDING', 'CLOSED', $6, $5 FROM closed
           ), announced AS (
             INSERT INTO outbox (merchant_id, order_no, event, event_version, payload, created_at)
             SELECT merchant_id, order_no, 'order.closed', 1, payload, $5 FROM closed
           )
           SELECT merchant_id AS "merchant_id!: MerchantId", order_no AS "order_no!: OrderNo" FROM closed"#,
        &merchants,
        &numbers,
        &payloads,
        reason.as_str(),
        now,
        reason.event().as_str(),
        OrderStatus::Pending.as_str(),
    )
    .fetch_all(conn)
    .await?;
    Ok(closed)
}

/// Locks one order for closing it.
pub(super) async fn lock_one(
    tx: &mut Tx,
    key: &OrderKey,
) -> Result<Option<(OrderStatus, Closable)>, DbError> {
    let conn: &mut Conn = tx;
    let row = sqlx::query!(
        r#"SELECT status AS "status: OrderStatus", user_id FROM orders
           WHERE merchant_id = $1 AND order_no = $2 FOR UPDATE"#,
        key.merchant_id.as_str(),
        key.order_no.as_str(),
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(|row| (row.status, Closable { key: key.clone(), user_id: row.user_id })))
}

/// Writes the tasks that drive due orders whose attempts must be closed at their channels first. Those that are due just
/// now are driven with what is fresh, because their stock and their users wait; those that a sweep found are old.
pub(super) async fn leave_to_tasks(
    tx: &mut Tx,
    keys: &[OrderKey],
    now: OffsetDateTime,
) -> Result<(), DbError> {
    let (merchants, numbers) = split(keys);
    let conn: &mut Conn = tx;
    sqlx::query!(
        r#"INSERT INTO compensations
               (kind, action, lane, subject, merchant_id, order_no, due_at, created_at, updated_at)
           SELECT 'REDO_BUSINESS', 'EXPIRE_ORDER',
                  CASE WHEN (SELECT expires_at FROM orders
                             WHERE orders.merchant_id = due.merchant_id AND orders.order_no = due.order_no)
                            < $3::timestamptz - interval '1 minute' THEN 'SWEEP' ELSE 'REALTIME' END,
                  due.merchant_id || ':' || due.order_no, due.merchant_id, due.order_no, $3, $3, $3
           FROM (SELECT unnest($1::text[]) AS merchant_id, unnest($2::text[]) AS order_no) AS due
           -- In the order of their subjects, as by whoever adopts what is left alone, so that no two can deadlock.
           ORDER BY (due.merchant_id || ':' || due.order_no) COLLATE "C"
           ON CONFLICT (action, subject) WHERE status IN ('READY', 'RUNNING') DO NOTHING"#,
        &merchants,
        &numbers,
        now,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// What a page of due orders holds.
#[derive(Debug, Default)]
pub(super) struct DuePage {
    /// When the last of them was due; nothing where none was left.
    pub(super) last: Option<OffsetDateTime>,
    /// Those without a live attempt, that no task drives.
    pub(super) closable: Vec<OrderKey>,
    /// Those whose attempt must be closed at its channel first, that no task drives.
    pub(super) with_attempt: Vec<OrderKey>,
}

/// A page of orders that were due between `after` and `until`, by deadline, but for those that a living task drives
/// already. Those of one instant come together, so the next page begins behind it.
pub(super) async fn list_due_after(
    conn: &mut Conn,
    after: OffsetDateTime,
    until: OffsetDateTime,
    limit: i64,
) -> Result<DuePage, DbError> {
    let rows = sqlx::query!(
        r#"WITH pending AS MATERIALIZED (
             SELECT merchant_id, order_no, expires_at FROM orders
             WHERE status = 'PENDING' AND expires_at > $1 AND expires_at <= $2
             ORDER BY expires_at FETCH FIRST ($3) ROWS WITH TIES
           ), left_alone AS (
             SELECT due.merchant_id, due.order_no, due.expires_at FROM pending AS due
             LEFT JOIN LATERAL (
                 SELECT id FROM compensations
                 WHERE merchant_id = due.merchant_id AND order_no = due.order_no AND action = 'EXPIRE_ORDER'
                   -- Parameters, because words would let the plan walk an index of all living tasks for each order.
                   AND status = ANY($4)
                 LIMIT 1) AS task ON true
             WHERE task.id IS NULL
           )
           SELECT page_end.last, left_alone.merchant_id AS "merchant_id?: MerchantId",
                  left_alone.order_no AS "order_no?: OrderNo",
                  -- Looked up one by one, and of those alone that are left.
                  (SELECT true FROM pay_orders
                   WHERE pay_orders.merchant_id = left_alone.merchant_id
                     AND pay_orders.order_no = left_alone.order_no AND pay_orders.is_live
                   LIMIT 1) AS has_attempt
           -- A row in any case: a page that tasks drive has its end too.
           FROM (SELECT max(expires_at) AS last FROM pending) AS page_end LEFT JOIN left_alone ON true
           ORDER BY left_alone.expires_at"#,
        after,
        until,
        limit,
        &TaskStatus::ALIVE.map(|status| status.as_str().to_owned()),
    )
    .fetch_all(conn)
    .await?;
    let mut page = DuePage { last: rows.first().and_then(|row| row.last), ..DuePage::default() };
    for row in rows {
        let (Some(merchant_id), Some(order_no)) = (row.merchant_id, row.order_no) else { continue };
        let side = if row.has_attempt == Some(true) { &mut page.with_attempt } else { &mut page.closable };
        side.push(OrderKey { merchant_id, order_no });
    }
    Ok(page)
}

/// A page of all open timers, by deadline and number: what Redis is rebuilt from.
pub(super) async fn list_pending_after(
    conn: &mut Conn,
    after: &(OffsetDateTime, String, String),
    limit: i64,
) -> Result<Vec<(OrderKey, OffsetDateTime)>, DbError> {
    let rows = sqlx::query!(
        r#"SELECT merchant_id AS "merchant_id: MerchantId", order_no AS "order_no: OrderNo", expires_at
           FROM orders
           WHERE status = 'PENDING' AND expires_at >= $1 AND (expires_at, merchant_id, order_no) > ($1, $2, $3)
           ORDER BY expires_at, merchant_id, order_no LIMIT $4"#,
        after.0,
        after.1,
        after.2,
        limit,
    )
    .fetch_all(conn)
    .await?;
    let timers = rows
        .into_iter()
        .map(|row| (OrderKey { merchant_id: row.merchant_id, order_no: row.order_no }, row.expires_at));
    Ok(timers.collect())
}

/// How many orders are pending, and how many of them are past their deadline. Counting stops at 100,000, those that are
/// due first among them.
pub(super) async fn count_pending(conn: &mut Conn, now: OffsetDateTime) -> Result<(i64, i64), DbError> {
    let row = sqlx::query!(
        r#"SELECT count(*) AS "pending!", count(*) FILTER (WHERE expires_at <= $1) AS "due!"
           FROM (SELECT expires_at FROM orders WHERE status = 'PENDING' ORDER BY expires_at LIMIT 100000) AS pending"#,
        now,
    )
    .fetch_one(conn)
    .await?;
    Ok((row.pending, row.due))
}
