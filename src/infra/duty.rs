//! Duties: background jobs that take no input, do one bounded batch, and are safe to repeat.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::causes::with_causes;

/// Any failure of a duty; it is logged, and the duty runs again.
pub type DutyError = Box<dyn std::error::Error + Send + Sync>;

/// What one batch came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Batch {
    /// Nothing was waiting: rest until the next time, and hear who rings at once.
    Empty,
    /// Nothing more was waiting: rest until the next time.
    Done,
    /// A full batch: more may be waiting, go on at once.
    MoreWaiting,
}

impl Batch {
    /// A batch that worked `count` of at most `limit` items.
    #[must_use]
    pub const fn of(count: usize, limit: usize) -> Self {
        if count >= limit { Self::MoreWaiting } else { Self::Done }
    }
}

/// How long work that goes on page by page may take before it is cut off and gone on with later.
#[derive(Clone, Copy, Debug)]
pub struct Within(Option<Instant>);

impl Within {
    /// Until there is nothing left.
    #[must_use]
    pub const fn ever() -> Self {
        Self(None)
    }

    /// So long from now on.
    #[must_use]
    pub fn of(time: Duration) -> Self {
        Self(Some(Instant::now() + time))
    }

    /// Whether it is over: the page under way was the last one.
    #[must_use]
    pub fn is_over(self) -> bool {
        self.0.is_some_and(|end| Instant::now() >= end)
    }
}

type Run = Box<dyn Fn() -> BoxFuture<'static, Result<Batch, DutyError>> + Send + Sync>;

/// One background job.
pub struct Duty {
    name: &'static str,
    every: Duration,
    /// Each with how long the duty rests before it hears it.
    bells: Vec<(Duration, Arc<Notify>)>,
    run_once: Run,
}

impl std::fmt::Debug for Duty {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Duty").field("name", &self.name).field("every", &self.every).finish_non_exhaustive()
    }
}

