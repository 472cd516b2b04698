//! What a channel is asked about a refund with, read as it is or as it begins to be asked.

use time::OffsetDateTime;

use crate::compensation::{Hold, TaskStatus};
use crate::ids::RefundId;
use crate::infra::db::{Conn, DbError};
use crate::infra::gather::{Command, Patience, column, in_places};
use crate::money::Currency;
use crate::refunds::model::RefundStatus;

/// A refund, and the trade whose money it gives back.
#[derive(Clone, Debug)]
pub(in crate::refunds) struct Facts {
    pub(in crate::refunds) refund_id: RefundId,
    pub(in crate::refunds) status: RefundStatus,
    /// Minor units, and of what.
    pub(in crate::refunds) money: (i64, Currency),
    pub(in crate::refunds) reason: String,
    pub(in crate::refunds) channel: String,
    /// The pay order that the channel knows the trade by.
    pub(in crate::refunds) out_trade_no: String,
    /// The channel's number of the trade.
    pub(in crate::refunds) transaction_id: String,
    /// The channel's own id of the trade, where it has one.
    pub(in crate::refunds) channel_ref: Option<String>,
    /// What the trade took in all.
    pub(in crate::refunds) taken: (i64, Currency),
    /// When its link died, or would have.
    pub(in crate::refunds) expires_at: OffsetDateTime,
}

/// The facts of what `$refunds` calls `asked`, rows of `refunds` with their places. One whose money is not there is as
/// unknown as one that is not there itself.
macro_rules! facts_of {
    ($refunds:literal, $($value:expr),+ $(,)?) => {
        sqlx::query_as!(
            Row,
            $refunds
                + r#"
               SELECT asked.place AS "place!", asked.refund_id AS "refund_id: RefundId",
                      asked.status AS "status: RefundStatus", asked.amount, asked.currency AS "currency: Currency",
                      asked.reason, coalesce(attempt.channel, stray.channel) AS "channel!",
                      coalesce(attempt.pay_order_id, stray.out_trade_no) AS "out_trade_no!",
                      coalesce(attempt.transaction_id, stray.transaction_id, '') AS "transaction_id!",
                      attempt.channel_ref AS "channel_ref?", coalesce(attempt.amount, stray.amount) AS "taken!",
                      coalesce(attempt.currency, stray.currency) AS "taken_currency!: Currency",
                      coalesce(attempt.expires_at, stray.paid_at) AS "expires_at!"
               FROM asked
               LEFT JOIN pay_orders AS attempt ON attempt.pay_order_id = asked.pay_order_id
               LEFT JOIN stray_payments AS stray ON stray.stray_id = asked.stray_id
               WHERE coalesce(attempt.pay_order_id, stray.stray_id) IS NOT NULL"#,
            $($value),+
        )
    };
}

struct Row {
    place: i64,
    refund_id: RefundId,
    status: RefundStatus,
    amount: i64,
    currency: Currency,
    reason: String,
    channel: String,
    out_trade_no: String,
    transaction_id: String,
    channel_ref: Option<String>,
    taken: i64,
    taken_currency: Currency,
    expires_at: OffsetDateTime,
}

impl Row {
    fn in_its_place(self) -> (i64, Facts) {
        let facts = Facts {
            refund_id: self.refund_id,
            status: self.status,
            money: (self.amount, self.currency),
            reason: self.reason,
            channel: self.channel,
            out_trade_no: self.out_trade_no,
            transaction_id: self.transaction_id,
            channel_ref: self.channel_ref,
            taken: (self.taken, self.taken_currency),
            expires_at: self.expires_at,
        };
        (self.place, facts)
    }
}

/// Reads a refund, and the attempt or the stray payment that took its money; nothing where either is not there.
#[derive(Debug)]
pub(in crate::refunds) struct FindFacts(pub(in crate::refunds) String);

impl Command for FindFacts {
    const NAME: &'static str = "refunds.find_facts";
    type Outcome = Option<Facts>;

    fn order(&self) -> Option<String> {
        None
    }

    async fn carry_out(batch: &[Self], _: Patience, conn: &mut Conn) -> Result<Vec<Option<Facts>>, DbError> {
        let rows = facts_of!(
            r#"WITH asked AS (
                 SELECT named.place, refunds.*
                 FROM unnest($1::text[]) WITH ORDINALITY AS named (refund_id, place)
                 JOIN refunds ON refunds.refund_id = named.refund_id
               )"#,
            &column(batch, |FindFacts(refund_id)| refund_id.as_str()) as &[&str],
        );
        Ok(in_places(batch.len(), rows.fetch_all(conn).await?, Row::in_its_place))
    }
}

/// A channel is about to be asked for it: `PENDING → PROCESSING`. Gives the same as [`FindFacts`]; nothing, and nothing
/// was changed, where the refund does not stand there (any more), its money is not there, or somebody else has its task.
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
                 FROM unnest($1::text[], $2::timestamptz[], $6::bigint[], $7::bigint[]) WITH ORDINALITY
                      AS new (refund_id, now, task_id, claim, place), patient
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
        );
        Ok(in_places(batch.len(), rows.fetch_all(conn).await?, Row::in_its_place))
    }
}
