//! Ending a live attempt: closed at its channel first, because money may be on its way there.

use time::OffsetDateTime;

use super::error::PayError;
use super::model::{Attempt, PayStatus};
use super::report::{self, Origin, Report};
use super::store;
use crate::app::App;
use crate::channels::{self, CallError, Channel, TradeState};
use crate::compensation::{self, Action, Drive, NewTask};
use crate::ids::{MerchantId, OrderNo};
use crate::infra::crash::effect;
use crate::infra::db::{DbError, Tx};
use crate::infra::lock::{LockGuard, Overtaken, Scene};
use crate::infra::tasks;
use crate::orders::OrderKey;

/// Rounds of "close at the channel, then here": a link may be published in between, which happens once; then one to spare.
const MAX_ROUNDS: usize = 3;

/// Closes a live attempt at its channel and then here; when it was paid there already, it pays its order.
/// Afterwards the attempt is not live any more. Whoever works under a lock names it.
///
/// Where it had no link yet and the channel had not seen it, the call that opens its trade may be on its way there, of
/// somebody who dies before hearing of the close: a task closes it once more when that call cannot be under way any more.
///
/// # Errors
/// [`PayError::ChannelUnavailable`] when the channel is silent or not known here, [`PayError::Overtaken`] when the lock was
/// lost or others moved the attempt time and again: it is live yet, and a task goes on asking.
pub async fn end_attempt(app: &App, attempt: &Attempt, lock: Option<&LockGuard>) -> Result<(), PayError> {
    write_task(app, attempt).await?;
    let Some(channel) = app.channels.get(&attempt.channel) else {
        // Another instance began it, and one that knows its channel drives the task.
        let error = CallError::NotMade(not_here(attempt));
        return Err(leave_to_task(app, attempt, Action::ClosePayOrder, &error).await?);
    };
    let mut read = attempt.clone();
    for _ in 0..MAX_ROUNDS {
        lock.map_or(Ok(()), LockGuard::still_held)?;
        match close_as_read(app, channel.as_ref(), &read).await? {
            Closed::Moved(moved) => read = *moved,
            Closed::Unopened => return Ok(()),
            Closed::Done => return finish_task(app, attempt).await,
        }
    }
    Err(PayError::Overtaken(Overtaken))
}

/// What a close came to.
enum Closed {
    /// The attempt has ended, and so has its trade.
    Done,
    /// It has ended, and its trade may come to stand yet: its task goes on.
    Unopened,
    /// The channel had not seen it, and its link was published meanwhile by somebody without the lock: its trade stands by
    /// now, and must not stay payable.
    Moved(Box<Attempt>),
}

/// Closes an attempt at its channel and then here.
async fn close_as_read(app: &App, channel: &dyn Channel, attempt: &Attempt) -> Result<Closed, PayError> {
    let state = match close_at_channel(app, channel, attempt).await? {
        Ok(state) => state,
        Err(error) => return Err(leave_to_task(app, attempt, Action::ClosePayOrder, &error).await?),
    };
    let is_unseen = state == TradeState::Unseen;
    let origin = Origin::Close { version: attempt.version };
    report::apply(app, &Report::of_attempt(attempt, state, origin)).await?;
    if !is_unseen {
        return Ok(Closed::Done);
    }
    let found = store::find(&mut app.db.conn().await?, attempt.pay_order_id.as_str()).await?;
    Ok(match found {
        Some(found) if found.status.is_live() => Closed::Moved(Box::new(found)),
        // Its link was given out: it is paid through that, or not at all.
        _ if attempt.status == PayStatus::Paying => Closed::Done,
        _ => Closed::Unopened,
    })
}

/// The channel said nothing that counts: the attempt stays as it is, and the task that guards the call goes on.
/// Gives the error for the caller.
pub(super) async fn leave_to_task(
    app: &App,
    attempt: &Attempt,
    action: Action,
    error: &CallError,
) -> Result<PayError, DbError> {
    let (now, id) = (app.now(), attempt.pay_order_id.as_str());
    tracing::warn!(channel.name = attempt.channel, %action, %error, "{id} is left to its task");
    let due_at = now + time::Duration::SECOND;
    let (mut conn, error) = (app.db.conn().await?, error.to_string());
    effect!("pay.leave", compensation::make_due(&mut conn, action, id, due_at, &error, now).await)?;
    Ok(PayError::ChannelUnavailable(error))
}

