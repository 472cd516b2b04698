//! The words and rows of orders, and the one table of their life.

use rust_decimal::Decimal;
use time::{Duration, OffsetDateTime};

use super::metadata::Metadata;
use crate::ids::{MerchantId, OrderNo, Sku, UserId};
use crate::infra::words::words;
use crate::money::{Amount, Currency};

words! {
    /// The life of an order.
    pub enum OrderStatus {
        /// Waits for money until its deadline.
        Pending = "PENDING",
        /// Paid by one attempt.
        Paid = "PAID",
        /// Some of the money went back.
        PartiallyRefunded = "PARTIALLY_REFUNDED",
        /// All of the money went back.
        Refunded = "REFUNDED",
        /// Ended without being paid.
        Closed = "CLOSED",
    }
}

words! {
    /// What moves an order.
    pub enum OrderEvent {
        /// The first right payment arrived.
        PaymentConfirmed = "PAYMENT_CONFIRMED",
        /// Its time ran out.
        DeadlinePassed = "DEADLINE_PASSED",
        /// The merchant closed it.
        Cancelled = "CANCELLED",
        /// A part of its money went back.
        RefundedInPart = "REFUNDED_IN_PART",
        /// All of its money, or the rest of it, went back.
        RefundedInFull = "REFUNDED_IN_FULL",
        /// The channel took a refund back; another part stays refunded.
        RefundReversedInPart = "REFUND_REVERSED_IN_PART",
        /// The channel took a refund back; nothing is refunded any more.
        RefundReversedInFull = "REFUND_REVERSED_IN_FULL",
    }
}

/// A move that the table does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an order that is {from} cannot move by {event}")]
pub struct InvalidTransition {
    /// Where it stands.
    pub from: OrderStatus,
    /// What was tried.
    pub event: OrderEvent,
}

impl OrderStatus {
    /// The whole life of an order. What is absent is refused.
    ///
    /// # Errors
    /// [`InvalidTransition`] for every pair that is not in the table.
    pub const fn after(self, event: OrderEvent) -> Result<Self, InvalidTransition> {
        use {OrderEvent as E, OrderStatus as S};
        match (self, event) {
            (S::Pending, E::PaymentConfirmed) => Ok(S::Paid),
            (S::Pending, E::DeadlinePassed | E::Cancelled) => Ok(S::Closed),
            (S::Paid | S::PartiallyRefunded, E::RefundedInPart) => Ok(S::PartiallyRefunded),
            (S::Paid | S::PartiallyRefunded, E::RefundedInFull) => Ok(S::Refunded),
            (S::PartiallyRefunded | S::Refunded, E::RefundReversedInPart) => Ok(S::PartiallyRefunded),
            (S::PartiallyRefunded | S::Refunded, E::RefundReversedInFull) => Ok(S::Paid),
            (from, event) => Err(InvalidTransition { from, event }),
        }
    }
}

words! {
    /// What an order is for.
    pub enum OrderKind {
        /// Something is sold.
        Sale = "SALE",
        /// A user's balance is topped up.
        TopUp = "TOPUP",
    }
}

words! {
    /// Why an order was closed.
    pub enum CloseReason {
        /// Its time ran out.
        Timeout = "TIMEOUT",
        /// The merchant closed it.
        Cancelled = "CANCELLED",
    }
}

impl CloseReason {
    /// The event that closes for this reason.
    #[must_use]
    pub const fn event(self) -> OrderEvent {
        match self {
            Self::Timeout => OrderEvent::DeadlinePassed,
            Self::Cancelled => OrderEvent::Cancelled,
        }
    }
}

words! {
    /// Whether the order's commission was settled.
    pub enum SettleStatus {
        /// Not yet.
        Unsettled = "UNSETTLED",
        /// Yes.
        Settled = "SETTLED",
    }
}

