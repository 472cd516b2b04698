//! Transactions: each ends one way or the other, and leaves no connection half-used.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use sqlx::AssertSqlSafe;

use super::{Conn, DbError};
use crate::infra::gather::Patience;

/// How long one statement of a snapshot may run: longer than the server lets it.
const SNAPSHOT_DEADLINE: Duration = Duration::from_secs(600);

impl Conn {
    /// Opens a transaction for a batch on this connection, which is lent to it until [`Tx::finish_into`]: what locks
    /// rows in it waits for them no longer than `patience`. Dropped without that, the connection is closed.
    ///
    /// # Errors
    /// [`DbError::Unavailable`] when the connection is gone.
    pub(crate) async fn begin_batch(&mut self, patience: Patience) -> Result<Tx, DbError> {
        self.open(format!("BEGIN; SET LOCAL lock_timeout = {}", patience.millis())).await
    }

    /// Opens a transaction that sees one unchanging snapshot, writes nothing and may take its time: an audit walks whole
    /// tables, and nobody's request waits for it. The connection is lent to it as by [`Conn::begin_batch`].
    ///
    /// # Errors
    /// [`DbError::Unavailable`] when the connection is gone.
    pub(crate) async fn begin_snapshot(&mut self) -> Result<Tx, DbError> {
        let opening = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;
                       SET LOCAL statement_timeout = '590s'; SET LOCAL enable_seqscan = on;
                       SET LOCAL enable_hashjoin = on; SET LOCAL enable_mergejoin = on";
        let mut tx = self.open(opening.to_owned()).await?;
        tx.conn.deadline = SNAPSHOT_DEADLINE;
        Ok(tx)
    }

    /// Opens a transaction by these statements. Where one of them fails, one may be open that nobody else is to find: then the
    /// connection is given up.
    async fn open(&mut self, opening: String) -> Result<Tx, DbError> {
        let opened = sqlx::raw_sql(AssertSqlSafe(opening)).execute(&mut *self).await;
        self.is_mid_flight |= opened.is_err();
        opened?;
        Ok(Tx { conn: self.lend(), is_open: true, is_ringing: false })
    }

    /// The connection itself, leaving nothing in its place.
    fn lend(&mut self) -> Self {
        let (deadline, bell) = (self.deadline, self.bell.clone());
        std::mem::replace(self, Self { inner: None, deadline, bell, is_mid_flight: false })
    }
}

/// An open transaction. [`Tx::finish`] ends it; dropped without that, its connection is closed and the server
/// rolls back.
#[derive(Debug)]
pub struct Tx {
    pub(super) conn: Conn,
    pub(super) is_open: bool,
    pub(super) is_ringing: bool,
}

impl Tx {
    /// Has [`super::Db::bell`] rung once this has committed.
    pub(crate) fn ring_after_commit(&mut self) {
        self.is_ringing = true;
    }

    /// From here on waits for a row that somebody else holds no longer than that.
    ///
    /// # Errors
    /// [`DbError::Unavailable`] when the connection is gone.
    pub(crate) async fn limit_waiting(&mut self, patience: Patience) -> Result<(), DbError> {
        let limit = format!("SET LOCAL lock_timeout = {}", patience.millis());
        sqlx::raw_sql(AssertSqlSafe(limit)).execute(&mut self.conn).await?;
        Ok(())
    }

    /// From here on lets no statement take longer than that.
    ///
    /// # Errors
    /// [`DbError::Unavailable`] when the connection is gone.
    pub(crate) async fn limit_statements(&mut self, most: Duration) -> Result<(), DbError> {
        let limit = format!("SET LOCAL statement_timeout = {}", most.as_millis());
        sqlx::raw_sql(AssertSqlSafe(limit)).execute(&mut self.conn).await?;
        Ok(())
    }

    /// Commits after `Ok`, rolls back after `Err`, and hands the outcome on.
    ///
    /// # Errors
    /// The outcome's own, or the commit's. After a failed commit the outcome is unknown: look again by key.
    pub async fn finish<T, E: From<DbError>>(mut self, outcome: Result<T, E>) -> Result<T, E> {
        self.end(outcome).await
    }

    /// The same, and gives the connection back to whoever lent it.
    ///
    /// # Errors
    /// As [`Tx::finish`].
    pub(crate) async fn finish_into<T>(
        mut self,
        lender: &mut Conn,
        outcome: Result<T, DbError>,
    ) -> Result<T, DbError> {
        let outcome = self.end(outcome).await;
        lender.inner = self.conn.inner.take();
        lender.is_mid_flight = self.conn.is_mid_flight || self.is_open;
        outcome
    }

    async fn end<T, E: From<DbError>>(&mut self, outcome: Result<T, E>) -> Result<T, E> {
        let statement = if outcome.is_ok() { "COMMIT" } else { "ROLLBACK" };
        let ended = sqlx::raw_sql(statement).execute(&mut self.conn).await;
        self.is_open = ended.is_err();
        if self.is_ringing && outcome.is_ok() && ended.is_ok() {
            self.conn.bell.notify_one();
        }
        match (outcome, ended) {
            (Ok(_), Err(error)) => Err(DbError::from(error).into()),
            (outcome, _) => outcome,
        }
    }
}

impl Drop for Tx {
    fn drop(&mut self) {
        // Closes the connection in place of returning it with a transaction open.
        self.conn.is_mid_flight |= self.is_open;
    }
}

impl Deref for Tx {
    type Target = Conn;
    fn deref(&self) -> &Conn {
        &self.conn
    }
}

impl DerefMut for Tx {
    fn deref_mut(&mut self) -> &mut Conn {
        &mut self.conn
    }
}