/// The task stands before the outside call that it guards.
async fn write_task(app: &App, attempt: &Attempt) -> Result<(), PayError> {
    let (now, id) = (app.now(), attempt.pay_order_id.as_str());
    // Whoever closes it has done so by then, or does it no more.
    let task =
        close_task(id, &attempt.merchant_id, &attempt.order_no, now + app.config.channels.deadline * 2);
    let mut conn = app.db.conn().await?;
    Ok(effect!("pay.guard", compensation::append(&mut conn, &task, now).await)?)
}

/// An attempt ends whose trade may come to stand yet: its tasks have ended with it, and it is closed at its channel once
/// more, when whoever called for it, and may be dead by now, cannot have a call under way there any more.
pub(super) async fn close_again_in_tx(
    app: &App,
    tx: &mut Tx,
    pay_order_id: &str,
    order: &OrderKey,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    let due_at = now + app.config.channels.settles_within();
    let task = close_task(pay_order_id, &order.merchant_id, &order.order_no, due_at);
    compensation::append(tx, &task, now).await
}

/// The task that closes an attempt.
fn close_task<'a>(
    pay_order_id: &'a str,
    merchant_id: &'a MerchantId,
    order_no: &'a OrderNo,
    due_at: OffsetDateTime,
) -> NewTask<'a> {
    let (merchant_id, order_no) = (Some(merchant_id.as_str()), Some(order_no.as_str()));
    NewTask { action: Action::ClosePayOrder, subject: pay_order_id, merchant_id, order_no, due_at }
}

async fn finish_task(app: &App, attempt: &Attempt) -> Result<(), PayError> {
    let (mut conn, id, now) = (app.db.conn().await?, attempt.pay_order_id.as_str(), app.now());
    let action = Action::ClosePayOrder;
    Ok(effect!("pay.unguard", compensation::finish_by_subject(&mut conn, action, id, now).await)?)
}

/// Closes, and asks for the payment where the channel only says that there was one. While too many wait for the channel
/// it is not asked.
pub(super) async fn close_at_channel(
    app: &App,
    channel: &dyn Channel,
    attempt: &Attempt,
) -> Result<Result<TradeState, CallError>, PayError> {
    let Some(_room) = app.waiting.enter(attempt.channel.clone()) else { return Ok(Err(CallError::NotNow)) };
    let trade = attempt.trade_ref()?;
    let closing = effect!("pay.close", tasks::away_when_long(channel.close(&trade)).await);
    Ok(channels::close_then_ask(closing, || tasks::away_when_long(channel.query(&trade))).await)
}

fn not_here(attempt: &Attempt) -> String {
    format!("there is no channel {} here", attempt.channel)
}

/// Ends the attempt of that id, for a task.
///
/// # Errors
/// When the lock is busy or the database away: the task tries again.
pub async fn end_by_id(app: &App, pay_order_id: &str) -> Result<Drive, PayError> {
    let Some(attempt) = store::find(&mut app.db.conn().await?, pay_order_id).await? else {
        return Ok(Drive::Done);
    };
    // For good. One that is closed here goes on: its trade may have come to stand at the channel after that.
    if attempt.status == PayStatus::Paid {
        return Ok(Drive::Done);
    }
    if app.channels.get(&attempt.channel).is_none() {
        return Ok(Drive::Again(not_here(&attempt)));
    }
    let lock = app.locks.acquire(Scene::Close, &attempt.order_key().lock_key()).await?;
    match end_attempt(app, &attempt, Some(&lock)).await {
        Ok(()) => Ok(Drive::Done),
        Err(PayError::ChannelUnavailable(why)) => Ok(Drive::Again(why)),
        Err(error) => Err(error),
    }
}
