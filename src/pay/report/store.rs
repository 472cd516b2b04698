//! What decides over a report, and what is written for it.

use time::OffsetDateTime;

use super::{Origin, Report, Verdict};
use crate::channels::{Payment, Refusal};
use crate::ids::{MerchantId, OrderNo};
use crate::infra::db::{Conn, DbError, Tx, expect_one_row};
use crate::money::Currency;
use crate::orders::{OrderKey, OrderStatus};
use crate::outbox::Event;
use crate::pay::model::{PayEvent, PayStatus};
use crate::refunds::{StrayPolicy, StrayReason};

/// What is known about what a report speaks of.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    /// The verdict of the same callback, when it came before.
    pub(super) earlier: Option<Verdict>,
    /// Why the same money was held, when it was.
    pub(super) known_stray: Option<StrayReason>,
    /// Whether the same money was reported before, whatever became of it.
    pub(super) is_trade_known: bool,
    /// The attempt and its order.
    pub(super) matched: Option<Matched>,
}

/// An attempt of ours and its order, as read.
#[derive(Clone, Debug)]
pub(super) struct Matched {
    pub(super) key: OrderKey,
    pub(super) pay_order_id: String,
    pub(super) user_id: String,
    pub(super) order_status: OrderStatus,
    pub(super) order_money: (i64, Currency),
    pub(super) order_attempts: i32,
    pub(super) attempt_status: PayStatus,
    pub(super) attempt_version: i32,
    pub(super) attempt_money: (i64, Currency),
    pub(super) stray_money: StrayPolicy,
}

/// Reads everything in one round trip: all look-ups are by a unique key.
pub(super) async fn find_facts(conn: &mut Conn, report: &Report<'_>) -> Result<Facts, DbError> {
    let transaction_id = report.payment().map(|payment| payment.transaction_id.as_str());
    let row = sqlx::query!(
        r#"SELECT inbox.verdict AS "earlier?: Verdict",
                  stray.reason AS "stray_reason?: StrayReason",
                  trade.transaction_id IS NOT NULL AS "is_trade_known!",
                  attempt.merchant_id AS "merchant_id?: MerchantId", attempt.order_no AS "order_no?: OrderNo",
                  attempt.status AS "attempt_status?: PayStatus", attempt.version AS "attempt_version?",
                  attempt.amount AS "attempt_amount?", attempt.currency AS "attempt_currency?: Currency",
                  orders.user_id AS "user_id?", orders.status AS "order_status?: OrderStatus",
                  orders.amount AS "order_amount?", orders.currency AS "order_currency?: Currency",
                  orders.attempts AS "order_attempts?", merchants.stray_money AS "stray_money?: StrayPolicy"
           FROM (VALUES ($1::text, $2::text, $3::text, $4::text))
                AS report (channel, pay_order_id, transaction_id, event_id)
           LEFT JOIN webhook_inbox AS inbox
                  ON inbox.channel = report.channel AND inbox.event_id = report.event_id
           LEFT JOIN trades AS trade
                  ON trade.channel = report.channel AND trade.transaction_id = report.transaction_id
           LEFT JOIN stray_payments AS stray ON stray.stray_id = trade.stray_id
           LEFT JOIN pay_orders AS attempt
                  ON attempt.pay_order_id = report.pay_order_id AND attempt.channel = report.channel
           LEFT JOIN orders ON orders.merchant_id = attempt.merchant_id AND orders.order_no = attempt.order_no
           LEFT JOIN merchants ON merchants.merchant_id = attempt.merchant_id"#,
        report.channel,
        report.pay_order_id,
        transaction_id,
        report.origin.event_id(),
    )
    .fetch_one(conn)
    .await?;
    let matched = (|| {
        Some(Matched {
            key: OrderKey { merchant_id: row.merchant_id?, order_no: row.order_no? },
            pay_order_id: report.pay_order_id.to_owned(),
            user_id: row.user_id?,
            order_status: row.order_status?,
            order_money: (row.order_amount?, row.order_currency?),
            order_attempts: row.order_attempts?,
            attempt_status: row.attempt_status?,
            attempt_version: row.attempt_version?,
            attempt_money: (row.attempt_amount?, row.attempt_currency?),
            stray_money: row.stray_money?,
        })
    })();
    Ok(Facts {
        earlier: row.earlier,
        known_stray: row.stray_reason,
        is_trade_known: row.is_trade_known,
        matched,
    })
}

