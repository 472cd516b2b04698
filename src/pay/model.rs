//! The words and rows of pay orders, and the one table of their life.

use time::OffsetDateTime;

use crate::channels::{Refusal, TradeRef};
use crate::ids::{MerchantId, OrderNo, PayOrderId, UserId};
use crate::infra::db::DbError;
use crate::infra::words::words;
use crate::money::{Amount, Currency, Money};
use crate::orders::OrderKey;

words! {
    /// The life of an attempt.
    pub enum PayStatus {
        /// Written down; the channel is being asked for a link.
        Init = "INIT",
        /// The link stands.
        Paying = "PAYING",
        /// Money was taken, whether or not the order accepts it.
        Paid = "PAID",
        /// Refused by the channel, or paid wrongly.
        Failed = "FAILED",
        /// Ended without payment.
        Closed = "CLOSED",
    }
}

words! {
    /// What moves an attempt.
    pub enum PayEvent {
        /// The channel gave a link.
        LinkMade = "LINK_MADE",
        /// Money of the right amount arrived.
        PaymentConfirmed = "PAYMENT_CONFIRMED",
        /// The channel refused, or took the wrong amount.
        AttemptFailed = "ATTEMPT_FAILED",
        /// Closed at the channel.
        AttemptClosed = "ATTEMPT_CLOSED",
    }
}

impl PayStatus {
    /// The whole life of an attempt; `None` for what is absent from it.
    #[must_use]
    pub const fn after(self, event: PayEvent) -> Option<Self> {
        use {PayEvent as E, PayStatus as S};
        match (self, event) {
            (S::Init, E::LinkMade) => Some(S::Paying),
            // Also when it arrives after all.
            (S::Init | S::Paying | S::Closed | S::Failed, E::PaymentConfirmed) => Some(S::Paid),
            (S::Init | S::Paying, E::AttemptFailed) => Some(S::Failed),
            (S::Init | S::Paying, E::AttemptClosed) => Some(S::Closed),
            _ => None,
        }
    }

    /// Whether money may still come through it by the ordinary way.
    #[must_use]
    pub const fn is_live(self) -> bool {
        matches!(self, Self::Init | Self::Paying)
    }
}

/// An attempt as it stands.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// Its id, also at the channel.
    pub pay_order_id: PayOrderId,
    /// Whose.
    pub merchant_id: MerchantId,
    /// Of which order.
    pub order_no: OrderNo,
    /// Who pays.
    pub payer_id: UserId,
    /// Through which channel.
    pub channel: String,
    /// Where it stands.
    pub status: PayStatus,
    /// Minor units.
    pub amount: i64,
    /// Of what.
    pub currency: Currency,
    /// What the buyer reads.
    pub subject: Option<String>,
    /// Where the cashier page leads back to.
    pub return_url: Option<String>,
    /// The link.
    pub pay_url: Option<String>,
    /// The channel's own id of the trade.
    pub channel_ref: Option<String>,
    /// The channel's number of the trade that took the money.
    pub transaction_id: Option<String>,
    /// When, by the channel's clock.
    pub paid_at: Option<OffsetDateTime>,
    /// The channel's code of a refusal.
    pub channel_code: Option<String>,
    /// The channel's words for it.
    pub channel_message: Option<String>,
    /// When the link dies.
    pub expires_at: OffsetDateTime,
    /// When it was begun.
    pub created_at: OffsetDateTime,
    /// Changes of state so far.
    pub version: i32,
}

impl Attempt {
    /// The order that it collects.
    #[must_use]
    pub fn order_key(&self) -> OrderKey {
        OrderKey { merchant_id: self.merchant_id.clone(), order_no: self.order_no.clone() }
    }

    /// What it collects.
    ///
    /// # Errors
    /// When the row holds an amount that its own CHECK refuses.
    pub fn money(&self) -> Result<Money, DbError> {
        money_of(self.amount, self.currency)
    }

    /// Its name at the channel.
    ///
    /// # Errors
    /// As [`Attempt::money`].
    pub fn trade_ref(&self) -> Result<TradeRef, DbError> {
        Ok(TradeRef {
            pay_order_id: self.pay_order_id.clone(),
            channel_ref: self.channel_ref.clone(),
            money: self.money()?,
            expires_at: self.expires_at,
        })
    }

    /// What its channel said, where it refused to make a link; an attempt may also have failed by a wrong payment, or because
    /// its buyer declined.
    #[must_use]
    pub fn refusal(&self) -> Option<Refusal> {
        let is_refused = self.status == PayStatus::Failed && self.pay_url.is_none();
        let code = self.channel_code.clone().filter(|_| is_refused)?;
        Some(Refusal { code, message: self.channel_message.clone().unwrap_or_default() })
    }
}

/// An amount and a currency read from a row whose CHECK already holds the same bounds.
pub(crate) fn money_of(amount: i64, currency: Currency) -> Result<Money, DbError> {
    let amount =
        Amount::try_from(amount).map_err(|error| DbError::Other(sqlx::Error::Decode(Box::new(error))))?;
    Ok(Money { amount, currency })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::infra::words::assert_moves;

    #[test]
    fn every_pair_of_state_and_event_is_decided() {
        use {PayEvent as E, PayStatus as S};
        let allowed = [
            (S::Init, E::LinkMade, S::Paying),
            (S::Init, E::PaymentConfirmed, S::Paid),
            (S::Paying, E::PaymentConfirmed, S::Paid),
            (S::Closed, E::PaymentConfirmed, S::Paid),
            (S::Failed, E::PaymentConfirmed, S::Paid),
            (S::Init, E::AttemptFailed, S::Failed),
            (S::Paying, E::AttemptFailed, S::Failed),
            (S::Init, E::AttemptClosed, S::Closed),
            (S::Paying, E::AttemptClosed, S::Closed),
        ];
        assert_moves(S::ALL, E::ALL, &allowed, S::after);
    }
}
