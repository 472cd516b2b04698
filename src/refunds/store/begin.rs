//! A channel is about to be asked for a refund.

use time::OffsetDateTime;

use crate::infra::db::{Conn, DbError};
use crate::infra::gather::{Command, Patience, column, met};
use crate::refunds::model::RefundStatus;

/// `PENDING → PROCESSING`; `false` when another worker was faster.
#[derive(Clone, Debug)]
pub(in crate::refunds) struct Begin {
    pub(in crate::refunds) refund_id: String,
    pub(in crate::refunds) now: OffsetDateTime,
}

impl Command for Begin {
    const NAME: &'static str = "refunds.begin";
    type Outcome = bool;

    fn order(&self) -> Option<String> {
        Some(self.refund_id.clone())
    }

    async fn carry_out(batch: &[Self], patience: Patience, conn: &mut Conn) -> Result<Vec<bool>, DbError> {
        let begun = sqlx::query_scalar!(
            r#"WITH patient AS MATERIALIZED (SELECT set_config('lock_timeout', $3, true))
               UPDATE refunds SET status = $5, version = refunds.version + 1, updated_at = new.now
               FROM unnest($1::text[], $2::timestamptz[]) WITH ORDINALITY AS new (refund_id, now, place), patient
               -- A parameter, because the word would let the plan walk the index of all unfinished refunds.
               WHERE refunds.refund_id = new.refund_id AND refunds.status = $4
               RETURNING new.place AS "place!""#,
            &column(batch, |new| new.refund_id.as_str()) as &[&str],
            &column(batch, |new| new.now),
            patience.millis(),
            RefundStatus::Pending.as_str(),
            RefundStatus::Processing.as_str(),
        )
        .fetch_all(conn)
        .await?;
        Ok(met(batch.len(), begun))
    }
}
