//! What can go wrong with a withdrawal, in its own words.

use super::model::WithdrawalStatus;
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
    /// Several merchants have a withdrawal of that number.
    #[error("several merchants have a withdrawal of that number")]
    Ambiguous,
    /// Its money has not gone out, as far as is known.
    #[error("the withdrawal is {0}, and its money is not known to have gone out")]
    NotSentOut(WithdrawalStatus),
    /// Its channel says that it made it.
    #[error("the channel says that it made the withdrawal")]
    IsMade,
    /// Its channel does not say now what became of it.
    #[error("the channel does not say what became of the withdrawal: {0}")]
    ChannelSilent(String),
    /// The database.
    #[error(transparent)]
    Db(#[from] DbError),
}

impl MaybeTransient for WithdrawalError {
    fn is_transient(&self) -> bool {
        matches!(self, Self::Db(error) if error.is_transient())
    }
}
