//! Taking stray money in: it has an owner from its first commit on.

use time::OffsetDateTime;

use super::model::{NewStray, StrayEvent, StrayPayment, StrayPolicy, StrayReason, StrayStatus};
use super::{book, store};
use crate::app::App;
use crate::compensation::{self, Action, NewTask};
use crate::exceptions::{self, ExceptionAction, ExceptionKind, NewException};
use crate::infra::db::{DbError, Tx};
use crate::outbox::{self, Event};

/// Writes stray money down and follows the merchant's policy, in the transaction of the callback that reported
/// it: a refund with its task, or an exception for a person. A wrong amount always opens an exception; it
/// resolves itself when its refund succeeds. The money is booked to suspense.
pub(crate) async fn hold_stray_in_tx(
    app: &App,
    tx: &mut Tx,
    new: &NewStray<'_>,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    let stray = store::insert_stray(tx, &app.ids.stray(), new, now).await?;
    tell_in_tx(tx, &stray, &received(&stray), now).await?;
    let is_refunded = new.policy == Some(StrayPolicy::AutoRefund);
    if is_refunded {
        refund_in_tx(app, tx, &stray, now).await?;
    }
    if !is_refunded || new.reason == StrayReason::AmountMismatch {
        open_exception_in_tx(app, tx, &stray, now).await?;
    }
    book::post_taken_in_tx(tx, &stray, now).await?;
    metrics::counter!("payonce_stray_payments_total", "reason" => new.reason.as_str()).increment(1);
    Ok(())
}

fn received(stray: &StrayPayment) -> Event {
    Event::StrayPaymentReceived {
        order_no: stray.order_no.clone(),
        stray_id: stray.stray_id.clone(),
        reason: stray.reason.as_str(),
        amount: stray.amount,
        currency: stray.currency,
        pay_order_id: stray.pay_order_id.clone(),
        channel: stray.channel.clone(),
        transaction_id: stray.transaction_id.clone(),
        paid_at: stray.paid_at,
    }
}

fn kept(stray: &StrayPayment) -> Event {
    Event::StrayPaymentKept {
        order_no: stray.order_no.clone(),
        stray_id: stray.stray_id.clone(),
        reason: stray.reason.as_str(),
        amount: stray.amount,
        currency: stray.currency,
    }
}

/// Tells the merchant, where one is known, under the number of the order.
async fn tell_in_tx(
    tx: &mut Tx,
    stray: &StrayPayment,
    event: &Event,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    outbox::append_in_tx(tx, stray.merchant_id.as_deref(), stray.order_no.as_deref(), event, now).await
}

async fn open_exception_in_tx(
    app: &App,
    tx: &mut Tx,
    stray: &StrayPayment,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    let kind = match stray.reason {
        StrayReason::AmountMismatch => ExceptionKind::AmountMismatch,
        StrayReason::UnknownOrder => ExceptionKind::UnknownOrder,
        StrayReason::LatePayment | StrayReason::DuplicatePayment => ExceptionKind::StrayMoney,
    };
    let detail = format!(
        "{} took {} {} (minor units) in trade {} for {}: {}",
        stray.channel, stray.amount, stray.currency, stray.transaction_id, stray.out_trade_no, stray.reason
    );
    let exception = NewException {
        kind,
        merchant_id: stray.merchant_id.as_deref(),
        order_no: stray.order_no.as_deref(),
        subject: &stray.stray_id,
        detail: &detail,
    };
    exceptions::open_in_tx(tx, &app.ids, &exception, now).await
}

/// A refund of a locked stray payment came to its end: it is back, or held again.
pub(super) async fn end_refund_in_tx(
    app: &App,
    tx: &mut Tx,
    stray: &StrayPayment,
    failure: Option<&str>,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    match failure {
        None => {
            store::move_stray(tx, stray, stray.status, StrayEvent::RefundSucceeded, now).await?;
            exceptions::settle_in_tx(tx, &stray.stray_id, None, ExceptionAction::Refund, now).await?;
            Ok(())
        }
        Some(failure) => {
            store::move_stray(tx, stray, stray.status, StrayEvent::RefundFailed, now).await?;
            open_refused_in_tx(app, tx, stray, failure).await
        }
    }
}

/// A refund that the channel had made after all came to nothing: a person decides over its money once more, where it waits for
/// that, has not gone by another such refund, and nobody is shown it any more.
pub(super) async fn show_again_in_tx(app: &App, tx: &mut Tx, stray: &StrayPayment) -> Result<(), DbError> {
    if stray.status != StrayStatus::Held || store::find_gone_after_all(tx, &stray.stray_id).await?.is_known {
        return Ok(());
    }
    open_refused_in_tx(app, tx, stray, "what it was told to have made after all is not so any more").await
}

/// The channel keeps the money: a person must see to it.
async fn open_refused_in_tx(
    app: &App,
    tx: &mut Tx,
    stray: &StrayPayment,
    failure: &str,
) -> Result<(), DbError> {
    let detail = format!(
        "the channel refused to give back {} {} (minor units) of trade {}: {failure}",
        stray.amount, stray.currency, stray.transaction_id
    );
    let exception = NewException {
        kind: ExceptionKind::StrayMoney,
        merchant_id: stray.merchant_id.as_deref(),
        order_no: stray.order_no.as_deref(),
        subject: &stray.stray_id,
        detail: &detail,
    };
    exceptions::open_in_tx(tx, &app.ids, &exception, app.now()).await
}

/// Sends a held stray payment back: a refund row, its task, and the state that says so.
pub(super) async fn refund_in_tx(
    app: &App,
    tx: &mut Tx,
    stray: &StrayPayment,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    let refund_id = app.ids.refund();
    store::move_stray(tx, stray, StrayStatus::Held, StrayEvent::RefundAsked, now).await?;
    store::insert_stray_refund(tx, &refund_id, stray, now).await?;
    let task = NewTask {
        action: Action::DriveRefund,
        subject: refund_id.as_str(),
        merchant_id: stray.merchant_id.as_deref(),
        order_no: stray.order_no.as_deref(),
        due_at: now,
    };
    compensation::append(tx, &task, now).await
}

/// Keeps a held stray payment, by a person's decision, and tells its merchant: it and its order are locked.
pub(super) async fn keep_in_tx(
    tx: &mut Tx,
    stray: &StrayPayment,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    store::move_stray(tx, stray, StrayStatus::Held, StrayEvent::Kept, now).await?;
    tell_in_tx(tx, stray, &kept(stray), now).await?;
    book::post_kept_in_tx(tx, stray, now).await
}

/// A page of stray payments, newest first.
///
/// # Errors
/// When the database cannot be reached.
pub async fn list_strays(
    app: &App,
    status: Option<StrayStatus>,
    starting_after: Option<&str>,
    limit: usize,
) -> Result<Vec<StrayPayment>, DbError> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    store::list_strays(&mut app.db.conn().await?, status, starting_after, limit).await
}
