//! The end of kept answers.

use time::{Duration, OffsetDateTime};

use super::store;
use crate::infra::crash::effect;
use crate::infra::db::Db;
use crate::infra::duty::{Batch, DutyError};

/// How long an answer is kept: three days of repeats.
const KEPT_FOR: Duration = Duration::hours(72);
/// Answers forgotten in one batch.
const BATCH: usize = 1000;

/// Forgets answers that nobody may ask for any more.
///
/// # Errors
/// When the database cannot be reached.
pub async fn forget_old(db: &Db, now: OffsetDateTime) -> Result<Batch, DutyError> {
    let limit = i64::try_from(BATCH)?;
    let mut conn = db.conn().await?;
    let deleted = effect!("idempotency.forget", store::delete_before(&mut conn, now - KEPT_FOR, limit).await);
    let forgotten = deleted?;
    Ok(Batch::of(usize::try_from(forgotten)?, BATCH))
}
