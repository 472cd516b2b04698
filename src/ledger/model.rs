//! Accounts and postings.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::infra::gather::array_text;
use crate::infra::words::words;
use crate::money::Currency;

words! {
    /// What an account stands for. Debits make an asset or an expense grow, credits a liability or a revenue.
    pub enum AccountKind {
        /// Asset: what a channel holds for us.
        Channel = "CHANNEL",
        /// Asset: what a channel is sending out at this moment, until it says that it has arrived.
        PayoutsInTransit = "PAYOUTS_IN_TRANSIT",
        /// Liability: money taken by a channel that no order accepts.
        Suspense = "SUSPENSE",
        /// Liability: what a merchant's orders have brought in, less what was written off of what its users owed.
        Merchant = "MERCHANT",
        /// Expense: commissions that a merchant gives.
        CommissionExpense = "COMMISSION_EXPENSE",
        /// Revenue of whoever runs the service.
        PlatformRevenue = "PLATFORM_REVENUE",
        /// Liability: what a user can spend or withdraw.
        UserAvailable = "USER_AVAILABLE",
        /// Liability: what is set aside for a user's open withdrawals and holds.
        UserHeld = "USER_HELD",
        /// Asset: what a user owes, because usage cost more than there was, or what was claimed back, or went out after
        /// all, was spent before.
        UserReceivable = "USER_RECEIVABLE",
    }
}

words! {
    /// What is booked; the reference beside it says which one.
    pub enum PostingKind {
        /// An order's money, by its pay order.
        Payment = "PAYMENT",
        /// Money that no order accepts, by its stray payment.
        StrayPayment = "STRAY_PAYMENT",
        /// Stray money that a person decided to keep, by its stray payment.
        StrayKept = "STRAY_KEPT",
        /// Money that went back, by its refund.
        Refund = "REFUND",
        /// A top-up's money set aside to go back, by its refund.
        RefundHold = "REFUND_HOLD",
        /// Money that a channel gave back although it had refused to, by its refund and how often that was found.
        RefundAfterAll = "REFUND_AFTER_ALL",
        /// An order's commission, by its settlement.
        Settlement = "SETTLEMENT",
        /// A part of a commission claimed back, by what made it due.
        ClawBack = "CLAW_BACK",
        /// A user's money set aside to be sent out, by its withdrawal.
        Withdrawal = "WITHDRAWAL",
        /// Money handed to a channel to be sent out, by its withdrawal.
        Payout = "PAYOUT",
        /// Money that has arrived outside, by its withdrawal.
        PayoutDone = "PAYOUT_DONE",
        /// Money that a channel sent out although it had refused to, and whose user had it again, by its withdrawal.
        PayoutAfterAll = "PAYOUT_AFTER_ALL",
        /// A user's money set aside for metered work, by its hold.
        UsageHold = "USAGE_HOLD",
        /// More set aside as the work went on, by its hold and a number.
        UsageExtension = "USAGE_EXTENSION",
        /// What metered work cost, with what is left of the hold freed, by its hold.
        UsageCharge = "USAGE_CHARGE",
        /// A hold freed without a charge, by its hold.
        UsageRelease = "USAGE_RELEASE",
        /// A user charged for usage that was paid with money which never came, by its difference.
        CompensatingCharge = "COMPENSATING_CHARGE",
        /// What a user had paid off of such a charge, or of a refund that was made after all, when it was undone, and what had
        /// been written off of it, by what it was booked by.
        ChargePaidBack = "CHARGE_PAID_BACK",
        /// A debt, or a part of it, taken from what its user has, by its merchant and its number.
        Collection = "COLLECTION",
        /// A debt, or a part of it, that its merchant does not get, by its merchant and its number.
        WriteOff = "WRITE_OFF",
        /// A transaction taken back, by its id.
        Reversal = "REVERSAL",
    }
}

/// An account, by its id: its kind, its owner and its currency. It comes to be with its first entry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Account(String);

impl Account {
    /// What a channel holds for us.
    #[must_use]
    pub fn channel(channel: &str, currency: Currency) -> Self {
        Self::owned(AccountKind::Channel, &[channel], currency)
    }

    /// What a channel is sending out.
    #[must_use]
    pub fn payouts_in_transit(channel: &str, currency: Currency) -> Self {
        Self::owned(AccountKind::PayoutsInTransit, &[channel], currency)
    }

    /// Money that a channel took and no order accepts.
    #[must_use]
    pub fn suspense(channel: &str, currency: Currency) -> Self {
        Self::owned(AccountKind::Suspense, &[channel], currency)
    }

    /// What a merchant's orders have brought in.
    #[must_use]
    pub fn merchant(merchant_id: &str, currency: Currency) -> Self {
        Self::owned(AccountKind::Merchant, &[merchant_id], currency)
    }

    /// Commissions that a merchant gives.
    #[must_use]
    pub fn commission_expense(merchant_id: &str, currency: Currency) -> Self {
        Self::owned(AccountKind::CommissionExpense, &[merchant_id], currency)
    }

    /// What the service itself earns.
    #[must_use]
    pub fn platform_revenue(currency: Currency) -> Self {
        Self::owned(AccountKind::PlatformRevenue, &[], currency)
    }

    /// What a user can spend.
    #[must_use]
    pub fn user_available(merchant_id: &str, user_id: &str, currency: Currency) -> Self {
        Self::owned(AccountKind::UserAvailable, &[merchant_id, user_id], currency)
    }

    /// What is set aside for a user.
    #[must_use]
    pub fn user_held(merchant_id: &str, user_id: &str, currency: Currency) -> Self {
        Self::owned(AccountKind::UserHeld, &[merchant_id, user_id], currency)
    }

