//! Driving a refund to its end: asked for once, then asked about, under the same number.

use super::model::{Refund, RefundEvent, RefundStatus, StrayEvent, StrayPayment, StrayStatus};
use super::store;
use crate::app::App;
use crate::channels::{CallError, Channel, RefundCall, RefundState, Refusal, TradeRef};
use crate::compensation::Drive;
use crate::exceptions::{self, ExceptionAction, ExceptionKind, NewException};
use crate::infra::db::{DbError, Tx};
use crate::outbox::{self, Event};
use crate::pay::PayError;

/// Drives one refund a step further.
///
/// # Errors
/// When the database is away: the task tries again.
pub async fn drive(app: &App, refund_id: &str) -> Result<Drive, PayError> {
    let Some((refund, stray)) = store::find_with_stray(&mut app.db.conn().await?, refund_id).await? else {
        return Ok(Drive::Done);
    };
    let Some(channel) = app.channels.get(&stray.channel) else {
        return Ok(Drive::Again(format!("there is no channel {} here", stray.channel)));
    };
    let Some(call) = call(&refund, &stray)? else {
        apply_result(app, refund_id, &RefundState::Failed(not_ours(&stray))).await?;
        return Ok(Drive::Done);
    };
    let state = match refund.status {
        RefundStatus::Pending => {
            // From here on the channel may have been asked.
            store::set_processing(&mut app.db.conn().await?, refund_id, app.now()).await?;
            channel.refund(&call).await
        }
        RefundStatus::Processing => ask_then_redo(channel.as_ref(), &call).await,
        RefundStatus::AwaitingApproval | RefundStatus::Succeeded | RefundStatus::Failed => {
            return Ok(Drive::Done);
        }
    };
    match state {
        Ok(state @ (RefundState::Succeeded { .. } | RefundState::Failed(_))) => {
            apply_result(app, refund_id, &state).await?;
            Ok(Drive::Done)
        }
        Ok(RefundState::Processing | RefundState::Unseen) => Ok(Drive::Again("the channel is at it".into())),
        Err(CallError::Refused(refusal)) => {
            apply_result(app, refund_id, &RefundState::Failed(refusal)).await?;
            Ok(Drive::Done)
        }
        Err(error) => Ok(Drive::Again(error.to_string())),
    }
}

/// An unknown result is asked about first; only a refund that the channel never saw is asked for again, and under
/// the same number. A refusal then may only mean "done already", so it counts when the channel still knows of none.
async fn ask_then_redo(channel: &dyn Channel, call: &RefundCall) -> Result<RefundState, CallError> {
    match ask(channel, call).await? {
        RefundState::Unseen => {}
        known => return Ok(known),
    }
    match channel.refund(call).await {
        Err(CallError::Refused(refusal)) => match ask(channel, call).await? {
            RefundState::Unseen => Err(CallError::Refused(refusal)),
            known => Ok(known),
        },
        outcome => outcome,
    }
}

/// Asks what became of a refund. A refusal to answer is no result of it.
async fn ask(channel: &dyn Channel, call: &RefundCall) -> Result<RefundState, CallError> {
    match channel.query_refund(call).await {
        Err(CallError::Refused(refusal)) => Err(CallError::Silent(refusal.to_string())),
        outcome => outcome,
    }
}

/// Money of a trade whose name cannot be one of ours: no channel call can name it, so a person must see to it.
fn not_ours(stray: &StrayPayment) -> Refusal {
    Refusal {
        code: "TRADE_NOT_OURS".to_owned(),
        message: format!("`{}` is no pay order of this service", stray.out_trade_no),
    }
}

/// What the channel is asked for; `None` when it took the money for a trade that is none of ours.
fn call(refund: &Refund, stray: &StrayPayment) -> Result<Option<RefundCall>, DbError> {
    let decode = |error: crate::ids::InvalidId| DbError::Other(sqlx::Error::Decode(Box::new(error)));
    let Ok(pay_order_id) = stray.out_trade_no.parse() else { return Ok(None) };
    let money = crate::pay::money_of(refund.amount, refund.currency)?;
    let taken = crate::pay::money_of(stray.amount, stray.currency)?;
    let trade = TradeRef { pay_order_id, channel_ref: None, money: taken, expires_at: stray.paid_at };
    Ok(Some(RefundCall {
        refund_id: refund.refund_id.parse().map_err(decode)?,
        trade,
        transaction_id: stray.transaction_id.clone(),
        money,
        taken,
        reason: refund.reason.clone(),
    }))
}

/// Applies a final result, wherever it comes from; a result that is there already changes nothing. `false` for a
/// refund that nobody knows.
///
/// # Errors
/// When the database cannot be reached.
pub async fn apply_result(app: &App, refund_id: &str, state: &RefundState) -> Result<bool, DbError> {
    app.db
        .retrying(|| async {
            let mut tx = app.db.begin().await?;
            let applied = apply_in_tx(app, &mut tx, refund_id, state).await;
            tx.finish(applied).await
        })
        .await
}

async fn apply_in_tx(app: &App, tx: &mut Tx, refund_id: &str, state: &RefundState) -> Result<bool, DbError> {
    let (event, channel_refund_id, failure) = match state {
        RefundState::Succeeded { channel_refund_id } => {
            (RefundEvent::Succeeded, Some(channel_refund_id.as_str()), None)
        }
        RefundState::Failed(refusal) => (RefundEvent::Failed, None, Some(refusal.to_string())),
        RefundState::Processing | RefundState::Unseen => return Ok(true),
    };
    let Some((refund, stray)) = store::lock_with_stray(tx, refund_id).await? else { return Ok(false) };
    let Some(to) = refund.status.after(event) else { return Ok(true) };

    let now = app.now();
    store::set_result(tx, &refund, to, channel_refund_id, failure.as_deref(), now).await?;
    let stray_event =
        if to == RefundStatus::Succeeded { StrayEvent::RefundSucceeded } else { StrayEvent::RefundFailed };
    store::move_stray(tx, &stray, StrayStatus::Refunding, stray_event, now).await?;
    match failure {
        None => {
            exceptions::settle_by_subject_in_tx(tx, &stray.stray_id, ExceptionAction::Refund, now).await?;
        }
        Some(failure) => open_refused_in_tx(app, tx, &stray, &failure).await?,
    }
    let finished = Event::RefundFinished {
        order_no: refund.order_no.clone(),
        refund_no: refund.refund_no.clone(),
        status: to.as_str(),
        amount: refund.amount,
        currency: refund.currency,
    };
    outbox::append_in_tx(tx, refund.merchant_id.as_deref(), refund.order_no.as_deref(), &finished, now)
        .await?;
    Ok(true)
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
