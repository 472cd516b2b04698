//! Trades: opened, asked about and closed by the adapter.
//!
//! Always true: the same id with the same parameters is the same trade; `PAID` never becomes anything else;
//! nothing becomes `OPEN` again.

use time::{Duration, OffsetDateTime};

use crate::ids::PayOrderId;
use crate::infra::words::words;
use crate::money::Currency;

use super::cashier::PayOptions;
use super::faults::{ClaimedFault, FaultKind, FaultOp, act_under};
use super::gateway::{Gateway, GatewayError, Refused};
use super::protocol::{Call, Close, Create, Created, PaymentAnswer, Query, TradeAnswer};
use super::store::trades::{Open, Opening};
use super::{store, webhooks};

/// No link lives longer than this, so that links dying before their order can be seen here too.
pub(super) const MAX_LINK_LIFE: Duration = Duration::hours(2);

words! {
    /// How a trade stands in the books.
    pub enum TradeStatus {
        /// May be paid until it expires.
        Open = "OPEN",
        /// Money was taken.
        Paid = "PAID",
        /// The buyer said no.
        Declined = "DECLINED",
        /// The adapter closed it.
        Closed = "CLOSED",
    }
}

/// A trade in the books.
#[derive(Clone, Debug)]
pub(super) struct Trade {
    pub(super) pay_order_id: PayOrderId,
    pub(super) amount: i64,
    pub(super) currency: Currency,
    pub(super) subject: String,
    pub(super) payer_id: String,
    pub(super) return_url: Option<String>,
    pub(super) notify_url: String,
    pub(super) status: TradeStatus,
    pub(super) expires_at: OffsetDateTime,
    pub(super) created_at: OffsetDateTime,
}

impl Trade {
    /// Why nobody can pay this trade now, if so.
    pub(super) fn obstacle(&self, now: OffsetDateTime) -> Option<Refused> {
        match self.status {
            TradeStatus::Open if now < self.expires_at => None,
            TradeStatus::Open => Some(Refused::TradeExpired),
            TradeStatus::Paid => Some(Refused::TradePaid),
            TradeStatus::Declined => Some(Refused::TradeDeclined),
            TradeStatus::Closed => Some(Refused::TradeClosed),
        }
    }

    /// Compares what the buyer sees and pays. The deadline and the webhook's address may differ: both belong
    /// to the moment and the process that made the call, and the first call's stay.
    fn was_opened_by(&self, call: &Create) -> bool {
        self.amount == call.amount.minor()
            && self.currency == call.currency
            && self.subject == call.subject
            && self.payer_id == call.payer_id
            && self.return_url == call.return_url
    }
}

impl Call for Create {
    const OPERATION: &'static str = "create";
    type Answer = Created;

    /// Whether a fault waits is seen by the statement that opens the trade, so the ordinary call is one round trip.
    async fn carry_out(self, gateway: &Gateway) -> Result<Created, GatewayError> {
        let now = gateway.now();
        let new = Open { expires_at: self.expires_at.min(now + MAX_LINK_LIFE), trade: self, now };
        let opening = gateway.db().retrying(|| gateway.db().gather(new.clone())).await?;
        if opening == Opening::FaultWaits {
            let fault = gateway.claim_fault(FaultOp::Create).await?;
            return Box::pin(gateway.open_under(fault, &new)).await;
        }
        Box::pin(gateway.created(&new, opening)).await
    }
}

impl Gateway {
    async fn open_under(&self, fault: Option<ClaimedFault>, new: &Open) -> Result<Created, GatewayError> {
        let created = act_under(fault, self.open_past_faults(new)).await?;
        if let Some(ClaimedFault { kind: FaultKind::Reorder, pause }) = fault {
            let id = &new.trade.pay_order_id;
            self.pay(id, PayOptions::default()).await?;
            self.deliver_all_of(id, pause).await?;
        }
        Ok(created)
    }

    async fn open_past_faults(&self, new: &Open) -> Result<Created, GatewayError> {
        let opening = store::trades::open_past_faults(&mut self.conn().await?, new).await?;
        self.created(new, opening).await
    }

