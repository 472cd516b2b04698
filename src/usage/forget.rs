//! The end of marks.

use time::Duration;

use super::store;
use crate::app::App;
use crate::infra::crash::effect;
use crate::infra::duty::{Batch, DutyError};

/// How long a message is known: twice the longest life of a hold, so never less than a week after its end.
const KEPT_FOR: Duration = Duration::days(14);
/// Marks forgotten in one batch.
const BATCH: usize = 5000;

/// Forgets messages that nobody repeats any more.
///
/// # Errors
/// When the database cannot be reached.
pub async fn forget_old(app: &App) -> Result<Batch, DutyError> {
    let (limit, horizon) = (i64::try_from(BATCH)?, app.now() - KEPT_FOR);
    let mut conn = app.db.conn().await?;
    let deleted = effect!("usage.forget", store::delete_marks_before(&mut conn, horizon, limit).await);
    Ok(Batch::of(usize::try_from(deleted?)?, BATCH))
}
