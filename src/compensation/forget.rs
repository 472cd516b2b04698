//! The end of tasks that are done.

use time::{Duration, OffsetDateTime};

use super::store;
use crate::infra::crash::effect;
use crate::infra::db::Db;
use crate::infra::duty::{Batch, DutyError};

/// How long a task that is done can be looked at: as long as callbacks.
const KEPT_FOR: Duration = Duration::days(90);
/// Tasks forgotten in one batch.
const BATCH: usize = 1000;

/// Forgets tasks that were done long ago. What was given up stays, as its exception does.
///
/// # Errors
/// When the database cannot be reached.
pub async fn forget_old(db: &Db, now: OffsetDateTime) -> Result<Batch, DutyError> {
    let limit = i64::try_from(BATCH)?;
    let mut conn = db.conn().await?;
    let deleted =
        effect!("compensation.forget", store::delete_done_before(&mut conn, now - KEPT_FOR, limit).await);
    let forgotten = deleted?;
    Ok(Batch::of(usize::try_from(forgotten)?, BATCH))
}
