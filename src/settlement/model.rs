//! The words and rows of settlements.

use serde::Serialize;
use serde_json::Value;
use time::OffsetDateTime;

use super::terms::{Factor, Rate};
use crate::ids::{MerchantId, OrderNo, SettlementRunId, Sku, UserId};
use crate::infra::words::words;
use crate::money::Currency;

words! {
    /// The life of a settlement.
    pub enum SettlementStatus {
        /// The commission was given; a part of it may have been claimed back.
        Settled = "SETTLED",
        /// All of it was claimed back.
        ClawedBack = "CLAWED_BACK",
    }
}

words! {
    /// What moves a settlement.
    pub enum SettlementEvent {
        /// A refund of the order succeeded, and something of the commission remains.
        PartClawedBack = "PART_CLAWED_BACK",
        /// A refund of the order succeeded, and nothing remains.
        AllClawedBack = "ALL_CLAWED_BACK",
        /// The channel took a refund back: the user gets again what that refund had cost.
        Restored = "RESTORED",
    }
}

impl SettlementStatus {
    /// The whole life of a settlement. What is absent is refused.
    #[must_use]
    pub const fn after(self, event: SettlementEvent) -> Option<Self> {
        use {SettlementEvent as E, SettlementStatus as S};
        match (self, event) {
            (S::Settled, E::PartClawedBack) => Some(S::Settled),
            (S::Settled, E::AllClawedBack) => Some(S::ClawedBack),
            // Of a refund that is taken back some other one may have claimed a part already: not all comes again.
            (S::Settled | S::ClawedBack, E::Restored) => Some(S::Settled),
            (S::ClawedBack, E::PartClawedBack | E::AllClawedBack) => None,
        }
    }
}

/// What an order's user earned by it.
#[derive(Clone, Debug)]
pub struct Settlement {
    /// Whose order.
    pub merchant_id: MerchantId,
    /// Which order.
    pub order_no: OrderNo,
    /// Who earns it.
    pub user_id: UserId,
    /// Minor units of the order that had not gone back by then.
    pub base_amount: i64,
    /// Over all lines, cut off behind its last place.
    pub rate: Rate,
    /// What it was multiplied by.
    pub factor: Factor,
    /// Minor units given.
    pub commission: i64,
    /// Minor units claimed back since.
    pub clawed_back: i64,
    /// Of what.
    pub currency: Currency,
    /// Where it stands.
    pub status: SettlementStatus,
    /// When it was settled.
    pub created_at: OffsetDateTime,
}

/// A rule: the share of one thing, or of all of a merchant's others.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct RebateRule {
    /// Whose.
    pub merchant_id: MerchantId,
    /// Of which thing; of all that have no rule of their own, where there is none.
    pub sku: Option<Sku>,
    /// The share, as a decimal string from 0 to 1.
    #[schema(value_type = String, example = "0.05")]
    pub rate: Rate,
    /// When it was set.
    #[serde(with = "time::serde::rfc3339")]
    pub updated_at: OffsetDateTime,
}

/// A user's level.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct UserLevel {
    /// Whose user.
    pub merchant_id: MerchantId,
    /// Which one.
    pub user_id: UserId,
    /// What the merchant calls it.
    #[schema(example = "GOLD")]
    pub level: String,
    /// What the user's commissions are multiplied by, as a decimal string above 0 and at most 10.
    #[schema(value_type = String, example = "1.2")]
    pub factor: Factor,
    /// When it was set.
    #[serde(with = "time::serde::rfc3339")]
    pub updated_at: OffsetDateTime,
}

words! {
    /// The life of a run.
    pub enum RunStatus {
        /// Workers settle one page after the other.
        Running = "RUNNING",
        /// Everything that it was for was looked at.
        Done = "DONE",
    }
}

words! {
    /// What moves a run.
    pub enum RunEvent {
        /// A page was settled, and more may come.
        PageSettled = "PAGE_SETTLED",
        /// Nothing is left behind the last page.
        Finished = "FINISHED",
    }
}

impl RunStatus {
    /// The whole life of a run. What is absent is refused.
    #[must_use]
    pub const fn after(self, event: RunEvent) -> Option<Self> {
        match (self, event) {
            (Self::Running, RunEvent::PageSettled) => Some(Self::Running),
            (Self::Running, RunEvent::Finished) => Some(Self::Done),
            (Self::Done, _) => None,
        }
    }
}

/// Settling in batches, and how far it has come.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct SettlementRun {
    /// Its id.
    pub run_id: SettlementRunId,
    /// Whose orders; everybody's where none is named.
    pub merchant_id: Option<MerchantId>,
    /// Orders that were paid before.
    #[serde(with = "time::serde::rfc3339")]
    pub paid_before: OffsetDateTime,
    /// Where it stands.
    pub status: RunStatus,
    /// Orders there were when it began; nothing where a million or more were waiting, its own and others' together.
    pub expected: Option<i64>,
    /// Orders settled so far.
    pub settled: i64,
    /// Orders that could not be settled although they were due, or of which a refund that did not succeed was made after all, or
    /// may have been; not those that went back as a whole meanwhile.
    pub skipped: i64,
    /// Minor units of commission so far, by currency.
    #[schema(value_type = Object, example = json!({"CNY": 9950}))]
    pub commissions: Value,
    /// What kept it from going on the last time, if something did.
    pub last_error: Option<String>,
    /// When it began.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    /// When it came to its end.
    #[serde(with = "time::serde::rfc3339::option")]
    pub finished_at: Option<OffsetDateTime>,
}

/// What a run would be for.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct Waiting {
    /// Of what.
    #[schema(example = "CNY")]
    pub currency: Currency,
    /// Orders.
    #[schema(example = 5)]
    pub orders: i64,
    /// Minor units that they cost, without what went back.
    #[schema(example = 9950)]
    pub amount: i64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::infra::words::assert_moves;

    #[test]
    fn every_pair_of_a_settlements_state_and_event_is_decided() {
        use {SettlementEvent as E, SettlementStatus as S};
        let allowed = [
            (S::Settled, E::PartClawedBack, S::Settled),
            (S::Settled, E::AllClawedBack, S::ClawedBack),
            (S::Settled, E::Restored, S::Settled),
            (S::ClawedBack, E::Restored, S::Settled),
        ];
        assert_moves(S::ALL, E::ALL, &allowed, S::after);
    }

    #[test]
    fn every_pair_of_a_runs_state_and_event_is_decided() {
        use {RunEvent as E, RunStatus as S};
        let allowed = [(S::Running, E::PageSettled, S::Running), (S::Running, E::Finished, S::Done)];
        assert_moves(S::ALL, E::ALL, &allowed, S::after);
    }
}