/// Names an order: numbers are the merchant's own.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OrderKey {
    /// Whose order.
    pub merchant_id: MerchantId,
    /// Its number there.
    pub order_no: OrderNo,
}

impl OrderKey {
    /// The key of the lock that everything takes which acts on this order.
    #[must_use]
    pub fn lock_key(&self) -> String {
        format!("lock:ORDER:{}:{}", self.merchant_id, self.order_no)
    }

    /// Where its row stands among those that a transaction locks. Whoever locks several orders does so in the order of these
    /// texts, or in SQL by `ORDER BY merchant_id, order_no`, so that no two wait for each other in a circle. Both are one: the
    /// columns compare as bytes (`COLLATE "C"`), and a blank comes before whatever an identifier can hold. (A colon does
    /// not: with it `a-b` would come before `a`.)
    #[must_use]
    pub fn lock_rank(&self) -> String {
        format!("{} {}", self.merchant_id, self.order_no)
    }

    /// The order as a member of a Redis collection, a subject of a task, a bell of waiters.
    #[must_use]
    pub fn member(&self) -> String {
        format!("{}:{}", self.merchant_id, self.order_no)
    }

    /// The order that columns name which may name none.
    #[must_use]
    pub fn from_columns(merchant_id: Option<&str>, order_no: Option<&str>) -> Option<Self> {
        Some(Self { merchant_id: merchant_id?.parse().ok()?, order_no: order_no?.parse().ok()? })
    }

    /// Reads [`OrderKey::member`] back. Neither part can hold a colon.
    #[must_use]
    pub fn from_member(member: &str) -> Option<Self> {
        let (merchant_id, order_no) = member.split_once(':')?;
        Self::from_columns(Some(merchant_id), Some(order_no))
    }
}

/// One line of an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderItem {
    /// What is sold.
    pub sku: Sku,
    /// How many.
    pub quantity: i64,
    /// Minor units each.
    pub unit_price: i64,
}

/// An order to make.
#[derive(Clone, Debug)]
pub struct NewOrder {
    /// The merchant's number; the server allots one where it is missing.
    pub order_no: Option<OrderNo>,
    /// The buyer.
    pub user_id: UserId,
    /// What it costs in all.
    pub amount: Amount,
    /// Of what.
    pub currency: Currency,
    /// Its lines; may be none.
    pub items: Vec<OrderItem>,
    /// Seconds until it times out.
    pub expires_in_secs: i64,
    /// What it is for.
    pub kind: OrderKind,
    /// Who earns a commission, where it is not the buyer.
    pub rebate_user_id: Option<UserId>,
    /// The commission's share, where it is not the rules'.
    pub rebate_rate: Option<Decimal>,
    /// What the buyer reads.
    pub subject: Option<String>,
    /// Where its events go, where it is not the merchant's own URL.
    pub notify_url: Option<String>,
    /// The merchant's own notes.
    pub metadata: Option<Metadata>,
}

/// An order as it stands.
#[derive(Clone, Debug)]
pub struct Order {
    /// Whose order.
    pub merchant_id: MerchantId,
    /// Its number there.
    pub order_no: OrderNo,
    /// The buyer.
    pub user_id: UserId,
    /// What it is for.
    pub kind: OrderKind,
    /// Where it stands.
    pub status: OrderStatus,
    /// Why it was closed.
    pub close_reason: Option<CloseReason>,
    /// Minor units.
    pub amount: i64,
    /// Of what.
    pub currency: Currency,
    /// Minor units that went back.
    pub refunded_amount: i64,
    /// Who earns a commission.
    pub rebate_user_id: Option<UserId>,
    /// The commission's share.
    pub rebate_rate: Option<Decimal>,
    /// What the buyer reads.
    pub subject: Option<String>,
    /// The merchant's own notes.
    pub metadata: Option<Metadata>,
    /// The attempt that paid.
    pub paid_by: Option<String>,
    /// When it was paid.
    pub paid_at: Option<OffsetDateTime>,
    /// Its deadline.
    pub expires_at: OffsetDateTime,
    /// Whether its commission was settled.
    pub settle_status: SettleStatus,
    /// When it was made.
    pub created_at: OffsetDateTime,
    /// Changes of state so far: the fence of every guarded write.
    pub version: i32,
    /// Attempts so far; see the column.
    pub attempts: i32,
}

