//! A person's decision about an exception, carried out.

use time::OffsetDateTime;

use super::collected::{lock_stray_with_order, lock_with_refund};
use super::contradiction::put_question_in_tx;
use super::drive::append_task_in_tx;
use super::model::{Refund, RefundStatus, StrayStatus};
use super::{store, stray};
use crate::admin_log::{self, Entry};
use crate::app::App;
use crate::channels;
use crate::compensation::{self, Action};
use crate::exceptions::{self, Exception, ExceptionAction, ExceptionKind, ExceptionStatus};
use crate::infra::crash::effect;
use crate::infra::db::{DbError, MaybeTransient, Tx};
use crate::orders::OrderKey;
use crate::outbox;
use crate::withdrawals;

/// Why a decision was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    /// No such exception.
    #[error("there is no such exception")]
    NotFound,
    /// It was decided before, as it says.
    #[error("the exception is resolved already")]
    AlreadyResolved(Box<Exception>),
    /// Its money waits for `REFUND` or `KEEP`.
    #[error("the exception's money is still held")]
    MoneyWaits,
    /// There is no held money to refund or keep.
    #[error("the exception holds no money")]
    NoMoney,
    /// Its money is gone: the channel made a refund after all that had failed.
    #[error("the exception's money went back after all")]
    WentBack,
    /// Its money may be gone: something says that the channel made a refund that had failed, and it has not answered.
    #[error("the exception's money may have gone back after all")]
    MayHaveGone,
    /// It says that its refund was made, or may have been, which nobody has approved yet: until that is decided, it is what
    /// keeps the same money from going by another one.
    #[error("the exception's refund waits for an approval")]
    AwaitsApproval,
    /// This version cannot reach the channel that took its money: of such there are statements only.
    #[error("there is no way back to the exception's channel")]
    NoWayBack,
    /// The database.
    #[error(transparent)]
    Db(#[from] DbError),
}

impl MaybeTransient for ResolveError {
    fn is_transient(&self) -> bool {
        matches!(self, Self::Db(error) if error.is_transient())
    }
}

/// Resolves an exception: `REFUND` and `KEEP` decide over the stray payment that it is about, and `KEEP` resolves
/// whatever else is open about it; `NONE` says that nothing is left to decide, and is refused while money is held. Money
/// that went back by a refund which was made after all is neither refunded nor kept, whatever its stray payment says; nor is
/// what may have, until its channel answers or a person has decided over that. What is said of a refund that waits for an
/// approval is over when somebody approves or rejects it, and by no other decision.
/// A refund whose task was given up is driven on by `REFUND`, a withdrawal by `NONE`; about a refund that was made after
/// all the channel is asked once more after `NONE`; an endpoint that had answered 410 is told again after `NONE`. The same
/// decision by the same operator again gives the exception as it stands.
///
/// # Errors
/// See [`ResolveError`]; nothing was changed.
pub async fn resolve_exception(
    app: &App,
    exception_id: &str,
    action: ExceptionAction,
    entry: &Entry,
) -> Result<Exception, ResolveError> {
    let resolved = match app.db.retrying(|| resolve_once(app, exception_id, action, entry)).await {
        // Asked for again, because the answer was lost, be it that to the commit. Resolved once, it stays as it is.
        Err(ResolveError::AlreadyResolved(found)) if found.was_decided(action, &entry.actor) => *found,
        resolved => resolved?,
    };
    app.compensation_wake.notify_one();
    Ok(resolved)
}

async fn resolve_once(
    app: &App,
    exception_id: &str,
    action: ExceptionAction,
    entry: &Entry,
) -> Result<Exception, ResolveError> {
    let now = app.now();
    let mut tx = app.db.begin().await?;
    let outcome = async {
        let resolved = resolve_in_tx(app, &mut tx, exception_id, action, entry, now).await?;
        let entry = Entry { order: order_of(&resolved), ..entry.clone() };
        admin_log::append_in_tx(&mut tx, &entry, now).await?;
        Ok::<_, ResolveError>(resolved)
    }
    .await;
    effect!("refunds.resolve", tx.finish(outcome).await)
}

/// The decision then stands in the order's timeline.
fn order_of(exception: &Exception) -> Option<OrderKey> {
    OrderKey::from_columns(exception.merchant_id.as_deref(), exception.order_no.as_deref())
}

