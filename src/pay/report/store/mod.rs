//! What decides over a report, and what is written for it.

use time::OffsetDateTime;

use super::{Origin, Report, Verdict};
use crate::channels::{Payment, Refusal};
use crate::compensation::TaskStatus;
use crate::infra::db::{Conn, DbError, Tx, expect_one_row};
use crate::orders::OrderStatus;
use crate::pay::model::{PayEvent, PayStatus};

mod facts;
mod pay;

pub(super) use facts::{Facts, FindFacts, Matched};
pub(super) use pay::Pay;

/// Locks the order, and says whether order and attempt are still as they were read.
pub(super) async fn lock_as_read(tx: &mut Tx, matched: &Matched) -> Result<bool, DbError> {
    let conn: &mut Conn = tx;
    let row = sqlx::query!(
        r#"SELECT orders.status AS "status: OrderStatus" FROM orders
           WHERE merchant_id = $1 AND order_no = $2 FOR UPDATE"#,
        matched.key.merchant_id.as_str(),
        matched.key.order_no.as_str(),
    )
    .fetch_one(&mut *conn)
    .await?;
    let version = sqlx::query_scalar!(
        "SELECT version FROM pay_orders WHERE pay_order_id = $1 FOR UPDATE",
        matched.pay_order_id,
    )
    .fetch_one(conn)
    .await?;
    Ok(row.status == matched.order_status && version == matched.attempt_version)
}

/// Keeps a callback with its verdict; the primary key refuses one that is kept already. `false` when a kept one is
/// not as it was read.
pub(super) async fn record_callback(
    tx: &mut Tx,
    report: &Report<'_>,
    facts: &Facts,
    verdict: Verdict,
    now: OffsetDateTime,
) -> Result<bool, DbError> {
    let conn: &mut Conn = tx;
    let key = facts.order_key();
    let merchant_id = key.map(|key| key.merchant_id.as_str());
    let order_no = key.map(|key| key.order_no.as_str());
    match report.origin {
        Origin::Query | Origin::Close { .. } | Origin::Statement => {}
        Origin::Callback { event_id, body, .. } => {
            sqlx::query!(
                "INSERT INTO webhook_inbox (channel, event_id, subject, merchant_id, order_no, verdict, body,
                                            received_at, updated_at)
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $8)",
                report.channel,
                event_id,
                report.pay_order_id,
                merchant_id,
                order_no,
                verdict.as_str(),
                body,
                now,
            )
            .execute(conn)
            .await?;
        }
        Origin::Rematch { event_id } | Origin::Replay { event_id, .. } => {
            let rejudged = sqlx::query!(
                "UPDATE webhook_inbox SET verdict = $3, merchant_id = $4, order_no = $5, updated_at = $6
                 WHERE channel = $1 AND event_id = $2 AND verdict = $7",
                report.channel,
                event_id,
                verdict.as_str(),
                merchant_id,
                order_no,
                now,
                facts.earlier.unwrap_or(Verdict::Unmatched).as_str(),
            )
            .execute(conn)
            .await?;
            return Ok(rejudged.rows_affected() == 1);
        }
    }
    Ok(true)
}

/// Whether a callback is kept in these very words.
pub(super) async fn is_kept(
    conn: &mut Conn,
    channel: &str,
    event_id: &str,
    body: &[u8],
) -> Result<bool, DbError> {
    let is_kept = sqlx::query_scalar!(
        r#"SELECT EXISTS (SELECT 1 FROM webhook_inbox WHERE channel = $1 AND event_id = $2 AND body = $3) AS "is_kept!""#,
        channel,
        event_id,
        body,
    );
    Ok(is_kept.fetch_one(conn).await?)
}

