//! The rows of `pay_orders`, and what is written together with them. What every pay URL costs is gathered: see
//! [`FindFacts`], [`Begin`] and [`Publish`].

use time::OffsetDateTime;

use super::model::{Attempt, PayEvent, PayStatus};
use crate::channels::Refusal;
use crate::idempotency::Kept;
use crate::ids::{MerchantId, OrderNo, PayOrderId, UserId};
use crate::infra::db::{Conn, DbError};
use crate::money::Currency;
use crate::orders::OrderKey;

mod begin;
mod facts;
mod publish;

pub(super) use begin::Begin;
pub(super) use facts::{Facts, FindFacts, LiveAttempt};
pub(super) use publish::Publish;

/// Ends a live attempt that the channel refused, with the channel's words, and keeps the answer where that is
/// asked. One that moved meanwhile stays as it is.
pub(super) async fn set_failed(
    conn: &mut Conn,
    attempt: &Attempt,
    refusal: &Refusal,
    kept: Option<&Kept>,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    sqlx::query_scalar!(
        r#"WITH ended AS (
             UPDATE pay_orders
             SET status = $5, channel_code = $6, channel_message = $7, version = version + 1, updated_at = $8
             WHERE pay_order_id = $1 AND status = $4 AND version = $9
             RETURNING version
           ), history AS (
             INSERT INTO order_history (merchant_id, order_no, pay_order_id, seq, from_status, to_status, event,
                                        created_at)
             SELECT $2, $3, $1, version, $4, $5, $10, $8 FROM ended
           ), kept AS (
             INSERT INTO idempotency_keys (merchant_id, key, request_hash, order_no, status, body, created_at)
             SELECT $2, $11, $12, $3, $13, $14, $8 FROM ended WHERE $11::text IS NOT NULL
           ), finished AS (
             UPDATE compensations SET status = 'DONE', updated_at = $8
             WHERE action IN ('DRIVE_PAY_ORDER', 'CLOSE_PAY_ORDER') AND subject = $1
               AND status IN ('READY', 'RUNNING') AND EXISTS (SELECT 1 FROM ended)
           )
           SELECT count(*) AS "count!" FROM ended"#,
        attempt.pay_order_id.as_str(),
        attempt.merchant_id.as_str(),
        attempt.order_no.as_str(),
        attempt.status.as_str(),
        PayStatus::Failed.as_str(),
        refusal.code,
        refusal.message,
        now,
        attempt.version,
        PayEvent::AttemptFailed.as_str(),
        kept.map(|kept| kept.request.key.as_str()),
        kept.map(|kept| kept.request.request_hash.as_slice()),
        kept.map(Kept::status),
        kept.map(|kept| kept.answer.body.as_slice()),
    )
    .fetch_one(conn)
    .await?;
    Ok(())
}

/// The attempt of that id.
pub(super) async fn find(conn: &mut Conn, pay_order_id: &str) -> Result<Option<Attempt>, DbError> {
    let attempt = sqlx::query_as!(
        Attempt,
        r#"SELECT pay_order_id AS "pay_order_id: PayOrderId", merchant_id AS "merchant_id: MerchantId",
                  order_no AS "order_no: OrderNo", payer_id AS "payer_id: UserId", channel,
                  status AS "status: PayStatus", amount, currency AS "currency: Currency", subject, return_url,
                  pay_url, channel_ref, transaction_id, paid_at, channel_code, channel_message, expires_at,
                  created_at, version
           FROM pay_orders WHERE pay_order_id = $1"#,
        pay_order_id,
    )
    .fetch_optional(conn)
    .await?;
    Ok(attempt)
}

/// All attempts of an order, oldest first: a handful at most.
pub(super) async fn list_of_order(conn: &mut Conn, key: &OrderKey) -> Result<Vec<Attempt>, DbError> {
    let attempts = sqlx::query_as!(
        Attempt,
        r#"SELECT pay_order_id AS "pay_order_id: PayOrderId", merchant_id AS "merchant_id: MerchantId",
                  order_no AS "order_no: OrderNo", payer_id AS "payer_id: UserId", channel,
                  status AS "status: PayStatus", amount, currency AS "currency: Currency", subject, return_url,
                  pay_url, channel_ref, transaction_id, paid_at, channel_code, channel_message, expires_at,
                  created_at, version
           FROM pay_orders WHERE merchant_id = $1 AND order_no = $2 ORDER BY created_at, pay_order_id"#,
        key.merchant_id.as_str(),
        key.order_no.as_str(),
    )
    .fetch_all(conn)
    .await?;
    Ok(attempts)
}

/// Writes the tasks that close live attempts which ended before `horizon` and that nobody is driving yet.
pub(super) async fn leave_dead_links_to_tasks(
    conn: &mut Conn,
    horizon: OffsetDateTime,
    limit: i64,
    now: OffsetDateTime,
) -> Result<u64, DbError> {
    let written = sqlx::query!(
        "INSERT INTO compensations (kind, action, subject, merchant_id, order_no, due_at, created_at, updated_at)
         SELECT 'REDO_BUSINESS', 'CLOSE_PAY_ORDER', pay_order_id, merchant_id, order_no, $3, $3, $3
         FROM pay_orders
         WHERE is_live AND expires_at <= $1
           AND NOT EXISTS (
               SELECT 1 FROM compensations
               WHERE action = 'CLOSE_PAY_ORDER' AND subject = pay_order_id AND status IN ('READY', 'RUNNING'))
           AND NOT EXISTS (
               SELECT 1 FROM compensations
               WHERE action = 'EXPIRE_ORDER' AND subject = pay_orders.merchant_id || ':' || pay_orders.order_no
                 AND status IN ('READY', 'RUNNING'))
         -- The id breaks ties, so that two sweeps write in one order and cannot deadlock.
         ORDER BY expires_at, pay_order_id LIMIT $2
         ON CONFLICT (action, subject) WHERE status IN ('READY', 'RUNNING') DO NOTHING",
        horizon,
        limit,
        now,
    )
    .execute(conn)
    .await?;
    Ok(written.rows_affected())
}
