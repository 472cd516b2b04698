//! The words and rows of usage, and the table of a hold's life.

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use super::price::Price;
use crate::ids::{Cycle, FxVersion, HoldId, MerchantId, MessageId, ProductCode, RequestId, UsageKey, UserId};
use crate::infra::repeat::differing;
use crate::infra::words::words;
use crate::ledger::{Account, Posting, PostingKind, Wallet};
use crate::money::Currency;

words! {
    /// The life of a hold.
    pub enum HoldStatus {
        /// Its money is set aside; the work may go on.
        Held = "HELD",
        /// The work was charged.
        Confirmed = "CONFIRMED",
        /// All of it was freed; nothing was charged.
        Released = "RELEASED",
        /// It ran out; all of it was freed. A final report is charged all the same, late.
        Expired = "EXPIRED",
    }
}

words! {
    /// What moves a hold.
    pub enum HoldEvent {
        /// The work is over, and its usage known.
        Confirmed = "CONFIRMED",
        /// The work came to nothing.
        Released = "RELEASED",
        /// Nobody said anything in time.
        DeadlinePassed = "DEADLINE_PASSED",
    }
}

impl HoldStatus {
    /// The whole life of a hold. What is absent is refused.
    #[must_use]
    pub const fn after(self, event: HoldEvent) -> Option<Self> {
        use {HoldEvent as E, HoldStatus as S};
        match (self, event) {
            // Of an expired one it is late.
            (S::Held | S::Expired, E::Confirmed) => Some(S::Confirmed),
            (S::Held, E::Released) => Some(S::Released),
            (S::Held, E::DeadlinePassed) => Some(S::Expired),
            _ => None,
        }
    }
}

words! {
    /// What a price is for.
    pub enum Pricing {
        /// For each unit.
        PerUnit = "PER_UNIT",
        /// For each piece of work, however many units it used; none for one that used nothing.
        PerCall = "PER_CALL",
        /// For a cycle of a user, in advance: its first hold pays, the rest is included.
        PerCycle = "PER_CYCLE",
    }
}

words! {
    /// What makes the key of a hold, beside its user and product.
    pub enum KeyScope {
        /// The idempotency key alone: the same in another currency is refused.
        Request = "REQUEST",
        /// The idempotency key, the currency and the fx version.
        RequestCurrencyFx = "REQUEST_CURRENCY_FX",
    }
}

/// Largest number of units: 10^12.
pub const MAX_UNITS: i64 = 1_000_000_000_000;

/// A number of units that is not from 0 to 10^12.
#[derive(Debug, thiserror::Error)]
#[error("expected a whole number of units from 0 to 1000000000000")]
pub struct InvalidUnits;

/// So many units: 0 … 10^12.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(try_from = "i64", into = "i64")]
#[schema(value_type = i64, minimum = 0, maximum = 1_000_000_000_000_i64, example = 1200)]
pub struct Units(i64);

impl Units {
    /// How many.
    #[must_use]
    pub const fn count(self) -> i64 {
        self.0
    }
}

impl TryFrom<i64> for Units {
    type Error = InvalidUnits;
    fn try_from(count: i64) -> Result<Self, InvalidUnits> {
        if (0..=MAX_UNITS).contains(&count) { Ok(Self(count)) } else { Err(InvalidUnits) }
    }
}

impl From<Units> for i64 {
    fn from(units: Units) -> Self {
        units.0
    }
}

/// Money to hold for work.
#[derive(Clone, Debug)]
pub struct NewHold {
    /// The caller's name of the request, for people.
    pub request_id: RequestId,
    /// Whose work.
    pub user_id: UserId,
    /// Of which product.
    pub product_code: ProductCode,
    /// The caller's name of the work.
    pub idempotency_key: UsageKey,
    /// Paid in what.
    pub currency: Currency,
    /// By which set of prices.
    pub fx_version: Option<FxVersion>,
    /// What it may use.
    pub estimated_units: Units,
    /// Of which cycle; the present month by default.
    pub cycle: Option<Cycle>,
    /// Seconds that it lives.
    pub expires_in: i64,
}

/// How a product is priced at this moment, in one currency and fx version.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub(super) pricing: Pricing,
    pub(super) cycle_quota: Option<i64>,
    pub(super) unit_price: Price,
}

