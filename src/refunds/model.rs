//! The words and rows of refunds and stray payments, and the tables of their lives.

use time::OffsetDateTime;

use crate::channels::Payment;
use crate::ids::{OrderNo, RefundNo};
use crate::infra::repeat::differing;
use crate::infra::words::words;
use crate::money::{Amount, Currency};
use crate::orders::OrderKey;

words! {
    /// The life of a refund.
    pub enum RefundStatus {
        /// Waits for an operator who did not ask for it.
        AwaitingApproval = "AWAITING_APPROVAL",
        /// Written down; the channel is to be asked.
        Pending = "PENDING",
        /// The channel may have been asked; no final answer yet.
        Processing = "PROCESSING",
        /// The money went back.
        Succeeded = "SUCCEEDED",
        /// Refused for good, rejected, or taken back by the channel; also where that made it after all.
        Failed = "FAILED",
    }
}

words! {
    /// What moves a refund.
    pub enum RefundEvent {
        /// From here on the channel may have been asked.
        Requested = "REQUESTED",
        /// The channel gave the money back.
        Succeeded = "SUCCEEDED",
        /// The channel refused for good, or took the refund back.
        Failed = "FAILED",
        /// An operator let it go.
        Approved = "APPROVED",
        /// An operator did not.
        Rejected = "REJECTED",
    }
}

impl RefundStatus {
    /// The whole life of a refund; `None` for what is absent from it.
    #[must_use]
    pub const fn after(self, event: RefundEvent) -> Option<Self> {
        use {RefundEvent as E, RefundStatus as S};
        match (self, event) {
            (S::AwaitingApproval, E::Approved) => Some(S::Pending),
            (S::AwaitingApproval, E::Rejected) => Some(S::Failed),
            (S::Pending, E::Requested) => Some(S::Processing),
            (S::Pending | S::Processing, E::Succeeded) => Some(S::Succeeded),
            // After a success it is the channel's own reversal.
            (S::Pending | S::Processing | S::Succeeded, E::Failed) => Some(S::Failed),
            _ => None,
        }
    }
}

words! {
    /// The life of a stray payment.
    pub enum StrayStatus {
        /// Waits for a decision; also where it went back after all, and nothing is left to decide.
        Held = "HELD",
        /// On its way back.
        Refunding = "REFUNDING",
        /// Back in full.
        Refunded = "REFUNDED",
        /// Kept by a person's decision.
        Kept = "KEPT",
    }
}

words! {
    /// What moves a stray payment.
    pub enum StrayEvent {
        /// The merchant's policy or a person wants it refunded.
        RefundAsked = "REFUND_ASKED",
        /// The channel gave it back.
        RefundSucceeded = "REFUND_SUCCEEDED",
        /// The channel refused to, or took the refund back: a person decides again.
        RefundFailed = "REFUND_FAILED",
        /// A person decided to keep it.
        Kept = "KEPT",
    }
}

impl StrayStatus {
    /// The whole life of a stray payment; `None` for what is absent from it.
    #[must_use]
    pub const fn after(self, event: StrayEvent) -> Option<Self> {
        use {StrayEvent as E, StrayStatus as S};
        match (self, event) {
            (S::Held, E::RefundAsked) => Some(S::Refunding),
            (S::Refunding, E::RefundSucceeded) => Some(S::Refunded),
            (S::Refunding | S::Refunded, E::RefundFailed) => Some(S::Held),
            (S::Held, E::Kept) => Some(S::Kept),
            _ => None,
        }
    }
}

words! {
    /// Why an order does not accept the money.
    pub enum StrayReason {
        /// The order was closed.
        LatePayment = "LATE_PAYMENT",
        /// The order was paid by other money.
        DuplicatePayment = "DUPLICATE_PAYMENT",
        /// Another amount or currency than was asked.
        AmountMismatch = "AMOUNT_MISMATCH",
        /// Nobody knows the pay order.
        UnknownOrder = "UNKNOWN_ORDER",
    }
}

words! {
    /// What a merchant wants done with stray money.
    pub enum StrayPolicy {
        /// Give it back at once.
        AutoRefund = "auto_refund",
        /// Let a person decide.
        Hold = "hold",
    }
}

/// Stray money as a channel reports it.
#[derive(Clone, Copy, Debug)]
pub struct NewStray<'a> {
    /// Which channel took it.
    pub channel: &'a str,
    /// The pay order that the channel names.
    pub out_trade_no: &'a str,
    /// The order of that pay order, when it is ours.
    pub order: Option<&'a OrderKey>,
    /// What was taken.
    pub payment: &'a Payment,
    /// Why the order does not accept it.
    pub reason: StrayReason,
    /// What the merchant wants; without a known merchant it is always held.
    pub policy: Option<StrayPolicy>,
}

