//! Driving a refund to its end: asked for once, then asked about, under the same number.
//!
//! Round trips of a plain one, beside the channel's: 6 (begin, and the end, see [`super::result`]); commits: 2. One that has
//! begun as it was written down is looked at instead: 1 commit. All are shared with the refunds that are driven at the same time.

use time::OffsetDateTime;

use super::model::{Refund, RefundStatus};
use super::result::{RefundReport, Source, apply_result};
use super::store::{Begin, Facts, FindFacts, FindHeld};
use crate::app::App;
use crate::channels::{self, Answerer, CallError, Channel, RefundCall, RefundState, Refusal, TradeRef};
use crate::compensation::{self, Action, Drive, NewTask, Task, Update, spill_if_lost};
use crate::infra::crash::effect;
use crate::infra::db::{DbError, Tx};
use crate::pay::{self, PayError};

/// Has the money sent back, by a task, from the transaction that says so: one for a refund, however often that is wanted.
pub(super) async fn append_task_in_tx(
    tx: &mut Tx,
    refund: &Refund,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    compensation::append(tx, &task_of(refund, Action::DriveRefund, now), now).await
}

/// What is to be done about a refund, from now on.
pub(super) fn task_of(refund: &Refund, action: Action, now: OffsetDateTime) -> NewTask<'_> {
    NewTask {
        action,
        subject: &refund.refund_id,
        merchant_id: refund.merchant_id.as_deref(),
        order_no: refund.order_no.as_deref(),
        due_at: now,
    }
}

/// Drives the refund of a task a step further.
///
/// # Errors
/// When the database is away: the task tries again.
pub async fn drive(app: &App, task: &Task) -> Result<Drive, PayError> {
    let refund_id = task.subject.as_str();
    let begun = if task.is_fresh { find_held(app, task).await? } else { begin(app, task).await? };
    let is_first = begun.is_some();
    let facts = match begun {
        Some(facts) => Some(facts),
        None => find(app, refund_id).await?,
    };
    let Some(facts) = facts else {
        return Ok(Drive::Never("there is no such refund, or no payment that it gives back".to_owned()));
    };
    let Some(channel) = app.channels.get(&facts.channel) else {
        return Ok(Drive::Again(format!("there is no channel {} here", facts.channel)));
    };
    let Some(call) = call(&facts)? else {
        learn(app, refund_id, &RefundState::Failed(not_ours(&facts)), Source::Call(task.hold)).await?;
        return Ok(Drive::Done);
    };
    let (answerer, state) = match facts.status {
        RefundStatus::Processing if is_first => make_and_ask(channel.as_ref(), &call).await,
        RefundStatus::Processing => ask_redo_ask(app, task, channel.as_ref(), &call).await,
        RefundStatus::Pending => {
            return Ok(Drive::Again("it was let go in this moment, or another worker has it".into()));
        }
        RefundStatus::AwaitingApproval | RefundStatus::Succeeded | RefundStatus::Failed => {
            return Ok(Drive::Done);
        }
    };
    match state {
        Ok(state @ (RefundState::Succeeded { .. } | RefundState::Failed(_))) => {
            let source = match answerer {
                Answerer::Call => Source::Call(task.hold),
                Answerer::Query => Source::Query,
            };
            learn(app, refund_id, &state, source).await?;
            Ok(Drive::Done)
        }
        Ok(RefundState::Processing | RefundState::Unseen) => Ok(Drive::Again("the channel is at it".into())),
        Err(CallError::Refused(refusal)) => {
            learn(app, refund_id, &RefundState::Failed(refusal), Source::Call(task.hold)).await?;
            Ok(Drive::Done)
        }
        Err(error) => Ok(Drive::Again(error.to_string())),
    }
}

/// From here on the channel may have been asked, also where it turns out that there is none here: whoever has it asks it what
/// became of the refund first.
async fn begin(app: &App, task: &Task) -> Result<Option<Facts>, DbError> {
    let begin = Begin { refund_id: task.subject.clone(), hold: task.hold, now: app.now() };
    effect!("refunds.begin", app.db.gather(begin).await)
}

/// A refund that began as it was written down, where its task is still in hand, and will be for as long as a call takes: else
/// somebody may have it who asks its channel, too.
async fn find_held(app: &App, task: &Task) -> Result<Option<Facts>, DbError> {
    let until = app.now() + app.config.task_lease / 3;
    app.db.gather(FindHeld { refund_id: task.subject.clone(), hold: task.hold, until }).await
}

/// What a channel is asked about a refund with; `None` for what is no refund of ours, or of a trade that cannot be one.
///
/// # Errors
/// When the database cannot be reached.
pub async fn call_of(app: &App, refund_id: &str) -> Result<Option<RefundCall>, DbError> {
    find(app, refund_id).await?.map_or(Ok(None), |facts| call(&facts))
}

pub(super) async fn find(app: &App, refund_id: &str) -> Result<Option<Facts>, DbError> {
    app.db.gather(FindFacts(refund_id.to_owned())).await
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

/// The first call, of whoever had its task when it was begun, or looked at, just before. A refusal may mean that somebody else
/// made it while this worker slept past its lease, so the channel is asked before it is believed.
async fn make_and_ask(
    channel: &dyn Channel,
    call: &RefundCall,
) -> (Answerer, Result<RefundState, CallError>) {
    let make = || async { effect!("refunds.make", channel.refund(call).await) };
    let ask = || channel.query_refund(call);
    channels::make_then_ask(make, ask, |state| *state == RefundState::Unseen).await
}

/// A refund whose result is unknown. It is asked for again by whoever still has its task then.
async fn ask_redo_ask(
    app: &App,
    task: &Task,
    channel: &dyn Channel,
    call: &RefundCall,
) -> (Answerer, Result<RefundState, CallError>) {
    let ask = || channel.query_refund(call);
    let redo = || async {
        compensation::may_call(&app.db, task.hold, app.now()).await?;
        effect!("refunds.remake", channel.refund(call).await)
    };
    let has_settled = task.has_rested(app.config.channels.settles_within(), app.now());
    channels::ask_redo_ask(ask, redo, |state| *state == RefundState::Unseen, has_settled).await
}

/// Money of a trade whose name cannot be one of ours: no channel call can name it, so a person must see to it.
fn not_ours(facts: &Facts) -> Refusal {
    Refusal {
        code: "TRADE_NOT_OURS".to_owned(),
        message: format!("`{}` is no pay order of this service", facts.out_trade_no),
    }
}

/// What the channel is asked for; `None` when it took the money for a trade that is none of ours.
pub(super) fn call(facts: &Facts) -> Result<Option<RefundCall>, DbError> {
    let Ok(pay_order_id) = facts.out_trade_no.parse() else { return Ok(None) };
    let money = pay::money_of(facts.money.0, facts.money.1)?;
    let taken = pay::money_of(facts.taken.0, facts.taken.1)?;
    let (channel_ref, expires_at) = (facts.channel_ref.clone(), facts.expires_at);
    Ok(Some(RefundCall {
        refund_id: facts.refund_id.clone(),
        trade: TradeRef { pay_order_id, channel_ref, money: taken, expires_at },
        transaction_id: facts.transaction_id.clone(),
        money,
        taken,
        reason: facts.reason.clone(),
    }))
}
