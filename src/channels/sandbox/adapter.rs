//! The adapter: the sandbox seen as a [`Channel`], like any provider.

use std::borrow::Cow;
use std::time::Duration;

use async_trait::async_trait;
use secrecy::SecretString;
use time::{Date, OffsetDateTime};

use crate::channels::{
    Acknowledgement, CallError, Callback, CallbackError, Channel, Closing, CreatedTrade, LinkLife, NewTrade,
    Payment, PayoutCall, PayoutState, RawCallback, Reception, RefundCall, RefundState, Refusal,
    StatementKind, StatementLine, StatementPage, TradeRef, TradeState, text,
};
use crate::infra::clock::Clock;
use crate::money::{Amount, Money};

use super::NAME;
use super::callback;
use super::gateway::{Gateway, Refused};
use super::link::{Link, Remote};
use super::protocol::{self, Call, LineKind, PaymentAnswer, PayoutAnswer, RefundAnswer, TradeAnswer};
use super::signature::{EmptySecret, Keys};
use super::trades::MAX_LINK_LIFE;

/// What the adapter must be told.
#[derive(Clone, Debug)]
pub struct AdapterSettings {
    /// The first signs, all verify: a secret is replaced by putting the new one in front.
    pub secrets: Vec<SecretString>,
    /// Where the gateway shall post its webhooks: `…/webhooks/sandbox` of this service.
    pub notify_url: String,
    /// How long any one call may take.
    pub deadline: Duration,
    /// Carries the calls to a remote gateway; it must not follow redirects.
    pub http: reqwest::Client,
    /// Dates the signatures of calls to a remote gateway.
    pub clock: Clock,
}

/// The channel `sandbox`. Cheap to clone.
#[derive(Clone, Debug)]
pub struct SandboxChannel {
    link: Link,
    keys: Keys,
    notify_url: String,
    deadline: Duration,
}

impl SandboxChannel {
    /// An adapter to the gateway in this process.
    ///
    /// # Errors
    /// [`EmptySecret`] when there is no secret to verify webhooks with.
    pub fn local(gateway: Gateway, settings: AdapterSettings) -> Result<Self, EmptySecret> {
        let AdapterSettings { secrets, notify_url, deadline, .. } = settings;
        Ok(Self { link: Link::Local(gateway), keys: Keys::new(&secrets)?, notify_url, deadline })
    }

    /// An adapter to the gateway of another instance, below this URL.
    ///
    /// # Errors
    /// [`EmptySecret`] when there is no secret to sign calls and verify webhooks with.
    pub fn remote(base_url: &str, settings: AdapterSettings) -> Result<Self, EmptySecret> {
        let AdapterSettings { secrets, notify_url, deadline, http, clock } = settings;
        let keys = Keys::new(&secrets)?;
        let base_url = base_url.trim_end_matches('/').to_owned();
        let link = Link::Remote(Remote { base_url, keys: keys.clone(), clock, http });
        Ok(Self { link, keys, notify_url, deadline })
    }

    async fn call<C: Call>(&self, call: C) -> Result<C::Answer, CallError> {
        tokio::time::timeout(self.deadline, self.link.call(call))
            .await
            .map_err(|_| CallError::Silent("no answer before the deadline".to_owned()))?
    }
}

