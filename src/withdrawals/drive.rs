//! Driving a withdrawal to its end: the channel is asked once, then asked about, under the same number.

use time::OffsetDateTime;

use super::create::append_task_in_tx;
use super::error::WithdrawalError;
use super::model::{LegKind, LegStatus, Withdrawal, WithdrawalEvent, WithdrawalStatus};
use super::store::{self, Move};
use crate::app::App;
use crate::channels::{self, CallError, Channel, PayoutCall, PayoutState, Refusal};
use crate::compensation::{self, Action, Drive, Hold, Task, Update, spill_if_lost};
use crate::exceptions::{self, ExceptionAction, ExceptionKind, NewException};
use crate::infra::crash::effect;
use crate::infra::db::{DbError, Tx};
use crate::ledger;
use crate::outbox::{self, Event};

/// How a payout ended.
#[derive(Debug)]
enum End {
    /// Under this number of the channel's.
    Made(String, Heard),
    /// So whoever has the task was told; somebody who has it after them may have more luck.
    Refused(Refusal, Hold),
}

/// When the channel said that a payout was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    /// When it was asked just now, by whoever had seen that it came back so often before.
    Now(i32),
    /// Perhaps long ago: it answered somebody who can write it down only now.
    Once,
}

/// What the writing of an end came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Written {
    /// The withdrawal has come to that end, now or before; or is known to have been made after another one.
    Stands,
    /// It has come to another end, or is not here, and a person is shown what was made; or somebody else has its task.
    Otherwise,
    /// It is not under way (any more), as where a standby took over that had not heard of it.
    NotBegun,
}

impl Written {
    /// What it means for a task. Who begins once more does so under the same number, which moves money once.
    fn drive(self) -> Drive {
        match self {
            Self::Stands | Self::Otherwise => Drive::Done,
            Self::NotBegun => Drive::Again("it has ended, and has not begun here".to_owned()),
        }
    }
}

/// Drives the withdrawal of a task a step further.
///
/// # Errors
/// When the database is away: the task tries again.
pub async fn drive(app: &App, task: &Task) -> Result<Drive, WithdrawalError> {
    let withdrawal_id = task.subject.as_str();
    let found = store::find(&mut app.db.conn().await?, withdrawal_id).await?;
    let Some(withdrawal) = found else { return Ok(Drive::Done) };
    let Some(channel) = app.channels.get(&withdrawal.channel) else {
        return Ok(Drive::Again(format!("there is no channel {} here", withdrawal.channel)));
    };
    let call = call(&withdrawal)?;
    let state = match withdrawal.status {
        WithdrawalStatus::Debited => {
            if !begin(app, withdrawal_id, task.hold).await? {
                return Ok(Drive::Again("another worker is at it".into()));
            }
            pay_and_ask(channel.as_ref(), &call).await
        }
        WithdrawalStatus::Paying => ask_redo_ask(app, task, channel.as_ref(), &call).await,
        // Written only together with what follows them, or at the end.
        WithdrawalStatus::Created
        | WithdrawalStatus::Reversing
        | WithdrawalStatus::Succeeded
        | WithdrawalStatus::Reversed => return Ok(Drive::Done),
    };
    match state {
        Ok(PayoutState::Succeeded { channel_payout_id }) => {
            finish(app, withdrawal_id, &End::Made(channel_payout_id, Heard::Once)).await
        }
        Ok(PayoutState::Failed(refusal)) | Err(CallError::Refused(refusal)) => {
            finish(app, withdrawal_id, &End::Refused(refusal, task.hold)).await
        }
        Ok(PayoutState::Processing | PayoutState::Unseen) => Ok(Drive::Again("the channel is at it".into())),
        Err(error) => Ok(Drive::Again(error.to_string())),
    }
}

/// A withdrawal as it stands, and what its channel is asked about it with; `None` for what is none of ours.
///
/// # Errors
/// When the database cannot be reached.
pub async fn ask_about(app: &App, withdrawal_id: &str) -> Result<Option<(Withdrawal, PayoutCall)>, DbError> {
    let found = store::find(&mut app.db.conn().await?, withdrawal_id).await?;
    found.map(|withdrawal| call(&withdrawal).map(|call| (withdrawal, call))).transpose()
}

