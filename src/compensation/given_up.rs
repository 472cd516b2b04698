//! What was given up, and comes to its end all the same.

use time::OffsetDateTime;

use super::model::Action;
use super::store;
use crate::exceptions::{self, ExceptionAction, ExceptionKind};
use crate::infra::db::{DbError, Tx};

/// A locked thing comes to its end, and nobody need see to it any more: its task may have been given up before.
pub(crate) async fn settle_given_up_in_tx(
    tx: &mut Tx,
    action: Action,
    subject: &str,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    // The task before what is open about it, as by whoever has it tried again.
    store::finish_dead(tx, action, subject, now).await?;
    let (kind, none) = (ExceptionKind::DeadTask, ExceptionAction::None);
    exceptions::settle_in_tx(tx, subject, Some(kind), none, now).await
}
