//! The admin log: who did what, and why.
//!
//! Always true: rows are only ever added, by the database's own means (the service's role may do nothing else, and a
//! trigger stops its owner too). What is one transaction of ours carries its entry in it, so the log tells of
//! exactly what was done; what takes several is written down before.

mod model;
mod store;

pub use model::{Entry, LogFilter, Logged};

use crate::app::App;
use crate::infra::crash::effect;
use crate::infra::db::{DbError, Tx};
use time::OffsetDateTime;

/// Adds an entry in the transaction of the deed.
///
/// # Errors
/// When the database cannot be reached: then the deed is not done either.
pub async fn append_in_tx(tx: &mut Tx, entry: &Entry, now: OffsetDateTime) -> Result<(), DbError> {
    store::insert(tx, entry, now).await
}

/// Whether this operator did the very same to the order before, in such a transaction.
///
/// # Errors
/// When the database cannot be reached.
pub async fn has_in_tx(tx: &mut Tx, entry: &Entry) -> Result<bool, DbError> {
    store::has(tx, entry).await
}

/// Adds an entry before a deed that is more than one transaction. What then failed shows in the log of the process,
/// under the same request id.
///
/// # Errors
/// When the database cannot be reached: then the deed must not be done.
pub async fn append(app: &App, entry: &Entry) -> Result<(), DbError> {
    let mut conn = app.db.conn().await?;
    effect!("admin_log.append", store::insert(&mut conn, entry, app.now()).await)
}

/// A page of the log, newest first.
///
/// # Errors
/// When the database cannot be reached.
pub async fn list(app: &App, filter: &LogFilter<'_>) -> Result<Vec<Logged>, DbError> {
    store::list(&mut app.db.conn().await?, filter).await
}
