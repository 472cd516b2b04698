//! Refunds were made.

use time::OffsetDateTime;

use crate::compensation::{self, Action};
use crate::exceptions::ExceptionKind;
use crate::infra::db::{Conn, DbError, Tx};
use crate::infra::gather::{Command, Patience, column};
use crate::ledger;
use crate::money::Currency;
use crate::orders::{OrderKind, OrderStatus, SettleStatus};
use crate::refunds::model::{Refund, RefundStatus};
use crate::refunds::plain::{Locked, Sheet, Standing, Succeed};

/// Writes down that refunds were made: with their orders, the stock that comes back, the history, the booking and the
/// events. `false` for what is not plain: nothing was written of it.
///
/// The orders are locked first and the refunds then, as by everybody, so what is decided on is as it stays.
impl Command for Succeed {
    const NAME: &'static str = "refunds.succeed";
    type Outcome = bool;

    fn order(&self) -> Option<String> {
        None
    }

    async fn carry_out(batch: &[Self], patience: Patience, conn: &mut Conn) -> Result<Vec<bool>, DbError> {
        let mut tx = conn.begin_batch(patience).await?;
        let outcomes = succeed_in_tx(&mut tx, batch).await;
        tx.finish_into(conn, outcomes).await
    }
}

async fn succeed_in_tx(tx: &mut Tx, batch: &[Succeed]) -> Result<Vec<bool>, DbError> {
    let Some(now) = batch.iter().map(|told| told.now).max() else { return Ok(Vec::new()) };
    let mut sheet = lock(tx, batch).await?;
    let outcomes = column(batch, |told| sheet.note(told));
    if !sheet.made.is_empty() {
        tx.ring_after_commit();
        for given_up in write(tx, &sheet, now).await? {
            compensation::settle_given_up_in_tx(tx, Action::DriveRefund, &given_up, now).await?;
        }
        ledger::post_in_tx(tx, &sheet.postings, now).await?;
    }
    Ok(outcomes)
}

/// Locks the orders of the refunds, and the refunds themselves. Both are read as they are once they are locked.
async fn lock(tx: &mut Tx, batch: &[Succeed]) -> Result<Sheet, DbError> {
    let conn: &mut Conn = tx;
    let rows = sqlx::query!(
        r#"SELECT refund.refund_id, refund.refund_no, orders.merchant_id, orders.order_no, refund.pay_order_id,
                  refund.amount, refund.currency AS "currency: Currency", refund.status AS "status: RefundStatus",
                  refund.reason, refund.failure, refund.channel_refund_id, refund.return_stock, refund.asked_by,
                  refund.made_after_all_at,
                  (SELECT channel FROM pay_orders
                   WHERE pay_orders.pay_order_id = refund.pay_order_id) AS channel,
                  orders.kind AS "kind: OrderKind", orders.user_id, orders.status AS "order_status: OrderStatus",
                  orders.amount AS order_amount, orders.refunded_amount, orders.version,
                  orders.settle_status AS "settle_status: SettleStatus"
           FROM unnest($1::text[]) AS told (refund_id)
           JOIN refunds AS refund ON refund.refund_id = told.refund_id
           JOIN orders ON orders.merchant_id = refund.merchant_id AND orders.order_no = refund.order_no
           WHERE refund.stray_id IS NULL
           ORDER BY orders.merchant_id, orders.order_no, refund.refund_id
           FOR UPDATE OF orders, refund"#,
        &column(batch, |told| told.refund_id.as_str()) as &[&str],
    )
    .fetch_all(conn)
    .await?;
    let mut sheet = Sheet::default();
    for row in rows {
        // Of a payment that is not there: it is not plain, and no other of the batch suffers for it.
        let Some(channel) = row.channel else { continue };
        let standing = Standing {
            kind: row.kind,
            user_id: row.user_id,
            status: row.order_status,
            amount: row.order_amount,
            currency: row.currency,
            refunded_amount: row.refunded_amount,
            version: row.version,
            is_settled: row.settle_status == SettleStatus::Settled,
            wants_stock: false,
        };
        sheet.orders.insert((row.merchant_id.clone(), row.order_no.clone()), standing);
        let refund = Refund {
            refund_id: row.refund_id.clone(),
            refund_no: row.refund_no,
            merchant_id: Some(row.merchant_id),
            order_no: Some(row.order_no),
            pay_order_id: row.pay_order_id,
            stray_id: None,
            amount: row.amount,
            currency: row.currency,
            status: row.status,
            reason: row.reason,
            failure: row.failure,
            channel_refund_id: row.channel_refund_id,
            return_stock: row.return_stock,
            asked_by: row.asked_by,
            made_after_all_at: row.made_after_all_at,
        };
        sheet.refunds.insert(row.refund_id, Locked { refund, channel });
    }
    Ok(sheet)
}

/// Gives those of the refunds whose tasks were given up before.
async fn write(tx: &mut Tx, sheet: &Sheet, now: OffsetDateTime) -> Result<Vec<String>, DbError> {
    let conn: &mut Conn = tx;
    let Sheet { made, changes, events, .. } = sheet;
    let moved = sheet.moved();
    let written = sqlx::query_file!(
        "src/refunds/store/succeed.sql",
        &column(made, |(refund, _)| refund.refund_id.as_str()) as &[&str],
        &column(made, |(_, channel_refund_id)| channel_refund_id.as_str()) as &[&str],
        &column(&moved, |((merchant_id, _), _)| merchant_id.as_str()) as &[&str],
        &column(&moved, |((_, order_no), _)| order_no.as_str()) as &[&str],
        &column(&moved, |(_, order)| order.refunded_amount),
        &column(&moved, |(_, order)| order.status.as_str()) as &[&str],
        &column(&moved, |(_, order)| order.version),
        &column(&moved, |(_, order)| order.wants_stock),
        &column(changes, |change| change.order.0.as_str()) as &[&str],
        &column(changes, |change| change.order.1.as_str()) as &[&str],
        &column(changes, |change| change.seq),
        &column(changes, |change| change.from.as_str()) as &[&str],
        &column(changes, |change| change.to.as_str()) as &[&str],
        &column(changes, |change| change.event.as_str()) as &[&str],
        &column(events, |((merchant_id, _), _)| merchant_id.as_str()) as &[&str],
        &column(events, |((_, order_no), _)| order_no.as_str()) as &[&str],
        &column(events, |(_, event)| event.name()) as &[&str],
        &column(events, |(_, event)| event.version()),
        &column(events, |(_, event)| event.payload()),
        now,
        RefundStatus::Succeeded.as_str(),
        OrderStatus::Refunded.as_str(),
        ExceptionKind::DeadTask.as_str(),
    )
    .fetch_one(conn)
    .await?;
    let is_whole = (written.ended, written.moved) == (made.len() as i64, moved.len() as i64);
    if is_whole { Ok(written.given_up) } else { Err(DbError::UnexpectedRows(written.ended.unsigned_abs())) }
}
