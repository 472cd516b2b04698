//! PostgreSQL: connections that are never returned half-used, transactions that end one way or the other.
//!
//! Always true: a connection is kept for the next one (`connections`) only when no statement was under way and no
//! transaction is open. Whatever was dropped in the middle (a cancelled future, a deadline, a panic) is closed instead,
//! which is what keeps a cancelled `BEGIN` from swallowing the writes of the next user, and a black-holed server from
//! holding a place for ever.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use futures_util::{FutureExt, StreamExt, TryFutureExt};
use sqlx::error::DatabaseError;
use sqlx::postgres::{PgDatabaseError, PgQueryResult, PgRow, PgSeverity, PgStatement, PgTypeInfo};
use sqlx::{Either, Execute, Executor, PgConnection, PgPool, Postgres, SqlStr};
use tokio::sync::Notify;

use crate::config::DatabaseConfig;
use crate::ids::Ids;
use crate::infra::gather::Gatherer;

mod clock;
mod connections;
pub mod copy;
mod page;
mod pool;
mod role;
mod schema;
mod tx;
pub use clock::{follow, knows_time_zone};
use connections::{Connections, InUse};
pub use page::{StatePage, in_state};
use role::RunAs;
pub use schema::Schema;
pub use tx::Tx;

/// Why the database did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum DbError {
    /// It cannot be reached, has no connection or room to spare, or did not answer before the deadline. A write may or
    /// may not have happened: look again by key.
    #[error("the database is unavailable")]
    Unavailable(#[source] sqlx::Error),
    /// Two transactions stood in each other's way; the same transaction may be run again.
    #[error("the transaction lost a race and may be run again")]
    Contended(#[source] sqlx::Error),
    /// A constraint refused the write.
    #[error("the constraint {name} refused the write")]
    Constraint {
        /// The constraint's name, as the migrations give it.
        name: String,
        /// What the database said.
        #[source]
        source: sqlx::Error,
    },
    /// A guarded write met another number of rows than the one it was made for.
    #[error("a write touched {0} rows where exactly one was expected")]
    UnexpectedRows(u64),
    /// Anything else: a defect.
    #[error("the database refused the statement")]
    Other(#[source] sqlx::Error),
}

impl DbError {
    /// Whether a statement came to the end of its time: with less at once, or without whoever is in its way, it may not.
    #[must_use]
    pub fn took_too_long(&self) -> bool {
        let Self::Unavailable(sqlx::Error::Database(refusal)) = self else { return false };
        refusal.code().as_deref() == Some("57014")
    }

    /// Whether the database is away, for all that is asked of it.
    #[must_use]
    pub fn is_away(&self) -> bool {
        matches!(self, Self::Unavailable(_)) && !self.took_too_long()
    }
}

/// Statements that took too long, one after the other: behind some it is the database that is slow, and not what was asked.
#[derive(Debug, Default)]
pub struct Slowness(u8);

impl Slowness {
    /// In a row, behind which nothing else is tried.
    const GENERAL: u8 = 3;

    /// Whether whoever goes on past this failure would fail alike; what came to its end says that it would not.
    pub fn is_general(&mut self, failure: Option<&DbError>) -> bool {
        self.0 = if failure.is_some_and(DbError::took_too_long) { self.0 + 1 } else { 0 };
        self.0 >= Self::GENERAL
    }
}

impl From<sqlx::Error> for DbError {
    fn from(error: sqlx::Error) -> Self {
        if let sqlx::Error::Database(refusal) = &error {
            // Shut down, crashed, starting, or who wanted to come in may not: nothing was tried.
            if ends_the_session(refusal.as_ref()) {
                return Self::Unavailable(error);
            }
            return match refusal.code().as_deref() {
                // Serialization failure, deadlock, lock timeout.
                Some("40001" | "40P01" | "55P03") => Self::Contended(error),
                // The same where a proxy passes it on, too many clients, a full disk or no memory, a disk that fails,
                // cancelled by statement_timeout, idle for too long, read-only since another server took its place.
                Some(
                    "57P01" | "57P02" | "57P03" | "57P05" | "53300" | "53100" | "53200" | "53000" | "58030"
                    | "57014" | "25P03" | "25P04" | "25006",
                ) => Self::Unavailable(error),
                _ => match refusal.constraint() {
                    Some(name) => Self::Constraint { name: name.to_owned(), source: error },
                    None => Self::Other(error),
                },
            };
        }
        match error {
            sqlx::Error::Io(_)
            | sqlx::Error::Tls(_)
            | sqlx::Error::Protocol(_)
            | sqlx::Error::PoolTimedOut
            | sqlx::Error::PoolClosed
            | sqlx::Error::WorkerCrashed => Self::Unavailable(error),
            other => Self::Other(other),
        }
    }
}

impl DbError {
    /// The constraint that refused the write, if one did.
    #[must_use]
    pub fn constraint(&self) -> Option<&str> {
        match self {
            Self::Constraint { name, .. } => Some(name),
            _ => None,
        }
    }

    /// Whether a row was not as it was read, and nothing of the statement was done.
    #[must_use]
    pub fn is_outdated(&self) -> bool {
        let Self::Contended(sqlx::Error::Database(refusal)) = self else { return false };
        refusal.code().as_deref() == Some("40001")
    }

    /// Whether the same write may succeed later; any other failure is a refusal of what was written.
    #[must_use]
    pub const fn is_passing(&self) -> bool {
        matches!(self, Self::Unavailable(_) | Self::Contended(_))
    }

    /// Whether what was to be written is to blame: a constraint, a value or a size that is not possible.
    #[must_use]
    pub fn blames_the_row(&self) -> bool {
        match self {
            Self::Constraint { .. } => true,
            Self::Other(sqlx::Error::Database(refusal)) => is_of(refusal.as_ref(), &["22", "23", "54"]),
            _ => false,
        }
    }

    /// Whether the same use case may be run again at once. Every use case looks before it writes, so running
    /// it again is safe also when the first run did commit.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Contended(_) => true,
            Self::Unavailable(sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed) => false,
            Self::Unavailable(sqlx::Error::Io(error)) => error.kind() != std::io::ErrorKind::TimedOut,
            // Whoever may not come in is not let in at once either.
            Self::Unavailable(error @ sqlx::Error::Database(refusal)) => {
                is_dead(error) && !is_of(refusal.as_ref(), &["28", "3D"])
            }
            _ => false,
        }
    }
}

