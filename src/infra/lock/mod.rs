//! The distributed lock: it saves work, and never decides.
//!
//! Always true: a caller holds the place in this process's queue for the key before it asks Redis, and gives
//! Redis's lock back before that place, so neighbours in one process never meet a lock of their own. When the
//! backend is unavailable the work goes on with the queue alone, also where a lock runs out then; the database decides
//! anyway. A lock that went with all of Redis is its holder's again, unless somebody else has it by then.
//!
//! Cost: one round trip before the work; the release is not waited for.

use std::convert::Infallible;
use std::future::ready;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::ids::Ids;

mod backend;
mod queue;
mod quorum;
mod redis;
mod validity;

pub use backend::{BackendUnavailable, LockBackend, backend_on};
pub use quorum::QuorumLock;
pub use redis::RedisLock;

use crate::infra::tasks;
use crate::infra::words::words;
use queue::{KeyedQueue, Place};

words! {
    /// What a lock is taken for: a label of metrics and logs, not a part of the key.
    pub enum Scene {
        /// Making or repeating a pay URL.
        GeneratePayUrl = "GENERATE_PAY_URL",
        /// Applying what a channel reports.
        Webhook = "WEBHOOK",
        /// Closing an order.
        Close = "CLOSE",
        /// Settling an order's commission.
        Settle = "SETTLE",
        /// Giving money back.
        Refund = "REFUND",
        /// Sending a user's money out.
        Withdraw = "WITHDRAW",
        /// Holding money for metered work.
        Billing = "BILLING",
        /// Serving a request that has an idempotency key.
        Request = "REQUEST",
    }
}

/// Somebody else holds the lock, and still did after the last try.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("somebody else is working on this right now")]
pub struct LockBusy;

/// The lock was lost, or others were faster time and again, in the middle of the work: what was done until then stands.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("others may have taken the work over in its middle")]
pub struct Overtaken;

/// What waiting for a lock came to.
#[derive(Debug)]
pub enum Turn<T> {
    /// The lock is ours.
    Ours(LockGuard),
    /// Its holder has done meanwhile what it was wanted for.
    Settled(T),
}

/// How often whoever waits looks whether the holder has done the work already.
const LOOK_EVERY: Duration = Duration::from_millis(25);
/// Pause between two tries to clear away a lock that may have stayed behind.
const CLEAR_AWAY_EVERY: Duration = Duration::from_millis(100);

/// Longest wait of a callback in this process's own queue.
const WEBHOOK_QUEUE_DEADLINE: Duration = Duration::from_millis(200);
/// The same of those whose commands of one key share a transaction.
const SHARING_QUEUE_DEADLINE: Duration = Duration::from_millis(5);

/// How locks behave.
#[derive(Clone, Copy, Debug)]
pub struct LockSettings {
    /// Life of a lock whose holder died. A living holder renews it every third of this.
    pub ttl: Duration,
    /// How often the backend is asked.
    pub tries: u32,
    /// Pause between two tries, jittered by half of it either way.
    pub pause: Duration,
    /// Longest wait in this process's own queue.
    pub queue_deadline: Duration,
}

impl LockSettings {
    /// The settings of the design, for a given time to live.
    #[must_use]
    pub const fn with_ttl(ttl: Duration) -> Self {
        Self { ttl, tries: 3, pause: Duration::from_millis(100), queue_deadline: Duration::from_secs(5) }
    }
}

/// All locks of the process. Cheap to clone.
#[derive(Clone)]
pub struct Locks {
    backend: Arc<dyn LockBackend>,
    queue: KeyedQueue,
    settings: LockSettings,
    ids: Ids,
}

