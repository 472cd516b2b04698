//! The words and rows of reconciliation, and the tables of their lives.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use time::macros::format_description;
use time::{Date, OffsetDateTime};
use utoipa::ToSchema;

use crate::channels::StatementKind;
use crate::channels::bills::{Fault, Format};
use crate::infra::words::words;
use crate::money::Currency;

time::serde::format_description!(day_text, Date, "[year]-[month]-[day]");

/// Reads a day of a calendar, as `YYYY-MM-DD`. No other years than those of four digits: the database has not all of them. Nor
/// the last of these, which has no end.
#[must_use]
pub fn read_day(text: &str) -> Option<Date> {
    let day = Date::parse(text, format_description!("[year]-[month]-[day]")).ok();
    day.filter(|day| text.len() == "YYYY-MM-DD".len() && day.next_day().is_some())
}

words! {
    /// The life of a channel's day.
    pub enum DayStatus {
        /// Waits for its statement.
        Open = "OPEN",
        /// The statement's lines come in.
        Fetching = "FETCHING",
        /// They are compared with ours.
        Matching = "MATCHING",
        /// Something is done about the differences.
        Acting = "ACTING",
        /// Nothing is left that the service does by itself.
        Done = "DONE",
    }
}

words! {
    /// What moves a channel's day.
    pub enum DayEvent {
        /// Its statement is being read.
        FetchBegun = "FETCH_BEGUN",
        /// The statement is late or at fault: nothing of it counts.
        StatementRefused = "STATEMENT_REFUSED",
        /// All of it is here, and adds up.
        Fetched = "FETCHED",
        /// All differences are known.
        Matched = "MATCHED",
        /// Each of them was taken up.
        Finished = "FINISHED",
        /// Somebody wants it compared anew, perhaps by another statement.
        BegunAgain = "BEGUN_AGAIN",
    }
}

impl DayStatus {
    /// Whether it has its statement: all of it is here, and adds up.
    #[must_use]
    pub const fn is_fetched(self) -> bool {
        matches!(self, Self::Matching | Self::Acting | Self::Done)
    }

    /// The whole life of a channel's day; `None` for what is absent from it.
    #[must_use]
    pub const fn after(self, event: DayEvent) -> Option<Self> {
        use {DayEvent as E, DayStatus as S};
        match (self, event) {
            (_, E::BegunAgain) => Some(S::Open),
            (S::Open, E::FetchBegun) => Some(S::Fetching),
            (S::Open | S::Fetching, E::StatementRefused) => Some(S::Open),
            (S::Fetching, E::Fetched) => Some(S::Matching),
            (S::Matching, E::Matched) => Some(S::Acting),
            (S::Acting, E::Finished) => Some(S::Done),
            _ => None,
        }
    }
}

words! {
    /// Where a statement comes from.
    pub enum Source {
        /// The channel's own API.
        Channel = "CHANNEL",
        /// A file that an operator brought.
        Upload = "UPLOAD",
    }
}

words! {
    /// How ours and theirs differ.
    pub enum Class {
        /// They have it, we do not (long).
        MissingHere = "MISSING_HERE",
        /// We have it, they do not (short).
        MissingThere = "MISSING_THERE",
        /// Both have it, of another amount or currency.
        AmountDiffers = "AMOUNT_DIFFERS",
        /// Both have it, in another state or for another thing.
        StatusDiffers = "STATUS_DIFFERS",
        /// They have it twice.
        Duplicate = "DUPLICATE",
    }
}

words! {
    /// What is to be done about a difference.
    pub enum ItemAction {
        /// Apply it as if the channel had called us.
        Apply = "APPLY",
        /// Ask the channel, and do what follows from its answer.
        Ask = "ASK",
        /// Ask the channel once more, and where the money still never came, charge the user who spent it on usage.
        Charge = "CHARGE",
        /// Show it to a person.
        Escalate = "ESCALATE",
    }
}

impl ItemAction {
    /// Whether the channel is asked.
    #[must_use]
    pub const fn asks(self) -> bool {
        matches!(self, Self::Ask | Self::Charge)
    }
}

words! {
    /// The life of a difference.
    pub enum ItemStatus {
        /// Found.
        Proposed = "PROPOSED",
        /// Waits for a person's decision.
        Waiting = "WAITING",
        /// Decided; being carried out.
        Applying = "APPLYING",
        /// Ours is now as theirs.
        Applied = "APPLIED",
        /// None any more: the channel confirms ours, or a later comparison finds none.
        Resolved = "RESOLVED",
        /// A person says that nothing is to be done.
        Dismissed = "DISMISSED",
        /// Nothing more can be done without a person: an exception is open.
        Escalated = "ESCALATED",
        /// A person gave back what its user was charged for it.
        Reversed = "REVERSED",
    }
}