async fn resolve_in_tx(
    app: &App,
    tx: &mut Tx,
    exception_id: &str,
    action: ExceptionAction,
    entry: &Entry,
    now: OffsetDateTime,
) -> Result<Exception, ResolveError> {
    let (by, reason) = (entry.actor.as_str(), entry.reason.as_str());
    // What it is about first, as whoever brings that to its end does: neither then waits for the other in a circle.
    let subject = exceptions::find_subject(tx, exception_id).await?.ok_or(ResolveError::NotFound)?;
    let stray = lock_stray_with_order(tx, &subject).await?;
    lock_with_refund(tx, &subject).await?;
    // Also one whose payment is not there.
    let refund = store::find_refund(tx, &subject).await?;
    match action {
        ExceptionAction::None => withdrawals::drive_on_in_tx(tx, &subject, now).await?,
        // Another task drives it on: the one that was given up has done its part.
        ExceptionAction::Refund => compensation::finish_dead(tx, Action::DriveRefund, &subject, now).await?,
        ExceptionAction::Keep => {}
    }
    let exception = exceptions::lock(tx, exception_id).await?.ok_or(ResolveError::NotFound)?;
    let now = app.now(); // Behind the lock: whatever it has shown until then is seen to.
    if exception.status != ExceptionStatus::Open {
        // With what was begun above it is rolled back.
        return Err(ResolveError::AlreadyResolved(Box::new(exception)));
    }
    if let Some(refund) = refund.as_ref().filter(|refund| is_given_up(refund, &exception)) {
        // Its money is on its way and nobody drives it any more: it can only be driven on.
        if action != ExceptionAction::Refund {
            return Err(ResolveError::MoneyWaits);
        }
        append_task_in_tx(tx, refund, now).await?;
        exceptions::resolve_in_tx(tx, exception_id, action, by, reason, now).await?;
        return exceptions::lock(tx, exception_id).await?.ok_or(ResolveError::NotFound);
    }
    if refund.as_ref().is_some_and(|refund| may_be_made_unapproved(refund, &exception)) {
        return Err(ResolveError::AwaitsApproval);
    }
    if exception.kind == ExceptionKind::EndpointDisabled && action == ExceptionAction::None {
        outbox::enable_in_tx(tx, &subject).await?;
    }
    let held = stray.filter(|stray| stray.status == StrayStatus::Held);
    let gone = match &held {
        Some(held) => Some(store::find_gone_after_all(tx, &held.stray_id).await?),
        None => None,
    };
    match (action, &held) {
        (ExceptionAction::None, _) if gone.is_none_or(|gone| gone.is_known) => {}
        (_, Some(_)) if gone.is_some_and(|gone| gone.is_known) => return Err(ResolveError::WentBack),
        (_, Some(_)) if gone.is_some_and(|gone| gone.is_possible) => return Err(ResolveError::MayHaveGone),
        (ExceptionAction::None, _) => return Err(ResolveError::MoneyWaits),
        (ExceptionAction::Refund | ExceptionAction::Keep, None) => return Err(ResolveError::NoMoney),
        (ExceptionAction::Refund, Some(held)) if !channels::has_adapter(&held.channel) => {
            return Err(ResolveError::NoWayBack);
        }
        (ExceptionAction::Refund, Some(held)) => stray::refund_in_tx(app, tx, held, now).await?,
        (ExceptionAction::Keep, Some(held)) => stray::keep_in_tx(tx, held, now).await?,
    }
    exceptions::resolve_in_tx(tx, exception_id, action, by, reason, now).await?;
    if let Some(refund) = refund.filter(|refund| was_shown_made_after_all(refund, &exception)) {
        // The channel may have taken it back since, and may tell nobody.
        put_question_in_tx(tx, &refund, now).await?;
    }
    if action == ExceptionAction::Keep {
        // Whatever else is open about the same money is decided with it.
        exceptions::settle_by_in_tx(tx, &subject, None, action, (by, reason), now).await?;
    }
    exceptions::lock(tx, exception_id).await?.ok_or(ResolveError::NotFound)
}

/// Whether the exception says that the refund was made after all, and it has not been taken back since as far as is known.
fn was_shown_made_after_all(refund: &Refund, exception: &Exception) -> bool {
    exception.kind == ExceptionKind::Contradiction && refund.made_after_all_at.is_some()
}

/// Whether the exception says that the refund was made, or may have been, which waits for an approval.
fn may_be_made_unapproved(refund: &Refund, exception: &Exception) -> bool {
    exception.kind == ExceptionKind::Contradiction && refund.status == RefundStatus::AwaitingApproval
}

/// Whether the exception says that the refund's task was given up, and it has not come to its end since.
fn is_given_up(refund: &Refund, exception: &Exception) -> bool {
    exception.kind == ExceptionKind::DeadTask
        && matches!(refund.status, RefundStatus::Pending | RefundStatus::Processing)
}
