//! What can go wrong when somebody asks for a reconciliation.

use time::Date;

use super::model::{ItemStatus, Seen};
use crate::channels::bills::BadStatement;
use crate::infra::db::{DbError, MaybeTransient};

/// Why nothing was done.
#[derive(Debug, thiserror::Error)]
pub enum ReconciliationError {
    /// No such day, or no such difference.
    #[error("there is no such reconciliation")]
    NotFound,
    /// No channel of that name runs here.
    #[error("there is no channel {0} here")]
    UnknownChannel(String),
    /// The channel's day has not ended yet.
    #[error("the day {0} is not over")]
    DayNotOver(Date),
    /// The difference does not wait for a person.
    #[error("the difference is {0} and waits for nobody")]
    NotWaiting(ItemStatus),
    /// It moves money and that was not agreed to, or the other way round.
    #[error("the difference moves money: {moves_money}, and something else was agreed to")]
    NotAgreed {
        /// What is proposed by now.
        moves_money: bool,
    },
    /// It is another one by now than the one that was looked at; gives what it is.
    #[error("the difference is {0:?} by now, and another one was looked at")]
    NotAsSeen(Seen),
    /// Its day is begun anew: the statement that it follows counts no more.
    #[error("the day of the difference is compared anew")]
    NotCompared,
    /// There is no charge of it that could be given back.
    #[error("the difference is {0} and charged nobody")]
    NotCharged(ItemStatus),
    /// Its bytes did not come in full.
    #[error("the upload ended early: {0}")]
    UploadIncomplete(String),
    /// More bytes than any statement has.
    #[error("the upload has more than {0} bytes")]
    UploadTooLarge(u64),
    /// It is not the file that its checksum was made of.
    #[error("the upload does not fit its checksum")]
    Checksum,
    /// It would take the place of a statement that its day has, and is none.
    #[error(transparent)]
    Statement(#[from] BadStatement),
    /// The channel gives no statement now that could take the place of the one that the day has.
    #[error("the channel gives no statement: {0}")]
    NotGiven(String),
    /// The database.
    #[error(transparent)]
    Db(#[from] DbError),
}

impl MaybeTransient for ReconciliationError {
    fn is_transient(&self) -> bool {
        matches!(self, Self::Db(error) if error.is_transient())
    }
}
