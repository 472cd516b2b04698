//! The worker of a lane: claims what is due, takes what is handed over, has it driven, and writes down what came of it.
//!
//! Claims, renewals and ends are one statement each for as many tasks as there are. Tasks fly side by side and land by
//! themselves: a silent channel holds up the tasks that speak to it, and no others. A worker that lives keeps the
//! leases of what it has in the air, whatever else it waits for, so a slow try is not doubled, and what only waits for
//! room loses no try; a dead one renews nothing, and its tasks are taken over when their leases end. No try lasts for
//! ever.
//!
//! What finds no room is put back, and others are claimed past it, so many in each look. A backlog that waits for a
//! channel is so passed at a bounded pace, and what can be tried is claimed as fast as it is.

use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use time::OffsetDateTime;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::given_up::give_up;
use super::handover::{Handed, Handover, Slot};
use super::held::Held;
use super::model::{Drive, Lane, Task};
use super::schedule::retry_of;
use super::store::{self, Claimed};
use super::verdict::{Verdict, judge, write_down};
use crate::ids::Ids;
use crate::infra::clock::Clock;
use crate::infra::crash::effect;
use crate::infra::db::{Db, DbError, Tx};
use crate::infra::duty::Batch;
use crate::infra::lease;
use crate::infra::low_water::LowWater;
use crate::infra::panics::message_of;

/// Tasks after which a session ends, as soon as nothing is in the air.
const SESSION: usize = 10_000;
/// How often a worker that waits for slow tasks looks for others.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// A try that lasts longer than this hangs, and has failed.
const HANGS_AFTER: Duration = Duration::from_secs(90);
/// Claims beyond the schedule that may have been lost with their workers.
const MAX_LOST: i32 = 3;

/// What the workers of a lane go by.
#[derive(Clone, Copy)]
pub struct Crew<'a> {
    /// Where the tasks are.
    pub db: &'a Db,
    /// By which time.
    pub clock: &'a Clock,
    /// Names exceptions.
    pub ids: &'a Ids,
    /// How long a task is held without being renewed; afterwards its worker counts as dead.
    pub lease: Duration,
    /// Whose tasks.
    pub lane: Lane,
    /// Tasks in the air at once, beside those that were handed over.
    pub in_flight: usize,
    /// Tasks that may be claimed and found to have no room in each look, of which there are five a second.
    pub look_ahead: usize,
    /// Rings when something became due.
    pub wake: &'a Notify,
    /// Whence those come that are in hand from their first row on.
    pub handover: Option<&'a Handover>,
    /// When the first one that waits is due.
    pub low: &'a LowWater<OffsetDateTime>,
    /// Whether the thing of a task has come to its end; an end that looks for what was given up waits for the transaction.
    pub has_ended_in_tx: for<'t> fn(&'t mut Tx, &'t Task) -> BoxFuture<'t, Result<bool, DbError>>,
    /// Whether the process stops: then nothing new is claimed.
    pub is_stopping: &'a (dyn Fn() -> bool + Sync),
}

