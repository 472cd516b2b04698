//! The cashier: what the buttons Pay and Decline do, for people and for machines.
//!
//! Always true: without `force` a trade is paid once, whoever presses how often; with it, the customer who
//! pays twice or too late can be played.

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::ToSchema;

use crate::ids::PayOrderId;
use crate::infra::db::Tx;
use crate::money::{Amount, Currency};

use super::books::PaymentView;
use super::gateway::{Gateway, GatewayError, Refused, owned};
use super::store;
use super::trades::{Trade, TradeStatus};
use super::webhooks::{Notice, PaymentNotice, announce_in_tx};

/// How a button is pressed; all of it optional.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PayOptions {
    /// Minor units to take; what the trade asks by default.
    pub amount: Option<Amount>,
    /// In another currency than the trade asks.
    pub currency: Option<Currency>,
    /// Whether a webhook tells of it.
    pub notify: bool,
    /// Pays also a trade that is closed, declined or expired, and a paid one a second time.
    pub force: bool,
}

impl Default for PayOptions {
    fn default() -> Self {
        Self { amount: None, currency: None, notify: true, force: false }
    }
}

/// What came of pressing a button.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Receipt {
    /// The gateway's number of the payment; null when it was declined.
    pub transaction_id: Option<String>,
    /// Minor units, taken or declined.
    pub amount: i64,
    /// Of this currency.
    pub currency: Currency,
    /// When it was paid; null when it was declined.
    #[serde(with = "time::serde::rfc3339::option")]
    pub paid_at: Option<OffsetDateTime>,
}

impl From<PaymentView> for Receipt {
    fn from(payment: PaymentView) -> Self {
        Self {
            transaction_id: Some(payment.transaction_id),
            amount: payment.amount,
            currency: payment.currency,
            paid_at: Some(payment.paid_at),
        }
    }
}

impl Gateway {
    /// Presses Pay. Again gives the same payment back, unless `force` asks for a second one.
    ///
    /// # Errors
    /// [`GatewayError::Refused`] when there is no such trade, or it is closed, declined or expired.
    pub async fn pay(&self, pay_order_id: &PayOrderId, options: PayOptions) -> Result<Receipt, GatewayError> {
        let (gateway, pay_order_id) = (self.clone(), pay_order_id.clone());
        owned(async move { gateway.pay_to_the_end(&pay_order_id, options).await }).await
    }

    /// Presses Decline. `amount` and `currency` have no meaning here; with `force` the webhook of a failed
    /// payment is sent also for a trade that is not open, and the books stay as they are.
    ///
    /// # Errors
    /// [`GatewayError::Refused`] when there is no such trade, or it is paid, closed or expired.
    pub async fn decline(
        &self,
        pay_order_id: &PayOrderId,
        options: PayOptions,
    ) -> Result<Receipt, GatewayError> {
        let (gateway, pay_order_id) = (self.clone(), pay_order_id.clone());
        let declined = owned(async move {
            gateway.db().retrying(|| gateway.decline_once(&pay_order_id, options)).await.inspect(|_| {
                gateway.something_to_deliver();
            })
        });
        declined.await
    }

    async fn pay_to_the_end(
        &self,
        pay_order_id: &PayOrderId,
        options: PayOptions,
    ) -> Result<Receipt, GatewayError> {
        // One number for all attempts: when a commit's answer is lost, the next attempt meets its own number
        // instead of taking the money twice.
        let number = self.new_number("txn_");
        let paid = self.db().retrying(|| self.pay_once(pay_order_id, &number, options)).await;
        let payment = match paid {
            Err(error) if error.constraint() == Some("sandbox_payments_pkey") => {
                let found = store::payments::find(&mut self.conn().await?, pay_order_id, &number).await?;
                found.ok_or(error)?
            }
            paid => paid?,
        };
        self.something_to_deliver();
        Ok(payment.into())
    }

    async fn pay_once(
        &self,
        pay_order_id: &PayOrderId,
        number: &str,
        options: PayOptions,
    ) -> Result<PaymentView, GatewayError> {
        let mut tx = self.begin().await?;
        let outcome = self.pay_in_tx(&mut tx, pay_order_id, number, options).await;
        tx.finish(outcome).await
    }

    async fn pay_in_tx(
        &self,
        tx: &mut Tx,
        pay_order_id: &PayOrderId,
        number: &str,
        options: PayOptions,
    ) -> Result<PaymentView, GatewayError> {
        let trade = store::trades::lock(tx, pay_order_id).await?.ok_or(Refused::TradeNotFound)?;
        // After the wait for the lock, so that nobody pays by the clock of before.
        let now = self.now();
        match trade.obstacle(now) {
            Some(Refused::TradePaid) if !options.force => {
                let payments = store::payments::list(tx, pay_order_id).await?;
                return payments.into_iter().next().ok_or(Refused::TradeNotFound.into());
            }
            Some(refused) if !options.force => return Err(refused.into()),
            _ => {}
        }

        let payment = PaymentView {
            transaction_id: number.to_owned(),
            amount: options.amount.map_or(trade.amount, Amount::minor),
            currency: options.currency.unwrap_or(trade.currency),
            refunded_amount: 0,
            paid_at: now,
        };
        store::payments::insert(tx, pay_order_id, &payment, now).await?;
        store::trades::set_status(tx, &trade, TradeStatus::Paid, now).await?;

        if options.notify {
            let notice = PaymentNotice::success(self.new_number("evt_"), &trade, &payment);
            announce_in_tx(tx, &trade, Notice::Payment(notice), now).await?;
        }
        Ok(payment)
    }

    async fn decline_once(
        &self,
        pay_order_id: &PayOrderId,
        options: PayOptions,
    ) -> Result<Receipt, GatewayError> {
        let mut tx = self.begin().await?;
        let outcome = self.decline_in_tx(&mut tx, pay_order_id, options).await;
        tx.finish(outcome).await
    }

    async fn decline_in_tx(
        &self,
        tx: &mut Tx,
        pay_order_id: &PayOrderId,
        options: PayOptions,
    ) -> Result<Receipt, GatewayError> {
        let trade = store::trades::lock(tx, pay_order_id).await?.ok_or(Refused::TradeNotFound)?;
        // After the wait for the lock, so that nobody pays by the clock of before.
        let now = self.now();
        match trade.obstacle(now) {
            None => store::trades::set_status(tx, &trade, TradeStatus::Declined, now).await?,
            Some(_) if options.force => {}
            Some(Refused::TradeDeclined) => return Ok(declined(&trade)),
            Some(refused) => return Err(refused.into()),
        }

        if options.notify {
            let notice = PaymentNotice::failed(self.new_number("evt_"), self.new_number("txn_"), &trade);
            announce_in_tx(tx, &trade, Notice::Payment(notice), now).await?;
        }
        Ok(declined(&trade))
    }
}

fn declined(trade: &Trade) -> Receipt {
    Receipt { transaction_id: None, amount: trade.amount, currency: trade.currency, paid_at: None }
}
