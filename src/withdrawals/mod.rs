//! Withdrawals: a user's money sent out through a channel, once.
//!
//! Always true: the money is set aside in the transaction that writes the withdrawal, so nobody can spend it twice;
//! the channel is asked only afterwards, by a task from that same transaction, and always under the same number; an
//! unknown result is asked about and never taken for a refusal; a final refusal gives everything back. What is set
//! aside is the user's held balance until the end. Each leg (`DEBIT`, `PAYOUT`, `REVERSAL`) has its own status and its
//! own booking: `WITHDRAWAL` (available → held), `PAYOUT` (channel → in transit), `PAYOUT_DONE` (in transit → held,
//! which ends both), or the reversals of the first two; and `PAYOUT_AFTER_ALL` (channel → available, or owed) where the
//! channel made all the same what was given back. Where the money comes back that had gone out, the reversals of the three, or of
//! the last one. `model::WithdrawalStatus::after` is the whole life.

mod create;
mod drive;
mod error;
mod find;
mod model;
mod returned;
mod store;

pub use create::{Created, create};
pub(crate) use drive::drive_on_in_tx;
pub use drive::{ask_about, drive, note_made, replay};
pub use error::WithdrawalError;
pub use find::{WithdrawalFilter, find, list};
pub use model::{
    Leg, LegKind, LegStatus, NewWithdrawal, Withdrawal, WithdrawalDetails, WithdrawalEvent, WithdrawalStatus,
};
pub use returned::{note_returned, was_returned};
pub(crate) use store::lock;
