//! What can go wrong with a withdrawal, in its own words.

use crate::infra::db::{DbError, MaybeTransient};
use crate::infra::lock::LockBusy;

/// Why a withdrawal was not made or found.
#[derive(Debug, thiserror::Error)]
pub enum WithdrawalError {
    /// No such withdrawal of this merchant.
    #[error("there is no such withdrawal")]
    NotFound,
    /// The number is taken by a withdrawal that differs in these fields.
    #[error("a withdrawal of this number exists and differs in {}", .0.join(", "))]
    ParamsMismatch(Vec<&'static str>),
    /// The user's available balance is smaller.
    #[error("the user's available balance does not cover it")]
    InsufficientBalance,
    /// No such channel here.
    #[error("there is no channel {0}")]
    UnknownChannel(String),
    /// Another withdrawal of this user is being made.
    #[error(transparent)]
    Busy(#[from] LockBusy),
    /// The database.
    #[error(transparent)]
    Db(#[from] DbError),
}

impl MaybeTransient for WithdrawalError {
    fn is_transient(&self) -> bool {
        matches!(self, Self::Db(error) if error.is_transient())
    }
}
