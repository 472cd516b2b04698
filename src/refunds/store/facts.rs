//! What a channel is asked about a refund with.

use time::OffsetDateTime;

use crate::ids::RefundId;
use crate::infra::db::{Conn, DbError};
use crate::infra::gather::{Command, Patience, column, in_places, places};
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
pub(super) use facts_of;

pub(super) struct Row {
    pub(super) place: i64,
    pub(super) refund_id: RefundId,
    pub(super) status: RefundStatus,
    pub(super) amount: i64,
    pub(super) currency: Currency,
    pub(super) reason: String,
    pub(super) channel: String,
    pub(super) out_trade_no: String,
    pub(super) transaction_id: String,
    pub(super) channel_ref: Option<String>,
    pub(super) taken: i64,
    pub(super) taken_currency: Currency,
    pub(super) expires_at: OffsetDateTime,
}

impl Row {
    pub(super) fn in_its_place(self) -> (i64, Facts) {
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
                 FROM (SELECT unnest($1::text[]) AS refund_id, unnest($2::bigint[]) AS place) AS named
                 JOIN refunds ON refunds.refund_id = named.refund_id
               )"#,
            &column(batch, |FindFacts(refund_id)| refund_id.as_str()) as &[&str],
            &places(batch.len()),
        );
        Ok(in_places(batch.len(), rows.fetch_all(conn).await?, Row::in_its_place))
    }
}
