//! The books' view of one trade, for people and for tests.

use serde::Serialize;
use time::OffsetDateTime;
use utoipa::ToSchema;

use crate::ids::PayOrderId;
use crate::money::Currency;

use super::gateway::{Gateway, GatewayError};
use super::store;
use super::trades::TradeStatus;
use super::webhooks::DeliveryStatus;

/// A trade with everything that belongs to it.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct TradeView {
    /// The caller's id of the attempt.
    pub pay_order_id: PayOrderId,
    /// How it stands; an open one may have expired.
    pub status: TradeStatus,
    /// Minor units asked.
    pub amount: i64,
    /// Of this currency.
    pub currency: Currency,
    /// What the buyer reads.
    pub subject: String,
    /// Who pays.
    pub payer_id: String,
    /// Where the cashier page leads back to.
    pub return_url: Option<String>,
    /// When it can no longer be paid.
    #[serde(with = "time::serde::rfc3339")]
    pub expires_at: OffsetDateTime,
    /// When it was opened.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    /// Money taken, the first payment first.
    pub payments: Vec<PaymentView>,
    /// Money given back.
    pub refunds: Vec<RefundView>,
    /// Webhooks, the first hundred.
    pub deliveries: Vec<DeliveryView>,
}

/// Money taken.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct PaymentView {
    /// The gateway's number.
    pub transaction_id: String,
    /// Minor units taken.
    pub amount: i64,
    /// Of this currency.
    pub currency: Currency,
    /// Minor units given back so far.
    pub refunded_amount: i64,
    /// When it was taken.
    #[serde(with = "time::serde::rfc3339")]
    pub paid_at: OffsetDateTime,
}

/// Money given back.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = BookedRefund)]
pub struct RefundView {
    /// The caller's id.
    pub refund_id: String,
    /// The payment it came out of.
    pub transaction_id: String,
    /// Minor units.
    pub amount: i64,
    /// Of this currency.
    pub currency: Currency,
    /// Why, in the caller's words.
    pub reason: String,
    /// When.
    #[serde(with = "time::serde::rfc3339")]
    pub refunded_at: OffsetDateTime,
    /// When the money came back, where it did.
    #[serde(with = "time::serde::rfc3339::option")]
    pub taken_back_at: Option<OffsetDateTime>,
}

/// How the sending of a webhook stands.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct DeliveryView {
    /// The same for all copies and repeats of an event.
    pub event_id: String,
    /// How far it came.
    pub status: DeliveryStatus,
    /// How many tries there were.
    pub attempts: i32,
    /// When the next try is due, where one is.
    #[serde(with = "time::serde::rfc3339")]
    pub due_at: OffsetDateTime,
    /// What the last try brought.
    pub last_result: Option<String>,
}

impl Gateway {
    /// What the books say of a trade.
    ///
    /// # Errors
    /// When the books cannot be reached.
    pub async fn view(&self, pay_order_id: &PayOrderId) -> Result<Option<TradeView>, GatewayError> {
        let mut conn = self.conn().await?;
        let Some(trade) = store::trades::find(&mut conn, pay_order_id).await? else {
            return Ok(None);
        };
        let payments = store::payments::list(&mut conn, pay_order_id).await?;
        let refunds = store::refunds::list(&mut conn, pay_order_id).await?;
        let deliveries = store::deliveries::list(&mut conn, pay_order_id).await?;
        Ok(Some(TradeView {
            pay_order_id: trade.pay_order_id,
            status: trade.status,
            amount: trade.amount,
            currency: trade.currency,
            subject: trade.subject,
            payer_id: trade.payer_id,
            return_url: trade.return_url,
            expires_at: trade.expires_at,
            created_at: trade.created_at,
            payments,
            refunds,
            deliveries,
        }))
    }
}
