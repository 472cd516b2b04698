//! The worker: claims what is due, has it driven, and writes down what came of it.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::stream::{self, StreamExt};

use super::model::{Drive, Task, retry_after};
use super::store;
use crate::exceptions::{self, ExceptionKind, NewException};
use crate::ids::Ids;
use crate::infra::clock::Clock;
use crate::infra::crash::effect;
use crate::infra::db::{Db, DbError};
use crate::infra::duty::Batch;

/// Tasks of one batch, all under way at once: a silent channel then holds the batch up for one deadline, not for
/// one deadline a task.
const BATCH: usize = 64;

/// Drives one batch of due tasks. `drive` looks at the state it finds and does what is missing. A worker may hold
/// a task for `lease`; afterwards it counts as dead, and another one takes the task over.
///
/// # Errors
/// When the database cannot be reached; leases then hand the tasks on.
pub async fn run_due<F>(
    db: &Db,
    clock: &Clock,
    ids: &Ids,
    lease: Duration,
    drive: impl Fn(Task) -> F + Send + Sync,
) -> Result<Batch, DbError>
where
    F: Future<Output = Result<Drive, String>> + Send,
{
    let now = clock.now();
    let tasks = {
        let mut conn = db.conn().await?;
        let limit = i64::try_from(BATCH).unwrap_or(1);
        effect!("tasks.claim", store::claim_due(&mut conn, now, now + lease, limit).await)?
    };
    let count = tasks.len();
    let drive = &drive;
    let outcomes = stream::iter(tasks)
        .map(|task| async move {
            // A panic is this task's own failure, and none of its neighbours'.
            let outcome = AssertUnwindSafe(drive(task.clone())).catch_unwind().await;
            let outcome = outcome.unwrap_or_else(|_| Err("driving it panicked".into()));
            record(db, clock, ids, &task, outcome).await
        })
        .buffer_unordered(BATCH)
        .collect::<Vec<_>>()
        .await;
    outcomes.into_iter().collect::<Result<Vec<()>, _>>()?;
    Ok(Batch::of(count, BATCH))
}

async fn record(
    db: &Db,
    clock: &Clock,
    ids: &Ids,
    task: &Task,
    outcome: Result<Drive, String>,
) -> Result<(), DbError> {
    let now = clock.now();
    let error = match outcome {
        Ok(Drive::Done) => {
            metrics::counter!("payonce_compensations_total", "action" => task.action.as_str(), "outcome" => "done")
                .increment(1);
            let mut conn = db.conn().await?;
            return effect!("tasks.done", store::set_done(&mut conn, task, now).await);
        }
        Ok(Drive::Again(why)) => why,
        Err(error) => error,
    };
    tracing::info!(task.action = %task.action, task.subject, task.attempts, %error, "a task is not done yet");
    match retry_after(task.action, task.attempts) {
        Some(pause) => {
            let (mut conn, due_at) = (db.conn().await?, now + pause);
            effect!("tasks.retry", store::set_ready(&mut conn, task, due_at, &error, now).await)
        }
        None => give_up(db, ids, task, &error, now).await,
    }
}

async fn give_up(
    db: &Db,
    ids: &Ids,
    task: &Task,
    error: &str,
    now: time::OffsetDateTime,
) -> Result<(), DbError> {
    metrics::counter!("payonce_compensations_total", "action" => task.action.as_str(), "outcome" => "dead")
        .increment(1);
    let mut tx = db.begin().await?;
    let detail = format!("{} of {} failed {} times: {error}", task.action, task.subject, task.attempts);
    let written = async {
        store::set_dead(&mut tx, task, error, now).await?;
        let exception = NewException {
            kind: ExceptionKind::DeadTask,
            merchant_id: task.merchant_id.as_deref(),
            order_no: task.order_no.as_deref(),
            subject: &task.subject,
            detail: &detail,
        };
        exceptions::open_in_tx(&mut tx, ids, &exception, now).await
    }
    .await;
    effect!("tasks.dead", tx.finish(written).await)
}