pub(super) fn call(withdrawal: &Withdrawal) -> Result<PayoutCall, DbError> {
    Ok(PayoutCall {
        payout_id: withdrawal.withdrawal_id.to_string(),
        money: crate::pay::money_of(withdrawal.amount, withdrawal.currency)?,
        account: withdrawal.account.clone(),
    })
}

/// Has a withdrawal driven on whose task was given up, and locks it; one that has ended stays as it is.
pub(crate) async fn drive_on_in_tx(
    tx: &mut Tx,
    withdrawal_id: &str,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    match store::lock(tx, withdrawal_id).await? {
        Some(withdrawal) if !withdrawal.status.is_end() => {
            compensation::finish_dead(tx, Action::DriveWithdrawal, withdrawal_id, now).await?;
            append_task_in_tx(tx, &withdrawal, now).await
        }
        _ => Ok(()),
    }
}

/// From here on the channel may have been asked. `false` when another worker has the task, or was faster.
async fn begin(app: &App, withdrawal_id: &str, hold: Hold) -> Result<bool, DbError> {
    let now = app.now();
    let mut tx = app.db.begin().await?;
    let begun = async {
        let Some(withdrawal) = store::lock(&mut tx, withdrawal_id).await? else { return Ok(false) };
        let is_begun = withdrawal.status != WithdrawalStatus::Debited;
        // By the time at which the row is ours: that was waited for.
        if is_begun || !compensation::is_leased_in_tx(&mut tx, hold, app.now()).await? {
            return Ok(false);
        }
        let asked = Move::to(WithdrawalEvent::PayoutAsked, LegKind::Payout, LegStatus::Processing);
        store::move_locked(&mut tx, &withdrawal, &asked, now).await?;
        ledger::post_in_tx(&mut tx, &[withdrawal.payout()], now).await?;
        Ok(true)
    }
    .await;
    effect!("withdrawals.begin", tx.finish(begun).await)
}

/// The first call, of whoever had its task when it was begun, which is as close before it as a look would be. A refusal may
/// mean that somebody else made it while this worker slept past its lease, so the channel is asked before it is believed.
async fn pay_and_ask(channel: &dyn Channel, call: &PayoutCall) -> Result<PayoutState, CallError> {
    let make = || async { effect!("withdrawals.pay", channel.payout(call).await) };
    channels::make_then_ask(make, || channel.query_payout(call), |state| *state == PayoutState::Unseen)
        .await
        .1
}

/// A payout whose result is unknown. It is asked for again by whoever still has its task then.
async fn ask_redo_ask(
    app: &App,
    task: &Task,
    channel: &dyn Channel,
    call: &PayoutCall,
) -> Result<PayoutState, CallError> {
    let ask = || channel.query_payout(call);
    let redo = || async {
        compensation::may_call(&app.db, task.hold, app.now()).await?;
        effect!("withdrawals.repay", channel.payout(call).await)
    };
    let has_settled = task.has_rested(app.config.channels.settles_within(), app.now());
    channels::ask_redo_ask(ask, redo, |state| *state == PayoutState::Unseen, has_settled).await.1
}

/// Writes down that a payout was made, as the channel has answered whoever had seen the withdrawal so; gives whether our books say
/// so by then.
///
/// # Errors
/// When the database is away: to be tried again.
pub async fn note_made(
    app: &App,
    seen: &Withdrawal,
    channel_payout_id: String,
) -> Result<bool, WithdrawalError> {
    let end = End::Made(channel_payout_id, Heard::Now(seen.returned_times));
    Ok(write_end(app, seen.withdrawal_id.as_str(), &end).await? == Written::Stands)
}

/// The same, as the channel had answered when it could not be written.
///
/// # Errors
/// When the database is away: the task tries again.
pub async fn replay(
    app: &App,
    withdrawal_id: &str,
    channel_payout_id: String,
) -> Result<Drive, WithdrawalError> {
    Ok(write_end(app, withdrawal_id, &End::Made(channel_payout_id, Heard::Once)).await?.drive())
}

/// Writes the end; one that is there already stays. One that was made and cannot be written is put aside.
async fn finish(app: &App, withdrawal_id: &str, end: &End) -> Result<Drive, WithdrawalError> {
    let finished = write_end(app, withdrawal_id, end).await;
    let made = || match end {
        End::Made(number, _) => Some(Update::PayoutMade {
            withdrawal_id: withdrawal_id.to_owned(),
            channel_payout_id: number.clone(),
        }),
        End::Refused(..) => None,
    };
    spill_if_lost(&app.redis, &finished, made).await;
    Ok(finished?.drive())
}

