//! Duties: background jobs that take no input, do one bounded batch, and are safe to repeat.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Any failure of a duty; it is logged, and the duty runs again.
pub type DutyError = Box<dyn std::error::Error + Send + Sync>;

/// What one batch came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Batch {
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

    /// Also runs when it is woken, but rests at least so long before, so that what rings meanwhile shares a batch.
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
            match outcome {
                Ok(Batch::MoreWaiting) => continue,
                Ok(Batch::Done) => {}
                Err(error) => {
                    tracing::warn!(duty = self.name, error = %error, "a batch of {} failed", self.name);
                }
            }
            self.rest(&stopping).await;
        }
    }

    async fn rest(&self, stopping: &CancellationToken) {
        let mut rung: FuturesUnordered<_> = self.bells.iter().map(hear).collect();
        tokio::select! {
            () = tokio::time::sleep(self.every) => {}
            Some(()) = rung.next() => {}
            () = stopping.cancelled() => {}
        }
    }
}

async fn hear((pause, bell): &(Duration, Arc<Notify>)) {
    if !pause.is_zero() {
        tokio::time::sleep(*pause).await;
    }
    bell.notified().await;
}
