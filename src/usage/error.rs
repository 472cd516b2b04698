//! What can go wrong with usage, in its own words.

use super::model::HoldStatus;
use crate::infra::db::{DbError, MaybeTransient};

/// Why something was not done. Unless it says otherwise, nothing was moved.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No such hold of this merchant.
    #[error("there is no such hold")]
    NotFound,
    /// No such product of this merchant, or no price of it: the field that names nothing.
    #[error("there is no product, or no price of it, of this {0}")]
    UnknownProduct(&'static str),
    /// The key is taken by a hold that differs in these fields.
    #[error("a hold of this key exists and differs in {}", .0.join(", "))]
    KeyReused(Vec<&'static str>),
    /// The message was heard before, and said something else than this field does now.
    #[error("a message of this id was heard before and said {said} units")]
    MessageReused {
        /// Where it says its units.
        field: &'static str,
        /// What it said.
        said: i64,
    },
    /// The user's available balance is smaller. A report was heard all the same, and what there was is set aside for it.
    #[error("the user's available balance does not cover it")]
    InsufficientBalance,
    /// So much is left of the cycle's quota. A report was heard all the same.
    #[error("{0} units are left of the cycle's quota")]
    QuotaExceeded(i64),
    /// What this field asks for comes to more than any amount may be.
    #[error("{0} come to more than any amount may be")]
    TooMuch(&'static str),
    /// Nothing was reported, and nothing is named.
    #[error("no units were reported, and none are named")]
    UnitsMissing,
    /// More was reported before.
    #[error("{0} units were reported before")]
    UnitsShrink(i64),
    /// The hold is at an end that does not take this.
    #[error("the hold is {0}")]
    HoldClosed(HoldStatus),
}

/// Why a hold was not made, moved or found.
#[derive(Debug, thiserror::Error)]
pub enum UsageError {
    /// By the rules.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// No such merchant.
    #[error("there is no such merchant")]
    UnknownMerchant,
    /// The product is there, and these fields of it never change.
    #[error("the product exists and differs in {}", .0.join(", "))]
    ProductDiffers(Vec<&'static str>),
    /// The database.
    #[error(transparent)]
    Db(#[from] DbError),
}

impl MaybeTransient for UsageError {
    fn is_transient(&self) -> bool {
        matches!(self, Self::Db(error) if error.is_transient())
    }
}