/// What a known trade was told to be, when that is not what a report says of it now.
pub(super) async fn find_other_story(
    tx: &mut Tx,
    report: &Report<'_>,
    payment: &Payment,
) -> Result<Option<String>, DbError> {
    let conn: &mut Conn = tx;
    let known = sqlx::query!(
        r#"SELECT coalesce(stray.out_trade_no, attempt.pay_order_id) AS "told_of!",
                  coalesce(stray.amount, attempt.amount) AS "amount!",
                  coalesce(stray.currency, attempt.currency) AS "currency!"
           FROM trades AS trade
           LEFT JOIN stray_payments AS stray ON stray.stray_id = trade.stray_id
           LEFT JOIN pay_orders AS attempt ON attempt.pay_order_id = trade.pay_order_id
           WHERE trade.channel = $1 AND trade.transaction_id = $2"#,
        report.channel,
        payment.transaction_id,
    )
    .fetch_optional(conn)
    .await?;
    let money = (payment.money.amount.minor(), payment.money.currency.as_str());
    Ok(known
        .filter(|known| {
            (known.told_of.as_str(), known.amount, known.currency.as_str())
                != (report.pay_order_id, money.0, money.1)
        })
        .map(|known| format!("{} {} (minor units) for {}", known.amount, known.currency, known.told_of)))
}

/// Moves an attempt of a locked order.
pub(super) async fn move_attempt(
    tx: &mut Tx,
    matched: &Matched,
    to: PayStatus,
    event: PayEvent,
    payment: Option<&Payment>,
    refusal: Option<&Refusal>,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    let conn: &mut Conn = tx;
    expect_one_row(
        &sqlx::query!(
            "WITH moved AS (
                 UPDATE pay_orders
                 SET status = $3, transaction_id = $4, paid_at = $5, channel_code = coalesce($6, channel_code),
                     channel_message = coalesce($7, channel_message), version = version + 1, updated_at = $8
                 WHERE pay_order_id = $1 AND status = $2 AND version = $9
                 RETURNING merchant_id, order_no, version
             ), living AS MATERIALIZED (
                 -- Also what is being claimed in this moment. In the words of its unique index: there is no other way.
                 SELECT id, attempts FROM compensations
                 WHERE action IN ('DRIVE_PAY_ORDER', 'CLOSE_PAY_ORDER') AND subject = $1
                   AND status NOT IN ('DONE', 'DEAD') FOR UPDATE
             ), unneeded AS (
                 -- A guard that was never needed leaves no row.
                 DELETE FROM compensations USING living WHERE compensations.id = living.id AND living.attempts = 0
             ), finished AS (
                 UPDATE compensations SET status = 'DONE', updated_at = $8
                 FROM living WHERE compensations.id = living.id AND living.attempts > 0
             ), unblocked AS (
                 -- An order past its deadline was waiting for this very attempt to end.
                 UPDATE compensations SET due_at = $8, updated_at = $8
                 FROM moved
                 WHERE action = 'EXPIRE_ORDER' AND subject = $12
                   AND compensations.status NOT IN ('DONE', 'DEAD') AND compensations.status = $11
                   AND due_at > $8
             )
             INSERT INTO order_history (merchant_id, order_no, pay_order_id, seq, from_status, to_status, event,
                                        created_at)
             SELECT merchant_id, order_no, $1, version, $2, $3, $10, $8 FROM moved",
            matched.pay_order_id,
            matched.attempt_status.as_str(),
            to.as_str(),
            payment.map(|payment| payment.transaction_id.as_str()),
            payment.map(|payment| payment.paid_at),
            refusal.map(|refusal| refusal.code.as_str()),
            refusal.map(|refusal| refusal.message.as_str()),
            now,
            matched.attempt_version,
            event.as_str(),
            TaskStatus::Ready.as_str(),
            matched.key.member(),
        )
        .execute(conn)
        .await?,
    )
}

/// Writes the task that looks for the pay order of a kept callback.
pub(super) async fn append_rematch(
    tx: &mut Tx,
    report: &Report<'_>,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    let subject = format!("{}/{}", report.channel, report.origin.event_id().unwrap_or_default());
    let task = crate::compensation::NewTask {
        action: crate::compensation::Action::RematchCallback,
        subject: &subject,
        merchant_id: None,
        order_no: None,
        due_at: now + time::Duration::SECOND,
    };
    crate::compensation::append(tx, &task, now).await
}
