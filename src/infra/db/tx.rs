//! Transactions, which end one way or the other.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use tokio::sync::Notify;

use super::{Conn, DbError};

/// An open transaction. [`Tx::finish`] ends it; dropped without that, its connection is closed and the server
/// rolls back.
#[derive(Debug)]
pub struct Tx {
    pub(super) conn: Conn,
    pub(super) is_open: bool,
    pub(super) bell: Arc<Notify>,
    pub(super) is_ringing: bool,
}

impl Tx {
    /// Has [`super::Db::bell`] rung once this has committed.
    pub(crate) fn ring_after_commit(&mut self) {
        self.is_ringing = true;
    }

    /// Commits after `Ok`, rolls back after `Err`, and hands the outcome on.
    ///
    /// # Errors
    /// The outcome's own, or the commit's. After a failed commit the outcome is unknown: look again by key.
    pub async fn finish<T, E: From<DbError>>(mut self, outcome: Result<T, E>) -> Result<T, E> {
        let statement = if outcome.is_ok() { "COMMIT" } else { "ROLLBACK" };
        let ended = sqlx::raw_sql(statement).execute(&mut self.conn).await;
        self.is_open = ended.is_err();
        if self.is_ringing && outcome.is_ok() && ended.is_ok() {
            self.bell.notify_one();
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
