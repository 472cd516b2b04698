//! Closing an order before its time. The channel is asked first: money that is on its way wins.
//!
//! Round trips: 4 without a live attempt (BEGIN, lock, close, COMMIT), commits: 1. With an idempotency key the answer
//! is read and kept in that transaction.

use time::OffsetDateTime;

use super::error::OrderError;
use super::find::{self, OrderDetails};
use super::model::{CloseReason, Order, OrderKey, OrderStatus};
use super::store;
use crate::app::App;
use crate::idempotency::{self, Keep};
use crate::infra::crash::effect;
use crate::infra::db::Tx;
use crate::infra::lock::{LockGuard, Overtaken, Scene};
use crate::pay;

/// Rounds of "end the live attempt, then close": a buyer may begin another one in between.
const MAX_ROUNDS: usize = 5;

/// Closes an order for the merchant; closing a closed one gives it back as it is. Keeps the answer where that is asked.
///
/// # Errors
/// [`OrderError::AlreadyPaid`] when money was faster; [`OrderError::ChannelUnavailable`] when the channel that
/// holds the live attempt is silent: the order stays as it is, and a task goes on asking.
pub async fn close(
    app: &App,
    key: &OrderKey,
    keep: Option<&Keep<OrderDetails>>,
) -> Result<OrderDetails, OrderError> {
    let lock = app.locks.acquire(Scene::Close, &key.lock_key()).await;
    if let Err(busy) = &lock {
        // One last look: whoever has the lock may just have closed or paid it.
        is_closed(&find::order(app, key).await?)?.then_some(()).ok_or(*busy)?;
    }
    let lock = lock.as_ref().ok();
    let kept = app.db.retrying(|| close_with_lock(app, key, CloseReason::Cancelled, keep, lock)).await?;
    match kept {
        Some(details) => Ok(details),
        None => find::details(app, key).await,
    }
}

/// Whether it is closed; `false` while it is open.
fn is_closed(order: &Order) -> Result<bool, OrderError> {
    match order.status {
        OrderStatus::Pending => Ok(false),
        OrderStatus::Closed => Ok(true),
        OrderStatus::Paid | OrderStatus::PartiallyRefunded | OrderStatus::Refunded => {
            Err(OrderError::AlreadyPaid)
        }
    }
}

/// Closes an order under its lock, however often an attempt has to be ended first. Gives the answer that was kept, if
/// any.
pub(super) async fn close_with_lock(
    app: &App,
    key: &OrderKey,
    reason: CloseReason,
    keep: Option<&Keep<OrderDetails>>,
    lock: Option<&LockGuard>,
) -> Result<Option<OrderDetails>, OrderError> {
    for _ in 0..MAX_ROUNDS {
        if let Some(attempt) = pay::find_live_attempt(app, key).await? {
            // Paid by another attempt: that is the answer, whatever the channel of this one says, which a task ends.
            is_closed(&find::order(app, key).await?)?;
            pay::end_attempt(app, &attempt, lock).await?;
        }
        let mut tx = app.db.begin().await?;
        let outcome = close_in_tx(&mut tx, key, reason, keep, app.now()).await;
        let kept = effect!("orders.close", tx.finish(outcome).await)?;

        // Closed by somebody else after our transaction had found it open: the answer is kept in the next round.
        let is_answered = keep.is_none() || kept.is_some();
        if is_closed(&find::order(app, key).await?)? && is_answered {
            app.changes.announce(&key.member());
            return Ok(kept);
        }
    }
    Err(OrderError::Overtaken(Overtaken))
}

async fn close_in_tx(
    tx: &mut Tx,
    key: &OrderKey,
    reason: CloseReason,
    keep: Option<&Keep<OrderDetails>>,
    now: OffsetDateTime,
) -> Result<Option<OrderDetails>, OrderError> {
    let (status, closable) = store::lock_one(tx, key).await?.ok_or(OrderError::NotFound)?;
    if status.after(reason.event()).is_ok() {
        store::close_locked(tx, &[closable], reason, now).await?;
    }
    match keep {
        Some(keep) => keep_in_tx(tx, key, keep, now).await,
        None => Ok(None),
    }
}

/// Keeps the answer with the effect. The order is locked, and a closed one does not move any more.
async fn keep_in_tx(
    tx: &mut Tx,
    key: &OrderKey,
    keep: &Keep<OrderDetails>,
    now: OffsetDateTime,
) -> Result<Option<OrderDetails>, OrderError> {
    let details = find::details_in_tx(tx, key).await?;
    if details.order.status != OrderStatus::Closed {
        return Ok(None);
    }
    idempotency::insert(tx, &keep.row(details.clone()), Some(key.order_no.as_str()), now).await?;
    Ok(Some(details))
}
