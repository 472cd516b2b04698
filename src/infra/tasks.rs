//! Work that outlives its caller: a client that hangs up cancels only the wait, and equal requests share a run.
//!
//! Work may hold a place among so many that are under way. It gives it back while it waits for somebody else: for an
//! answer from outside, or for the work of another request.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::{BoxFuture, Shared};
use futures_util::{FutureExt, TryFutureExt};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

/// A task ended without a result: it panicked, or it ran into its deadline.
#[derive(Clone, Copy, Debug, thiserror::Error)]
pub enum TaskFailed {
    /// A defect.
    #[error("the work ended in a panic")]
    Panicked,
    /// Something it waits for hangs. What it did so far is in the database.
    #[error("the work did not end before its deadline")]
    TimedOut,
}

/// What work holds for as long as it lasts, but for the time in which it only waits.
pub trait Place: Send + Sync {
    /// Gives it back for a while; `false` where there was nothing to give back, or where too many are away already.
    fn leave(&self) -> bool;
    /// Has it again, also where all others are taken: what was begun is not turned away any more.
    fn come_back(&self);
}

tokio::task_local! {
    static HELD: Arc<dyn Place>;
}

/// Holds a place for as long as `work` takes, and as any work that is begun in it and outlives it.
pub async fn holding<T>(place: Arc<dyn Place>, work: impl Future<Output = T>) -> T {
    HELD.scope(place, work).await
}

/// How long work keeps its place while it waits for an answer from outside.
const BRIEF: Duration = Duration::from_millis(20);

/// Waits for an answer from outside, which may never come: no place is held after the first 20 ms. A quick answer
/// leaves no gap for a newcomer, and what answers in this very process is work of this machine.
pub async fn away_when_long<T>(wait: impl Future<Output = T>) -> T {
    let mut wait = std::pin::pin!(wait);
    match tokio::time::timeout(BRIEF, wait.as_mut()).await {
        Ok(answer) => answer,
        Err(_) => away(wait).await,
    }
}

/// Waits for somebody else: no place is held meanwhile.
pub async fn away<T>(wait: impl Future<Output = T>) -> T {
    let held = HELD.try_with(Clone::clone).ok();
    let _away = Away(held.filter(|place| place.leave()));
    wait.await
}

/// Time away from a place, which ends also when the wait is given up.
struct Away(Option<Arc<dyn Place>>);

impl Drop for Away {
    fn drop(&mut self) {
        if let Some(place) = &self.0 {
            place.come_back();
        }
    }
}

/// Longest life of one piece of work: two calls to a channel and the statements around them.
const DEADLINE: Duration = Duration::from_secs(30);

/// All owned work of the process; a stop waits for it.
#[derive(Clone, Debug)]
pub struct Tasks {
    tracker: TaskTracker,
    deadline: Duration,
}

impl Default for Tasks {
    fn default() -> Self {
        Self { tracker: TaskTracker::new(), deadline: DEADLINE }
    }
}

impl Tasks {
    /// The same, for work that may take so long.
    #[must_use]
    pub fn with_deadline(&self, deadline: Duration) -> Self {
        Self { deadline, ..self.clone() }
    }

    /// Runs work to its end, whatever becomes of the caller.
    ///
    /// # Errors
    /// [`TaskFailed`] when it panicked or took too long.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, TaskFailed> {
        match self.spawn(Box::pin(work)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(TaskFailed::Panicked),
        }
    }

    /// Starts work that is large on the heap: a task is moved a few times before it runs.
    fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + Unpin + 'static,
    ) -> JoinHandle<Result<T, TaskFailed>> {
        let bounded = tokio::time::timeout(self.deadline, work).map_err(|_| TaskFailed::TimedOut);
        let held = HELD.try_with(Clone::clone).ok();
        let holding = async move {
            match held {
                Some(place) => holding(place, bounded).await,
                None => bounded.await,
            }
        };
        // The lines that it logs belong to the request that began it.
        self.tracker.spawn(holding.in_current_span())
    }

    /// Begins work there, which a stop waits for as well.
    pub fn track<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
        there: &Handle,
    ) -> JoinHandle<T> {
        self.tracker.spawn_on(work, there)
    }

    /// Runs work that nobody waits for.
    pub fn detach(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.tracker.spawn(tokio::time::timeout(self.deadline, work).in_current_span());
    }

    /// Waits until everything that runs has ended. New work may still begin meanwhile.
    pub async fn drained(&self) {
        self.tracker.close();
        self.tracker.wait().await;
    }
}

type Flight<T> = Shared<BoxFuture<'static, Result<T, TaskFailed>>>;

/// Requests under way: whoever brings an equal one joins it and gets its answer.
#[derive(Clone, Debug)]
pub struct Flights<K, T: Clone> {
    flying: Arc<Mutex<HashMap<K, Flight<T>>>>,
    tasks: Tasks,
}