async fn write_end(app: &App, withdrawal_id: &str, end: &End) -> Result<Written, DbError> {
    app.db
        .retrying(|| async {
            let mut tx = app.db.begin().await?;
            let finished = finish_in_tx(app, &mut tx, withdrawal_id, end, app.now()).await;
            effect!("withdrawals.finish", tx.finish(finished).await)
        })
        .await
}

async fn finish_in_tx(
    app: &App,
    tx: &mut Tx,
    withdrawal_id: &str,
    end: &End,
    now: OffsetDateTime,
) -> Result<Written, DbError> {
    let Some(withdrawal) = store::lock(tx, withdrawal_id).await? else {
        if let End::Made(channel_payout_id, _) = end {
            show_unknown_in_tx(app, tx, withdrawal_id, channel_payout_id, now).await?;
        }
        return Ok(Written::Otherwise);
    };
    match (withdrawal.status, end) {
        (WithdrawalStatus::Paying, _) => {}
        (WithdrawalStatus::Created | WithdrawalStatus::Debited, _) => return Ok(Written::NotBegun),
        (WithdrawalStatus::Succeeded | WithdrawalStatus::Reversed, End::Made(channel_payout_id, heard)) => {
            note_made_in_tx(app, tx, &withdrawal, (channel_payout_id, *heard), now).await?;
            return Ok(Written::Stands);
        }
        (WithdrawalStatus::Reversed, End::Refused(..)) => return Ok(Written::Stands),
        _ => return Ok(Written::Otherwise),
    }
    let (status, failure) = match end {
        End::Made(channel_payout_id, _) => {
            succeed_in_tx(tx, &withdrawal, channel_payout_id, now).await?;
            (WithdrawalStatus::Succeeded, None)
        }
        // Whoever has the task by now may have made it since.
        End::Refused(_, hold) if !compensation::is_held_in_tx(tx, *hold).await? => {
            return Ok(Written::Otherwise);
        }
        End::Refused(refusal, _) => {
            let failure = refusal.to_string();
            give_back_in_tx(tx, &withdrawal, &failure, now).await?;
            (WithdrawalStatus::Reversed, Some(failure))
        }
    };
    compensation::settle_given_up_in_tx(tx, Action::DriveWithdrawal, withdrawal_id, now).await?;
    let event = Event::WithdrawalFinished {
        withdrawal_no: withdrawal.withdrawal_no.to_string(),
        user_id: withdrawal.user_id.to_string(),
        status: status.as_str(),
        amount: withdrawal.amount,
        currency: withdrawal.currency,
        failure,
    };
    outbox::append_in_tx(tx, Some(withdrawal.merchant_id.as_str()), None, &event, now).await?;
    Ok(Written::Stands)
}

async fn succeed_in_tx(
    tx: &mut Tx,
    withdrawal: &Withdrawal,
    channel_payout_id: &str,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    let succeeded = Move::to(WithdrawalEvent::PayoutSucceeded, LegKind::Payout, LegStatus::Succeeded);
    store::move_locked(tx, withdrawal, &succeeded.known_as(channel_payout_id), now).await?;
    ledger::post_in_tx(tx, &[withdrawal.payout_done()], now).await
}

/// Nothing has gone out: what was booked on the way is taken back, and the user has the money again.
async fn give_back_in_tx(
    tx: &mut Tx,
    withdrawal: &Withdrawal,
    failure: &str,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    let refused = Move::to(WithdrawalEvent::PayoutRefused, LegKind::Payout, LegStatus::Failed);
    let reversing = store::move_locked(tx, withdrawal, &refused.because(failure), now).await?;
    ledger::reverse_in_tx(tx, &withdrawal.bookings_to_reverse(), now).await?;
    let given_back = Move::to(WithdrawalEvent::GivenBack, LegKind::Reversal, LegStatus::Succeeded);
    store::move_locked(tx, &reversing, &given_back, now).await?;
    Ok(())
}

