//! The rows of `pay_orders`, and what is written together with them.

use time::OffsetDateTime;

use super::model::{Attempt, PayEvent, PayStatus};
use crate::channels::{CreatedTrade, Refusal};
use crate::ids::{MerchantId, OrderNo, PayOrderId, UserId};
use crate::infra::db::{Conn, DbError};
use crate::money::Currency;
use crate::orders::{OrderKey, OrderStatus};

/// What decides over a pay URL: the order, and its live attempt if there is one.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    pub(super) order: OrderFacts,
    pub(super) live: Option<LiveAttempt>,
}

#[derive(Clone, Debug)]
pub(super) struct OrderFacts {
    pub(super) status: OrderStatus,
    pub(super) user_id: String,
    pub(super) amount: i64,
    pub(super) currency: Currency,
    pub(super) subject: Option<String>,
    pub(super) expires_at: OffsetDateTime,
    pub(super) attempts: i32,
}

#[derive(Clone, Debug)]
pub(super) struct LiveAttempt {
    pub(super) pay_order_id: PayOrderId,
    pub(super) payer_id: String,
    pub(super) channel: String,
    pub(super) status: PayStatus,
    pub(super) pay_url: Option<String>,
    pub(super) expires_at: OffsetDateTime,
}

/// Reads the order and its live attempt in one round trip.
pub(super) async fn find_facts(conn: &mut Conn, key: &OrderKey) -> Result<Option<Facts>, DbError> {
    let row = sqlx::query!(
        r#"SELECT orders.status AS "status: OrderStatus", orders.user_id, orders.amount,
                  orders.currency AS "currency: Currency", orders.subject, orders.expires_at, orders.attempts,
                  live.pay_order_id AS "live_id?: PayOrderId", live.payer_id AS "live_payer?",
                  live.channel AS "live_channel?", live.status AS "live_status?: PayStatus",
                  live.pay_url AS live_url, live.expires_at AS "live_expires_at?"
           FROM orders
           LEFT JOIN pay_orders AS live
                  ON live.merchant_id = orders.merchant_id AND live.order_no = orders.order_no AND live.is_live
           WHERE orders.merchant_id = $1 AND orders.order_no = $2"#,
        key.merchant_id.as_str(),
        key.order_no.as_str(),
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(|row| {
        let live = match (row.live_id, row.live_payer, row.live_channel, row.live_status, row.live_expires_at)
        {
            (Some(pay_order_id), Some(payer_id), Some(channel), Some(status), Some(expires_at)) => {
                Some(LiveAttempt {
                    pay_order_id,
                    payer_id,
                    channel,
                    status,
                    pay_url: row.live_url,
                    expires_at,
                })
            }
            _ => None,
        };
        let order = OrderFacts {
            status: row.status,
            user_id: row.user_id,
            amount: row.amount,
            currency: row.currency,
            subject: row.subject,
            expires_at: row.expires_at,
            attempts: row.attempts,
        };
        Facts { order, live }
    }))
}

/// Begins an attempt: the row, its history, and the task that drives it on should this process die. `false`
/// when the order is not as it was read: then nothing was written.
///
/// The flush is not waited for. Losing this row in a crash of the server is harmless: the link is given out
/// only after the flushed commit of `set_paying`, which comes later in the same log and so makes this one
/// durable too; without it nobody has the link, so nobody can pay.
pub(super) async fn begin(
    conn: &mut Conn,
    attempt: &Attempt,
    attempts_seen: i32,
    guard_until: OffsetDateTime,
) -> Result<bool, DbError> {
    let begun = sqlx::query!(
        "WITH relaxed AS MATERIALIZED (
             SELECT set_config('synchronous_commit', 'off', true)
         ), fence AS (
             UPDATE orders SET attempts = attempts + 1
             WHERE merchant_id = $2 AND order_no = $3
               AND status = 'PENDING' AND expires_at > $11
               -- Nobody began another attempt since the order was read.
               AND attempts = $12
             RETURNING 1
         ), begun AS (
             INSERT INTO pay_orders (pay_order_id, merchant_id, order_no, payer_id, channel, amount, currency,
                                     subject, return_url, expires_at, created_at, updated_at)
             SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $11 FROM fence, relaxed
             RETURNING 1
         ), history AS (
             INSERT INTO order_history (merchant_id, order_no, pay_order_id, seq, to_status, event, created_at)
             SELECT $2, $3, $1, 1, 'INIT', 'BEGUN', $11 FROM begun
         )
         INSERT INTO compensations (kind, action, subject, merchant_id, order_no, due_at, created_at, updated_at)
         SELECT 'REDO_BUSINESS', 'DRIVE_PAY_ORDER', $1, $2, $3, $13, $11, $11 FROM begun",
        attempt.pay_order_id.as_str(),
        attempt.merchant_id.as_str(),
        attempt.order_no.as_str(),
        attempt.payer_id.as_str(),
        attempt.channel,
        attempt.amount,
        attempt.currency.as_str(),
        attempt.subject,
        attempt.return_url,
        attempt.expires_at,
        attempt.created_at,
        attempts_seen,
        guard_until,
    )
    .execute(conn)
    .await?;
    Ok(begun.rows_affected() == 1)
}

/// `INIT → PAYING` with the link, if the order still waits for money; ends the guarding task. `false` when the
/// attempt or the order moved meanwhile.
pub(super) async fn set_paying(
    conn: &mut Conn,
    attempt: &Attempt,
    created: &CreatedTrade,
    now: OffsetDateTime,
) -> Result<bool, DbError> {
    let row = sqlx::query_scalar!(
        r#"WITH linked AS (
             UPDATE pay_orders
             SET status = 'PAYING', pay_url = $4, channel_ref = $5, expires_at = $6, version = version + 1,
                 updated_at = $7
             WHERE pay_order_id = $1 AND status = 'INIT'
               AND EXISTS (SELECT 1 FROM orders
                           WHERE merchant_id = $2 AND order_no = $3 AND orders.status = 'PENDING')
             RETURNING version
           ), history AS (
             INSERT INTO order_history (merchant_id, order_no, pay_order_id, seq, from_status, to_status, event,
                                        created_at)
             SELECT $2, $3, $1, version, 'INIT', 'PAYING', 'LINK_MADE', $7 FROM linked
           ), unneeded AS (
             -- The guard was never needed: no trace of it.
             DELETE FROM compensations
             WHERE action = 'DRIVE_PAY_ORDER' AND subject = $1 AND status IN ('READY', 'RUNNING')
               AND EXISTS (SELECT 1 FROM linked)
           )
           SELECT count(*) AS "count!" FROM linked"#,
        attempt.pay_order_id.as_str(),
        attempt.merchant_id.as_str(),
        attempt.order_no.as_str(),
        created.pay_url,
        created.channel_ref,
        created.expires_at,
        now,
    )
    .fetch_one(conn)
    .await?;
    Ok(row == 1)
}

/// Ends a live attempt that the channel refused, with the channel's words. One that moved meanwhile stays as it is.
pub(super) async fn set_failed(
    conn: &mut Conn,
    attempt: &Attempt,
    refusal: &Refusal,
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