/// Makes sure that a guarded write met exactly one row.
///
/// # Errors
/// [`DbError::UnexpectedRows`] for any other count.
pub fn expect_one_row(result: &PgQueryResult) -> Result<(), DbError> {
    match result.rows_affected() {
        1 => Ok(()),
        rows => Err(DbError::UnexpectedRows(rows)),
    }
}

/// The database, by its connections. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Db {
    connections: Connections,
    statement_deadline: Duration,
    ids: Ids,
    gatherer: Gatherer,
    bell: Arc<Notify>,
    /// Whether it was found to be current, see `schema`.
    has_schema: Arc<AtomicBool>,
}

/// Whether this failure means that the connection itself is gone, or leads to a server that is not in charge.
fn is_dead(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_) | sqlx::Error::Protocol(_) => true,
        sqlx::Error::Database(refusal) => ends_the_session(refusal.as_ref()) || is_misled(error),
        _ => false,
    }
}

/// Whether its code is of one of these classes.
fn is_of(refusal: &dyn DatabaseError, classes: &[&str]) -> bool {
    refusal.code().is_some_and(|code| classes.iter().any(|class| code.starts_with(class)))
}

/// Whether it leads to a server that is not in charge any more.
fn is_misled(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::Database(refusal) if refusal.code().as_deref() == Some("25006"))
}

/// Whether the server closes the connection behind what it says.
fn ends_the_session(refusal: &dyn DatabaseError) -> bool {
    let severity = refusal.try_downcast_ref::<PgDatabaseError>().map(PgDatabaseError::severity);
    matches!(severity, Some(PgSeverity::Fatal | PgSeverity::Panic))
}

/// How often a use case is run again after it lost a race or its connection.
const MAX_ATTEMPTS: u32 = 4;

impl Db {
    /// Sets the service's pool up without connecting yet, so that a start does not wait for the database.
    ///
    /// # Errors
    /// When the URL cannot be read.
    pub fn new(config: &DatabaseConfig, ids: Ids) -> Result<Self, DbError> {
        Self::running_as(RunAs::Service, config, ids)
    }

