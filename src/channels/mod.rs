//! Channels: payment providers behind one trait.
//!
//! Always true: an adapter speaks its provider's protocol and decides nothing. It turns amounts into [`Money`]
//! and back, checks signatures over the raw bytes, and says of every call whether it was done, finally refused,
//! or left in the dark ([`CallError::Silent`]). Our own ids (`po_…`, `rf_…`) are the idempotency keys of every
//! call, so any call may be made again.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use reqwest::header::HeaderMap;
use time::{Date, Duration, OffsetDateTime, UtcOffset};

use crate::ids::{PayOrderId, RefundId, UserId};
use crate::infra::words::words;
use crate::money::{Currency, Money};

pub mod bills;
mod closing;
pub mod sandbox;
mod text;
mod unknown;

pub use closing::close_then_ask;
pub use unknown::{Answerer, ask_redo_ask, make_then_ask};

/// What every payment provider can do for us. Amounts, times and ids are ours; the adapter translates.
#[async_trait]
pub trait Channel: Send + Sync {
    /// The name in URLs, rows, metrics and logs, such as `sandbox`.
    fn name(&self) -> &'static str;

    /// The shortest and longest life a pay link can have here.
    fn link_life(&self) -> LinkLife;

    /// Opens a trade and gives the link where the buyer pays. The same pay-order id opens the same trade.
    async fn create(&self, trade: &NewTrade) -> Result<CreatedTrade, CallError>;

    /// Asks what became of a trade.
    async fn query(&self, trade: &TradeRef) -> Result<TradeState, CallError>;

    /// Makes a trade unpayable. The answer says so when it was paid already.
    async fn close(&self, trade: &TradeRef) -> Result<Closing, CallError>;

    /// Gives money back. The same refund id moves it once.
    async fn refund(&self, refund: &RefundCall) -> Result<RefundState, CallError>;

    /// Asks what became of a refund.
    async fn query_refund(&self, refund: &RefundCall) -> Result<RefundState, CallError>;

    /// Sends money out to an account at the channel. The same payout id moves it once.
    async fn payout(&self, payout: &PayoutCall) -> Result<PayoutState, CallError>;

    /// Asks what became of a payout.
    async fn query_payout(&self, payout: &PayoutCall) -> Result<PayoutState, CallError>;

    /// Where the channel's days begin and end.
    fn day_offset(&self) -> UtcOffset {
        UtcOffset::UTC
    }

    /// A page of the channel's own books of one of its days: the first one, or the one that begins at a place which an
    /// earlier page named. [`CallError::NotNow`] while the day is not ready.
    async fn statement(&self, day: Date, from: Option<&str>) -> Result<StatementPage, CallError>;

    /// Checks a callback's signature over the raw bytes, before anything is read.
    fn verify(&self, callback: &RawCallback<'_>) -> Result<(), CallbackError>;

    /// Reads the body of a callback that was verified, now or when it was kept. Unknown fields are tolerated.
    fn read(&self, body: &[u8], received_at: OffsetDateTime) -> Result<Callback, CallbackError>;

    /// Our answer to a callback in the channel's own words.
    fn acknowledge(&self, reception: Reception) -> Acknowledgement;
}

/// Bounds of a pay link's life, counted from its creation.
#[derive(Clone, Copy, Debug)]
pub struct LinkLife {
    /// A trade cannot expire earlier than this; an order due sooner is closed at the channel instead.
    pub min: Duration,
    /// A link dies after this even when its order lives on; it is then replaced by a new attempt.
    pub max: Duration,
}

/// A trade to open.
#[derive(Clone, Debug)]
pub struct NewTrade {
    /// Our id of the attempt: the channel's merchant order number and idempotency key.
    pub pay_order_id: PayOrderId,
    /// What to collect.
    pub money: Money,
    /// What the buyer reads on the cashier page.
    pub subject: String,
    /// Who pays, as the merchant names them.
    pub payer_id: UserId,
    /// Where the cashier page leads back to.
    pub return_url: Option<String>,
    /// When the link must be dead; never past the order's own deadline where the channel can do that.
    pub expires_at: OffsetDateTime,
}

/// A trade that stands at the channel.
#[derive(Clone, Debug)]
pub struct CreatedTrade {
    /// Where the buyer pays (a page, or the text of a QR code).
    pub pay_url: String,
    /// The channel's own id of the trade, where later calls need it (a Checkout session, a prepay id).
    pub channel_ref: Option<String>,
    /// When the link dies.
    pub expires_at: OffsetDateTime,
}

/// Names a trade in later calls; carries what any channel may want to see again.
#[derive(Clone, Debug)]
pub struct TradeRef {
    /// Our id of the attempt.
    pub pay_order_id: PayOrderId,
    /// The channel's own id, as [`CreatedTrade::channel_ref`] gave it.
    pub channel_ref: Option<String>,
    /// What it collects.
    pub money: Money,
    /// When its link dies.
    pub expires_at: OffsetDateTime,
}

/// Money that a channel says it took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payment {
    /// The channel's trade number: money is identified by (channel, trade number).
    pub transaction_id: String,
    /// What was really taken, which may differ from what was asked.
    pub money: Money,
    /// When, by the channel's clock.
    pub paid_at: OffsetDateTime,
}

