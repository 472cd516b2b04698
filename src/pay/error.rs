//! What can go wrong with paying, in its own words.

use crate::channels::Refusal;
use crate::infra::db::{DbError, MaybeTransient};
use crate::infra::lock::{LockBusy, Overtaken};
use crate::orders::OrderError;

/// Why there is no pay URL, or why an attempt could not be moved.
#[derive(Debug, thiserror::Error)]
pub enum PayError {
    /// No such order of this merchant, or not this payer's.
    #[error("there is no such order")]
    OrderNotFound,
    /// No such attempt.
    #[error("there is no such pay order")]
    NotFound,
    /// Paid already: there is nothing left to pay.
    #[error("the order is already paid")]
    OrderAlreadyPaid,
    /// Closed or past its deadline.
    #[error("the order is closed")]
    OrderClosed,
    /// An order to be made on the way has an amount, but no currency.
    #[error("the order's currency is missing")]
    CurrencyMissing,
    /// The order differs in these fields.
    #[error("the order differs in {}", .0.join(", "))]
    ParamsMismatch(Vec<&'static str>),
    /// No such channel here.
    #[error("there is no channel {0}")]
    UnknownChannel(String),
    /// The channel said a final no.
    #[error("the channel refused")]
    ChannelRefused(#[source] Refusal),
    /// The channel said nothing that counts; what it said, or why it was not asked.
    #[error("the payment channel does not answer: {0}")]
    ChannelUnavailable(String),
    /// The order could not be made on the way.
    #[error("the order could not be made")]
    Order(#[source] Box<OrderError>),
    /// Somebody else is working on the order.
    #[error(transparent)]
    Busy(#[from] LockBusy),
    /// Somebody else may have taken the order over in the middle of the work.
    #[error(transparent)]
    Overtaken(#[from] Overtaken),
    /// The database.
    #[error(transparent)]
    Db(#[from] DbError),
}

impl From<OrderError> for PayError {
    fn from(error: OrderError) -> Self {
        match error {
            OrderError::NotFound => Self::OrderNotFound,
            OrderError::ParamsMismatch(fields) => Self::ParamsMismatch(fields),
            OrderError::Busy(busy) => Self::Busy(busy),
            OrderError::Overtaken(overtaken) => Self::Overtaken(overtaken),
            OrderError::Db(error) => Self::Db(error),
            other => Self::Order(Box::new(other)),
        }
    }
}

impl MaybeTransient for PayError {
    fn is_transient(&self) -> bool {
        matches!(self, Self::Db(error) if error.is_transient())
    }
}