impl Order {
    /// An order that is about to be written.
    #[must_use]
    pub(super) fn newly_made(
        merchant_id: MerchantId,
        order_no: OrderNo,
        new: &NewOrder,
        now: OffsetDateTime,
    ) -> Self {
        Self {
            merchant_id,
            order_no,
            user_id: new.user_id.clone(),
            kind: new.kind,
            status: OrderStatus::Pending,
            close_reason: None,
            amount: new.amount.minor(),
            currency: new.currency,
            refunded_amount: 0,
            rebate_user_id: new.rebate_user_id.clone(),
            rebate_rate: new.rebate_rate,
            subject: new.subject.clone(),
            metadata: new.metadata.clone(),
            paid_by: None,
            paid_at: None,
            expires_at: now + Duration::seconds(new.expires_in_secs),
            settle_status: SettleStatus::Unsettled,
            created_at: now,
            version: 1,
            attempts: 0,
        }
    }

    /// Its name.
    #[must_use]
    pub fn key(&self) -> OrderKey {
        OrderKey { merchant_id: self.merchant_id.clone(), order_no: self.order_no.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::infra::words::assert_moves;

    #[test]
    fn every_pair_of_state_and_event_is_decided() {
        use {OrderEvent as E, OrderStatus as S};
        let allowed = [
            (S::Pending, E::PaymentConfirmed, S::Paid),
            (S::Pending, E::DeadlinePassed, S::Closed),
            (S::Pending, E::Cancelled, S::Closed),
            (S::Paid, E::RefundedInPart, S::PartiallyRefunded),
            (S::PartiallyRefunded, E::RefundedInPart, S::PartiallyRefunded),
            (S::Paid, E::RefundedInFull, S::Refunded),
            (S::PartiallyRefunded, E::RefundedInFull, S::Refunded),
            (S::PartiallyRefunded, E::RefundReversedInPart, S::PartiallyRefunded),
            (S::Refunded, E::RefundReversedInPart, S::PartiallyRefunded),
            (S::PartiallyRefunded, E::RefundReversedInFull, S::Paid),
            (S::Refunded, E::RefundReversedInFull, S::Paid),
        ];
        assert_moves(S::ALL, E::ALL, &allowed, |from, event| from.after(event).ok());
    }

    #[test]
    fn orders_are_locked_by_their_merchants_and_then_by_their_numbers() {
        let names = ["0", "A", "A-", "A-1", "A.1", "A0", "A1", "AA", "A_", "Aa", "a", "z"];
        let keys: Vec<OrderKey> = names
            .iter()
            .flat_map(|merchant| names.iter().map(move |number| (merchant, number)))
            .map(|(merchant, number)| OrderKey {
                merchant_id: merchant.parse().unwrap(),
                order_no: number.parse().unwrap(),
            })
            .collect();
        let columns = |key: &OrderKey| (key.merchant_id.to_string(), key.order_no.to_string());
        for (one, other) in keys.iter().flat_map(|one| keys.iter().map(move |other| (one, other))) {
            assert_eq!(one.lock_rank().cmp(&other.lock_rank()), columns(one).cmp(&columns(other)));
        }
    }

    #[test]
    fn a_member_is_read_back() {
        let key = OrderKey { merchant_id: "demo".parse().unwrap(), order_no: "A-1".parse().unwrap() };
        assert_eq!(OrderKey::from_member(&key.member()), Some(key));
        assert_eq!(OrderKey::from_member("nonsense"), None);
    }
}
