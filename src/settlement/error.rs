//! What can go wrong with a settlement, in its own words.

use super::rates::SourceError;
use crate::infra::db::{DbError, MaybeTransient};
use crate::infra::lock::LockBusy;

/// Why an order was not settled, or terms were not set.
#[derive(Debug, thiserror::Error)]
pub enum SettlementError {
    /// No such order of this merchant.
    #[error("there is no such order")]
    OrderNotFound,
    /// The order exists and was not settled.
    #[error("the order is not settled")]
    NotSettled,
    /// No money came in for it.
    #[error("the order is not paid")]
    OrderNotPaid,
    /// Nothing can be earned by it.
    #[error("the order cannot be settled: {0}")]
    NotSettleable(&'static str),
    /// The source of rates gave none for now: later it may.
    #[error("the rates cannot be had: {0}")]
    RatesUnavailable(String),
    /// The source of rates gave an answer that makes no sense: asked the same, it will say the same.
    #[error("the source of rates gave an answer that cannot be used: {0}")]
    RatesUnusable(String),
    /// No such merchant.
    #[error("there is no such merchant")]
    UnknownMerchant,
    /// The merchant has no such thing on sale.
    #[error("unknown sku: {0}")]
    UnknownSku(String),
    /// No such run.
    #[error("there is no such run")]
    RunNotFound,
    /// Somebody else is working on the order.
    #[error(transparent)]
    Busy(#[from] LockBusy),
    /// The database.
    #[error(transparent)]
    Db(#[from] DbError),
}

impl From<SourceError> for SettlementError {
    fn from(error: SourceError) -> Self {
        match error {
            SourceError::Silent(why) | SourceError::NotNow(why) => Self::RatesUnavailable(why),
            SourceError::Wrong(why) => Self::RatesUnusable(why),
        }
    }
}

impl MaybeTransient for SettlementError {
    fn is_transient(&self) -> bool {
        matches!(self, Self::Db(error) if error.is_transient())
    }
}
