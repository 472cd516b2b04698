//! A person's decision about an exception, carried out.

use super::model::StrayStatus;
use super::{store, stray};
use crate::app::App;
use crate::exceptions::{self, Exception, ExceptionAction, ExceptionStatus};
use crate::infra::db::{DbError, Tx};

/// Why a decision was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    /// No such exception.
    #[error("there is no such exception")]
    NotFound,
    /// Somebody decided before.
    #[error("the exception is resolved already")]
    AlreadyResolved,
    /// Its money waits for `REFUND` or `KEEP`.
    #[error("the exception's money is still held")]
    MoneyWaits,
    /// There is no held money to refund or keep.
    #[error("the exception holds no money")]
    NoMoney,
    /// The database.
    #[error(transparent)]
    Db(#[from] DbError),
}

/// Resolves an exception: `REFUND` and `KEEP` decide over the stray payment that it is about, `NONE` says that
/// nothing is left to do, and is refused while money is held.
///
/// # Errors
/// See [`ResolveError`]; nothing was changed.
pub async fn resolve_exception(
    app: &App,
    exception_id: &str,
    action: ExceptionAction,
    by: &str,
    reason: &str,
) -> Result<Exception, ResolveError> {
    let mut tx = app.db.begin().await?;
    let outcome = resolve_in_tx(app, &mut tx, exception_id, action, by, reason).await;
    let resolved = tx.finish(outcome).await?;
    app.compensation_wake.notify_one();
    Ok(resolved)
}

async fn resolve_in_tx(
    app: &App,
    tx: &mut Tx,
    exception_id: &str,
    action: ExceptionAction,
    by: &str,
    reason: &str,
) -> Result<Exception, ResolveError> {
    // The stray payment first, as whoever ends its refund does: neither then waits for the other in a circle.
    let subject = exceptions::find_subject(tx, exception_id).await?.ok_or(ResolveError::NotFound)?;
    let stray = store::lock_stray(tx, &subject).await?;
    let exception = exceptions::lock(tx, exception_id).await?.ok_or(ResolveError::NotFound)?;
    if exception.status != ExceptionStatus::Open {
        return Err(ResolveError::AlreadyResolved);
    }
    let now = app.now();
    let held = stray.filter(|stray| stray.status == StrayStatus::Held);
    match (action, &held) {
        (ExceptionAction::None, None) => {}
        (ExceptionAction::None, Some(_)) => return Err(ResolveError::MoneyWaits),
        (ExceptionAction::Refund | ExceptionAction::Keep, None) => return Err(ResolveError::NoMoney),
        (ExceptionAction::Refund, Some(held)) => stray::refund_in_tx(app, tx, held, now).await?,
        (ExceptionAction::Keep, Some(held)) => stray::keep_in_tx(tx, held, now).await?,
    }
    exceptions::resolve_in_tx(tx, exception_id, action, by, reason, now).await?;
    exceptions::lock(tx, exception_id).await?.ok_or(ResolveError::NotFound)
}