impl Duty {
    /// A job that runs every so often; `run_once` does one bounded batch.
    pub fn new<F>(
        name: &'static str,
        every: Duration,
        run_once: impl Fn() -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<Batch, DutyError>> + Send + 'static,
    {
        Self { name, every, bells: Vec::new(), run_once: Box::new(move || run_once().boxed()) }
    }

    /// Also runs as soon as it is woken.
    #[must_use]
    pub fn woken_by(self, bell: Arc<Notify>) -> Self {
        self.woken_after(Duration::ZERO, bell)
    }

    /// Also runs when it is woken, but rests at least so long behind a batch with something in it, so that what rings meanwhile
    /// shares the next one.
    #[must_use]
    pub fn woken_after(mut self, pause: Duration, bell: Arc<Notify>) -> Self {
        self.bells.push((pause, bell));
        self
    }

    /// The name: that of its metrics and log lines.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Does one batch.
    ///
    /// # Errors
    /// The job's own, or a panic turned into an error.
    pub async fn run_once(&self) -> Result<Batch, DutyError> {
        // A panic in one batch must not end the duty for good.
        match std::panic::AssertUnwindSafe((self.run_once)()).catch_unwind().await {
            Ok(outcome) => outcome,
            Err(_) => Err("the duty panicked".into()),
        }
    }

    /// Runs until the process stops. A batch that began is ended before that.
    pub async fn run_until(self, stopping: CancellationToken) {
        while !stopping.is_cancelled() {
            let outcome = self.run_once().await;
            let label = if outcome.is_ok() { "ok" } else { "failed" };
            metrics::counter!("payonce_duty_runs_total", "duty" => self.name, "outcome" => label)
                .increment(1);
            let is_deaf = match outcome {
                Ok(Batch::MoreWaiting) => continue,
                Ok(Batch::Empty) => false,
                Ok(Batch::Done) => true,
                Err(error) => {
                    let error = with_causes(error.as_ref());
                    tracing::warn!(duty = self.name, error, "a batch of {} failed", self.name);
                    true
                }
            };
            self.rest(&stopping, is_deaf).await;
        }
    }

    async fn rest(&self, stopping: &CancellationToken, is_deaf: bool) {
        let hear = async |(pause, bell): &(Duration, Arc<Notify>)| {
            if is_deaf && !pause.is_zero() {
                tokio::time::sleep(*pause).await;
            }
            bell.notified().await;
        };
        let mut rung: FuturesUnordered<_> = self.bells.iter().map(hear).collect();
        tokio::select! {
            () = tokio::time::sleep(self.every) => {}
            Some(()) = rung.next() => {}
            () = stopping.cancelled() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const FAR: Duration = Duration::from_secs(3_600);

    /// A duty that counts its runs.
    fn counting(comes_to: Batch, bells: &[(Duration, &Arc<Notify>)]) -> (Duty, Arc<AtomicUsize>) {
        let runs = Arc::new(AtomicUsize::new(0));
        let counted = runs.clone();
        let duty = Duty::new("counting", FAR, move || {
            counted.fetch_add(1, Ordering::SeqCst);
            async move { Ok(comes_to) }
        });
        let duty = bells.iter().fold(duty, |duty, (pause, bell)| duty.woken_after(*pause, Arc::clone(bell)));
        (duty, runs)
    }

    #[tokio::test]
    async fn each_bell_is_heard_after_its_own_pause_and_none_is_lost() {
        let (soon, late) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (short, long) = (Duration::from_millis(10), Duration::from_millis(800));
        let (duty, runs) = counting(Batch::Done, &[(long, &late), (short, &soon)]);
        let stopping = CancellationToken::new();
        let running = tokio::spawn(duty.run_until(stopping.clone()));
        let until = async |count: usize| {
            let since = Instant::now();
            while runs.load(Ordering::SeqCst) < count {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            since.elapsed()
        };
        until(1).await;

        late.notify_one();
        let rested = until(2).await;
        assert!(rested >= long - 2 * short, "{rested:?}: it rests before it hears the late bell");
        soon.notify_one();
        let rested = until(3).await;
        assert!(rested < long / 2, "{rested:?}: and less before it hears the other");
        late.notify_one();
        soon.notify_one();
        until(4).await;
        until(5).await;

        stopping.cancel();
        running.await.unwrap();
        assert_eq!(runs.load(Ordering::SeqCst), 5, "what rang while another one was heard was heard next");
    }

    #[tokio::test]
    async fn behind_a_look_that_found_nothing_a_bell_is_heard_at_once() {
        let bell = Arc::new(Notify::new());
        let (duty, runs) = counting(Batch::Empty, &[(FAR, &bell)]);
        let stopping = CancellationToken::new();
        let running = tokio::spawn(duty.run_until(stopping.clone()));
        let heard = async {
            for expected in 1..5 {
                while runs.load(Ordering::SeqCst) < expected {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                bell.notify_one();
            }
        };
        tokio::time::timeout(Duration::from_secs(10), heard).await.unwrap();
        stopping.cancel();
        running.await.unwrap();
    }

    #[tokio::test]
    async fn a_batch_that_fails_or_panics_is_followed_by_another() {
        let (bell, runs) = (Arc::new(Notify::new()), Arc::new(AtomicUsize::new(0)));
        let counted = runs.clone();
        let duty = Duty::new("failing", FAR, move || {
            let run = counted.fetch_add(1, Ordering::SeqCst);
            async move {
                match run {
                    0 => panic!("as a bug would"),
                    1 => Err("the database is away".into()),
                    2 => Ok(Batch::MoreWaiting),
                    _ => Ok(Batch::Done),
                }
            }
        });
        let stopping = CancellationToken::new();
        let running = tokio::spawn(duty.woken_by(bell.clone()).run_until(stopping.clone()));
        // A full batch is followed by another one at once.
        for expected in [1, 2, 4, 5] {
            while runs.load(Ordering::SeqCst) < expected {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            assert_eq!(runs.load(Ordering::SeqCst), expected);
            bell.notify_one();
        }
        stopping.cancel();
        running.await.unwrap();
    }
}
