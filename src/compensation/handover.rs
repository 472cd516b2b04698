//! Tasks that are in hand from their first row on: whoever writes one that is due at once, in a process whose workers have a
//! slot for it, writes it as taken and hands it over. It needs no claim then, and its thing no beginning of its own.
//!
//! Always true: such a task is a row under a lease like any other, written with the state that needs it. When its process
//! dies, or the answer to its commit is lost, whoever comes behind the lease takes it over. Without a slot a task waits for a
//! worker, as all others do.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until};

use super::model::Task;

/// Tasks in hand at once, from before their rows are there. They take no place of those that are claimed. Most of them share
/// their statements, and few at a time do not, so they take few connections.
const SLOTS: usize = 512;
/// How long there are no slots behind a task that came to no end in hand, as at a channel that is silent: what waits for a
/// worker has not been begun, and need not be asked about first.
const RESTS: Duration = Duration::from_secs(5);

/// How tasks get from those who write them to the workers of the same process. Closed until these begin.
#[derive(Clone, Debug)]
pub struct Handover(Arc<Inside>);

#[derive(Debug)]
struct Inside {
    slots: Arc<Semaphore>,
    queue: Mutex<Queue>,
    bell: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Handed>,
    taken_at: Option<Instant>,
    rests_until: Option<Instant>,
}

/// Room for one task, until it has been tried and come down.
#[derive(Debug)]
pub struct Slot {
    of: Handover,
    _permit: OwnedSemaphorePermit,
}

/// A task in hand.
#[derive(Debug)]
pub(super) struct Handed {
    pub(super) task: Task,
    pub(super) slot: Slot,
}

impl Default for Handover {
    fn default() -> Self {
        let slots = Arc::new(Semaphore::new(0));
        Self(Arc::new(Inside { slots, queue: Mutex::default(), bell: Arc::default() }))
    }
}

impl Handover {
    /// What is handed over so shortly behind another one waits for this long, so that it shares its statements: nobody waits
    /// for it. Of one alone hardly ever anything is held back, and for twice as long at most.
    pub const PAUSE: Duration = Duration::from_millis(50);

    /// Workers begin; once a process.
    pub fn open(&self) {
        self.0.slots.add_permits(SLOTS);
    }

    /// Workers will end: what is written from now on waits for others.
    pub fn close(&self) {
        self.0.slots.close();
    }

    /// Room for one more, to be had before its row is written.
    pub fn slot(&self) -> Option<Slot> {
        if self.queue().rests_until.is_some_and(|until| Instant::now() < until) {
            return None;
        }
        let permit = self.0.slots.clone().try_acquire_owned().ok()?;
        Some(Slot { of: self.clone(), _permit: permit })
    }

    /// Hands a task over whose row says that it is taken.
    pub fn give(&self, slot: Slot, task: Task) {
        self.queue().waiting.push_back(Handed { task, slot });
        self.0.bell.notify_one();
    }

    /// Rings when a task was handed over.
    #[must_use]
    pub fn bell(&self) -> Arc<Notify> {
        self.0.bell.clone()
    }

    /// What was handed over by now.
    pub(super) fn take_all(&self) -> VecDeque<Handed> {
        let mut queue = self.queue();
        if !queue.waiting.is_empty() {
            queue.taken_at = Some(Instant::now());
        }
        std::mem::take(&mut queue.waiting)
    }

    /// What is handed over next.
    pub(super) async fn next(&self) -> VecDeque<Handed> {
        let taken_at = self.queue().taken_at;
        if let Some(taken_at) = taken_at {
            sleep_until(taken_at + Self::PAUSE).await;
        }
        self.0.bell.notified().await;
        self.take_all()
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.0.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slot {
    /// Its task was tried and came to no end: no slots are given for a while.
    pub(super) fn rest(&self) {
        self.of.queue().rests_until = Some(Instant::now() + RESTS);
    }
}