/// A hold as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// Its id.
    pub hold_id: HoldId,
    /// Whose shop.
    pub merchant_id: MerchantId,
    /// The caller's name of the request.
    pub request_id: RequestId,
    /// Whose work.
    pub user_id: UserId,
    /// Of which product.
    pub product_code: ProductCode,
    /// The caller's name of the work.
    pub idempotency_key: UsageKey,
    /// Paid in what.
    pub currency: Currency,
    /// By which set of prices; empty for none.
    pub fx_version: String,
    /// Of which cycle.
    pub cycle: Cycle,
    /// What its price is for.
    pub pricing: Pricing,
    /// As it was when it was made.
    pub unit_price: Price,
    /// As it was when it was made.
    pub cycle_quota: Option<i64>,
    /// What it was made for.
    pub estimated_units: i64,
    /// The largest that was reported; what was charged for, once it is confirmed.
    pub units: Option<i64>,
    /// What it takes of its cycle: of a quota as long as it is held, and what was charged in the end.
    pub counted_units: i64,
    /// Whether it is the one that paid for its cycle.
    pub carries_fee: bool,
    /// Minor units set aside.
    pub held: i64,
    /// Minor units taken.
    pub charged: i64,
    /// Minor units that were due and not there.
    pub shortfall: i64,
    /// Whether it was confirmed after it had expired.
    pub late: bool,
    /// Where it stands.
    pub status: HoldStatus,
    /// How often more was set aside for it.
    pub extensions: i32,
    /// Whether more is wanted than there is, as it was told.
    pub exhausted: bool,
    /// How often all that was wanted was there after that.
    pub recoveries: i32,
    /// When it runs out.
    pub expires_at: OffsetDateTime,
    /// When it was made.
    pub created_at: OffsetDateTime,
    /// Changes of state.
    pub version: i32,
    /// The transaction that wrote its row (`xmin`), by which a write finds it as it was read, or not at all; 0 before there
    /// is one.
    pub(super) written_by: i64,
}

/// Which cycle of which user and product.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CycleKey {
    pub(super) merchant_id: String,
    pub(super) user_id: String,
    pub(super) product_code: String,
    pub(super) cycle: String,
}

/// What was taken of a cycle.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CycleUse {
    pub(super) used_units: i64,
    pub(super) fee_hold_id: Option<String>,
}