#[async_trait]
impl Channel for SandboxChannel {
    fn name(&self) -> &'static str {
        NAME
    }

    fn link_life(&self) -> LinkLife {
        LinkLife { min: time::Duration::ZERO, max: MAX_LINK_LIFE }
    }

    async fn create(&self, trade: &NewTrade) -> Result<CreatedTrade, CallError> {
        let call = protocol::Create {
            pay_order_id: trade.pay_order_id.clone(),
            amount: trade.money.amount,
            currency: trade.money.currency,
            subject: trade.subject.clone(),
            payer_id: trade.payer_id.as_str().to_owned(),
            return_url: trade.return_url.clone(),
            notify_url: self.notify_url.clone(),
            expires_at: trade.expires_at,
        };
        let created = self.call(call).await?;
        let pay_url = believed(text::link(&created.pay_url), "link")?;
        Ok(CreatedTrade { pay_url, channel_ref: None, expires_at: moment(created.expires_at)? })
    }

    async fn query(&self, trade: &TradeRef) -> Result<TradeState, CallError> {
        let answer = self.call(protocol::Query { pay_order_id: trade.pay_order_id.clone() }).await?;
        Ok(match answer {
            TradeAnswer::Unseen => TradeState::Unseen,
            TradeAnswer::Pending => TradeState::Pending,
            TradeAnswer::Paid(answer) => TradeState::Paid(payment(answer)?),
            TradeAnswer::Declined => TradeState::Failed(Refused::TradeDeclined.into()),
            TradeAnswer::Closed => TradeState::Closed,
        })
    }

    async fn close(&self, trade: &TradeRef) -> Result<Closing, CallError> {
        let answer = self.call(protocol::Close { pay_order_id: trade.pay_order_id.clone() }).await?;
        match answer {
            TradeAnswer::Unseen => Ok(Closing::Unseen),
            TradeAnswer::Paid(answer) => Ok(Closing::AlreadyPaid(Some(payment(answer)?))),
            TradeAnswer::Declined | TradeAnswer::Closed => Ok(Closing::Closed),
            TradeAnswer::Pending => Err(CallError::Silent("closed, yet open".to_owned())),
        }
    }

    async fn refund(&self, refund: &RefundCall) -> Result<RefundState, CallError> {
        let call = protocol::Refund {
            refund_id: refund.refund_id.clone(),
            pay_order_id: refund.trade.pay_order_id.clone(),
            transaction_id: refund.transaction_id.clone(),
            amount: refund.money.amount,
            currency: refund.money.currency,
            reason: refund.reason.clone(),
        };
        refund_state(self.call(call).await?)
    }

    async fn query_refund(&self, refund: &RefundCall) -> Result<RefundState, CallError> {
        let call = protocol::QueryRefund { refund_id: refund.refund_id.clone() };
        refund_state(self.call(call).await?)
    }

    async fn payout(&self, payout: &PayoutCall) -> Result<PayoutState, CallError> {
        let call = protocol::Payout {
            payout_id: payout.payout_id.clone(),
            amount: payout.money.amount,
            currency: payout.money.currency,
            account: payout.account.clone(),
        };
        payout_state(self.call(call).await?)
    }

    async fn query_payout(&self, payout: &PayoutCall) -> Result<PayoutState, CallError> {
        let call = protocol::QueryPayout { payout_id: payout.payout_id.clone() };
        payout_state(self.call(call).await?)
    }

    /// The day is a UTC day; a place in it is the gateway's own, kept as text.
    async fn statement(&self, day: Date, from: Option<&str>) -> Result<StatementPage, CallError> {
        let after = from.map(serde_json::from_str).transpose();
        let after = after.map_err(|error| CallError::Silent(format!("no place in a statement: {error}")))?;
        let page = self.call(protocol::Statement { day, after }).await?;
        let lines = page.lines.into_iter().map(statement_line).collect::<Result<_, _>>()?;
        let next = page.next.as_ref().map(serde_json::to_string).transpose();
        Ok(StatementPage { lines, next: next.map_err(|error| CallError::Silent(error.to_string()))? })
    }

    fn verify(&self, callback: &RawCallback<'_>) -> Result<(), CallbackError> {
        self.keys.verify(callback.headers, callback.body, callback.received_at)
    }

    fn read(&self, body: &[u8], received_at: OffsetDateTime) -> Result<Callback, CallbackError> {
        let (event_id, event) = callback::read(body, received_at)?;
        // The sandbox has one account, the one that shares the secret.
        Ok(Callback { event_id, account_matches: true, event })
    }

    fn acknowledge(&self, reception: Reception) -> Acknowledgement {
        let (status, body) = match reception {
            Reception::Accepted => (200, "SUCCESS"),
            Reception::Rejected => (400, "FAIL"),
            Reception::TryAgain => (500, "FAIL"),
        };
        Acknowledgement { status, content_type: "text/plain", body: Cow::Borrowed(body) }
    }
}

fn payment(answer: PaymentAnswer) -> Result<Payment, CallError> {
    let money = money(answer.amount, &answer.currency)?;
    let paid_at = moment(answer.paid_at)?;
    Ok(Payment { transaction_id: number(&answer.transaction_id)?, money, paid_at })
}

/// Money that cannot be is an answer that cannot be believed.
fn money(minor: i64, currency: &str) -> Result<Money, CallError> {
    let amount = Amount::try_from(minor).ok();
    let money = amount.zip(currency.parse().ok()).map(|(amount, currency)| Money { amount, currency });
    money.ok_or_else(|| CallError::Silent(format!("no such money: {minor} {currency:.3}")))
}

fn number(text: &str) -> Result<String, CallError> {
    believed(text::number(text), "number")
}

fn moment(at: OffsetDateTime) -> Result<OffsetDateTime, CallError> {
    text::moment(at).ok_or_else(|| CallError::Silent(format!("no such moment: {at}")))
}

/// What cannot be stored is an answer that cannot be believed either.
fn believed(text: Option<String>, what: &str) -> Result<String, CallError> {
    text.ok_or_else(|| CallError::Silent(format!("a {what} that is empty, too long or no plain text")))
}

fn refund_state(answer: RefundAnswer) -> Result<RefundState, CallError> {
    Ok(match answer {
        RefundAnswer::Unseen => RefundState::Unseen,
        RefundAnswer::Succeeded { number: given } => {
            RefundState::Succeeded { channel_refund_id: number(&given)? }
        }
        RefundAnswer::TakenBack => RefundState::Failed(taken_back()),
    })
}

fn payout_state(answer: PayoutAnswer) -> Result<PayoutState, CallError> {
    Ok(match answer {
        PayoutAnswer::Unseen => PayoutState::Unseen,
        PayoutAnswer::Succeeded { number: given } => {
            PayoutState::Succeeded { channel_payout_id: number(&given)? }
        }
        PayoutAnswer::TakenBack => PayoutState::Failed(taken_back()),
    })
}

fn taken_back() -> Refusal {
    Refusal { code: "TAKEN_BACK".to_owned(), message: "the money moved, and came back".to_owned() }
}

fn statement_line(line: protocol::Line) -> Result<StatementLine, CallError> {
    let kind = match line.kind {
        LineKind::Payment => StatementKind::Payment,
        LineKind::Refund => StatementKind::Refund,
        LineKind::Payout => StatementKind::Payout,
    };
    let Money { amount, currency } = money(line.amount, &line.currency)?;
    Ok(StatementLine {
        kind,
        our_id: line.our_id,
        channel_id: line.channel_id,
        amount: amount.minor(),
        currency,
        at: line.at,
        fee: 0,
        is_final: true,
    })
}