impl std::fmt::Debug for Locks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Locks").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Locks {
    /// Locks over a backend: one Redis, and with the same face Sentinel or a quorum of nodes.
    #[must_use]
    pub fn new(backend: Arc<dyn LockBackend>, settings: LockSettings, ids: Ids) -> Self {
        Self { backend, queue: KeyedQueue::default(), settings, ids }
    }

    /// Takes the lock. Call it before a transaction opens, and drop the guard after it has committed.
    ///
    /// # Errors
    /// [`LockBusy`] when somebody else kept it through all tries. A backend that is down is no error.
    pub async fn acquire(&self, scene: Scene, key: &str) -> Result<LockGuard, LockBusy> {
        match self.acquire_unless(scene, key, || ready(None::<Infallible>)).await? {
            Turn::Ours(guard) => Ok(guard),
            Turn::Settled(never) => match never {},
        }
    }

    /// Takes the lock, unless `look` finds, while somebody else has it, that its holder did the work: of many who
    /// bring the same to several instances, one works and the others hear of it at once, not at their next try.
    ///
    /// # Errors
    /// As [`Locks::acquire`].
    pub async fn acquire_unless<T, L>(
        &self,
        scene: Scene,
        key: &str,
        look: impl FnMut() -> L + Send,
    ) -> Result<Turn<T>, LockBusy>
    where
        T: Send,
        L: Future<Output = Option<T>> + Send,
    {
        let started = Instant::now();
        let outcome = self.acquire_in_turn(scene, key, look).await;
        let label = match &outcome {
            Ok(Turn::Ours(guard)) if guard.held.is_some() => "acquired",
            Ok(Turn::Ours(_)) => "degraded",
            Ok(Turn::Settled(_)) => "settled",
            Err(LockBusy) => "busy",
        };
        metrics::counter!("payonce_lock_acquire_total", "scene" => scene.as_str(), "outcome" => label)
            .increment(1);
        metrics::histogram!("payonce_lock_wait_seconds").record(started.elapsed());
        outcome
    }

    async fn acquire_in_turn<T, L>(
        &self,
        scene: Scene,
        key: &str,
        mut look: impl FnMut() -> L + Send,
    ) -> Result<Turn<T>, LockBusy>
    where
        T: Send,
        L: Future<Output = Option<T>> + Send,
    {
        let mut place = self.queue.enter(key, self.queue_deadline(scene)).await.ok_or(LockBusy)?;
        let tries = self.tries(scene);
        for attempt in 1..=tries {
            // A word for each try: what takes a failed one back, however late, must not take the next one away.
            let (token, asked_at) = (self.ids.uuid().simple().to_string(), Instant::now());
            place.has_waited |= attempt > 1;
            match self.backend.try_acquire(key, &token, self.settings.ttl).await {
                Ok(true) => return Ok(Turn::Ours(self.guard(scene, key, token, place, asked_at))),
                Ok(false) if attempt < tries => {
                    // Boxed: most requests meet nobody.
                    if let Some(found) = Box::pin(self.pause_looking(&mut look)).await {
                        return Ok(Turn::Settled(found));
                    }
                }
                Ok(false) => {}
                Err(error) => {
                    tracing::debug!(lock.key = key, %error, "the lock's backend is unavailable, going on without");
                    if let BackendUnavailable::NoAnswer(_) = error {
                        tokio::spawn(self.lease(key, token).clear_away());
                    }
                    let lost = CancellationToken::new();
                    return Ok(Turn::Ours(LockGuard { held: None, lost, place: Some(place) }));
                }
            }
        }
        Err(LockBusy)
    }

    /// The pause before the next try. No try is under way meanwhile, so none is ever given up with its grant unheard.
    async fn pause_looking<T, L>(&self, look: &mut (impl FnMut() -> L + Send)) -> Option<T>
    where
        L: Future<Output = Option<T>> + Send,
    {
        let next_try_at = Instant::now() + self.jittered_pause();
        loop {
            let left = next_try_at.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            tasks::away(tokio::time::sleep(left.min(LOOK_EVERY))).await;
            if let Some(found) = look().await {
                return Some(found);
            }
        }
    }

    /// A channel does not wait long for an answer, and its callback can be applied without the lock.
    fn queue_deadline(&self, scene: Scene) -> Duration {
        match scene {
            Scene::Webhook => self.settings.queue_deadline.min(WEBHOOK_QUEUE_DEADLINE),
            Scene::GeneratePayUrl | Scene::Close | Scene::Settle | Scene::Withdraw | Scene::Request => {
                self.settings.queue_deadline
            }
            Scene::Billing | Scene::Refund => self.settings.queue_deadline.min(SHARING_QUEUE_DEADLINE),
        }
    }

    /// Who shares a transaction goes on without the lock at once: to wait for it costs more than it saves.
    fn tries(&self, scene: Scene) -> u32 {
        match scene {
            Scene::Billing | Scene::Refund => 1,
            _ => self.settings.tries,
        }
    }

    fn jittered_pause(&self) -> Duration {
        let millis = u64::try_from(self.settings.pause.as_millis()).unwrap_or(u64::MAX);
        Duration::from_millis(self.ids.between(millis / 2, millis + millis / 2))
    }

    fn lease(&self, key: &str, token: String) -> Lease {
        Lease { backend: self.backend.clone(), key: key.to_owned(), token, ttl: self.settings.ttl }
    }

    fn guard(&self, scene: Scene, key: &str, token: String, place: Place, asked_at: Instant) -> LockGuard {
        let (lost, lease) = (CancellationToken::new(), self.lease(key, token));
        let watchdog = tokio::spawn(lease.clone().keep_alive(scene, lost.clone(), asked_at));
        LockGuard { held: Some(Held { lease, watchdog }), lost, place: Some(place) }
    }
}