words! {
    /// What moves a difference.
    pub enum ItemEvent {
        /// It is to be carried out, by the service's own rules or by a person's word.
        Decided = "DECIDED",
        /// Asking showed what is to be done, and nobody need decide over that.
        AnswerDecided = "ANSWER_DECIDED",
        /// It is a person's to decide.
        LeftToAPerson = "LEFT_TO_A_PERSON",
        /// Its action did what was missing here.
        Applied = "APPLIED",
        /// It is none any more.
        Explained = "EXPLAINED",
        /// Its action cannot mend it.
        GivenUp = "GIVEN_UP",
        /// A person wants it left as it is.
        Dismissed = "DISMISSED",
        /// A person wants its charge given back.
        ChargeReversed = "CHARGE_REVERSED",
    }
}

impl ItemStatus {
    /// The whole life of a difference; `None` for what is absent from it.
    #[must_use]
    pub const fn after(self, event: ItemEvent) -> Option<Self> {
        use {ItemEvent as E, ItemStatus as S};
        match (self, event) {
            (S::Proposed | S::Waiting | S::Escalated, E::Decided) => Some(S::Applying),
            (S::Applying, E::AnswerDecided) => Some(S::Applying),
            (S::Proposed | S::Applying, E::LeftToAPerson) => Some(S::Waiting),
            (S::Applying, E::Applied) => Some(S::Applied),
            (S::Proposed | S::Waiting | S::Applying | S::Escalated, E::Explained) => Some(S::Resolved),
            (S::Applying, E::GivenUp) => Some(S::Escalated),
            (S::Waiting | S::Escalated, E::Dismissed) => Some(S::Dismissed),
            // Of a charge alone; what else was applied is the channel's money.
            (S::Applied, E::ChargeReversed) => Some(S::Reversed),
            _ => None,
        }
    }
}

/// One kind of movement in one currency, here and there, in minor units.
///
/// `ours − theirs = differences + edges`, or something moved here while it was compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Total {
    /// Movements that we have of the day.
    pub our_count: i64,
    /// What they come to.
    pub ours: i64,
    /// Lines of the statement.
    pub their_count: i64,
    /// What they come to.
    pub theirs: i64,
    /// What the channel kept for them.
    pub fees: i64,
    /// What the differences come to, ours less theirs.
    pub differences: i64,
    /// What the two count in different days, or has not ended there yet.
    pub edges: i64,
}

impl Total {
    /// Ours less theirs.
    #[must_use]
    pub const fn drift(&self) -> i64 {
        self.ours - self.theirs
    }

    /// What neither a difference nor the day's edge explains: zero.
    #[must_use]
    pub const fn unexplained(&self) -> i64 {
        self.drift() - self.differences - self.edges
    }
}

/// Totals by kind of movement and currency, such as `PAYMENT CNY`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Totals(pub BTreeMap<String, Total>);

impl Totals {
    /// The total of a kind in a currency.
    pub fn of(&mut self, kind: StatementKind, currency: Currency) -> &mut Total {
        self.0.entry(format!("{kind} {currency}")).or_default()
    }

    /// Adds what another part of the same day came to.
    pub fn add(&mut self, other: &Self) {
        for (name, part) in &other.0 {
            let total = self.0.entry(name.clone()).or_default();
            total.our_count += part.our_count;
            total.ours += part.ours;
            total.their_count += part.their_count;
            total.theirs += part.theirs;
            total.fees += part.fees;
            total.differences += part.differences;
            total.edges += part.edges;
        }
    }
}

/// A channel's day as it stands.
#[derive(Clone, Debug)]
pub struct Reconciliation {
    /// Its id.
    pub reconciliation_id: String,
    /// Whose statement.
    pub channel: String,
    /// Which day of the channel's.
    pub day: Date,
    /// Where it stands.
    pub status: DayStatus,
    /// How often it was begun.
    pub round: i32,
    /// Where the statement comes from.
    pub source: Source,
    /// Of an upload, what it looks like.
    pub format: Option<Format>,
    /// And its fingerprint, as whoever brought it was told.
    pub file_sha256: Option<String>,
    /// Lines that are here.
    pub lines: i64,
    /// Ours against theirs.
    pub totals: Totals,
    /// What is wrong with its statement.
    pub fault: Option<Fault>,
    /// Where, and what was expected.
    pub detail: Option<String>,
    /// When it was begun first.
    pub created_at: OffsetDateTime,
    /// When it came to its end.
    pub finished_at: Option<OffsetDateTime>,
    /// Its differences by class and state, such as `MISSING_HERE APPLIED`.
    pub differences: BTreeMap<String, i64>,
}

