//! Closing an order before its time. The channel is asked first: money that is on its way wins.
//!
//! Round trips: 4 without a live attempt (BEGIN, lock, close, COMMIT), commits: 1.

use super::error::OrderError;
use super::model::{CloseReason, Order, OrderKey, OrderStatus};
use super::store;
use crate::app::App;
use crate::infra::crash::effect;
use crate::infra::db::Tx;
use crate::infra::lock::{LockBusy, Scene};
use crate::pay;

/// Rounds of "end the live attempt, then close": a buyer may begin another one in between.
const MAX_ROUNDS: usize = 5;

/// Closes an order for the merchant; closing a closed one gives it back as it is.
///
/// # Errors
/// [`OrderError::AlreadyPaid`] when money was faster; [`OrderError::ChannelUnavailable`] when the channel that
/// holds the live attempt is silent: the order stays as it is, and a task goes on asking.
pub async fn close(app: &App, key: &OrderKey) -> Result<Order, OrderError> {
    match app.locks.acquire(Scene::Close, &key.lock_key()).await {
        Ok(_lock) => app.db.retrying(|| close_with_lock(app, key, CloseReason::Cancelled)).await,
        Err(busy) => {
            // One last look: whoever has the lock may just have closed or paid it.
            let order = found(app, key).await?;
            answer(order).unwrap_or(Err(OrderError::Busy(busy)))
        }
    }
}

/// The answer for an order that has come to an end; `None` while it is open.
fn answer(order: Order) -> Option<Result<Order, OrderError>> {
    match order.status {
        OrderStatus::Pending => None,
        OrderStatus::Closed => Some(Ok(order)),
        OrderStatus::Paid | OrderStatus::PartiallyRefunded | OrderStatus::Refunded => {
            Some(Err(OrderError::AlreadyPaid))
        }
    }
}

async fn found(app: &App, key: &OrderKey) -> Result<Order, OrderError> {
    store::find(&mut app.db.conn().await?, key).await?.ok_or(OrderError::NotFound)
}

/// Closes an order under its lock, however often an attempt has to be ended first.
pub(super) async fn close_with_lock(
    app: &App,
    key: &OrderKey,
    reason: CloseReason,
) -> Result<Order, OrderError> {
    for _ in 0..MAX_ROUNDS {
        if let Some(attempt) = pay::find_live_attempt(app, key).await? {
            pay::end_attempt(app, &attempt).await?;
        }
        let mut tx = app.db.begin().await?;
        let outcome = close_in_tx(&mut tx, key, reason, app.now()).await;
        effect!("orders.close", tx.finish(outcome).await)?;

        let order = found(app, key).await?;
        if let Some(answer) = answer(order) {
            app.changes.announce(&key.member());
            return answer;
        }
    }
    Err(OrderError::Busy(LockBusy))
}

async fn close_in_tx(
    tx: &mut Tx,
    key: &OrderKey,
    reason: CloseReason,
    now: time::OffsetDateTime,
) -> Result<(), OrderError> {
    let (status, closable) = store::lock_one(tx, key).await?.ok_or(OrderError::NotFound)?;
    if status.after(reason.event()).is_ok() {
        store::close_locked(tx, &[closable], reason, now).await?;
    }
    Ok(())
}