    /// What a user owes.
    #[must_use]
    pub fn user_receivable(merchant_id: &str, user_id: &str, currency: Currency) -> Self {
        Self::owned(AccountKind::UserReceivable, &[merchant_id, user_id], currency)
    }

    fn owned(kind: AccountKind, owner: &[&str], currency: Currency) -> Self {
        let parts: Vec<_> = [kind.as_str()].iter().chain(owner).copied().chain([currency.as_str()]).collect();
        Self(parts.join(":"))
    }

    /// The account's id.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is a user's: one whose balance is kept in its row and never negative.
    fn is_of_a_user(&self) -> bool {
        self.0.starts_with("USER_")
    }
}

/// The two accounts of a user's money in one currency: what can be spent, and what is set aside.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Wallet {
    /// What can be spent.
    pub available: Account,
    /// What is set aside.
    pub held: Account,
}

impl Wallet {
    /// Of one user of a merchant.
    #[must_use]
    pub fn of(merchant_id: &str, user_id: &str, currency: Currency) -> Self {
        let available = Account::user_available(merchant_id, user_id, currency);
        Self { available, held: Account::user_held(merchant_id, user_id, currency) }
    }
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One booking: entries that sum to zero, under the name of the fact that they book.
#[derive(Clone, Debug)]
pub struct Posting {
    pub(super) kind: PostingKind,
    pub(super) reference: String,
    pub(super) merchant_id: Option<String>,
    pub(super) order_no: Option<String>,
    /// Minor units by account: a debit is positive, a credit negative. In the order of the names, a user's last.
    pub(super) entries: BTreeMap<Account, i64>,
}

impl Posting {
    /// A booking without entries yet.
    #[must_use]
    pub fn new(kind: PostingKind, reference: &str) -> Self {
        let reference = reference.to_owned();
        Self { kind, reference, merchant_id: None, order_no: None, entries: BTreeMap::new() }
    }

    /// Whose it is, and of which order, where that is known.
    #[must_use]
    pub fn of(mut self, merchant_id: Option<&str>, order_no: Option<&str>) -> Self {
        self.merchant_id = merchant_id.map(str::to_owned);
        self.order_no = order_no.map(str::to_owned);
        self
    }

    /// Moves so many minor units from the credited to the debited account. Nothing moves for zero.
    #[must_use]
    pub fn transfer(mut self, debit: Account, credit: Account, amount: i64) -> Self {
        self.add(debit, amount);
        self.add(credit, -amount);
        self
    }

    /// An account stands in a booking once, and not with nothing.
    fn add(&mut self, account: Account, amount: i64) {
        *self.entries.entry(account).or_default() += amount;
        self.entries.retain(|_, amount| *amount != 0);
    }

    /// The name under which it is booked.
    #[must_use]
    pub fn transaction_id(&self) -> String {
        format!("{}:{}", self.kind, self.reference)
    }
}

/// Bookings, column by column, as a set-based statement takes them.
#[derive(Debug)]
pub(crate) struct Columns<'a> {
    pub(crate) ids: Vec<String>,
    pub(crate) kinds: Vec<&'static str>,
    pub(crate) merchant_ids: Vec<Option<&'a str>>,
    pub(crate) order_nos: Vec<Option<&'a str>>,
    /// The entries of each, in the order of their accounts' names, as texts of arrays.
    pub(crate) account_ids: Vec<String>,
    pub(crate) amounts: Vec<String>,
    /// Every account of a user that one of them names, once. Those of the house are opened as they are booked on.
    pub(crate) user_accounts: Vec<&'a str>,
}

impl<'a> Columns<'a> {
    /// A posting of nothing is none.
    pub(crate) fn of(postings: &'a [Posting]) -> Self {
        let postings: Vec<&Posting> = postings.iter().filter(|posting| !posting.entries.is_empty()).collect();
        let named = postings.iter().flat_map(|posting| posting.entries.keys());
        let user_accounts: BTreeSet<&str> =
            named.filter(|account| account.is_of_a_user()).map(Account::as_str).collect();
        Self {
            ids: postings.iter().map(|posting| posting.transaction_id()).collect(),
            kinds: postings.iter().map(|posting| posting.kind.as_str()).collect(),
            merchant_ids: postings.iter().map(|posting| posting.merchant_id.as_deref()).collect(),
            order_nos: postings.iter().map(|posting| posting.order_no.as_deref()).collect(),
            account_ids: postings.iter().map(|posting| array_text(posting.entries.keys())).collect(),
            amounts: postings.iter().map(|posting| array_text(posting.entries.values())).collect(),
            user_accounts: user_accounts.into_iter().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cny() -> Currency {
        "CNY".parse().unwrap()
    }

    #[test]
    fn an_account_is_what_its_id_says() {
        assert_eq!(Account::channel("sandbox", cny()).as_str(), "CHANNEL:sandbox:CNY");
        assert_eq!(Account::user_held("m", "u", cny()).as_str(), "USER_HELD:m:u:CNY");
        assert_eq!(Account::platform_revenue(cny()).as_str(), "PLATFORM_REVENUE:CNY");
    }

    #[test]
    fn transfers_sum_to_zero_and_zero_moves_nothing() {
        let (one, other) = (Account::merchant("m", cny()), Account::user_available("m", "u", cny()));
        let posting = Posting::new(PostingKind::Settlement, "s")
            .transfer(one.clone(), other.clone(), 7)
            .transfer(one.clone(), other.clone(), 0)
            .transfer(one, Account::user_receivable("m", "u", cny()), 3);
        assert_eq!(posting.entries.values().sum::<i64>(), 0);
        assert_eq!(posting.entries.len(), 3);
        assert_eq!(posting.entries[&Account::merchant("m", cny())], 10);
        assert_eq!(posting.transaction_id(), "SETTLEMENT:s");
    }
}