/// What the channel says of a trade.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TradeState {
    /// The channel has never seen it. Some channels answer so until the buyer opens the link, so before the
    /// link's expiry this means "not paid yet", never "failed".
    Unseen,
    /// Open and not paid.
    Pending,
    /// Money was taken.
    Paid(Payment),
    /// The attempt failed for good; a new one may be made.
    Failed(Refusal),
    /// Closed without payment.
    Closed,
}

/// What came of closing a trade.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Closing {
    /// It cannot be paid any more.
    Closed,
    /// Too late: money was taken. The payment is given where the channel names it, otherwise ask.
    AlreadyPaid(Option<Payment>),
    /// The channel has not seen it; a link that was handed out may open it until it expires.
    Unseen,
}

/// A final no, in the channel's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {message}")]
pub struct Refusal {
    /// The channel's code, passed on as `channel_code`.
    pub code: String,
    /// The channel's message, passed on as `channel_message`.
    pub message: String,
}

/// A refund to make or to ask about.
#[derive(Clone, Debug)]
pub struct RefundCall {
    /// Our id of the refund: the channel's idempotency key.
    pub refund_id: RefundId,
    /// The trade that took the money.
    pub trade: TradeRef,
    /// The channel's number of that trade.
    pub transaction_id: String,
    /// What to give back.
    pub money: Money,
    /// What the trade took in all.
    pub taken: Money,
    /// Why, for the buyer's statement.
    pub reason: String,
}

/// What the channel says of a refund.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RefundState {
    /// The channel knows no such refund: it was never asked, or never took it in.
    Unseen,
    /// Accepted; the result comes later.
    Processing,
    /// The money went back.
    Succeeded {
        /// The channel's own number of the refund.
        channel_refund_id: String,
    },
    /// Refused for good; no money moved.
    Failed(Refusal),
}

/// A payout to make or to ask about.
#[derive(Clone, Debug)]
pub struct PayoutCall {
    /// Our id of the payout: the channel's idempotency key.
    pub payout_id: String,
    /// What to send.
    pub money: Money,
    /// The receiving account, in the channel's own form.
    pub account: String,
}

/// What the channel says of a payout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PayoutState {
    /// The channel knows no such payout.
    Unseen,
    /// Accepted; the result comes later.
    Processing,
    /// The money went out.
    Succeeded {
        /// The channel's own number of the payout.
        channel_payout_id: String,
    },
    /// Refused for good, or made and come back: no money is out.
    Failed(Refusal),
}

/// A page of a day of the channel's books.
#[derive(Clone, Debug)]
pub struct StatementPage {
    /// The lines, in the order of the books.
    pub lines: Vec<StatementLine>,
    /// Where the next page begins; absent on the last.
    pub next: Option<String>,
}

/// One line of a channel's statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatementLine {
    /// What kind of movement it is.
    pub kind: StatementKind,
    /// Our id: a pay order, a refund or a payout; text from outside.
    pub our_id: String,
    /// The channel's own number.
    pub channel_id: String,
    /// Minor units that moved: below zero for [`StatementKind::Other`] alone.
    pub amount: i64,
    /// Of what.
    pub currency: Currency,
    /// When, by the channel's clock.
    pub at: OffsetDateTime,
    /// Minor units that the channel kept for it; negative where it gave a fee back.
    pub fee: i64,
    /// Whether the money has moved; a channel may also list what it has only accepted.
    pub is_final: bool,
}

words! {
    /// The kinds of movement in a statement.
    pub enum StatementKind {
        /// Money taken from a buyer.
        Payment = "PAYMENT",
        /// Money given back.
        Refund = "REFUND",
        /// Money that was given back and came back to us.
        RefundReversal = "REFUND_REVERSAL",
        /// Money sent out.
        Payout = "PAYOUT",
        /// What is between the channel and its customer alone: fees, disputes, transfers to the bank; and what it lists although
        /// nothing moved.
        Other = "OTHER",
    }
}

