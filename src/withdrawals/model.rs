//! The words and rows of withdrawals, and the table of their life.

use time::OffsetDateTime;

use crate::ids::{MerchantId, UserId, WithdrawalId, WithdrawalNo};
use crate::infra::repeat::differing;
use crate::infra::words::words;
use crate::ledger::{Account, Posting, PostingKind};
use crate::money::{Currency, Money};
use crate::receivables::Debtor;

words! {
    /// The life of a withdrawal.
    pub enum WithdrawalStatus {
        /// Written down. Never what is read: the transaction that writes it sets the money aside, too.
        Created = "CREATED",
        /// The money is set aside.
        Debited = "DEBITED",
        /// The channel is asked to send it out; no final answer yet.
        Paying = "PAYING",
        /// The money has gone out.
        Succeeded = "SUCCEEDED",
        /// Refused for good. Never what is read: the transaction that writes it gives the money back, too.
        Reversing = "REVERSING",
        /// The money is available again.
        Reversed = "REVERSED",
    }
}

words! {
    /// What moves a withdrawal.
    pub enum WithdrawalEvent {
        /// The balance covered it.
        Debited = "DEBITED",
        /// The channel is being asked.
        PayoutAsked = "PAYOUT_ASKED",
        /// The channel sent the money out.
        PayoutSucceeded = "PAYOUT_SUCCEEDED",
        /// The channel refused for good.
        PayoutRefused = "PAYOUT_REFUSED",
        /// What was set aside is available again.
        GivenBack = "GIVEN_BACK",
    }
}

impl WithdrawalStatus {
    /// Where an event leads from here; `None` when it changes nothing.
    #[must_use]
    pub const fn after(self, event: WithdrawalEvent) -> Option<Self> {
        use WithdrawalEvent as E;
        match (self, event) {
            (Self::Created, E::Debited) => Some(Self::Debited),
            (Self::Debited, E::PayoutAsked) => Some(Self::Paying),
            (Self::Paying, E::PayoutSucceeded) => Some(Self::Succeeded),
            (Self::Paying, E::PayoutRefused) => Some(Self::Reversing),
            (Self::Reversing, E::GivenBack) => Some(Self::Reversed),
            _ => None,
        }
    }

    /// Whether the money has come to rest.
    #[must_use]
    pub const fn is_end(self) -> bool {
        matches!(self, Self::Succeeded | Self::Reversed)
    }
}

words! {
    /// A movement of a withdrawal's money.
    pub enum LegKind {
        /// Out of what the user can spend.
        Debit = "DEBIT",
        /// Out through the channel.
        Payout = "PAYOUT",
        /// Back to the user.
        Reversal = "REVERSAL",
    }
}

words! {
    /// How far a leg has come.
    pub enum LegStatus {
        /// Not begun.
        Pending = "PENDING",
        /// Begun; its result is not known yet.
        Processing = "PROCESSING",
        /// Done.
        Succeeded = "SUCCEEDED",
        /// Refused for good.
        Failed = "FAILED",
    }
}

/// A withdrawal to make.
#[derive(Clone, Debug)]
pub struct NewWithdrawal {
    /// The merchant's number.
    pub withdrawal_no: WithdrawalNo,
    /// Whose money.
    pub user_id: UserId,
    /// How much.
    pub money: Money,
    /// Through which channel.
    pub channel: String,
    /// Where to, in the channel's own form.
    pub account: String,
}

/// A withdrawal as it stands.
#[derive(Clone, Debug, sqlx::FromRow)]
pub struct Withdrawal {
    /// What channels know it by.
    pub withdrawal_id: WithdrawalId,
    /// Whose shop.
    pub merchant_id: MerchantId,
    /// The merchant's number.
    pub withdrawal_no: WithdrawalNo,
    /// Whose money.
    pub user_id: UserId,
    /// Minor units.
    pub amount: i64,
    /// Of what.
    pub currency: Currency,
    /// Through which channel.
    pub channel: String,
    /// Where to, in the channel's own form.
    pub account: String,
    /// Where it stands.
    pub status: WithdrawalStatus,
    /// Why it was refused.
    pub failure: Option<String>,
    /// The channel's own number of the payout; also of one that was made after it had been given back.
    pub channel_payout_id: Option<String>,
    /// When its money came back after it had gone out; nothing where it has gone out once more since.
    pub returned_at: Option<OffsetDateTime>,
    /// How often it came back.
    pub returned_times: i32,
    /// When it was asked for.
    pub created_at: OffsetDateTime,
}

/// One leg as it stands.
#[derive(Clone, Debug)]
pub struct Leg {
    /// Which one.
    pub leg: LegKind,
    /// How far it has come.
    pub status: LegStatus,
    /// When it came to be.
    pub created_at: OffsetDateTime,
    /// When it last moved.
    pub updated_at: OffsetDateTime,
}

/// A withdrawal with its legs.
#[derive(Clone, Debug)]
pub struct WithdrawalDetails {
    /// The withdrawal.
    pub withdrawal: Withdrawal,
    /// Its legs, in their order.
    pub legs: Vec<Leg>,
}

