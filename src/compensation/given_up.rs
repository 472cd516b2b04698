//! What is given up, and what of that comes to its end all the same.

use time::OffsetDateTime;

use super::model::Action;
use super::run::Crew;
use super::store::{self, Claimed, End};
use super::verdict::count;
use crate::exceptions::{self, ExceptionKind, NewException};
use crate::infra::crash::effect;
use crate::infra::db::{DbError, Tx};

/// Gives a task up: `DEAD`, with an open exception.
pub(super) async fn give_up(crew: &Crew<'_>, row: &Claimed, error: &str) -> Result<(), DbError> {
    let write = || async {
        let mut tx = crew.db.begin().await?;
        let written = give_up_in_tx(crew, &mut tx, row, error).await;
        effect!("tasks.dead", tx.finish(written).await)
    };
    // Whoever resolves an exception locks it before its task.
    if let Some(outcome) = crew.db.retrying(write).await? {
        count(row, outcome);
    }
    Ok(())
}

/// Gives what the task came to; nothing when somebody else has it, or it came to its end another way. One whose thing has
/// ended, as by a callback during this very try, is done.
async fn give_up_in_tx(
    crew: &Crew<'_>,
    tx: &mut Tx,
    row: &Claimed,
    error: &str,
) -> Result<Option<&'static str>, DbError> {
    let now = crew.clock.now();
    // The thing before its task, as by whoever brings it to its end.
    if let Some(task) = row.task()
        && (crew.has_ended_in_tx)(tx, &task).await?
    {
        let done = End { hold: row.hold(), again: None, untried_since: None };
        store::finish(tx, &[done], now).await?;
        return Ok(Some("done"));
    }
    if !store::set_dead(tx, row, error, now).await? {
        return Ok(None);
    }
    // A sweep writes a new task for what goes on without one: of all that were given up the last stands for them.
    if let Some(action) = Action::of(&row.action) {
        store::finish_dead_before(tx, action, &row.subject, Some(row.id), now).await?;
    }
    // What is open about its thing stays so, and locked: whoever resolves it meanwhile, with another task of the same thing,
    // sees this one.
    let exception = NewException {
        kind: ExceptionKind::DeadTask,
        merchant_id: row.merchant_id.as_deref(),
        order_no: row.order_no.as_deref(),
        subject: &row.subject,
        detail: &format!("{} of {} failed {} times: {error}", row.action, row.subject, row.attempts),
    };
    exceptions::open_in_tx(tx, crew.ids, &exception, now).await?;
    Ok(Some("dead"))
}

/// A locked thing comes to its end, and nobody need see to it any more: its task may have been given up before.
pub(crate) async fn settle_given_up_in_tx(
    tx: &mut Tx,
    action: Action,
    subject: &str,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    // The task before what is open about it, as by whoever has it tried again.
    store::finish_dead(tx, action, subject, now).await?;
    settle_shown_in_tx(tx, &[subject.to_owned()], exceptions::BY_ITSELF, now).await
}

/// Resolves what a person was shown of tasks for these things, which were given up and are no more. One exception shows all
/// that was given up about a thing: it stays open while anything else is.
pub(crate) async fn settle_shown_in_tx(
    tx: &mut Tx,
    subjects: &[String],
    by: (&str, &str),
    now: OffsetDateTime,
) -> Result<(), DbError> {
    let shown = exceptions::lock_open(tx, subjects, ExceptionKind::DeadTask).await?;
    if shown.is_empty() {
        return Ok(());
    }
    // Read behind the lock, which whoever gives one up takes too.
    let over = store::leave_given_up(tx, &shown).await?;
    exceptions::settle_all_in_tx(tx, &over, ExceptionKind::DeadTask, by, now).await
}