    fn running_as(run_as: RunAs, config: &DatabaseConfig, ids: Ids) -> Result<Self, DbError> {
        let pool = pool::open(run_as, config, ids.clock().clone())?;
        let connections = Connections::of(pool, config.pool_size);
        let statement_deadline = config.statement_deadline + Duration::from_secs(1);
        let gatherer = Gatherer::new(config.max_batch, config.pool_size);
        let (bell, has_schema) = (Arc::default(), Arc::default());
        Ok(Self { connections, statement_deadline, ids, gatherer, bell, has_schema })
    }

    /// Longest wait for the answer to a statement.
    pub(super) const fn statement_deadline(&self) -> Duration {
        self.statement_deadline
    }

    pub(super) fn gatherer(&self) -> &Gatherer {
        &self.gatherer
    }

    /// Rings behind each commit of this process that appended what others wait for. A hint, not the truth: who listens
    /// looks by itself too.
    #[must_use]
    pub fn bell(&self) -> &Arc<Notify> {
        &self.bell
    }

    /// What opens the connections; what it gives itself, to migrations and to tests, is none of the service's.
    #[must_use]
    pub fn pool(&self) -> &PgPool {
        self.connections.pool()
    }

    /// A connection for statements that each stand alone.
    ///
    /// # Errors
    /// [`DbError::Unavailable`] when none can be had in time.
    pub async fn conn(&self) -> Result<Conn, DbError> {
        Ok(Conn {
            inner: Some(self.connections.take().await?),
            deadline: self.statement_deadline,
            bell: self.bell.clone(),
            is_mid_flight: false,
        })
    }

    /// Closes all connections, waiting a moment for those in use.
    pub async fn close(&self) {
        let _ = tokio::time::timeout(Duration::from_secs(1), self.connections.close()).await;
    }

    /// Whether the database answers right now.
    pub async fn answers(&self) -> bool {
        let Ok(mut conn) = self.conn().await else { return false };
        sqlx::raw_sql("SELECT 1").execute(&mut conn).await.is_ok()
    }

    /// Opens a transaction.
    ///
    /// # Errors
    /// [`DbError::Unavailable`] when no connection can be had in time.
    pub async fn begin(&self) -> Result<Tx, DbError> {
        self.begin_with("BEGIN").await
    }

    /// Opens a transaction that sees one unchanging snapshot and writes nothing: for what must fit together.
    ///
    /// # Errors
    /// [`DbError::Unavailable`] when no connection can be had in time.
    pub async fn begin_read(&self) -> Result<Tx, DbError> {
        self.begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await
    }

    async fn begin_with(&self, statement: &'static str) -> Result<Tx, DbError> {
        let mut conn = self.conn().await?;
        sqlx::raw_sql(statement).execute(&mut conn).await?;
        // From here on the connection counts as in use until `finish` has ended the transaction.
        Ok(Tx { conn, is_open: true, is_ringing: false })
    }

    /// Runs a whole use case, again when it lost a race or its connection, a few times with growing, jittered
    /// pauses. The use case must look before it writes.
    ///
    /// # Errors
    /// The use case's own, after the last attempt.
    pub async fn retrying<T, E, F>(&self, mut use_case: impl FnMut() -> F) -> Result<T, E>
    where
        F: Future<Output = Result<T, E>>,
        E: MaybeTransient,
    {
        let mut attempt = 1;
        loop {
            match use_case().await {
                Err(error) if attempt < MAX_ATTEMPTS && error.is_transient() => {
                    tracing::debug!(attempt, "a use case lost a race or its connection and is run again");
                    let pause = self.ids.between(5, 25 * u64::from(attempt) * u64::from(attempt));
                    tokio::time::sleep(Duration::from_millis(pause)).await;
                    attempt += 1;
                }
                outcome => return outcome,
            }
        }
    }
}

/// Errors that may carry a [`DbError`] after which the use case can be run again.
pub trait MaybeTransient {
    /// Whether running the same use case again at once may succeed.
    fn is_transient(&self) -> bool;
}

impl MaybeTransient for DbError {
    fn is_transient(&self) -> bool {
        Self::is_transient(self)
    }
}

