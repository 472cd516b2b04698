//! What a channel is asked about a refund with, by whoever has its task and is about to make it.

use time::OffsetDateTime;

use super::facts::{Facts, Row, facts_of};
use crate::compensation::{Hold, TaskStatus};
use crate::ids::RefundId;
use crate::infra::db::{Conn, DbError};
use crate::infra::gather::{Command, Patience, column, in_places, places};
use crate::money::Currency;
use crate::refunds::model::RefundStatus;

/// Reads the facts of a refund whose task is held, and stays so until then if nobody gives it up; nothing where it is not.
#[derive(Clone, Debug)]
pub(in crate::refunds) struct FindHeld {
    pub(in crate::refunds) refund_id: String,
    pub(in crate::refunds) hold: Hold,
    pub(in crate::refunds) until: OffsetDateTime,
}

impl Command for FindHeld {
    const NAME: &'static str = "refunds.find_held";
    type Outcome = Option<Facts>;

    fn order(&self) -> Option<String> {
        None
    }

    async fn carry_out(batch: &[Self], _: Patience, conn: &mut Conn) -> Result<Vec<Option<Facts>>, DbError> {
        let rows = facts_of!(
            r#"WITH asked AS (
                 SELECT named.place, refunds.*
                 FROM (SELECT unnest($1::text[]) AS refund_id, unnest($2::bigint[]) AS task_id,
                              unnest($3::bigint[]) AS claim, unnest($4::timestamptz[]) AS until,
                              unnest($6::bigint[]) AS place) AS named
                 JOIN refunds ON refunds.refund_id = named.refund_id
                 -- As below.
                 WHERE (SELECT id FROM compensations AS task
                        WHERE task.id = named.task_id AND task.claims = named.claim AND task.status = $5
                          AND task.due_at > named.until) IS NOT NULL
               )"#,
            &column(batch, |held| held.refund_id.as_str()) as &[&str],
            &column(batch, |held| held.hold.id),
            &column(batch, |held| held.hold.claim),
            &column(batch, |held| held.until),
            TaskStatus::Running.as_str(),
            &places(batch.len()),
        );
        Ok(in_places(batch.len(), rows.fetch_all(conn).await?, Row::in_its_place))
    }
}

/// A channel is about to be asked for it: `PENDING → PROCESSING`. Gives the facts; nothing, and nothing was changed, where the
/// refund does not stand there (any more), its money is not there, or somebody else has its task.
#[derive(Clone, Debug)]
pub(in crate::refunds) struct Begin {
    pub(in crate::refunds) refund_id: String,
    pub(in crate::refunds) hold: Hold,
    pub(in crate::refunds) now: OffsetDateTime,
}

impl Command for Begin {
    const NAME: &'static str = "refunds.begin";
    type Outcome = Option<Facts>;

    fn order(&self) -> Option<String> {
        Some(self.refund_id.clone())
    }

    async fn carry_out(
        batch: &[Self],
        patience: Patience,
        conn: &mut Conn,
    ) -> Result<Vec<Option<Facts>>, DbError> {
        let rows = facts_of!(
            r#"WITH patient AS MATERIALIZED (SELECT set_config('lock_timeout', $3, true)), asked AS (
                 UPDATE refunds SET status = $5, version = refunds.version + 1, updated_at = new.now
                 FROM (SELECT unnest($1::text[]) AS refund_id, unnest($2::timestamptz[]) AS now,
                              unnest($6::bigint[]) AS task_id, unnest($7::bigint[]) AS claim,
                              unnest($9::bigint[]) AS place) AS new, patient
                 -- A parameter, because the word would let the plan walk the index of all unfinished refunds.
                 WHERE refunds.refund_id = new.refund_id AND refunds.status = $4
                   -- Look-ups, and none that a plan could walk. That of the task is as old as the wait for the refund's row:
                   -- far younger than a lease.
                   AND (SELECT id FROM compensations AS task
                        WHERE task.id = new.task_id AND task.claims = new.claim AND task.status = $8
                          AND task.due_at > new.now) IS NOT NULL
                   AND (refunds.stray_id IS NOT NULL
                        OR (SELECT paid.pay_order_id FROM pay_orders AS paid
                            WHERE paid.pay_order_id = refunds.pay_order_id) IS NOT NULL)
                 RETURNING new.place, refunds.*
               )"#,
            &column(batch, |new| new.refund_id.as_str()) as &[&str],
            &column(batch, |new| new.now),
            patience.millis(),
            RefundStatus::Pending.as_str(),
            RefundStatus::Processing.as_str(),
            &column(batch, |new| new.hold.id),
            &column(batch, |new| new.hold.claim),
            TaskStatus::Running.as_str(),
            &places(batch.len()),
        );
        Ok(in_places(batch.len(), rows.fetch_all(conn).await?, Row::in_its_place))
    }
}
