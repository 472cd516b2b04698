//! What the adapter and the gateway say to each other, in one process or between two.
//!
//! Always true: both ways use these types and nothing else, so a local and a remote sandbox cannot differ. A
//! call names its operation inside the signed body, so that a signed call cannot be replayed as another one.
//! Amounts that go to the gateway are checked by their type; amounts that come back are plain numbers, which
//! the adapter checks like those of any provider.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use time::{Date, OffsetDateTime};

use crate::ids::{PayOrderId, RefundId};
use crate::money::{Amount, Currency};

use super::gateway::{Gateway, GatewayError};

time::serde::format_description!(day_text, Date, "[year]-[month]-[day]");

/// One call: its operation, its answer, and how the gateway carries it out.
pub(super) trait Call: Serialize + DeserializeOwned + Send + 'static {
    /// The last segment of its URL, and its name inside the signed body.
    const OPERATION: &'static str;

    /// What a carried-out call answers.
    type Answer: Serialize + DeserializeOwned + Send + 'static;

    /// What the gateway does for it, faults included.
    fn carry_out(self, gateway: &Gateway) -> impl Future<Output = Result<Self::Answer, GatewayError>> + Send;
}

/// A call as it travels: the signed body.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Envelope<C> {
    /// [`Call::OPERATION`], which must agree with the URL.
    pub(super) operation: String,
    /// The call itself.
    pub(super) call: C,
}

/// What came of a call that the gateway understood. Only this, under HTTP 200, counts as an answer.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub(super) enum Outcome<A> {
    /// Carried out.
    Done {
        /// The operation's answer.
        answer: A,
    },
    /// A final no.
    Refused {
        /// A stable word.
        code: String,
        /// A sentence for people.
        message: String,
    },
}

/// Opens a trade.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Create {
    pub(super) pay_order_id: PayOrderId,
    pub(super) amount: Amount,
    pub(super) currency: Currency,
    pub(super) subject: String,
    pub(super) payer_id: String,
    pub(super) return_url: Option<String>,
    pub(super) notify_url: String,
    #[serde(with = "time::serde::rfc3339")]
    pub(super) expires_at: OffsetDateTime,
}

/// A trade that stands.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Created {
    pub(super) pay_url: String,
    #[serde(with = "time::serde::rfc3339")]
    pub(super) expires_at: OffsetDateTime,
}

/// Asks about a trade.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Query {
    pub(super) pay_order_id: PayOrderId,
}

/// Closes a trade.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Close {
    pub(super) pay_order_id: PayOrderId,
}

/// How a trade stands; also what came of closing it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub(super) enum TradeAnswer {
    /// Never seen here.
    Unseen,
    /// Open and not paid.
    Pending,
    /// Money was taken.
    Paid(PaymentAnswer),
    /// The buyer declined.
    Declined,
    /// Closed or expired without payment.
    Closed,
}

/// Money that the gateway took.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct PaymentAnswer {
    pub(super) transaction_id: String,
    pub(super) amount: i64,
    pub(super) currency: String,
    #[serde(with = "time::serde::rfc3339")]
    pub(super) paid_at: OffsetDateTime,
}

/// Gives money back.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Refund {
    pub(super) refund_id: RefundId,
    pub(super) pay_order_id: PayOrderId,
    pub(super) transaction_id: String,
    pub(super) amount: Amount,
    pub(super) currency: Currency,
    pub(super) reason: String,
}

/// Asks about a refund.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct QueryRefund {
    pub(super) refund_id: RefundId,
}

/// Sends money out.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Payout {
    pub(super) payout_id: String,
    pub(super) amount: Amount,
    pub(super) currency: Currency,
    pub(super) account: String,
}

/// Asks about a payout.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct QueryPayout {
    pub(super) payout_id: String,
}

/// What became of a payout: it succeeds at once or leaves no trace, and may come back.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub(super) enum PayoutAnswer {
    /// Never taken in.
    Unseen,
    /// The money moved.
    Succeeded {
        /// The gateway's own number.
        number: String,
    },
    /// The money moved, and came back.
    TakenBack,
}

/// What became of a refund: the same.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub(super) enum RefundAnswer {
    /// Never taken in.
    Unseen,
    /// The money moved.
    Succeeded {
        /// The gateway's own number.
        number: String,
    },
    /// The money moved, and came back.
    TakenBack,
}

/// Asks for the next page of a day's books.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Statement {
    /// The UTC day.
    #[serde(with = "day_text")]
    pub(super) day: Date,
    /// Where the page before ended; absent for the first page.
    pub(super) after: Option<Position>,
}

/// A place in a day's books: payments first, then refunds, then payouts, each by time and number.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Position {
    pub(super) kind: LineKind,
    #[serde(with = "time::serde::rfc3339")]
    pub(super) at: OffsetDateTime,
    pub(super) key: String,
}

/// The kinds of movement, in the order of the books.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum LineKind {
    /// Money taken.
    Payment,
    /// Money given back.
    Refund,
    /// Money sent out.
    Payout,
}

/// A page of the books.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct StatementPage {
    pub(super) lines: Vec<Line>,
    /// Where the next page begins; absent on the last.
    pub(super) next: Option<Position>,
}

/// One movement in the books.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Line {
    pub(super) kind: LineKind,
    pub(super) our_id: String,
    pub(super) channel_id: String,
    pub(super) amount: i64,
    pub(super) currency: String,
    #[serde(with = "time::serde::rfc3339")]
    pub(super) at: OffsetDateTime,
}

/// The gateway's own number of a refund. It follows from the refund's id, because a refund's webhook names
/// only that id and the number must be the same everywhere.
pub(super) fn refund_number(refund_id: &str) -> String {
    format!("sr_{refund_id}")
}

/// The gateway's own number of a payout.
pub(super) fn payout_number(payout_id: &str) -> String {
    format!("so_{payout_id}")
}

#[cfg(test)]
mod fuzz;