/// The channel says of a withdrawal that has ended that it made it.
async fn note_made_in_tx(
    app: &App,
    tx: &mut Tx,
    withdrawal: &Withdrawal,
    (channel_payout_id, heard): (&str, Heard),
    now: OffsetDateTime,
) -> Result<(), DbError> {
    let is_news = heard == Heard::Now(withdrawal.returned_times);
    // What was answered before it came back says nothing against that: under another number a person is shown it.
    if withdrawal.is_out() || withdrawal.returned_times > 0 && !is_news {
        return show_if_made_twice_in_tx(app, tx, withdrawal, channel_payout_id, now).await;
    }
    note_after_all_in_tx(app, tx, withdrawal, channel_payout_id, now).await
}

/// The money went out although the channel had refused to send it, or it had come back, and the user had it again: it is taken from
/// them, once, their merchant is told, and a person must hear of it.
async fn note_after_all_in_tx(
    app: &App,
    tx: &mut Tx,
    withdrawal: &Withdrawal,
    channel_payout_id: &str,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    store::set_made_after_all(tx, withdrawal, channel_payout_id, now).await?;
    let Withdrawal { channel, withdrawal_no, user_id, amount, currency, .. } = withdrawal;
    let what = format!("withdrawal {withdrawal_no} of {amount} {currency} (minor units)");
    let before = match withdrawal.returned_at {
        None => format!("{channel} had refused {what}"),
        Some(returned_at) => format!("{what} came back at {returned_at}, as was said"),
    };
    let detail = format!(
        "{before}, and {channel} made it after all as {channel_payout_id}; user {user_id} had it again: it is taken from what they \
         have, and what that lacks is owed"
    );
    let exception = NewException {
        kind: ExceptionKind::Contradiction,
        merchant_id: Some(withdrawal.merchant_id.as_str()),
        order_no: None,
        subject: withdrawal.withdrawal_id.as_str(),
        detail: &detail,
    };
    // What a version before has shown says that they have it twice.
    let (id, by) = (withdrawal.withdrawal_id.as_str(), ("payonce", "it is booked, and is shown anew"));
    exceptions::settle_by_in_tx(tx, id, Some(exception.kind), ExceptionAction::None, by, now).await?;
    exceptions::open_in_tx(tx, &app.ids, &exception, now).await?;

    let [has] = ledger::lock_balances_in_tx(tx, [&withdrawal.debtor().available()]).await?;
    let (posting, owed) = withdrawal.payout_after_all(has);
    let event = Event::WithdrawalMadeAfterAll {
        withdrawal_no: withdrawal_no.to_string(),
        user_id: user_id.to_string(),
        amount: *amount,
        owed,
        currency: *currency,
    };
    outbox::append_in_tx(tx, Some(withdrawal.merchant_id.as_str()), None, &event, now).await?;
    ledger::post_in_tx(tx, &[posting], now).await
}

/// One of ours went out under two numbers of the channel's: its money may have gone twice.
async fn show_if_made_twice_in_tx(
    app: &App,
    tx: &mut Tx,
    withdrawal: &Withdrawal,
    channel_payout_id: &str,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    let Some(known) = withdrawal.channel_payout_id.as_deref().filter(|known| *known != channel_payout_id)
    else {
        return Ok(());
    };
    let Withdrawal { channel, withdrawal_no, amount, currency, .. } = withdrawal;
    let detail = format!(
        "{channel} says that it made withdrawal {withdrawal_no} of {amount} {currency} (minor units) as \
         {channel_payout_id}; it had said as {known}: it may have gone out twice"
    );
    let exception = NewException {
        kind: ExceptionKind::Contradiction,
        merchant_id: Some(withdrawal.merchant_id.as_str()),
        order_no: None,
        subject: withdrawal.withdrawal_id.as_str(),
        detail: &detail,
    };
    exceptions::tell_in_tx(tx, &app.ids, &exception, now).await
}

/// Money went out under a number of ours of which the database knows nothing any more: it may be asked for once more.
async fn show_unknown_in_tx(
    app: &App,
    tx: &mut Tx,
    withdrawal_id: &str,
    channel_payout_id: &str,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    let exception = NewException {
        kind: ExceptionKind::UnknownOrder,
        merchant_id: None,
        order_no: None,
        subject: withdrawal_id,
        detail: &format!("withdrawal {withdrawal_id} was made as {channel_payout_id}, and is not here"),
    };
    exceptions::open_in_tx(tx, &app.ids, &exception, now).await
}
