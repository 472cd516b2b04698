//! An operator has a task tried again, also one that was given up.

use time::OffsetDateTime;

use crate::admin_log::{self, Entry};
use crate::app::App;
use crate::compensation::{self, TaskView};
use crate::exceptions;
use crate::infra::crash::effect;
use crate::infra::db::{DbError, MaybeTransient, Tx};
use crate::orders::OrderKey;

/// Why a task was not retried.
#[derive(Debug, thiserror::Error)]
pub enum RetryError {
    /// No such task.
    #[error("there is no such task")]
    NotFound,
    /// It is under way or done, or a living one drives the same thing.
    #[error("the task is under way or done, or a living one drives the same thing")]
    NotRetryable,
    /// The database.
    #[error(transparent)]
    Db(#[from] DbError),
}

impl MaybeTransient for RetryError {
    /// Not where an answer was lost: what was written may stand, and would be written into the admin log once more.
    fn is_transient(&self) -> bool {
        matches!(self, Self::Db(DbError::Contended(_)))
    }
}

/// Makes a task due at once, with all its tries again when it was given up; what was shown to a person because of that
/// is resolved, unless another task for the same thing was given up too.
///
/// # Errors
/// See [`RetryError`]; nothing was changed.
pub async fn retry_task(app: &App, task_id: i64, entry: &Entry) -> Result<TaskView, RetryError> {
    // Whoever gives up a newer task of the same thing ends this one meanwhile.
    let revive = || async {
        let mut tx = app.db.begin().await?;
        let outcome = retry_in_tx(&mut tx, task_id, entry, app.now()).await;
        effect!("tasks.revive", tx.finish(outcome).await)
    };
    match app.db.retrying(revive).await {
        Ok(task) => {
            app.compensation_wake.notify_one();
            Ok(task)
        }
        Err(RetryError::Db(error)) if error.constraint() == Some("compensations_one_alive") => {
            Err(RetryError::NotRetryable)
        }
        Err(error) => Err(error),
    }
}

async fn retry_in_tx(
    tx: &mut Tx,
    task_id: i64,
    entry: &Entry,
    now: OffsetDateTime,
) -> Result<TaskView, RetryError> {
    let Some(task) = compensation::revive(tx, task_id, now).await? else {
        let is_known = compensation::exists(tx, task_id).await?;
        return Err(if is_known { RetryError::NotRetryable } else { RetryError::NotFound });
    };
    let subject = std::slice::from_ref(&task.subject);
    compensation::settle_shown_in_tx(tx, subject, exceptions::TRIED_AGAIN, now).await?;
    let order = OrderKey::from_columns(task.merchant_id.as_deref(), task.order_no.as_deref());
    admin_log::append_in_tx(tx, &Entry { order, ..entry.clone() }, now).await?;
    Ok(task)
}
