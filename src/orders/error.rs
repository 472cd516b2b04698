//! What can go wrong with an order, in its own words.

use crate::infra::db::{DbError, MaybeTransient};
use crate::infra::lock::{LockBusy, Overtaken};
use crate::pay::PayError;

/// Why an order was not made, found or closed.
#[derive(Debug, thiserror::Error)]
pub enum OrderError {
    /// No such order of this merchant.
    #[error("there is no such order")]
    NotFound,
    /// The number is taken by an order that differs in these fields.
    #[error("an order of this number exists and differs in {}", .0.join(", "))]
    ParamsMismatch(Vec<&'static str>),
    /// Nobody told us of these things on sale.
    #[error("unknown sku: {}", .0.join(", "))]
    UnknownSku(Vec<String>),
    /// Not enough is left of these.
    #[error("not enough stock of {}", .0.join(", "))]
    OutOfStock(Vec<String>),
    /// A top-up that has a field which none has.
    #[error("a top-up has no {0}")]
    NoTopUp(&'static str),
    /// It was paid, so it cannot be closed.
    #[error("the order is already paid")]
    AlreadyPaid,
    /// The channel that holds the live attempt said nothing that counts; what it said, or why it was not asked.
    #[error("the payment channel does not answer: {0}")]
    ChannelUnavailable(String),
    /// Somebody else is working on the order.
    #[error(transparent)]
    Busy(#[from] LockBusy),
    /// Somebody else may have taken the order over in the middle of the work.
    #[error(transparent)]
    Overtaken(#[from] Overtaken),
    /// An attempt could not be ended.
    #[error("an attempt to pay could not be ended")]
    Pay(#[source] Box<PayError>),
    /// The database.
    #[error(transparent)]
    Db(#[from] DbError),
}

impl From<PayError> for OrderError {
    fn from(error: PayError) -> Self {
        match error {
            PayError::Db(error) => Self::Db(error),
            PayError::ChannelUnavailable(why) => Self::ChannelUnavailable(why),
            PayError::Busy(busy) => Self::Busy(busy),
            PayError::Overtaken(overtaken) => Self::Overtaken(overtaken),
            other => Self::Pay(Box::new(other)),
        }
    }
}

impl MaybeTransient for OrderError {
    fn is_transient(&self) -> bool {
        matches!(self, Self::Db(error) if error.is_transient())
    }
}