/// A checked-out connection; each statement on it has a deadline of our own beside the server's.
pub struct Conn {
    inner: Option<InUse>,
    deadline: Duration,
    bell: Arc<Notify>,
    is_mid_flight: bool,
}

impl fmt::Debug for Conn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conn").field("is_mid_flight", &self.is_mid_flight).finish_non_exhaustive()
    }
}

impl Drop for Conn {
    fn drop(&mut self) {
        if self.is_mid_flight
            && let Some(inner) = self.inner.take()
        {
            inner.give_up();
        }
    }
}

impl Conn {
    /// Whether whoever has it may hold on to it between two uses.
    pub(crate) fn may_stay(&self) -> bool {
        self.inner.as_ref().is_some_and(InUse::may_stay)
    }

    /// Rings [`Db::bell`], behind a statement that committed by itself.
    pub(crate) fn ring(&self) {
        self.bell.notify_one();
    }

    /// Runs one exchange with the server. When it is dropped halfway, or misses the deadline, the connection
    /// stays marked and is closed instead of returned.
    async fn exchange<'c, T>(
        &'c mut self,
        exchange: impl FnOnce(&'c mut PgConnection) -> BoxFuture<'c, Result<T, sqlx::Error>>,
    ) -> Result<T, sqlx::Error> {
        let Self { inner, deadline, is_mid_flight, .. } = self;
        let Some((conn, health)) = inner.as_mut().and_then(InUse::parts) else {
            return Err(sqlx::Error::PoolClosed);
        };
        if *is_mid_flight {
            return Err(sqlx::Error::Protocol(
                "the connection was given up in the middle of a statement".into(),
            ));
        }
        *is_mid_flight = true;
        let outcome = tokio::time::timeout(*deadline, exchange(conn)).await.map_err(|_| {
            sqlx::Error::Io(std::io::Error::new(
                std::io::ErrorKind::TimedOut,
                "no answer before the deadline",
            ))
        })?;
        let error = outcome.as_ref().err();
        *is_mid_flight = error.is_some_and(is_dead);
        match error {
            Some(error) if is_misled(error) => health.misled(),
            Some(_) if *is_mid_flight => health.died(),
            Some(_) | None => health.answered(),
        }
        outcome
    }
}

impl<'c> Executor<'c> for &'c mut Conn {
    type Database = Postgres;

    fn execute<'e, 'q: 'e, E>(self, query: E) -> BoxFuture<'e, Result<PgQueryResult, sqlx::Error>>
    where
        'c: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        self.exchange(move |conn| conn.execute(query)).boxed()
    }

    /// Gathers all rows first: answers here are bounded, and a half-read stream would spoil the connection.
    fn fetch_many<'e, 'q: 'e, E>(
        self,
        query: E,
    ) -> BoxStream<'e, Result<Either<PgQueryResult, PgRow>, sqlx::Error>>
    where
        'c: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        self.fetch_all(query)
            .map_ok(|rows| futures_util::stream::iter(rows.into_iter().map(|row| Ok(Either::Right(row)))))
            .try_flatten_stream()
            .boxed()
    }

    fn fetch_all<'e, 'q: 'e, E>(self, query: E) -> BoxFuture<'e, Result<Vec<PgRow>, sqlx::Error>>
    where
        'c: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        self.exchange(move |conn| conn.fetch_all(query)).boxed()
    }

    fn fetch_optional<'e, 'q: 'e, E>(self, query: E) -> BoxFuture<'e, Result<Option<PgRow>, sqlx::Error>>
    where
        'c: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        self.exchange(move |conn| conn.fetch_optional(query)).boxed()
    }

    fn prepare_with<'e>(
        self,
        sql: SqlStr,
        parameters: &'e [PgTypeInfo],
    ) -> BoxFuture<'e, Result<PgStatement, sqlx::Error>>
    where
        'c: 'e,
    {
        self.exchange(move |conn| conn.prepare_with(sql, parameters)).boxed()
    }

    fn describe<'e>(self, sql: SqlStr) -> BoxFuture<'e, Result<sqlx::Describe<Postgres>, sqlx::Error>>
    where
        'c: 'e,
    {
        self.exchange(move |conn| conn.describe(sql)).boxed()
    }
}