/// A stray payment as it stands.
#[derive(Clone, Debug, sqlx::FromRow)]
pub struct StrayPayment {
    /// Its id.
    pub stray_id: String,
    /// Which channel took it.
    pub channel: String,
    /// The channel's number of the trade.
    pub transaction_id: String,
    /// The pay order that the channel named.
    pub out_trade_no: String,
    /// The same, when it is ours.
    pub pay_order_id: Option<String>,
    /// Whose, where it is known.
    pub merchant_id: Option<String>,
    /// Of which order, where it is known.
    pub order_no: Option<String>,
    /// Minor units really taken.
    pub amount: i64,
    /// Of what.
    pub currency: Currency,
    /// Why the order does not accept it.
    pub reason: StrayReason,
    /// Where it stands.
    pub status: StrayStatus,
    /// When it was taken, by the channel's clock.
    pub paid_at: OffsetDateTime,
}

/// A refund as it stands.
#[derive(Clone, Debug, sqlx::FromRow)]
pub struct Refund {
    /// What the channel knows it by.
    pub refund_id: String,
    /// What the merchant knows it by.
    pub refund_no: String,
    /// Whose, where it is known.
    pub merchant_id: Option<String>,
    /// Of which order, where it is known.
    pub order_no: Option<String>,
    /// The paying attempt that it takes from.
    pub pay_order_id: Option<String>,
    /// The stray payment that it gives back.
    pub stray_id: Option<String>,
    /// Minor units.
    pub amount: i64,
    /// Of what.
    pub currency: Currency,
    /// Where it stands.
    pub status: RefundStatus,
    /// Why it is made.
    pub reason: String,
    /// Why it failed.
    pub failure: Option<String>,
    /// The channel's number of it, once it was made.
    pub channel_refund_id: Option<String>,
    /// Whether the order's stock comes back once all of its money has gone back.
    pub return_stock: bool,
    /// The operator who asked for it; nobody where a merchant did, or the service itself.
    pub asked_by: Option<String>,
    /// When the channel said of one that had failed that it made it after all; nothing once it has taken that back.
    pub made_after_all_at: Option<OffsetDateTime>,
}

/// A refund to ask for.
#[derive(Clone, Debug)]
pub struct NewRefund {
    /// The merchant's number.
    pub refund_no: RefundNo,
    /// Of which order.
    pub order_no: OrderNo,
    /// How much; what is left of the payment by default.
    pub amount: Option<Amount>,
    /// Why.
    pub reason: String,
    /// Whether the order's stock comes back once all of its money has gone back.
    pub return_stock: bool,
}

impl Refund {
    /// Whether its money has gone and not come back, as far as the channel has said.
    pub(super) fn is_made(&self) -> bool {
        self.status == RefundStatus::Succeeded || self.made_after_all_at.is_some()
    }

    /// The fields in which a repeat differs; one that names no amount takes any.
    pub(super) fn differing_fields(&self, new: &NewRefund) -> Vec<&'static str> {
        let is_of_order = self.stray_id.is_none() && self.order_no.as_deref() == Some(new.order_no.as_str());
        differing([
            ("order_no", is_of_order),
            ("amount", new.amount.is_none_or(|amount| amount.minor() == self.amount)),
            ("reason", self.reason == new.reason),
            ("return_stock", self.return_stock == new.return_stock),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::infra::words::assert_moves;

    #[test]
    fn every_pair_of_state_and_event_is_decided() {
        use {RefundEvent as E, RefundStatus as S};
        let allowed = [
            (S::AwaitingApproval, E::Approved, S::Pending),
            (S::AwaitingApproval, E::Rejected, S::Failed),
            (S::Pending, E::Requested, S::Processing),
            (S::Pending, E::Succeeded, S::Succeeded),
            (S::Processing, E::Succeeded, S::Succeeded),
            (S::Pending, E::Failed, S::Failed),
            (S::Processing, E::Failed, S::Failed),
            (S::Succeeded, E::Failed, S::Failed),
        ];
        assert_moves(S::ALL, E::ALL, &allowed, S::after);
    }

    #[test]
    fn every_pair_of_a_stray_payments_life_is_decided() {
        use {StrayEvent as E, StrayStatus as S};
        let allowed = [
            (S::Held, E::RefundAsked, S::Refunding),
            (S::Refunding, E::RefundSucceeded, S::Refunded),
            (S::Refunding, E::RefundFailed, S::Held),
            (S::Refunded, E::RefundFailed, S::Held),
            (S::Held, E::Kept, S::Kept),
        ];
        assert_moves(S::ALL, E::ALL, &allowed, S::after);
    }
}
