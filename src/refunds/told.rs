//! What the merchant hears of a refund.

use time::OffsetDateTime;

use super::model::{Refund, RefundStatus};
use crate::infra::db::{DbError, Tx};
use crate::outbox::{self, Event};

/// Tells it under the number of the refund's order.
pub(super) async fn tell_in_tx(
    tx: &mut Tx,
    refund: &Refund,
    event: &Event,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    outbox::append_in_tx(tx, refund.merchant_id.as_deref(), refund.order_no.as_deref(), event, now).await
}

/// Of a refund that comes to one of its ends, and why where that is a failure: back from a success where it stood at one.
pub(super) fn ended(refund: &Refund, to: RefundStatus, failure: Option<&str>) -> Event {
    if refund.status == RefundStatus::Succeeded {
        return reversed(refund, refund.status.as_str(), failure);
    }
    Event::RefundFinished {
        order_no: refund.order_no.clone(),
        refund_no: refund.refund_no.clone(),
        status: to.as_str(),
        amount: refund.amount,
        currency: refund.currency,
        refund_id: refund.refund_id.clone(),
        pay_order_id: refund.pay_order_id.clone(),
        stray_id: refund.stray_id.clone(),
        reason: refund.reason.clone(),
        failure: failure.map(ToOwned::to_owned),
    }
}

/// Of one that failed, and was made after all.
pub(super) fn made_after_all(refund: &Refund, owed: i64) -> Event {
    Event::RefundMadeAfterAll {
        order_no: refund.order_no.clone(),
        refund_no: refund.refund_no.clone(),
        amount: refund.amount,
        owed,
        currency: refund.currency,
        refund_id: refund.refund_id.clone(),
        pay_order_id: refund.pay_order_id.clone(),
        stray_id: refund.stray_id.clone(),
        reason: refund.reason.clone(),
    }
}

/// Of one that was made after all, and is so no more.
pub(super) fn not_made_after_all(refund: &Refund) -> Event {
    reversed(refund, "MADE_AFTER_ALL", refund.failure.as_deref())
}

fn reversed(refund: &Refund, was: &'static str, failure: Option<&str>) -> Event {
    Event::RefundReversed {
        order_no: refund.order_no.clone(),
        refund_no: refund.refund_no.clone(),
        amount: refund.amount,
        currency: refund.currency,
        was,
        refund_id: refund.refund_id.clone(),
        pay_order_id: refund.pay_order_id.clone(),
        stray_id: refund.stray_id.clone(),
        reason: refund.reason.clone(),
        failure: failure.map(ToOwned::to_owned),
    }
}