impl<K: Eq + Hash + Clone + Send + 'static, T: Clone + Send + Sync + 'static> Flights<K, T> {
    /// No request under way.
    #[must_use]
    pub fn new(tasks: Tasks) -> Self {
        Self { flying: Arc::default(), tasks }
    }

    /// Joins the equal request under way, or runs `work` as an owned task. Equal keys must mean equal requests.
    ///
    /// # Errors
    /// [`TaskFailed`] when the work panicked or took too long.
    pub async fn join<F>(&self, key: K, work: impl FnOnce() -> F) -> Result<T, TaskFailed>
    where
        F: Future<Output = T> + Send + 'static,
    {
        let (flight, is_ours) = {
            let mut flying = self.flying.lock().unwrap_or_else(PoisonError::into_inner);
            match flying.get(&key) {
                Some(flight) => (flight.clone(), false),
                None => {
                    let flight = self.take_off(key.clone(), Box::pin(work()));
                    flying.insert(key, flight.clone());
                    (flight, true)
                }
            }
        };
        if is_ours { flight.await } else { away(flight).await }
    }

    fn take_off(&self, key: K, work: BoxFuture<'static, T>) -> Flight<T> {
        // Spawned at once: a flight that all its passengers left must go on.
        let flying = self.flying.clone();
        let landed = self.tasks.spawn(Box::pin(async move {
            let _landing = Landing { flying, key };
            work.await
        }));
        landed.map(|outcome| outcome.unwrap_or(Err(TaskFailed::Panicked))).boxed().shared()
    }
}

/// Whoever comes after the landing takes a flight of their own, however this one ended.
struct Landing<K: Eq + Hash, T: Clone> {
    flying: Arc<Mutex<HashMap<K, Flight<T>>>>,
    key: K,
}

impl<K: Eq + Hash, T: Clone> Drop for Landing<K, T> {
    fn drop(&mut self) {
        self.flying.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test]
    async fn equal_requests_share_one_run() {
        let flights: Flights<&str, u32> = Flights::new(Tasks::default());
        let runs = Arc::new(AtomicU32::new(0));
        let callers = (0..100).map(|_| {
            let runs = runs.clone();
            flights.join("same", move || async move {
                tokio::time::sleep(Duration::from_millis(20)).await;
                runs.fetch_add(1, Ordering::SeqCst)
            })
        });
        let answers = futures_util::future::join_all(callers).await;
        assert!(answers.iter().all(|answer| matches!(answer, Ok(0))));
        assert_eq!(runs.load(Ordering::SeqCst), 1);
        assert!(flights.flying.lock().unwrap().is_empty(), "nothing stays behind");
    }

    #[tokio::test]
    async fn a_caller_that_leaves_cancels_only_its_wait() {
        let tasks = Tasks::default();
        let (done, is_done) = tokio::sync::oneshot::channel();
        let work = tasks.run(async move {
            tokio::time::sleep(Duration::from_millis(50)).await;
            done.send(()).ok();
        });
        assert!(tokio::time::timeout(Duration::from_millis(5), work).await.is_err());
        assert!(is_done.await.is_ok(), "the work went on");
    }

    #[derive(Default)]
    struct Counted(AtomicU32);

    impl Place for Counted {
        fn leave(&self) -> bool {
            self.0.fetch_sub(1, Ordering::SeqCst) > 0
        }
        fn come_back(&self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[tokio::test]
    async fn whoever_waits_for_another_holds_no_place_and_has_it_again_also_when_the_wait_is_given_up() {
        let place = Arc::new(Counted(AtomicU32::new(1)));
        let tasks = Tasks::default();
        let (seen, within) = (place.clone(), Duration::from_millis(5));
        let work = tasks.run(async move {
            let meanwhile = away(async { seen.0.load(Ordering::SeqCst) }).await;
            let is_given_up = tokio::time::timeout(within, away(std::future::pending::<()>())).await.is_err();
            let long = away_when_long(async {
                let at_first = seen.0.load(Ordering::SeqCst);
                tokio::time::sleep(2 * BRIEF).await;
                (at_first, seen.0.load(Ordering::SeqCst))
            });
            (meanwhile, is_given_up, long.await, seen.0.load(Ordering::SeqCst))
        });
        let told = holding(place.clone(), work).await;
        assert!(matches!(told, Ok((0, true, (1, 0), 1))), "{told:?}");
        assert_eq!(away(async { place.0.load(Ordering::SeqCst) }).await, 1, "who holds none gives none back");
    }

    #[tokio::test]
    async fn a_panic_is_an_answer() {
        let flights: Flights<&str, u32> = Flights::new(Tasks::default());
        let outcome = flights.join("k", || async { panic!("a defect, on purpose") }).await;
        assert!(matches!(outcome, Err(TaskFailed::Panicked)));
        assert!(flights.join("k", || async { 7 }).await.is_ok_and(|v| v == 7));
    }
}