/// A difference as it stands.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Item {
    /// Its id.
    pub item_id: String,
    /// Of which day.
    pub reconciliation_id: String,
    /// Whose statement.
    pub channel: String,
    /// How ours and theirs differ.
    pub class: Class,
    /// What kind of movement it is.
    pub kind: StatementKind,
    /// Our number of it, as the channel was given it.
    pub our_id: String,
    /// The channel's number of it.
    pub channel_id: String,
    /// Whose, where it is known.
    pub merchant_id: Option<String>,
    /// Of which order, where it is known.
    pub order_no: Option<String>,
    /// Minor units here.
    pub ours: Option<i64>,
    /// Minor units there.
    pub theirs: Option<i64>,
    /// Where it stands here.
    pub our_status: Option<String>,
    /// Of what.
    pub currency: Currency,
    /// When it moved.
    #[serde(with = "time::serde::rfc3339")]
    pub at: OffsetDateTime,
    /// What is to be done.
    pub action: ItemAction,
    /// Whether that may give money back, or take it from a user.
    pub moves_money: bool,
    /// Where it stands.
    pub status: ItemStatus,
    /// Who decided; nobody where the service did.
    pub decided_by: Option<String>,
    /// What came of it.
    pub outcome: Option<String>,
    /// When it was found.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    /// How often it was tried.
    #[serde(skip)]
    pub attempts: i32,
    /// Changes of state and claims so far.
    #[serde(skip)]
    pub version: i32,
}

/// What of a difference somebody looked at before they decided: a statement that is read anew may have changed it since, under
/// the same id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Seen {
    /// Our number, as the difference said.
    pub our_id: String,
    /// The currency, as the difference said.
    pub currency: Currency,
    /// Minor units here, as the difference said; nothing where we had none.
    pub ours: Option<i64>,
    /// Minor units there, as the difference said; nothing where the channel had none.
    pub theirs: Option<i64>,
}

impl Item {
    /// What a person is shown of it.
    pub(super) fn shown(&self) -> Seen {
        let Self { our_id, currency, ours, theirs, .. } = self;
        Seen { our_id: our_id.clone(), currency: *currency, ours: *ours, theirs: *theirs }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::infra::words::assert_moves;

    #[test]
    fn every_pair_of_a_days_life_is_decided() {
        use {DayEvent as E, DayStatus as S};
        let allowed = [
            (S::Open, E::FetchBegun, S::Fetching),
            (S::Open, E::StatementRefused, S::Open),
            (S::Fetching, E::StatementRefused, S::Open),
            (S::Fetching, E::Fetched, S::Matching),
            (S::Matching, E::Matched, S::Acting),
            (S::Acting, E::Finished, S::Done),
        ];
        let begun_again = S::ALL.iter().map(|from| (*from, E::BegunAgain, S::Open));
        let allowed: Vec<_> = allowed.into_iter().chain(begun_again).collect();
        assert_moves(S::ALL, E::ALL, &allowed, S::after);
    }

    #[test]
    fn every_pair_of_a_differences_life_is_decided() {
        use {ItemEvent as E, ItemStatus as S};
        let allowed = [
            (S::Proposed, E::Decided, S::Applying),
            (S::Waiting, E::Decided, S::Applying),
            (S::Escalated, E::Decided, S::Applying),
            (S::Applying, E::AnswerDecided, S::Applying),
            (S::Proposed, E::LeftToAPerson, S::Waiting),
            (S::Applying, E::LeftToAPerson, S::Waiting),
            (S::Applying, E::Applied, S::Applied),
            (S::Proposed, E::Explained, S::Resolved),
            (S::Waiting, E::Explained, S::Resolved),
            (S::Applying, E::Explained, S::Resolved),
            (S::Escalated, E::Explained, S::Resolved),
            (S::Applying, E::GivenUp, S::Escalated),
            (S::Waiting, E::Dismissed, S::Dismissed),
            (S::Escalated, E::Dismissed, S::Dismissed),
            (S::Applied, E::ChargeReversed, S::Reversed),
        ];
        assert_moves(S::ALL, E::ALL, &allowed, S::after);
    }

    #[test]
    fn a_total_says_what_it_cannot_explain() {
        let total = Total { ours: 100, theirs: 130, differences: -40, edges: 10, ..Total::default() };
        assert_eq!((total.drift(), total.unexplained()), (-30, 0));
    }
}
