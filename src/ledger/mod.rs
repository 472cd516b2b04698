//! Ledger: the books, in double entry.
//!
//! Always true, and the database's own word (`migrations/0061_bookings_whole.sql`): a transaction is one row with all of its
//! entries, which are of one currency and of one user at most, and sum to zero; a business fact is booked once, for its
//! transaction is named after it; what is booked never changes, and is corrected by a reversal, once; a user's balance is the
//! sum of the entries and never below zero. A booking commits with the change of state that it books. No payment waits for
//! another one's: only users' balances are kept in place, every other account's is read together with the movements that
//! [`fold()`] has not added to it yet.

mod balances;
mod books;
mod fold;
mod model;
mod post;
mod store;

pub use balances::{Balance, EntryFilter, UserEntry, balances, entries};
pub use books::{
    Booking, BookingEntry, TransactionId, TrialBalance, TrialRow, TrialTotal, find_booking, trial_balance,
};
pub use fold::fold;
pub(crate) use model::Columns;
pub use model::{Account, AccountKind, Posting, PostingKind, Wallet};
pub(crate) use post::{
    are_charged_in_tx, lock_available_in_tx, lock_balances_in_tx, payment_accounts, post_in_tx,
    reverse_in_tx, stands_in_tx,
};

/// The constraint that refuses to take from a user what is not there.
pub const USER_BALANCE_CONSTRAINT: &str = "accounts_user_balance_not_negative";
