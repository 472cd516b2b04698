//! The connections of the service: those in use, and those that are kept for the next one who asks.
//!
//! sqlx's pool opens them and has no part in them from then on. It would ask each one that comes back whether it is well: a
//! round trip for every use, and before a server that falls silent in that moment a place that is lost for as long as the
//! silence lasts.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sqlx::{Connection, Executor, PgConnection, PgPool, Row};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// How long after its last answer a connection is trusted: to test each would cost 18 % of the throughput, and one that died
/// under load shows as an error that is tried again.
const TRUSTED_FOR: Duration = Duration::from_secs(1);
/// How long one that is tested may take to answer, a quarter of the wait for a connection at most: whoever asks needs the rest
/// to open another one.
const ANSWERS_WITHIN: Duration = Duration::from_millis(500);

/// All of them. Clones are the same.
#[derive(Clone, Debug)]
pub(super) struct Connections(Arc<Inside>);

#[derive(Debug)]
struct Inside {
    pool: PgPool,
    count: u32,
    places: Arc<Semaphore>,
    /// The one that came back last is the last one here.
    kept: Mutex<VecDeque<Kept>>,
    losses: Mutex<Losses>,
}

/// When connections were last lost.
#[derive(Clone, Copy, Debug, Default)]
struct Losses {
    /// Under a statement. The others have most likely died with it, at a failover or a restart, so each one that last
    /// answered before then is tested before it is used.
    died_at: Option<Instant>,
    /// To a server that is not in charge any more, and answers all the same: whatever was opened before leads there too.
    misled_at: Option<Instant>,
}

#[derive(Debug)]
struct Kept {
    conn: PgConnection,
    opened_at: Instant,
    answered_at: Instant,
}

/// One in use, and its place among them. Dropped, it is kept for the next one.
#[derive(Debug)]
pub(super) struct InUse {
    /// Nothing, once it is given up.
    conn: Option<Kept>,
    all: Connections,
    _place: OwnedSemaphorePermit,
}

/// What is known of a connection by its answers.
pub(super) struct Health<'a> {
    opened_at: Instant,
    answered_at: &'a mut Instant,
    all: &'a Connections,
}

impl Connections {
    /// So many at once, which the pool opens.
    pub(super) fn of(pool: PgPool, count: u32) -> Self {
        let places = Arc::new(Semaphore::new(count as usize));
        Self(Arc::new(Inside { pool, count, places, kept: Mutex::default(), losses: Mutex::default() }))
    }

    pub(super) fn pool(&self) -> &PgPool {
        &self.0.pool
    }

    /// Waits for a place, and gives one that is well, or a new one.
    pub(super) async fn take(&self) -> Result<InUse, sqlx::Error> {
        let within = self.pool().options().get_acquire_timeout();
        timeout(within, self.take_in_the_end()).await.unwrap_or(Err(sqlx::Error::PoolTimedOut))
    }

    async fn take_in_the_end(&self) -> Result<InUse, sqlx::Error> {
        let place = Arc::clone(&self.0.places).acquire_owned();
        let place = self.pool().close_event().do_until(place).await?.map_err(|_| sqlx::Error::PoolClosed)?;
        let conn = match self.one_that_is_well().await {
            Some(kept) => kept,
            None => {
                // Boxed: it takes 4 KiB, which every piece of work that asks for one would be moved about with.
                let mut conn = Box::pin(self.pool().acquire()).await?.detach();
                Box::pin(refuse_a_standby(&mut conn)).await?;
                Kept { conn, opened_at: Instant::now(), answered_at: Instant::now() }
            }
        };
        Ok(InUse { conn: Some(conn), all: self.clone(), _place: place })
    }

    /// Of those that are kept the one that came last, if it is well. Who asks tests no more than one: where the server is gone
    /// without a word that takes its time each.
    async fn one_that_is_well(&self) -> Option<Kept> {
        let mut kept = self.kept().pop_back()?;
        let within = ANSWERS_WITHIN.min(self.pool().options().get_acquire_timeout() / 4);
        let is_well =
            self.trusts(&kept) || timeout(within, kept.conn.ping()).await.is_ok_and(|answer| answer.is_ok());
        is_well.then_some(kept)
    }

