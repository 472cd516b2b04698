//! What can go wrong with a refund, in its own words.

use std::fmt;

use super::model::RefundStatus;
use crate::infra::db::{DbError, MaybeTransient};

/// Why a refund was not made, found or decided.
#[derive(Debug, thiserror::Error)]
pub enum RefundError {
    /// No such refund of this merchant.
    #[error("there is no such refund")]
    NotFound,
    /// No such order of this merchant.
    #[error("there is no such order")]
    OrderNotFound,
    /// There is no money of it to give back.
    #[error("the order is not paid")]
    OrderNotPaid,
    /// More than what is left of the payment.
    #[error("{0}")]
    ExceedsPaid(Left),
    /// The number is taken by a refund that differs in these fields.
    #[error("a refund of this number exists and differs in {}", .0.join(", "))]
    ParamsMismatch(Vec<&'static str>),
    /// What a top-up brought was spent.
    #[error("the user's available balance does not cover it")]
    InsufficientBalance,
    /// The channel denied what a top-up brought, and its user was charged for it: they would pay twice.
    #[error("the user was charged for the top-up, whose money never came")]
    TopUpCharged,
    /// Several merchants have a refund of that number.
    #[error("several merchants have a refund of that number")]
    Ambiguous,
    /// Who asked for it may not decide over it.
    #[error("whoever asked for the refund may not decide over it")]
    SameOperator,
    /// It does not wait for a decision.
    #[error("the refund is {0}")]
    NotAwaitingApproval(RefundStatus),
    /// It was never known to be made although it had failed.
    #[error("the refund is {0}, and is not known to have been made after all")]
    NotMadeAfterAll(RefundStatus),
    /// Its channel says that it made it.
    #[error("the channel says that it made the refund")]
    IsMade,
    /// Its channel does not say now what became of it.
    #[error("the channel does not say what became of the refund: {0}")]
    ChannelSilent(String),
    /// The database.
    #[error(transparent)]
    Db(#[from] DbError),
}

/// What is left of a payment, in minor units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// What can still be asked for.
    pub amount: i64,
    /// What cannot, because the channel gave it back after all, or may have, by refunds that did not succeed.
    pub gone: i64,
}

impl Left {
    /// Of so much that was paid, when so much was asked for or has gone, of which so much by refunds that did not succeed. What was
    /// asked for before one that had failed was known to be made may exceed it with that.
    pub(super) fn of(paid: i64, asked: i64, gone: i64) -> Self {
        Self { amount: (paid - asked).max(0), gone }
    }
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} minor units are left of what was paid", self.amount)?;
        match self.gone {
            0 => Ok(()),
            gone => {
                write!(f, ": refunds of {gone} that did not succeed were made after all, or may have been")
            }
        }
    }
}

impl MaybeTransient for RefundError {
    fn is_transient(&self) -> bool {
        matches!(self, Self::Db(error) if error.is_transient())
    }
}