    async fn created(&self, new: &Open, opening: Opening) -> Result<Created, GatewayError> {
        let pay_order_id = &new.trade.pay_order_id;
        let expires_at = match opening {
            Opening::New => new.expires_at,
            Opening::Taken | Opening::FaultWaits => {
                let trade = store::trades::find(&mut self.conn().await?, pay_order_id).await?;
                repeated(&trade.ok_or(Refused::TradeNotFound)?, &new.trade)?
            }
        };
        Ok(Created { pay_url: self.cashier_url(pay_order_id), expires_at })
    }

    /// How a trade stands, read in the order that cannot miss a payment: `PAID` is final, so the payment that
    /// a paid trade has can be read after it.
    async fn standing(&self, pay_order_id: &PayOrderId) -> Result<TradeAnswer, GatewayError> {
        let mut conn = self.conn().await?;
        let mut trade = store::trades::find(&mut conn, pay_order_id).await?;
        if trade.as_ref().is_some_and(|trade| trade.obstacle(self.now()) == Some(Refused::TradeExpired)) {
            // Somebody who began to pay it in time may not have committed: they are waited for.
            store::trades::close_open(&mut conn, pay_order_id, self.now()).await?;
            trade = store::trades::find(&mut conn, pay_order_id).await?;
        }
        let Some(trade) = trade else { return Ok(TradeAnswer::Unseen) };
        Ok(match trade.obstacle(self.now()) {
            None => TradeAnswer::Pending,
            Some(Refused::TradeDeclined) => TradeAnswer::Declined,
            Some(Refused::TradePaid) => {
                let payments = store::payments::list(&mut conn, pay_order_id).await?;
                let first = payments.into_iter().next().ok_or(Refused::TradeNotFound)?;
                TradeAnswer::Paid(PaymentAnswer {
                    transaction_id: first.transaction_id,
                    amount: first.amount,
                    currency: first.currency.into(),
                    paid_at: first.paid_at,
                })
            }
            Some(_) => TradeAnswer::Closed,
        })
    }

    async fn close_now(&self, pay_order_id: &PayOrderId) -> Result<TradeAnswer, GatewayError> {
        if store::trades::close_open(&mut self.conn().await?, pay_order_id, self.now()).await? {
            return Ok(TradeAnswer::Closed);
        }
        match self.standing(pay_order_id).await? {
            // Opened after we looked: at our moment it was unseen.
            TradeAnswer::Pending => Ok(TradeAnswer::Unseen),
            TradeAnswer::Declined => Ok(TradeAnswer::Closed),
            standing => Ok(standing),
        }
    }
}

/// The answer to a create whose id is taken.
fn repeated(trade: &Trade, call: &Create) -> Result<OffsetDateTime, Refused> {
    match trade.status {
        TradeStatus::Paid => Err(Refused::TradePaid),
        TradeStatus::Declined => Err(Refused::TradeDeclined),
        TradeStatus::Closed => Err(Refused::TradeClosed),
        TradeStatus::Open if trade.was_opened_by(call) => Ok(trade.expires_at),
        TradeStatus::Open => Err(Refused::ParamsDiffer),
    }
}

impl Call for Query {
    const OPERATION: &'static str = "query";
    type Answer = TradeAnswer;

    async fn carry_out(self, gateway: &Gateway) -> Result<TradeAnswer, GatewayError> {
        let fault = gateway.claim_fault(FaultOp::Query).await?;
        let mut answer = act_under(fault, gateway.standing(&self.pay_order_id)).await?;
        if let (TradeAnswer::Paid(payment), Some(fault)) = (&mut answer, fault) {
            match fault.kind {
                FaultKind::WrongAmount => payment.amount += 1,
                FaultKind::WrongCurrency => payment.currency = webhooks::other_currency(&payment.currency),
                _ => {}
            }
        }
        Ok(answer)
    }
}

impl Call for Close {
    const OPERATION: &'static str = "close";
    type Answer = TradeAnswer;

    async fn carry_out(self, gateway: &Gateway) -> Result<TradeAnswer, GatewayError> {
        let fault = gateway.claim_fault(FaultOp::Close).await?;
        let answer = act_under(fault, gateway.close_now(&self.pay_order_id)).await?;

        let is_betrayed = fault.is_some_and(|fault| fault.kind == FaultKind::PayAfterClose);
        if is_betrayed && matches!(answer, TradeAnswer::Closed) {
            gateway.pay(&self.pay_order_id, PayOptions { force: true, ..PayOptions::default() }).await?;
        }
        Ok(answer)
    }
}