/// Why a call did not do what was asked.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CallError {
    /// A final no: nothing was done and nothing will be.
    #[error("the channel refused: {0}")]
    Refused(#[from] Refusal),
    /// Not taken in, for now: nothing was done, the same call may be made later.
    #[error("the channel asked to come back later")]
    NotNow,
    /// We did not make it: whoever wanted to may no longer, or cannot tell, or does not know the channel.
    #[error("the channel was not asked: {0}")]
    NotMade(String),
    /// No answer, or none that can be believed: it may have been done. Ask, or make the same call again.
    #[error("the channel gave no answer: {0}")]
    Silent(String),
}

/// A callback as it came in.
#[derive(Clone, Copy, Debug)]
pub struct RawCallback<'a> {
    /// All headers.
    pub headers: &'a HeaderMap,
    /// The body, byte for byte.
    pub body: &'a [u8],
    /// When it reached us.
    pub received_at: OffsetDateTime,
}

/// A callback whose signature holds.
#[derive(Clone, Debug)]
pub struct Callback {
    /// The channel's id of the event, the same on every repeat.
    pub event_id: String,
    /// Whether the account at the channel that it speaks for is the configured one; so it is where it names none.
    pub account_matches: bool,
    /// What happened.
    pub event: CallbackEvent,
}

/// What a callback reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallbackEvent {
    /// Something became of a trade.
    Trade {
        /// The pay-order id that the channel was given; text from outside, so it may name nothing of ours.
        pay_order_id: String,
        /// What became of it.
        state: TradeState,
    },
    /// Something became of a refund.
    Refund {
        /// The refund id that the channel was given.
        refund_id: String,
        /// What went back, where the channel says so; must be what was asked for.
        money: Option<Money>,
        /// What became of it.
        state: RefundState,
    },
    /// Nothing that concerns us: stored and acknowledged.
    Other,
}

/// Why a callback is not believed. Nothing is kept of it but a counter; of `Malformed` a person is shown the body, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallbackError {
    /// No signature, or none that fits any configured key.
    #[error("the signature is missing or does not fit the body")]
    BadSignature,
    /// Signed more than five minutes from now, either way.
    #[error("the signature's timestamp is more than five minutes off")]
    StaleTimestamp,
    /// Signed well, but not what the protocol describes.
    #[error("the body is not what this channel sends")]
    Malformed,
}

/// How we took a callback in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reception {
    /// Taken in for good (also a repeat): do not send it again.
    Accepted,
    /// Refused: it is wrong, and will be refused again.
    Rejected,
    /// We could not take it in now: send it again.
    TryAgain,
}

/// An answer to a callback, as data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acknowledgement {
    /// The HTTP status.
    pub status: u16,
    /// The `Content-Type` of the body.
    pub content_type: &'static str,
    /// The body, byte for byte.
    pub body: Cow<'static, str>,
}

/// The channels that this process knows, by name.
#[derive(Clone, Default)]
pub struct Channels {
    by_name: Arc<BTreeMap<&'static str, Arc<dyn Channel>>>,
}

impl std::fmt::Debug for Channels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.by_name.keys()).finish()
    }
}

/// The channels that this version has an adapter for; of others there are statements only.
const ADAPTERS: [&str; 1] = [sandbox::NAME];

/// For how long what wants a channel that is not here is left to others. Behind that nobody else is there.
pub const TO_OTHERS: Duration = Duration::HOUR;

/// Whether some instance may reach a channel of that name.
#[must_use]
pub fn has_adapter(name: &str) -> bool {
    ADAPTERS.contains(&name)
}

impl Channels {
    /// A registry of the given channels.
    #[must_use]
    pub fn new(channels: Vec<Arc<dyn Channel>>) -> Self {
        Self { by_name: Arc::new(channels.into_iter().map(|channel| (channel.name(), channel)).collect()) }
    }

    /// The channel of that name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<dyn Channel>> {
        self.by_name.get(name)
    }

    /// The channels that other instances may reach, and this one cannot: what wants one of them is left to those.
    #[must_use]
    pub fn elsewhere(&self) -> Vec<&'static str> {
        ADAPTERS.into_iter().filter(|name| self.get(name).is_none()).collect()
    }

    /// Whether what has wanted that channel since then is left to other instances: this one cannot reach it, and they may.
    #[must_use]
    pub fn leaves_to_others(&self, name: &str, since: OffsetDateTime, now: OffsetDateTime) -> bool {
        self.get(name).is_none() && has_adapter(name) && now < since + TO_OTHERS
    }

    /// The names of all channels.
    pub fn names(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.by_name.keys().copied()
    }
}
