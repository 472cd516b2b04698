//! Asking for a refund of an order. The sum can never exceed what was paid, whatever runs at once: it is counted, and
//! the refund written, under the order's row lock.
//!
//! Round trips of a first call: 5 to PostgreSQL (BEGIN, orders, what was asked before, refunds with their tasks and kept
//! answers, COMMIT), 3 more where a top-up's money is set aside, 1 for an operator's entry in the log, and 1 to Redis;
//! commits: 1. A repeat writes nothing but the answer to a new key: 4 and a commit of nothing. All but Redis's are
//! shared with whoever asks at the same time (see [`crate::infra::gather`]), also of the same order.

use super::desk::Ask;
use super::error::RefundError;
use super::model::{NewRefund, Refund};
use crate::admin_log::Entry;
use crate::app::App;
use crate::compensation::Task;
use crate::idempotency::Keep;
use crate::ids::MerchantId;
use crate::infra::crash::effect;
use crate::infra::db::DbError;
use crate::infra::lock::Scene;

/// A refund, and whether this call made it.
#[derive(Clone, Debug)]
pub struct Created {
    /// The refund as it stands.
    pub refund: Refund,
    /// `false` when it was there already.
    pub is_new: bool,
    /// The task that makes it, where this call has it in hand.
    pub(super) task: Option<Task>,
}

/// Who asks for a refund.
#[derive(Clone, Debug)]
pub enum AskedBy {
    /// The merchant's backend, which may have the answer kept.
    Merchant(Option<Keep<Created>>),
    /// An operator, who leaves an entry in the log.
    Operator(Entry),
}

/// Rounds of "write, else look again": a number may be taken by another instance in between.
const MAX_ROUNDS: usize = 3;

/// Asks for a refund, or gives back the one of that number when it is the same. Above the merchant's limit it waits
/// for an operator; else a task sends the money back. The answer does not wait for the channel.
///
/// # Errors
/// [`RefundError::ParamsMismatch`] names the fields in which the existing one differs;
/// [`RefundError::ExceedsPaid`], [`RefundError::OrderNotPaid`], [`RefundError::InsufficientBalance`]: nothing moved.
pub async fn create(
    app: &App,
    merchant_id: &MerchantId,
    new: NewRefund,
    asked_by: AskedBy,
) -> Result<Created, RefundError> {
    // The id is allotted once: a second run after a lost answer must meet the refund of the first. Of that nothing is in hand:
    // its task waits for the end of its lease.
    let refund_id = app.ids.refund();
    // Where others may reach a channel that this instance does not, none is taken in hand before it is known whose it is.
    let slot = if app.channels.elsewhere().is_empty() { app.handover.slot() } else { None };
    let now = app.now();
    let leased_until = slot.as_ref().map(|_| now + app.config.task_lease);
    let ask = Ask { refund_id, merchant_id: merchant_id.clone(), new, asked_by, leased_until, now };
    // Kept for the request only, and hardly waited for: without it, or with somebody else's, the database decides alone,
    // and whoever goes on shares its work.
    let _lock = app.locks.acquire(Scene::Refund, &ask.order_key().lock_key()).await;
    let created = app.db.retrying(|| ask_once(app, &ask)).await?;
    match (slot, &created.task) {
        (Some(slot), Some(task)) => app.handover.give(slot, task.clone()),
        _ if created.is_new => app.compensation_wake.notify_one(),
        _ => {}
    }
    Ok(created)
}

async fn ask_once(app: &App, ask: &Ask) -> Result<Created, RefundError> {
    let mut outcome = Ok(Err(RefundError::NotFound));
    for _ in 0..MAX_ROUNDS {
        outcome = effect!("refunds.create", app.db.gather(ask.clone()).await);
        let constraint = outcome.as_ref().err().and_then(DbError::constraint);
        if constraint != Some("refunds_merchant_refund_no_key") {
            break;
        }
    }
    outcome?
}
