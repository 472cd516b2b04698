//! What the end of a refund does to the order whose payment it gives back.

use time::OffsetDateTime;

use super::collected::Payment;
use super::model::{Refund, RefundStatus};
use super::store;
use crate::infra::db::{DbError, Tx};
use crate::orders::{self, OrderStatus};
use crate::settlement;

/// The order moves on a success, and back when the channel takes one back; its stock comes back with the last of its
/// money, where a refund asked for that. A commission follows what is left. A refusal moves nothing.
pub(super) async fn end_refund_in_tx(
    tx: &mut Tx,
    payment: &Payment,
    refund: &Refund,
    to: RefundStatus,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    let order = &payment.order;
    let refunded_amount = match (refund.status, to) {
        (_, RefundStatus::Succeeded) => order.refunded_amount + refund.amount,
        (RefundStatus::Succeeded, _) => order.refunded_amount - refund.amount,
        _ => return Ok(()),
    };
    let (key, left) = (order.key(), order.amount - refunded_amount);
    let status = orders::set_refunded_in_tx(tx, order, refunded_amount, now).await?;
    let id = payment.attempt.pay_order_id.as_str();
    if status == OrderStatus::Refunded && store::is_stock_wanted_back(tx, &key, id).await? {
        orders::return_stock_in_tx(tx, &key, now).await?;
    }
    // Balances are locked after the stock, as by payments.
    if to == RefundStatus::Succeeded {
        settlement::claw_back_in_tx(tx, &key, left, &refund.refund_id, now).await
    } else {
        settlement::restore_in_tx(tx, &key, left, &refund.refund_id, now).await
    }
}
