//! The rows of `pay_orders`, and what is written together with them. What every pay URL costs is gathered: see
//! [`FindFacts`], [`Begin`] and [`Publish`].

use time::OffsetDateTime;

use super::model::{Attempt, PayEvent, PayStatus};
use crate::channels::Refusal;
use crate::compensation::TaskStatus;
use crate::idempotency::Kept;
use crate::ids::{MerchantId, OrderNo, PayOrderId, UserId};
use crate::infra::db::{Conn, DbError};
use crate::money::Currency;
use crate::orders::OrderKey;

mod begin;
mod facts;
mod publish;

pub(super) use begin::Begin;
#[cfg(test)]
pub(super) use facts::OrderFacts;
pub(super) use facts::{Facts, FindFacts, LiveAttempt};
pub(super) use publish::Publish;

/// Ends a live attempt that the channel refused, with the channel's words, and keeps the answer where that is
/// asked. One that moved meanwhile stays as it is: `false`.
pub(super) async fn set_failed(
    conn: &mut Conn,
    attempt: &Attempt,
    refusal: &Refusal,
    kept: Option<&Kept>,
    now: OffsetDateTime,
) -> Result<bool, DbError> {
    let ended = sqlx::query_scalar!(
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
           ), living AS MATERIALIZED (
             -- Also what is being claimed in this moment. In the words of its unique index: there is no other way.
             SELECT id, attempts FROM compensations
             WHERE action IN ('DRIVE_PAY_ORDER', 'CLOSE_PAY_ORDER') AND subject = $1
               AND status NOT IN ('DONE', 'DEAD') AND EXISTS (SELECT 1 FROM ended) FOR UPDATE
           ), unneeded AS (
             -- A guard that was never needed leaves no row.
             DELETE FROM compensations USING living WHERE compensations.id = living.id AND living.attempts = 0
           ), finished AS (
             UPDATE compensations SET status = 'DONE', updated_at = $8
             FROM living WHERE compensations.id = living.id AND living.attempts > 0
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
    Ok(ended == 1)
}

/// Every column of an attempt, of what follows.
macro_rules! attempts {
    ($tail:literal, $($argument:expr),+ $(,)?) => {
        sqlx::query_as!(
            Attempt,
            r#"SELECT pay_order_id AS "pay_order_id: PayOrderId", merchant_id AS "merchant_id: MerchantId",
                      order_no AS "order_no: OrderNo", payer_id AS "payer_id: UserId", channel,
                      status AS "status: PayStatus", amount, currency AS "currency: Currency", subject, return_url,
                      pay_url, channel_ref, transaction_id, paid_at, channel_code, channel_message, expires_at,
                      created_at, version
               FROM pay_orders "# + $tail,
            $($argument),+
        )
    };
}

/// The attempt of that id.
pub(super) async fn find(conn: &mut Conn, pay_order_id: &str) -> Result<Option<Attempt>, DbError> {
    Ok(attempts!("WHERE pay_order_id = $1", pay_order_id).fetch_optional(conn).await?)
}

/// The live attempt of an order, which has one at most, however many it had before.
pub(super) async fn find_live(conn: &mut Conn, key: &OrderKey) -> Result<Option<Attempt>, DbError> {
    let live = attempts!(
        "WHERE merchant_id = $1 AND order_no = $2 AND is_live",
        key.merchant_id.as_str(),
        key.order_no.as_str(),
    );
    Ok(live.fetch_optional(conn).await?)
}

/// The last attempts of an order, oldest first.
pub(super) async fn list_of_order(
    conn: &mut Conn,
    key: &OrderKey,
    limit: i64,
) -> Result<Vec<Attempt>, DbError> {
    let latest_first = attempts!(
        "WHERE merchant_id = $1 AND order_no = $2 ORDER BY created_at DESC, pay_order_id DESC LIMIT $3",
        key.merchant_id.as_str(),
        key.order_no.as_str(),
        limit,
    );
    let mut attempts = latest_first.fetch_all(conn).await?;
    attempts.reverse();
    Ok(attempts)
}

/// Writes the tasks that close live attempts which ended between `after` and `horizon`, the next `limit` of them and
/// those of the same instant, but for attempts that a task drives already, and those of orders that are due: whoever closes
/// the order ends them. Gives how many, and the last instant; no instant when there was none left.
pub(super) async fn leave_dead_links_to_tasks(
    conn: &mut Conn,
    after: OffsetDateTime,
    horizon: OffsetDateTime,
    limit: i64,
    now: OffsetDateTime,
) -> Result<(i64, Option<OffsetDateTime>), DbError> {
    let page = sqlx::query!(
        r#"WITH page AS MATERIALIZED (
             SELECT pay_order_id, merchant_id, order_no, expires_at FROM pay_orders
             WHERE is_live AND expires_at > $1 AND expires_at <= $2
             ORDER BY expires_at FETCH FIRST ($3) ROWS WITH TIES
           ), written AS (
             INSERT INTO compensations
                 (kind, action, lane, subject, merchant_id, order_no, due_at, created_at, updated_at)
             SELECT 'REDO_BUSINESS', 'CLOSE_PAY_ORDER', 'SWEEP', pay_order_id, page.merchant_id, page.order_no, $4, $4, $4
             FROM page
             LEFT JOIN LATERAL (
                 SELECT id FROM compensations
                 WHERE merchant_id = page.merchant_id AND order_no = page.order_no
                   AND (action = 'EXPIRE_ORDER' OR (action = 'CLOSE_PAY_ORDER' AND subject = page.pay_order_id))
                   -- Parameters, because words would let the plan walk an index of all living tasks for each attempt.
                   AND status = ANY($5)
                 LIMIT 1) AS task ON true
             WHERE task.id IS NULL
               -- Looked up one by one: a plan that joins the orders may walk all of them.
               AND NOT (SELECT orders.status = 'PENDING' AND orders.expires_at <= $2 FROM orders
                        WHERE orders.merchant_id = page.merchant_id AND orders.order_no = page.order_no)
             -- In the order of their subjects, as by whoever adopts what is left alone, so that no two can deadlock.
             ORDER BY pay_order_id
             ON CONFLICT (action, subject) WHERE status IN ('READY', 'RUNNING') DO NOTHING
             RETURNING 1
           )
           SELECT (SELECT count(*) FROM written) AS "written!", max(expires_at) AS last FROM page"#,
        after,
        horizon,
        limit,
        now,
        &TaskStatus::ALIVE.map(|status| status.as_str().to_owned()),
    )
    .fetch_one(conn)
    .await?;
    Ok((page.written, page.last))
}