/// Drives due tasks until none is left, or so many that another lap is due. `drive` looks at the state it finds and does
/// what is missing.
///
/// # Errors
/// When the database cannot be reached; what was in the air has landed then, and leases hand the tasks on.
pub async fn run_due<F>(crew: &Crew<'_>, drive: impl Fn(Task) -> F) -> Result<Batch, DbError>
where
    F: Future<Output = Result<Drive, String>> + Send + 'static,
{
    let held = Held::default();
    // Side by side: what is claimed or written down just now may have to wait, and the leases do not wait for it.
    tokio::select! {
        outcome = work(Session::new(crew, &held), &drive) => outcome,
        never = lease::keep(crew.lease, || renew(crew, &held)) => match never {},
    }
}

async fn work<F>(mut session: Session<'_>, drive: &impl Fn(Task) -> F) -> Result<Batch, DbError>
where
    F: Future<Output = Result<Drive, String>> + Send + 'static,
{
    let crew = session.crew;
    // Each by itself: one that has a connection in its hand goes on while the session waits for another.
    let mut flying = Flying::new();
    session.take_over(&mut flying, crew.handover.map(Handover::take_all).unwrap_or_default(), drive);
    let mut look = interval_at(Instant::now() + LOOK_EVERY, LOOK_EVERY);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let most = session.claimable(flying.len());
        if most > 0 {
            let claimed = session.claim(most).await;
            for row in claimed {
                let outcome = row.task().map(drive);
                session.board(&mut flying, row, outcome, None);
            }
        }
        if flying.is_empty() {
            return session.end();
        }
        tokio::select! {
            Some(first) = flying.join_next() => {
                // What landed meanwhile is written down with it.
                let others = std::iter::from_fn(|| flying.try_join_next());
                let landed = std::iter::once(first).chain(others).filter_map(Result::ok).collect();
                session.land(landed).await;
            }
            _ = look.tick() => session.try_again(),
            () = crew.wake.notified() => session.look_again(),
            handed = next(crew.handover) => session.take_over(&mut flying, handed, drive),
        }
    }
}

/// What is handed over next, in a lane that gets anything so.
async fn next(handover: Option<&Handover>) -> VecDeque<Handed> {
    match handover {
        Some(handover) => handover.next().await,
        None => std::future::pending().await,
    }
}

/// Keeps what is in the air. What is lost to somebody else is let go; every write of such a try names the state that it was decided on.
async fn renew(crew: &Crew<'_>, held: &Held) {
    let asked = held.all();
    if asked.is_empty() {
        return;
    }
    let now = crew.clock.now();
    let lost = async {
        let mut conn = crew.db.conn().await?;
        effect!("tasks.renew", store::renew(&mut conn, &asked, now + crew.lease, now).await)
    };
    match lost.await {
        Ok(lost) => lost.into_iter().for_each(|hold| held.let_go(hold)),
        // The next one may be in time; otherwise somebody takes the tasks over.
        Err(error) => tracing::debug!(%error, "leases could not be renewed"),
    }
}

/// What driving a task came to, in the words of whoever drove it.
pub(super) type Outcome = Result<Drive, String>;
/// Tries under way.
type Flying = JoinSet<Landed>;

/// A try that has come to its end.
struct Landed {
    row: Claimed,
    outcome: Outcome,
    /// Of what was handed over.
    slot: Option<Slot>,
}

/// Makes one try. A panic is this task's own failure, and none of its neighbours'.
async fn fly(row: &Claimed, drive: Option<impl Future<Output = Outcome>>) -> Outcome {
    match drive {
        _ if has_lost_too_many(row) => Ok(Drive::Never("its tries were lost with their workers".to_owned())),
        Some(drive) => {
            match tokio::time::timeout(HANGS_AFTER, AssertUnwindSafe(drive).catch_unwind()).await {
                Ok(Ok(outcome)) => outcome,
                Ok(Err(panic)) => Err(format!("driving it panicked: {}", message_of(panic.as_ref()))),
                Err(_) => Err("it hangs".to_owned()),
            }
        }
        None => Err(format!("this version knows no {}", row.action)),
    }
}

/// A claim counts as a try before it is made: what takes its workers with it each time must end too.
fn has_lost_too_many(row: &Claimed) -> bool {
    row.attempts > MAX_LOST && retry_of(&row.action, row.attempts - MAX_LOST).is_none()
}

/// One lap of a worker: what it holds, and what went wrong.
struct Session<'a> {
    crew: &'a Crew<'a>,
    held: &'a Held,
    /// Tasks that were claimed or taken over.
    taken: usize,
    /// Of what is in the air, what was handed over: its slots bound it, and it takes no place of what is claimed.
    in_hand: usize,
    /// What may still be claimed before the next look: one more for each try of what was claimed.
    ahead: usize,
    /// Nothing was due when it last looked.
    is_idle: bool,
    failure: Option<DbError>,
}

impl<'a> Session<'a> {
    const fn new(crew: &'a Crew<'a>, held: &'a Held) -> Self {
        let ahead = crew.look_ahead;
        Self { crew, held, taken: 0, in_hand: 0, ahead, is_idle: false, failure: None }
    }

    /// How many may be claimed while so many are in the air: none before half of what was claimed has landed. A session that
    /// has done enough goes on as long as slow ones keep it: the others do not wait for them.
    fn claimable(&self, flying: usize) -> usize {
        let has_done_enough = self.taken >= SESSION && flying == 0;
        let claimed = flying.saturating_sub(self.in_hand);
        let is_full = claimed > self.crew.in_flight / 2;
        if is_full || self.is_idle || self.failure.is_some() || has_done_enough || (self.crew.is_stopping)() {
            return 0;
        }
        self.ahead.min(self.crew.in_flight - claimed)
    }

    fn look_again(&mut self) {
        self.is_idle = false;
    }

    /// The database may be there again, and what is due does not wait for the slow ones in the air.
    fn try_again(&mut self) {
        self.look_again();
        self.ahead = self.crew.look_ahead;
        if let Some(error) = self.failure.take() {
            tracing::warn!(%error, lane = %self.crew.lane, "the session goes on after a failure");
        }
    }

    async fn claim(&mut self, limit: usize) -> Vec<Claimed> {
        let crew = self.crew;
        let now = crew.clock.now();
        let claimed = async {
            let (mut conn, limit) = (crew.db.conn().await?, i64::try_from(limit).unwrap_or(1));
            let (look, until) = (crew.low.look(), now + crew.lease);
            let due = (look.from.unwrap_or(OffsetDateTime::UNIX_EPOCH), now);
            let rows =
                effect!("tasks.claim", store::claim_due(&mut conn, crew.lane, due, until, limit).await)?;
            crew.low.found(&look, rows.iter().map(|row| row.was_due_at).min());
            Ok(rows)
        };
        let rows = claimed.await.unwrap_or_else(|error: DbError| {
            self.failure = Some(error);
            Vec::new()
        });
        self.is_idle = rows.len() < limit;
        self.taken += rows.len();
        self.ahead = self.ahead.saturating_sub(rows.len());
        rows.iter().for_each(|row| self.note_lateness(row, now));
        rows
    }

