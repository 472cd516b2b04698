//! Receivables: what users owe, and what an operator can do about it.
//!
//! Usage, compensating charges, claims back, and withdrawals and refunds of top-ups that were made after all leave a debt where
//! their user has less than they cost; all that a user owes a merchant in one currency is one sum. An operator clears it: by collecting it from what the
//! user has by then, or by writing it off as the merchant's loss, because what the debt stands for was credited in full, to the
//! merchant or to the channel, when it came to be.
//!
//! Always true: never more is cleared than is owed, nor collected than is there; a number clears once; who is given back
//! what left them a debt gets nothing of it that was written off since, which is the merchant's again first (`recover`); and
//! once nothing is owed, nothing that was shown of it stays open.
//!
//! Whoever makes what a user owes less locks that user's balances first, in the order of their names, then the rows here, and
//! then what was shown of it.

mod clear;
mod error;
mod list;
mod model;
mod recover;
mod shown;
mod store;
mod undo;

pub use clear::{Cleared, clear};
pub use error::ReceivableError;
pub use list::{Receivable, Which, list};
pub(crate) use model::Debtor;
pub use model::{Clearing, ClearingKind, NewClearing};
pub(crate) use recover::recover_in_tx;
pub(crate) use shown::settle_shown_in_tx;
pub(crate) use undo::undo_in_tx;