impl Hold {
    /// The fields in which a repeat differs. What it leaves out is as it was; a request id is a name for people.
    pub(super) fn differing_fields(&self, new: &NewHold) -> Vec<&'static str> {
        let fx_version = new.fx_version.as_ref().map_or("", FxVersion::as_str);
        differing([
            ("currency", self.currency == new.currency),
            ("fx_version", self.fx_version == fx_version),
            ("estimated_units", self.estimated_units == new.estimated_units.count()),
            ("cycle", new.cycle.as_ref().is_none_or(|cycle| *cycle == self.cycle)),
        ])
    }

    /// Whether a cycle must be looked at before it is made.
    pub(super) fn has_cycle(&self) -> bool {
        self.cycle_quota.is_some() || self.pricing == Pricing::PerCycle
    }

    pub(super) fn cycle_key(&self) -> CycleKey {
        CycleKey {
            merchant_id: self.merchant_id.to_string(),
            user_id: self.user_id.to_string(),
            product_code: self.product_code.to_string(),
            cycle: self.cycle.to_string(),
        }
    }

    pub(super) fn wallet(&self) -> Wallet {
        Wallet::of(self.merchant_id.as_str(), self.user_id.as_str(), self.currency)
    }

    /// What so many units take of their cycle once they are charged: a quota that is set later finds them there.
    pub(super) fn count(&self, units: i64) -> i64 {
        match self.pricing {
            Pricing::PerCall => units.min(1),
            Pricing::PerUnit | Pricing::PerCycle => units,
        }
    }

    /// What so many units take of their cycle before that: nothing where there is no quota.
    pub(super) fn reserve(&self, units: i64) -> i64 {
        if self.cycle_quota.is_some() { self.count(units) } else { 0 }
    }

    /// How often the price is due for so many units.
    fn times_due(&self, units: i64) -> i64 {
        match self.pricing {
            Pricing::PerUnit => units,
            Pricing::PerCall => units.min(1),
            // Paid in advance.
            Pricing::PerCycle => 0,
        }
    }

    /// What must be set aside for so many units; `None` when that is more than any amount may be.
    pub(super) fn due_ceil(&self, units: i64) -> Option<i64> {
        self.unit_price.times_ceil(self.times_due(units))
    }

    /// What is charged for so many units; `None` as above.
    pub(super) fn due_half_up(&self, units: i64) -> Option<i64> {
        self.unit_price.times_half_up(self.times_due(units))
    }

    fn receivable(&self) -> Account {
        Account::user_receivable(self.merchant_id.as_str(), self.user_id.as_str(), self.currency)
    }

    fn posting(&self, kind: PostingKind, reference: &str) -> Posting {
        Posting::new(kind, reference).of(Some(self.merchant_id.as_str()), None)
    }

    /// Sets so much aside, at first or once more.
    pub(super) fn set_aside(&self, amount: i64) -> Posting {
        let Wallet { available, held } = self.wallet();
        let posting = match self.extensions {
            0 => self.posting(PostingKind::UsageHold, self.hold_id.as_str()),
            number => self.posting(PostingKind::UsageExtension, &format!("{}:{number}", self.hold_id)),
        };
        posting.transfer(available, held, amount)
    }

    /// Pays for its cycle.
    pub(super) fn pay_cycle(&self, fee: i64) -> Posting {
        let (available, merchant) =
            (self.wallet().available, Account::merchant(self.merchant_id.as_str(), self.currency));
        self.posting(PostingKind::UsageCharge, self.hold_id.as_str()).transfer(available, merchant, fee)
    }

    /// Frees all that is set aside.
    pub(super) fn freed(&self) -> Posting {
        let Wallet { available, held } = self.wallet();
        self.posting(PostingKind::UsageRelease, self.hold_id.as_str()).transfer(held, available, self.held)
    }

    /// Takes what is due from what was set aside, then from what can be spent; the rest is owed. What was set aside and
    /// is not needed is free again.
    pub(super) fn charge(&self, bill: &Bill) -> Posting {
        let Wallet { available, held } = self.wallet();
        let merchant = || Account::merchant(self.merchant_id.as_str(), self.currency);
        self.posting(PostingKind::UsageCharge, self.hold_id.as_str())
            .transfer(held.clone(), merchant(), bill.from_held)
            .transfer(held, available.clone(), self.held - bill.from_held)
            .transfer(available, merchant(), bill.from_available)
            .transfer(self.receivable(), merchant(), bill.shortfall)
    }
}

/// Where a charge comes from. Minor units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bill {
    pub(super) from_held: i64,
    pub(super) from_available: i64,
    pub(super) shortfall: i64,
}

impl Bill {
    /// Of what is due, when so much is set aside and so much more can be spent.
    pub(super) fn of(due: i64, held: i64, available: i64) -> Self {
        let from_held = due.min(held);
        let from_available = (due - from_held).min(available);
        Self { from_held, from_available, shortfall: due - from_held - from_available }
    }

    pub(super) const fn charged(self) -> i64 {
        self.from_held + self.from_available
    }
}

/// A report of usage: cumulative, under a name of its own.
#[derive(Clone, Debug)]
pub struct Report {
    /// Its name.
    pub message_id: MessageId,
    /// All that was used so far.
    pub cumulative_units: Units,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::infra::words::assert_moves;

    #[test]
    fn a_hold_ends_once_and_only_an_expired_one_is_charged_late() {
        use {HoldEvent as E, HoldStatus as S};
        let allowed = [
            (S::Held, E::Confirmed, S::Confirmed),
            (S::Held, E::Released, S::Released),
            (S::Held, E::DeadlinePassed, S::Expired),
            (S::Expired, E::Confirmed, S::Confirmed),
        ];
        assert_moves(S::ALL, E::ALL, &allowed, S::after);
    }

    #[test]
    fn a_bill_takes_what_is_there_and_says_what_is_not() {
        for (due, held, available, expected) in
            [(7, 10, 5, (7, 0, 0)), (12, 10, 5, (10, 2, 0)), (20, 10, 5, (10, 5, 5)), (0, 10, 5, (0, 0, 0))]
        {
            let bill = Bill::of(due, held, available);
            assert_eq!((bill.from_held, bill.from_available, bill.shortfall), expected);
        }
    }
}
