//! `INIT`: an attempt begins.

use time::OffsetDateTime;

use crate::infra::db::{Conn, DbError};
use crate::infra::gather::{Command, Patience, column, met, places};
use crate::orders::OrderStatus;
use crate::pay::model::Attempt;

/// Begins an attempt: the row, its history, and the task that drives it on should this process die. `false`
/// when the order is not as it was read: then nothing was written.
///
/// The flush is not waited for. Losing this row in a crash of the server is harmless: the link is given out
/// only after the flushed commit of [`super::Publish`], which comes later in the same log and so makes this one
/// durable too; without it nobody has the link, so nobody can pay.
#[derive(Debug)]
pub(in crate::pay) struct Begin {
    pub(in crate::pay) attempt: Attempt,
    pub(in crate::pay) attempts_seen: i32,
    pub(in crate::pay) guard_until: OffsetDateTime,
}

impl Command for Begin {
    const NAME: &'static str = "pay.begin";
    type Outcome = bool;

    fn order(&self) -> Option<String> {
        Some(self.attempt.order_key().lock_rank())
    }

    async fn carry_out(batch: &[Self], patience: Patience, conn: &mut Conn) -> Result<Vec<bool>, DbError> {
        let begun = sqlx::query_scalar!(
            r#"WITH relaxed AS MATERIALIZED (
                 SELECT set_config('synchronous_commit', 'off', true), set_config('lock_timeout', $14, true)
               ), begun AS (
                 UPDATE orders SET attempts = orders.attempts + 1
                 FROM (SELECT unnest($1::text[]) AS pay_order_id, unnest($2::text[]) AS merchant_id,
                              unnest($3::text[]) AS order_no, unnest($4::text[]) AS payer_id,
                              unnest($5::text[]) AS channel, unnest($6::bigint[]) AS amount,
                              unnest($7::text[]) AS currency, unnest($8::text[]) AS subject,
                              unnest($9::text[]) AS return_url, unnest($10::timestamptz[]) AS expires_at,
                              unnest($11::timestamptz[]) AS now, unnest($12::integer[]) AS attempts_seen,
                              unnest($13::timestamptz[]) AS guard_until, unnest($16::bigint[]) AS place) AS new,
                      relaxed
                 WHERE orders.merchant_id = new.merchant_id AND orders.order_no = new.order_no
                   AND orders.status = $15 AND orders.expires_at > new.now
                   -- Nobody began another attempt since the order was read.
                   AND orders.attempts = new.attempts_seen
                 RETURNING new.*
               ), attempt AS (
                 INSERT INTO pay_orders (pay_order_id, merchant_id, order_no, payer_id, channel, amount, currency,
                                         subject, return_url, expires_at, created_at, updated_at)
                 SELECT pay_order_id, merchant_id, order_no, payer_id, channel, amount, currency, subject,
                        return_url, expires_at, now, now
                 FROM begun
               ), history AS (
                 INSERT INTO order_history (merchant_id, order_no, pay_order_id, seq, to_status, event, created_at)
                 SELECT merchant_id, order_no, pay_order_id, 1, 'INIT', 'BEGUN', now FROM begun
               ), guard AS (
                 INSERT INTO compensations
                     (kind, action, subject, merchant_id, order_no, due_at, created_at, updated_at)
                 SELECT 'REDO_BUSINESS', 'DRIVE_PAY_ORDER', pay_order_id, merchant_id, order_no, guard_until, now, now
                 FROM begun
               )
               SELECT place AS "place!" FROM begun"#,
            &column(batch, |new| new.attempt.pay_order_id.as_str()) as &[&str],
            &column(batch, |new| new.attempt.merchant_id.as_str()) as &[&str],
            &column(batch, |new| new.attempt.order_no.as_str()) as &[&str],
            &column(batch, |new| new.attempt.payer_id.as_str()) as &[&str],
            &column(batch, |new| new.attempt.channel.as_str()) as &[&str],
            &column(batch, |new| new.attempt.amount),
            &column(batch, |new| new.attempt.currency.as_str()) as &[&str],
            &column(batch, |new| new.attempt.subject.as_deref()) as &[Option<&str>],
            &column(batch, |new| new.attempt.return_url.as_deref()) as &[Option<&str>],
            &column(batch, |new| new.attempt.expires_at),
            &column(batch, |new| new.attempt.created_at),
            &column(batch, |new| new.attempts_seen),
            &column(batch, |new| new.guard_until),
            patience.millis(),
            OrderStatus::Pending.as_str(),
            &places(batch.len()),
        )
        .fetch_all(conn)
        .await?;
        Ok(met(batch.len(), begun))
    }
}
