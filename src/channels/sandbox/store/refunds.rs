//! `sandbox.refunds`.

use time::OffsetDateTime;

use crate::channels::sandbox::books::RefundView;
use crate::channels::sandbox::protocol::Refund;
use crate::ids::{PayOrderId, RefundId};
use crate::infra::db::{Conn, DbError, expect_one_row};
use crate::infra::gather::{Command, Patience, column, met, places};
use crate::money::Currency;

/// Gives money back out of a payment and writes down who is to be told; `false`, and nothing is written, when a fault
/// waits, when its id is taken, or when there is no such payment with enough left of it. Gathered, because every refund
/// costs it.
#[derive(Clone, Debug)]
pub(crate) struct Give {
    pub(crate) call: Refund,
    /// The event that tells of it.
    pub(crate) event_id: String,
    pub(crate) body: String,
    pub(crate) now: OffsetDateTime,
}

impl Command for Give {
    const NAME: &'static str = "sandbox.give";
    type Outcome = bool;

    /// Two refunds of one payment never share a batch.
    fn order(&self) -> Option<String> {
        Some(self.call.transaction_id.clone())
    }

    async fn carry_out(batch: &[Self], patience: Patience, conn: &mut Conn) -> Result<Vec<bool>, DbError> {
        let given = sqlx::query_scalar!(
            r#"WITH patient AS MATERIALIZED (
                 SELECT set_config('lock_timeout', $10, true)
               ), fault AS MATERIALIZED (
                 SELECT EXISTS (SELECT FROM sandbox.faults
                                WHERE op IN ('refund', 'webhook') AND times_left > 0) AS waits
               ), given AS (
                 UPDATE sandbox.payments AS payment
                 SET refunded_amount = payment.refunded_amount + new.amount, updated_at = new.now
                 FROM (SELECT unnest($1::text[]) AS refund_id, unnest($2::text[]) AS pay_order_id,
                              unnest($3::text[]) AS transaction_id, unnest($4::bigint[]) AS amount,
                              unnest($5::text[]) AS currency, unnest($6::text[]) AS reason,
                              unnest($7::text[]) AS event_id, unnest($8::text[]) AS body,
                              unnest($9::timestamptz[]) AS now, unnest($11::bigint[]) AS place) AS new, patient, fault
                 WHERE NOT fault.waits AND payment.transaction_id = new.transaction_id
                   AND payment.pay_order_id = new.pay_order_id AND payment.currency = new.currency
                   -- Decided here, on the row as it is now.
                   AND payment.refunded_amount + new.amount <= payment.amount
                   AND NOT EXISTS (SELECT FROM sandbox.refunds WHERE refunds.refund_id = new.refund_id OFFSET 0)
                 RETURNING new.*
               ), noted AS (
                 INSERT INTO sandbox.refunds (refund_id, transaction_id, amount, currency, reason, refunded_at,
                                              created_at, updated_at)
                 SELECT refund_id, transaction_id, amount, currency, reason, now, now, now FROM given
               ), told AS (
                 INSERT INTO sandbox.deliveries (event_id, pay_order_id, notify_url, body, status, due_at, created_at,
                                                 updated_at)
                 SELECT event_id, given.pay_order_id, trade.notify_url, body, 'PENDING', now, now, now
                 FROM given JOIN sandbox.trades AS trade ON trade.pay_order_id = given.pay_order_id
               )
               SELECT place AS "place!" FROM given"#,
            &column(batch, |new| new.call.refund_id.as_str()) as &[&str],
            &column(batch, |new| new.call.pay_order_id.as_str()) as &[&str],
            &column(batch, |new| new.call.transaction_id.as_str()) as &[&str],
            &column(batch, |new| new.call.amount.minor()),
            &column(batch, |new| new.call.currency.as_str()) as &[&str],
            &column(batch, |new| new.call.reason.as_str()) as &[&str],
            &column(batch, |new| new.event_id.as_str()) as &[&str],
            &column(batch, |new| new.body.as_str()) as &[&str],
            &column(batch, |new| new.now),
            patience.millis(),
            &places(batch.len()),
        )
        .fetch_all(conn)
        .await?;
        Ok(met(batch.len(), given))
    }
}

pub(crate) async fn find(conn: &mut Conn, refund_id: &RefundId) -> Result<Option<RefundView>, DbError> {
    Ok(sqlx::query_as!(
        RefundView,
        r#"SELECT refund_id, transaction_id, amount, currency AS "currency: Currency", reason, refunded_at,
                  taken_back_at
           FROM sandbox.refunds
           WHERE refund_id = $1"#,
        refund_id.as_str(),
    )
    .fetch_optional(conn)
    .await?)
}

/// All refunds of a trade, in the order they were made.
pub(crate) async fn list(conn: &mut Conn, pay_order_id: &PayOrderId) -> Result<Vec<RefundView>, DbError> {
    Ok(sqlx::query_as!(
        RefundView,
        r#"SELECT r.refund_id, r.transaction_id, r.amount, r.currency AS "currency: Currency", r.reason,
                  r.refunded_at, r.taken_back_at
           FROM sandbox.refunds AS r
           JOIN sandbox.payments AS p USING (transaction_id)
           WHERE p.pay_order_id = $1
           ORDER BY r.refunded_at, r.refund_id"#,
        pay_order_id.as_str(),
    )
    .fetch_all(conn)
    .await?)
}

pub(crate) async fn insert(conn: &mut Conn, refund: &Refund, now: OffsetDateTime) -> Result<(), DbError> {
    expect_one_row(
        &sqlx::query!(
            "INSERT INTO sandbox.refunds (refund_id, transaction_id, amount, currency, reason, refunded_at,
                                          created_at, updated_at)
             VALUES ($1, $2, $3, $4, $5, $6, $6, $6)",
            refund.refund_id.as_str(),
            refund.transaction_id,
            refund.amount.minor(),
            refund.currency.as_str(),
            refund.reason,
            now,
        )
        .execute(conn)
        .await?,
    )
}