/// Pays an order: the callback, the order, the attempt, its stock, the history, the event, and a task for every
/// other live attempt, in one statement and so in one commit. `false` when the order is not as it was read.
///
/// It decides alike with a locked read: the order's row is written first and only while it is `PENDING`, of that
/// amount, and without an attempt that was begun since; whoever comes second waits for that row and then meets
/// nothing. Stock rows are locked in the order of their names, as everywhere.
#[expect(clippy::too_many_lines, reason = "one statement and its parameters")]
pub(super) async fn pay(
    conn: &mut Conn,
    report: &Report<'_>,
    matched: &Matched,
    payment: &Payment,
    event: &Event,
    now: OffsetDateTime,
) -> Result<bool, DbError> {
    let body = match report.origin {
        Origin::Callback { body, .. } => Some(body),
        Origin::Rematch { .. } | Origin::Replay { .. } | Origin::Query => None,
    };
    let paid = sqlx::query_scalar!(
        r#"WITH paid AS (
             UPDATE orders
             SET status = 'PAID', paid_by = $3, paid_at = $4, version = version + 1, updated_at = $5
             WHERE merchant_id = $1 AND order_no = $2
               AND status = 'PENDING' AND amount = $6 AND currency = $7 AND attempts = $8
             RETURNING version
           ), attempt AS MATERIALIZED (
             -- After the order's row: its present state, which a link being made may just have changed.
             SELECT pay_orders.status, pay_orders.version FROM pay_orders, paid
             WHERE pay_order_id = $3 FOR UPDATE OF pay_orders
           ), collected AS (
             UPDATE pay_orders
             SET status = 'PAID', transaction_id = $9, paid_at = $4, version = attempt.version + 1, updated_at = $5
             FROM attempt WHERE pay_order_id = $3
           ), trade AS (
             -- Its primary key refuses money that somebody else has just written down as stray.
             INSERT INTO trades (channel, transaction_id, pay_order_id, created_at)
             SELECT $13, $9, $3, $5 FROM paid
           ), history AS (
             INSERT INTO order_history (merchant_id, order_no, pay_order_id, seq, from_status, to_status, event,
                                        created_at)
             SELECT $1, $2, '', version, 'PENDING', 'PAID', 'PAYMENT_CONFIRMED', $5 FROM paid
             UNION ALL
             SELECT $1, $2, $3, version + 1, status, 'PAID', 'PAYMENT_CONFIRMED', $5 FROM attempt
           ), deducted AS (
             UPDATE stock_reservations SET status = 'DEDUCTED', updated_at = $5
             FROM paid
             WHERE merchant_id = $1 AND order_no = $2 AND stock_reservations.status = 'LOCKED'
             RETURNING sku, quantity
           ), sold AS MATERIALIZED (
             SELECT skus.sku, taken.quantity
             FROM skus JOIN (SELECT sku, sum(quantity)::bigint AS quantity FROM deducted GROUP BY sku) AS taken
                       USING (sku)
             WHERE skus.merchant_id = $1
             ORDER BY skus.sku FOR UPDATE OF skus
           ), stock AS (
             UPDATE skus
             SET stock = stock - sold.quantity, lock_stock = lock_stock - sold.quantity, updated_at = $5
             FROM sold WHERE skus.merchant_id = $1 AND skus.sku = sold.sku
           ), announced AS (
             INSERT INTO outbox (merchant_id, order_no, event, event_version, payload, created_at)
             SELECT $1, $2, $10, $11, $12, $5 FROM paid
           ), kept AS (
             INSERT INTO webhook_inbox (channel, event_id, subject, merchant_id, order_no, verdict, body,
                                        received_at, updated_at)
             SELECT $13, $14, $3, $1, $2, 'APPLIED', $15, $5, $5 FROM paid WHERE $15::bytea IS NOT NULL
           ), rematched AS (
             UPDATE webhook_inbox
             SET verdict = 'APPLIED', merchant_id = $1, order_no = $2, updated_at = $5
             FROM paid
             WHERE channel = $13 AND event_id = $14 AND $15::bytea IS NULL
           ), others AS (
             -- When one attempt pays, every other live one must be closed at its channel.
             INSERT INTO compensations
                 (kind, action, subject, merchant_id, order_no, due_at, created_at, updated_at)
             SELECT 'REDO_BUSINESS', 'CLOSE_PAY_ORDER', other.pay_order_id, $1, $2, $5, $5, $5
             FROM pay_orders AS other, paid
             WHERE other.merchant_id = $1 AND other.order_no = $2 AND other.is_live AND other.pay_order_id <> $3
             ON CONFLICT (action, subject) WHERE status IN ('READY', 'RUNNING') DO NOTHING
           )
           SELECT count(*) AS "count!" FROM paid"#,
        matched.key.merchant_id.as_str(),
        matched.key.order_no.as_str(),
        report.pay_order_id,
        payment.paid_at,
        now,
        payment.money.amount.minor(),
        payment.money.currency.as_str(),
        matched.order_attempts,
        payment.transaction_id,
        event.name(),
        event.version(),
        event.payload(),
        report.channel,
        report.origin.event_id(),
        body,
    )
    .fetch_one(conn)
    .await?;
    Ok(paid == 1)
}

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
    let key = facts.matched.as_ref().map(|matched| &matched.key);
    let merchant_id = key.map(|key| key.merchant_id.as_str());
    let order_no = key.map(|key| key.order_no.as_str());
    match report.origin {
        Origin::Query => {}
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
             ), finished AS (
                 UPDATE compensations SET status = 'DONE', updated_at = $8
                 WHERE action IN ('DRIVE_PAY_ORDER', 'CLOSE_PAY_ORDER') AND subject = $1
                   AND status IN ('READY', 'RUNNING')
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