/// A lock in hand. Dropping it gives it back, without waiting for that.
#[derive(Debug)]
pub struct LockGuard {
    held: Option<Held>,
    lost: CancellationToken,
    place: Option<Place>,
}

impl LockGuard {
    /// Whether somebody else had it while this one was waited for: what was read before may be over.
    #[must_use]
    pub fn has_waited(&self) -> bool {
        self.place.as_ref().is_some_and(|place| place.has_waited)
    }

    /// Cancelled when the lock was found to be gone: what can still be cancelled should be.
    #[must_use]
    pub fn lost(&self) -> &CancellationToken {
        &self.lost
    }

    /// Asked before an outside call: one that lost its lock leaves that to whoever has it now.
    ///
    /// # Errors
    /// [`Overtaken`] when the lock was found to belong to somebody else, or to have run out while its backend was there.
    pub fn still_held(&self) -> Result<(), Overtaken> {
        if self.lost.is_cancelled() { Err(Overtaken) } else { Ok(()) }
    }

    /// Whether the work goes on with this process's queue alone, because no backend granted it.
    #[must_use]
    pub fn is_degraded(&self) -> bool {
        self.held.is_none()
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        let Some(Held { lease, watchdog }) = self.held.take() else { return };
        watchdog.abort();
        let place = self.place.take();
        // A runtime that is shutting down drops the task; the lock then dies with its time to live.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                // Once it is over nothing is taken again; what it had asked for until then may still come.
                let _ = watchdog.await;
                let answer = lease.give_back().await;
                drop(place);
                if !matches!(answer, Ok(true)) {
                    lease.clear_away().await;
                }
            });
        }
    }
}

#[derive(Debug)]
struct Held {
    lease: Lease,
    watchdog: JoinHandle<()>,
}

#[derive(Clone)]
struct Lease {
    backend: Arc<dyn LockBackend>,
    key: String,
    token: String,
    ttl: Duration,
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lease").field("key", &self.key).finish_non_exhaustive()
    }
}

impl Lease {
    /// The watchdog: renews every third of the time to live, through one compare-and-PEXPIRE. It ends with the
    /// guard, so it can never outlive the unlock. Where the lock runs out while the backend is away, the work goes on with
    /// this process's queue alone, as what begins then does.
    async fn keep_alive(self, scene: Scene, lost: CancellationToken, asked_at: Instant) {
        let mut held_until = validity::end(asked_at, self.ttl);
        loop {
            let left = held_until.saturating_duration_since(Instant::now());
            tokio::time::sleep(left.min(self.ttl / 3)).await;
            let asked_at = Instant::now();
            match self.renew(held_until).await {
                Ok(true) => held_until = validity::end(asked_at, self.ttl),
                Ok(false) => break,
                Err(error) if Instant::now() >= held_until => {
                    tracing::debug!(lock.key = %self.key, %error, "a lock ran out while its backend was away");
                    return;
                }
                Err(error) => tracing::debug!(lock.key = %self.key, %error, "a lock could not be renewed"),
            }
        }
        metrics::counter!("payonce_lock_lost_total", "scene" => scene.as_str()).increment(1);
        tracing::warn!(lock.key = %self.key, "lost a lock; the database decides who wins");
        lost.cancel();
    }

    /// Renews it. One that is gone before its time went with all of Redis, which was emptied or replaced: it is taken
    /// again where nobody else has it by now.
    async fn renew(&self, held_until: Instant) -> Result<bool, BackendUnavailable> {
        let is_renewed = self.backend.renew(&self.key, &self.token, self.ttl).await?;
        if is_renewed || Instant::now() >= held_until {
            return Ok(is_renewed);
        }
        self.backend.try_acquire(&self.key, &self.token, self.ttl).await
    }

    async fn give_back(&self) -> Result<bool, BackendUnavailable> {
        self.backend.release(&self.key, &self.token).await
    }

    /// Clears away a key that may have been granted without a word, or could not be given back, or was not there to be
    /// given back and may come yet: it would turn everybody else away until it expired.
    ///
    /// One "not there" is not enough, because a question on a new connection can overtake the grant on the old
    /// one. A backend that hung takes the grant in when it wakes up, hence more than one time to live.
    async fn clear_away(self) {
        let give_up_at = Instant::now() + self.ttl * 3;
        let mut times_not_there = 0;
        while times_not_there < 2 && Instant::now() < give_up_at {
            tokio::time::sleep(CLEAR_AWAY_EVERY).await;
            match self.give_back().await {
                Ok(true) => return,
                Ok(false) => times_not_there += 1,
                Err(error) => tracing::debug!(lock.key = %self.key, %error, "a lock may have stayed behind"),
            }
        }
    }
}
