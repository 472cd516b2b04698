//! Driving a refund to its end: asked for once, then asked about, under the same number.

use super::collected::{Collected, find_with_refund};
use super::model::{Refund, RefundStatus};
use super::result::{RefundReport, Source, apply_result};
use super::store;
use crate::app::App;
use crate::channels::{self, Answerer, CallError, Channel, RefundCall, RefundState, Refusal, TradeRef};
use crate::compensation::{Drive, Update, spill_if_lost};
use crate::infra::crash::effect;
use crate::infra::db::DbError;
use crate::pay::PayError;

/// Drives one refund a step further.
///
/// # Errors
/// When the database is away: the task tries again.
pub async fn drive(app: &App, refund_id: &str) -> Result<Drive, PayError> {
    let Some((refund, collected)) = find_with_refund(&mut app.db.conn().await?, refund_id).await? else {
        return Ok(Drive::Done);
    };
    let Some(channel) = app.channels.get(collected.channel()) else {
        return Ok(Drive::Again(format!("there is no channel {} here", collected.channel())));
    };
    let Some(call) = call(&refund, &collected)? else {
        learn(app, refund_id, &RefundState::Failed(not_ours(&collected)), Source::Call).await?;
        return Ok(Drive::Done);
    };
    let (source, state) = match refund.status {
        RefundStatus::Pending => {
            // From here on the channel may have been asked.
            let mut conn = app.db.conn().await?;
            if !effect!("refunds.begin", store::set_processing(&mut conn, refund_id, app.now()).await)? {
                return Ok(Drive::Again("another worker is at it".into()));
            }
            drop(conn);
            make_and_ask(channel.as_ref(), &call).await
        }
        RefundStatus::Processing => ask_redo_ask(channel.as_ref(), &call).await,
        RefundStatus::AwaitingApproval | RefundStatus::Succeeded | RefundStatus::Failed => {
            return Ok(Drive::Done);
        }
    };
    match state {
        Ok(state @ (RefundState::Succeeded { .. } | RefundState::Failed(_))) => {
            learn(app, refund_id, &state, source).await?;
            Ok(Drive::Done)
        }
        Ok(RefundState::Processing | RefundState::Unseen) => Ok(Drive::Again("the channel is at it".into())),
        Err(CallError::Refused(refusal)) => {
            learn(app, refund_id, &RefundState::Failed(refusal), Source::Call).await?;
            Ok(Drive::Done)
        }
        Err(error) => Ok(Drive::Again(error.to_string())),
    }
}

/// What a channel is asked about a refund with; `None` for what is no refund of ours, or of a trade that cannot be one.
///
/// # Errors
/// When the database cannot be reached.
pub async fn call_of(app: &App, refund_id: &str) -> Result<Option<RefundCall>, DbError> {
    let found = find_with_refund(&mut app.db.conn().await?, refund_id).await?;
    let Some((refund, collected)) = found else { return Ok(None) };
    call(&refund, &collected)
}

/// Writes down that a refund was made, as the channel had answered when it could not be written.
///
/// # Errors
/// When the database is away: the task tries again.
pub async fn replay(app: &App, refund_id: &str, channel_refund_id: String) -> Result<Drive, DbError> {
    let state = &RefundState::Succeeded { channel_refund_id };
    apply_result(app, &RefundReport { refund_id, state, source: Source::Query }).await?;
    Ok(Drive::Done)
}

/// Applies what the channel answered to us; what was made and cannot be written is put aside.
async fn learn(app: &App, refund_id: &str, state: &RefundState, source: Source<'_>) -> Result<(), DbError> {
    let applied = apply_result(app, &RefundReport { refund_id, state, source }).await;
    let made = || match state {
        RefundState::Succeeded { channel_refund_id } => Some(Update::RefundMade {
            refund_id: refund_id.to_owned(),
            channel_refund_id: channel_refund_id.clone(),
        }),
        _ => None,
    };
    spill_if_lost(&app.redis, &applied, made).await;
    applied.map(drop)
}

/// The first call. A refusal may mean that somebody else made it while this worker slept past its lease, so the channel
/// is asked before it is believed.
async fn make_and_ask(
    channel: &dyn Channel,
    call: &RefundCall,
) -> (Source<'static>, Result<RefundState, CallError>) {
    let make = || async { effect!("refunds.make", channel.refund(call).await) };
    let ask = || channel.query_refund(call);
    of_answerer(channels::make_then_ask(make, ask, |state| *state == RefundState::Unseen).await)
}

/// A refund whose result is unknown.
async fn ask_redo_ask(
    channel: &dyn Channel,
    call: &RefundCall,
) -> (Source<'static>, Result<RefundState, CallError>) {
    let ask = || channel.query_refund(call);
    let redo = || async { effect!("refunds.remake", channel.refund(call).await) };
    of_answerer(channels::ask_redo_ask(ask, redo, |state| *state == RefundState::Unseen).await)
}

fn of_answerer<T>((answerer, state): (Answerer, T)) -> (Source<'static>, T) {
    match answerer {
        Answerer::Call => (Source::Call, state),
        Answerer::Query => (Source::Query, state),
    }
}

/// Money of a trade whose name cannot be one of ours: no channel call can name it, so a person must see to it.
fn not_ours(collected: &Collected) -> Refusal {
    Refusal {
        code: "TRADE_NOT_OURS".to_owned(),
        message: format!("`{}` is no pay order of this service", collected.out_trade_no()),
    }
}

/// What the channel is asked for; `None` when it took the money for a trade that is none of ours.
fn call(refund: &Refund, collected: &Collected) -> Result<Option<RefundCall>, DbError> {
    let decode = |error: crate::ids::InvalidId| DbError::Other(sqlx::Error::Decode(Box::new(error)));
    let Ok(pay_order_id) = collected.out_trade_no().parse() else { return Ok(None) };
    let money = crate::pay::money_of(refund.amount, refund.currency)?;
    let (amount, currency) = collected.taken();
    let taken = crate::pay::money_of(amount, currency)?;
    let (channel_ref, expires_at) = (collected.channel_ref(), collected.expires_at());
    let trade = TradeRef { pay_order_id, channel_ref, money: taken, expires_at };
    Ok(Some(RefundCall {
        refund_id: refund.refund_id.parse().map_err(decode)?,
        trade,
        transaction_id: collected.transaction_id().to_owned(),
        money,
        taken,
        reason: refund.reason.clone(),
    }))
}