    fn trusts(&self, kept: &Kept) -> bool {
        let died_at = self.losses().died_at;
        kept.answered_at.elapsed() < TRUSTED_FOR && died_at.is_none_or(|died_at| kept.answered_at > died_at)
    }

    /// Whether nobody is to have it again.
    fn is_done_with(&self, conn: &Kept) -> bool {
        let longest = self.pool().options().get_max_lifetime();
        self.pool().is_closed()
            || longest.is_some_and(|longest| conn.opened_at.elapsed() > longest)
            || self.losses().misled_at.is_some_and(|misled_at| conn.opened_at <= misled_at)
    }

    fn losses(&self) -> MutexGuard<'_, Losses> {
        self.0.losses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kept(&self) -> MutexGuard<'_, VecDeque<Kept>> {
        self.0.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps it, and closes what is old or was needed by nobody for long.
    fn keep(&self, conn: Kept) {
        let longest = self.pool().options().get_idle_timeout();
        let mut kept = self.kept();
        if self.is_done_with(&conn) {
            return;
        }
        kept.push_back(conn);
        let is_idle = |first: &Kept| longest.is_some_and(|longest| first.answered_at.elapsed() > longest);
        if kept.front().is_some_and(is_idle) {
            kept.pop_front();
        }
    }

    /// Closes them, waiting for those in use.
    pub(super) async fn close(&self) {
        // Nobody keeps one from here on.
        let opened = self.pool().close();
        let kept = std::mem::take(&mut *self.kept());
        for kept in kept {
            kept.conn.close().await.ok();
        }
        opened.await;
        drop(self.0.places.acquire_many(self.0.count).await);
    }
}

/// A server that is a copy of another one: after a failover the old name may still lead there, and what it tells is over.
async fn refuse_a_standby(conn: &mut PgConnection) -> Result<(), sqlx::Error> {
    let asked = sqlx::raw_sql("SELECT pg_is_in_recovery()");
    if conn.fetch_one(asked).await?.try_get(0)? {
        return Err(sqlx::Error::Protocol("this server is a standby, and not in charge".to_owned()));
    }
    Ok(())
}

impl InUse {
    /// Closes its socket, so that the server rolls back what was open.
    pub(super) fn give_up(mut self) {
        self.conn = None;
    }

    /// Whether it may be held on to without being in use: nobody waits for its place, and it is neither old nor misleading.
    pub(super) fn may_stay(&self) -> bool {
        self.all.0.places.available_permits() > 0
            && self.conn.as_ref().is_some_and(|conn| !self.all.is_done_with(conn))
    }

    /// The connection itself, and what is to be told of its answers.
    pub(super) fn parts(&mut self) -> Option<(&mut PgConnection, Health<'_>)> {
        let Kept { conn, opened_at, answered_at } = self.conn.as_mut()?;
        Some((conn, Health { opened_at: *opened_at, answered_at, all: &self.all }))
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        if let Some(conn) = self.conn.take() {
            self.all.keep(conn);
        }
    }
}

impl Health<'_> {
    /// It has answered.
    pub(super) fn answered(self) {
        *self.answered_at = Instant::now();
    }

    /// It died under a statement: those that are kept are tested from here on.
    pub(super) fn died(self) {
        self.all.losses().died_at = Some(Instant::now());
    }

    /// It leads to a server that is not in charge: nobody has one again that was opened before. That is known already where it
    /// was opened before it was last found.
    pub(super) fn misled(self) {
        let mut kept = self.all.kept();
        let mut losses = self.all.losses();
        if losses.misled_at.is_none_or(|misled_at| self.opened_at > misled_at) {
            losses.misled_at = Some(Instant::now());
            kept.clear();
        }
    }
}
