//! What refunds do to a paid order. It moves on a refund's success, not on its request, and back only when the channel
//! takes a refund back.

use time::OffsetDateTime;

use super::model::{Order, OrderEvent, OrderKey, OrderStatus};
use super::store::refunded;
use crate::infra::db::{DbError, Tx};

/// Locks the order of that number: its refunds are asked for, and come to their ends, only under this lock.
pub(crate) async fn lock_in_tx(tx: &mut Tx, key: &OrderKey) -> Result<Option<Order>, DbError> {
    refunded::lock(tx, key).await
}

/// Writes how many minor units of a locked order have gone back by now; gives the state that this leads to.
///
/// # Errors
/// [`DbError::UnexpectedRows`] when the order's life has no such move.
pub(crate) async fn set_refunded_in_tx(
    tx: &mut Tx,
    order: &Order,
    refunded_amount: i64,
    now: OffsetDateTime,
) -> Result<OrderStatus, DbError> {
    let event = event_of_refunds(order.amount, order.refunded_amount, refunded_amount);
    let to = order.status.after(event).map_err(|_| DbError::UnexpectedRows(0))?;
    refunded::set_refunded(tx, order, refunded_amount, to, event, now).await?;
    Ok(to)
}

/// What it means to an order of that amount that so many minor units have gone back, where it was so many `before`.
pub(crate) const fn event_of_refunds(amount: i64, before: i64, refunded_amount: i64) -> OrderEvent {
    let goes_back = refunded_amount > before;
    match (goes_back, refunded_amount) {
        (true, all) if all == amount => OrderEvent::RefundedInFull,
        (true, _) => OrderEvent::RefundedInPart,
        (false, 0) => OrderEvent::RefundReversedInFull,
        (false, _) => OrderEvent::RefundReversedInPart,
    }
}

/// Puts what a locked order had sold back on sale, once.
pub(crate) async fn return_stock_in_tx(
    tx: &mut Tx,
    key: &OrderKey,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    refunded::return_stock(tx, key, now).await
}
