//! From a task to the use case that drives it: the facts are read, a pure function says what they call for, and the
//! use case looks again under its own locks and does only what is missing.
//!
//! The facts of as many tasks as are in the air are read by one statement, so a task whose thing has come to its end
//! meanwhile, as most have, costs a share of it and no lock. What takes more finds room at its channel, and, where it is
//! old, moves no money, and somebody is being served, waits for its turn. What wants a channel that only other instances reach is
//! left to them.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::app::App;
use crate::compensation::{self, Action, Crew, Drive, Lane, Task};
use crate::infra::causes::with_causes;
use crate::infra::db::{DbError, Tx};
use crate::infra::duty::{Batch, DutyError};
use crate::infra::gather::{Command, Patience};
use crate::orders::{self, OrderKey};
use crate::{pay, refunds, webhooks, withdrawals};

mod decide;
mod replay;
mod rooms;
#[cfg(test)]
mod simulation;
mod store;
mod turns;

use decide::{Remedy, decide};
use rooms::Rooms;
use store::FindFacts;
use turns::Turns;

/// Tasks of a lane that are worked on at once for one channel: each takes a connection now and then, and those of the
/// sweep leave the connections to what somebody waits for.
const fn room_in(lane: Lane) -> usize {
    match lane {
        Lane::Realtime => 64,
        Lane::Sweep => 4,
    }
}

/// Tasks of a lane that are in the air at once, beside what is in hand: twice what a few silent channels keep in their rooms,
/// because others are claimed as soon as half of them have landed.
const fn in_flight(lane: Lane) -> usize {
    match lane {
        Lane::Realtime => 512,
        Lane::Sweep => 32,
    }
}

/// Tasks of a lane that are claimed in each look past those that found no room. What somebody waits for must not be long
/// behind a backlog of another channel; what is old can be, and 320 a second disturb nobody.
const fn look_ahead(lane: Lane) -> usize {
    match lane {
        Lane::Realtime => 2_048,
        Lane::Sweep => 64,
    }
}

/// For how long a task is left to instances that reach its channel.
const LEFT_AT_LEAST: Duration = Duration::from_secs(2);
const LEFT_AT_MOST: Duration = Duration::from_secs(60);

/// Where the tasks of a lane are worked on.
struct Floor {
    rooms: Rooms,
    /// Of refunds and payouts: somebody's money is on its way, and there are never many.
    of_money: Rooms,
    /// Of what is old. What somebody waits for waits for no turn.
    turns: Option<Turns>,
}

impl Floor {
    fn of(lane: Lane) -> Self {
        let turns = match lane {
            Lane::Realtime => None,
            Lane::Sweep => Some(Turns::new()),
        };
        Self { rooms: Rooms::of(room_in(lane)), of_money: Rooms::of(room_in(lane)), turns }
    }
}

/// Drives what is due in a lane.
///
/// # Errors
/// When the database cannot be reached.
pub async fn run_due(app: &App, lane: Lane) -> Result<Batch, DutyError> {
    let is_stopping = || app.changes.is_over();
    let (wake, handover, low) = match lane {
        Lane::Realtime => (&app.compensation_wake, Some(&app.handover), &app.compensation_low),
        Lane::Sweep => (&app.sweep_wake, None, &app.sweep_low),
    };
    let crew = Crew {
        db: &app.db,
        clock: &app.clock,
        ids: &app.ids,
        lease: app.config.task_lease,
        lane,
        in_flight: in_flight(lane),
        look_ahead: look_ahead(lane),
        wake,
        handover,
        low,
        has_ended_in_tx,
        is_stopping: &is_stopping,
    };
    let floor = Arc::new(Floor::of(lane));
    Ok(compensation::run_due(&crew, |task: Task| drive(app.clone(), task, floor.clone())).await?)
}

/// Brings answers that were put aside back into the database.
///
/// # Errors
/// When the database cannot be reached.
pub async fn drain_spilled(app: &App) -> Result<Batch, DutyError> {
    compensation::drain(&app.redis, &app.db, &app.brought_back, app.now()).await
}