impl Withdrawal {
    /// A new one, its money set aside.
    #[must_use]
    pub fn newly_debited(
        withdrawal_id: WithdrawalId,
        merchant_id: MerchantId,
        new: &NewWithdrawal,
        now: OffsetDateTime,
    ) -> Self {
        Self {
            withdrawal_id,
            merchant_id,
            withdrawal_no: new.withdrawal_no.clone(),
            user_id: new.user_id.clone(),
            amount: new.money.amount.minor(),
            currency: new.money.currency,
            channel: new.channel.clone(),
            account: new.account.clone(),
            status: WithdrawalStatus::Debited,
            failure: None,
            channel_payout_id: None,
            returned_at: None,
            returned_times: 0,
            created_at: now,
        }
    }

    /// The legs of a new one.
    pub(super) fn first_legs(&self) -> Vec<Leg> {
        let leg = |leg, status| Leg { leg, status, created_at: self.created_at, updated_at: self.created_at };
        vec![leg(LegKind::Debit, LegStatus::Succeeded), leg(LegKind::Payout, LegStatus::Pending)]
    }

    /// Whether its money has gone out, as far as is known, and not come back since.
    pub(super) const fn is_out(&self) -> bool {
        self.channel_payout_id.is_some() && self.returned_at.is_none()
    }

    /// The how-manieth payout after all it is that its money is out by, or would be by the next one; none for its own payout.
    pub(super) const fn times_after_all(&self) -> i32 {
        match self.status {
            WithdrawalStatus::Reversed => self.returned_times + 1,
            _ => self.returned_times,
        }
    }

    /// Whose money it is, and whose debt where that is not there any more.
    pub(super) fn debtor(&self) -> Debtor<'_> {
        Debtor {
            merchant_id: self.merchant_id.as_str(),
            user_id: self.user_id.as_str(),
            currency: self.currency,
        }
    }

    fn held(&self) -> Account {
        Account::user_held(self.merchant_id.as_str(), self.user_id.as_str(), self.currency)
    }

    fn in_transit(&self) -> Account {
        Account::payouts_in_transit(&self.channel, self.currency)
    }

    fn posting(&self, kind: PostingKind, debit: Account, credit: Account) -> Posting {
        self.booking(kind).transfer(debit, credit, self.amount)
    }

    fn booking(&self, kind: PostingKind) -> Posting {
        self.booking_of(kind, self.withdrawal_id.as_str())
    }

    fn booking_of(&self, kind: PostingKind, subject: &str) -> Posting {
        Posting::new(kind, subject).of(Some(self.merchant_id.as_str()), None)
    }

    /// Sets the money aside.
    pub(super) fn debit(&self) -> Posting {
        self.posting(PostingKind::Withdrawal, self.debtor().available(), self.held())
    }

    /// Hands the money to the channel.
    pub(super) fn payout(&self) -> Posting {
        let channel = Account::channel(&self.channel, self.currency);
        self.posting(PostingKind::Payout, self.in_transit(), channel)
    }

    /// The money has arrived: it is neither set aside nor on its way any more.
    pub(super) fn payout_done(&self) -> Posting {
        self.posting(PostingKind::PayoutDone, self.held(), self.in_transit())
    }

    /// The money has gone out although it was given back: its user, who has so much, pays what they can, and owes the rest.
    /// With how much is owed.
    pub(super) fn payout_after_all(&self, has: i64) -> (Posting, i64) {
        let channel = Account::channel(&self.channel, self.currency);
        self.debtor().charge(self.after_all(PostingKind::PayoutAfterAll), &channel, self.amount, has)
    }

    /// A booking that belongs to a payout after all; each has its own.
    pub(super) fn after_all(&self, kind: PostingKind) -> Posting {
        match self.times_after_all() {
            ..=1 => self.booking(kind),
            times => self.booking_of(kind, &format!("{}:{times}", self.withdrawal_id)),
        }
    }

    /// What a final refusal takes back.
    pub(super) fn bookings_to_reverse(&self) -> [String; 2] {
        [self.payout().transaction_id(), self.debit().transaction_id()]
    }

    /// What is taken back where the money had arrived, and came back.
    pub(super) fn bookings_to_return(&self) -> [String; 3] {
        let [payout, debit] = self.bookings_to_reverse();
        [self.payout_done().transaction_id(), payout, debit]
    }

    /// The fields in which a repeat differs.
    pub(super) fn differing_fields(&self, new: &NewWithdrawal) -> Vec<&'static str> {
        differing([
            ("user_id", self.user_id == new.user_id),
            ("amount", self.amount == new.money.amount.minor()),
            ("currency", self.currency == new.money.currency),
            ("channel", self.channel == new.channel),
            ("account", self.account == new.account),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::infra::words::assert_moves;

    #[test]
    fn money_goes_out_or_comes_back_and_never_both() {
        use WithdrawalEvent as E;
        use WithdrawalStatus as S;
        let allowed = [
            (S::Created, E::Debited, S::Debited),
            (S::Debited, E::PayoutAsked, S::Paying),
            (S::Paying, E::PayoutSucceeded, S::Succeeded),
            (S::Paying, E::PayoutRefused, S::Reversing),
            (S::Reversing, E::GivenBack, S::Reversed),
        ];
        assert_moves(S::ALL, E::ALL, &allowed, S::after);
    }
}
