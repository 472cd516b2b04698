//! What can go wrong with a debt, in its own words.

use crate::infra::db::{DbError, MaybeTransient};

/// Why nothing was cleared.
#[derive(Debug, thiserror::Error)]
pub enum ReceivableError {
    /// The user owes nothing in that currency.
    #[error("nothing is owed")]
    NothingOwed,
    /// Less is owed: so much.
    #[error("{0} minor units are owed")]
    ExceedsOwed(i64),
    /// The user's available balance is smaller.
    #[error("the user's available balance does not cover it")]
    InsufficientBalance,
    /// The number is taken by a clearing that differs in these fields.
    #[error("a clearing of this number exists and differs in {}", .0.join(", "))]
    ParamsMismatch(Vec<&'static str>),
    /// The database.
    #[error(transparent)]
    Db(#[from] DbError),
}

impl MaybeTransient for ReceivableError {
    fn is_transient(&self) -> bool {
        matches!(self, Self::Db(error) if error.is_transient())
    }
}