/// What has come to its end is done at once; whatever else must be done takes connections, and finds room or waits.
async fn drive(app: App, task: Task, floor: Arc<Floor>) -> Result<Drive, String> {
    let app = &app;
    if task.is_fresh && task.action == Action::DriveRefund {
        // It has hardly been written, and its slot is its place.
        return carry_out(app, &task, Remedy::Refund).await;
    }
    let (facts, channel) = app.db.gather(FindFacts::of(&task)).await.map_err(|error| with_causes(&error))?;
    let remedy = decide(task.action, &facts);
    if remedy == Remedy::Nothing {
        return Ok(Drive::Done);
    }
    if let Some(left) = left_to_others(app, &task, channel.as_deref()) {
        return Ok(left);
    }
    let rooms = if remedy.moves_money() { &floor.of_money } else { &floor.rooms };
    let _place = match rooms.at(channel).enter(|most| app.ids.between(0, most)).await {
        Ok(place) => place,
        Err(away) => return Ok(Drive::Untried("it waits for room".to_owned(), away)),
    };
    // Only with a place in hand: who has the turn begins at once.
    let _turn = match &floor.turns {
        Some(turns) if !remedy.moves_money() => Some(turns.take(&app.served).await),
        _ => None,
    };
    carry_out(app, &task, remedy).await
}

/// What wants a channel that only other instances reach costs no try here, until none of them has tried it for an hour since it
/// was due. The longer that is, the longer it is left, so that many such tasks keep nobody busy; up to a minute, so that it meets
/// the one of many that reaches its channel.
fn left_to_others(app: &App, task: &Task, channel: Option<&str>) -> Option<Drive> {
    let channel = match task.action {
        Action::RematchCallback => task.subject.split_once('/').map(|(channel, _)| channel),
        _ => channel,
    }?;
    // It rested behind its last try for as long as it should. This claim counts as one until it is left.
    let rest = compensation::retry_after(task.action, task.attempts - 1).unwrap_or_default();
    let (since, now) = (task.touched_at + rest, app.now());
    let is_left = app.channels.leaves_to_others(channel, since, now);
    is_left.then(|| {
        let away = LEFT_AT_LEAST + Duration::try_from(now - since).unwrap_or_default() / 4;
        Drive::Untried(
            format!("there is no channel {channel} here: it is left to others"),
            away.min(LEFT_AT_MOST),
        )
    })
}

/// Does what is missing, unless the process stops.
async fn carry_out(app: &App, task: &Task, remedy: Remedy) -> Result<Drive, String> {
    if app.changes.is_over() {
        return Ok(Drive::Untried("its worker stopped".to_owned(), Duration::ZERO));
    }
    let subject = task.subject.as_str();
    let outcome: Result<Drive, Box<dyn Error + Send + Sync>> = match remedy {
        Remedy::Nothing => Ok(Drive::Done),
        Remedy::LinkOrClose => pay::drive(app, subject).await.map_err(Into::into),
        Remedy::CloseAttempt => pay::end_by_id(app, subject).await.map_err(Into::into),
        Remedy::CloseOrder => match OrderKey::from_member(subject) {
            Some(key) => orders::expire_one(app, &key).await.map_err(Into::into),
            None => Ok(Drive::Never(format!("{subject} is no order"))),
        },
        Remedy::Refund => refunds::drive(app, task).await.map_err(Into::into),
        Remedy::QueryRefund => refunds::resolve_contradiction(app, task).await.map_err(Into::into),
        Remedy::PayOut => withdrawals::drive(app, task).await.map_err(Into::into),
        Remedy::Rematch => webhooks::rematch(app, subject).await.map_err(Into::into),
        Remedy::Replay => replay::replay(app, task).await,
    };
    outcome.map_err(|error| with_causes(error.as_ref()))
}

/// Whether the thing of a task has come to its end, by the rule that spares the way to it.
///
/// Who ends a refund or a withdrawal looks for what was given up about it: these are locked, so that such an end is seen
/// here, or comes behind this transaction and finds what it leaves. What is left about the others a sweep finds.
fn has_ended_in_tx<'t>(tx: &'t mut Tx, task: &'t Task) -> BoxFuture<'t, Result<bool, DbError>> {
    Box::pin(async move {
        match task.action {
            Action::DriveRefund | Action::QueryRefund => refunds::lock_refund(tx, &task.subject).await?,
            Action::DriveWithdrawal => drop(withdrawals::lock(tx, &task.subject).await?),
            Action::DrivePayOrder
            | Action::ClosePayOrder
            | Action::ExpireOrder
            | Action::RematchCallback
            | Action::ApplyUpdate => {}
        }
        let found = FindFacts::carry_out(&[FindFacts::of(task)], Patience::ALONE, tx).await?;
        Ok(found.first().is_some_and(|(facts, _)| decide(task.action, facts) == Remedy::Nothing))
    })
}
