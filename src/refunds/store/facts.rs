//! What a channel is asked about a refund with.

use time::OffsetDateTime;

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
        let rows = sqlx::query!(
            r#"SELECT asked.place AS "place!", refund.refund_id AS "refund_id: RefundId",
                      refund.status AS "status: RefundStatus", refund.amount, refund.currency AS "currency: Currency",
                      refund.reason, coalesce(attempt.channel, stray.channel) AS "channel!",
                      coalesce(attempt.pay_order_id, stray.out_trade_no) AS "out_trade_no!",
                      coalesce(attempt.transaction_id, stray.transaction_id, '') AS "transaction_id!",
                      attempt.channel_ref AS "channel_ref?", coalesce(attempt.amount, stray.amount) AS "taken!",
                      coalesce(attempt.currency, stray.currency) AS "taken_currency!: Currency",
                      coalesce(attempt.expires_at, stray.paid_at) AS "expires_at!"
               FROM unnest($1::text[]) WITH ORDINALITY AS asked (refund_id, place)
               JOIN refunds AS refund ON refund.refund_id = asked.refund_id
               LEFT JOIN pay_orders AS attempt ON attempt.pay_order_id = refund.pay_order_id
               LEFT JOIN stray_payments AS stray ON stray.stray_id = refund.stray_id
               -- One whose money is not there is as unknown as one that is not there itself.
               WHERE coalesce(attempt.pay_order_id, stray.stray_id) IS NOT NULL"#,
            &column(batch, |FindFacts(refund_id)| refund_id.as_str()) as &[&str],
        )
        .fetch_all(conn)
        .await?;
        Ok(in_places(batch.len(), rows, |row| {
            let facts = Facts {
                refund_id: row.refund_id,
                status: row.status,
                money: (row.amount, row.currency),
                reason: row.reason,
                channel: row.channel,
                out_trade_no: row.out_trade_no,
                transaction_id: row.transaction_id,
                channel_ref: row.channel_ref,
                taken: (row.taken, row.taken_currency),
                expires_at: row.expires_at,
            };
            (row.place, facts)
        }))
    }
}