    /// Has tasks tried that were taken as they were written.
    fn take_over<F>(&mut self, flying: &mut Flying, handed: VecDeque<Handed>, drive: &impl Fn(Task) -> F)
    where
        F: Future<Output = Result<Drive, String>> + Send + 'static,
    {
        let now = self.crew.clock.now();
        self.taken += handed.len();
        self.in_hand += handed.len();
        for Handed { task, slot } in handed {
            let row = Claimed::from(&task);
            self.note_lateness(&row, now);
            self.board(flying, row, Some(drive(task)), Some(slot));
        }
    }

    /// Has a task tried, which is held meanwhile, as is the slot that it may have.
    fn board<F>(&self, flying: &mut Flying, row: Claimed, drive: Option<F>, slot: Option<Slot>)
    where
        F: Future<Output = Result<Drive, String>> + Send + 'static,
    {
        self.held.hold(row.hold());
        flying.spawn(async move {
            let outcome = fly(&row, drive).await;
            if let (Some(slot), Ok(Drive::Again(_)) | Err(_)) = (&slot, &outcome) {
                slot.rest();
            }
            Landed { row, outcome, slot }
        });
    }

    fn note_lateness(&self, row: &Claimed, now: OffsetDateTime) {
        let late = (now - row.was_due_at).as_seconds_f64().max(0.0);
        metrics::histogram!("payonce_task_lateness_seconds", "lane" => self.crew.lane.as_str()).record(late);
    }

    async fn land(&mut self, landed: Vec<Landed>) {
        let (mut ends, mut given_up, mut holds) = (Vec::new(), Vec::new(), Vec::new());
        for Landed { row, outcome, slot } in landed {
            holds.push(row.hold());
            let verdict = judge(self.crew, &row, outcome);
            let is_untried = matches!(&verdict, Verdict::End(end) if end.untried_since.is_some());
            self.in_hand -= usize::from(slot.is_some());
            self.ahead += usize::from(slot.is_none() && !is_untried);
            match verdict {
                Verdict::End(end) => ends.push(end),
                Verdict::GiveUp(error) => given_up.push((row, error)),
            }
        }
        if !ends.is_empty()
            && let Err(error) = write_down(self.crew, &ends).await
        {
            self.failure = Some(error);
        }
        for (row, error) in given_up {
            let outcome = give_up(self.crew, &row, &error).await;
            self.failure = outcome.err().or_else(|| self.failure.take());
        }
        // Kept until then: each of them may have to wait.
        holds.into_iter().for_each(|hold| self.held.let_go(hold));
    }

    fn end(self) -> Result<Batch, DbError> {
        match self.failure {
            Some(error) => Err(error),
            None if self.taken == 0 => Ok(Batch::Empty),
            None => Ok(Batch::of(self.taken, SESSION)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(action: &str) -> Claimed {
        let now = time::OffsetDateTime::UNIX_EPOCH;
        Claimed {
            id: 1,
            action: action.to_owned(),
            subject: "it".to_owned(),
            merchant_id: None,
            order_no: None,
            attempts: 1,
            claim: 1,
            created_at: now,
            was_due_at: now,
            was_touched_at: now,
            payload: None,
        }
    }

    async fn panicking(how: u8) -> Outcome {
        match how {
            0 => panic!("a defect, on purpose"),
            1 => panic!("defect {how}"),
            _ => std::panic::panic_any(how),
        }
    }

    #[tokio::test]
    async fn a_panic_is_the_failure_of_its_task_and_says_why() {
        for (how, told) in [(0, "a defect, on purpose"), (1, "defect 1"), (2, "without a word")] {
            let outcome = fly(&row("DRIVE_REFUND"), Some(panicking(how))).await;
            assert_eq!(outcome, Err(format!("driving it panicked: {told}")));
        }
    }

    #[tokio::test]
    async fn what_takes_its_workers_with_it_is_given_up_before_it_is_tried_again() {
        let lost = |attempts| Claimed { attempts, ..row("DRIVE_REFUND") };
        // Twelve pauses, and three more.
        assert!(!has_lost_too_many(&lost(1)) && !has_lost_too_many(&lost(15)));
        let outcome = fly(&lost(16), Some(async { Ok(Drive::Done) })).await;
        assert!(matches!(outcome, Ok(Drive::Never(_))), "{outcome:?}");
    }

    #[tokio::test]
    async fn what_this_version_does_not_know_waits_for_one_that_does() {
        let row = row("OF_ANOTHER_VERSION");
        let unknown = row.task().map(|_| async { Ok(Drive::Done) });
        assert_eq!(fly(&row, unknown).await, Err("this version knows no OF_ANOTHER_VERSION".to_owned()));
    }
}
