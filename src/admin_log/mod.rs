//! The admin log: who did what, and why. Rows are only ever added.

mod store;

use crate::app::App;
use crate::config::Role;
use crate::infra::crash::effect;
use crate::infra::db::DbError;

/// One thing that an operator is about to do.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// Who.
    pub actor: &'a str,
    /// By which role.
    pub role: Role,
    /// What, such as `merchants.create`.
    pub action: &'a str,
    /// To what.
    pub target: &'a str,
    /// Why.
    pub reason: &'a str,
    /// The request, as in the log of the process.
    pub request_id: &'a str,
}

/// Adds an entry. Called before the deed: what is done is always logged, and what was logged and then failed
/// shows in the process's log under the same request id.
///
/// # Errors
/// When the database cannot be reached: then the deed is not done either.
pub async fn append(app: &App, entry: &Entry<'_>) -> Result<(), DbError> {
    let mut conn = app.db.conn().await?;
    effect!("admin_log.append", store::insert(&mut conn, entry, app.now()).await)
}
