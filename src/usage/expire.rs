//! Holds that nobody ended in time are freed, and what is left behind is counted.

use time::Duration;

use super::store;
use crate::app::App;
use crate::infra::crash::effect;
use crate::infra::db::DbError;
use crate::infra::duty::{Batch, DutyError};

/// Holds of one batch: 6 round trips and 1 commit for all of them.
const BATCH: usize = 500;
/// A hold that outlives its time by more than that is a leak.
const LEAKED_AFTER: Duration = Duration::seconds(60);

/// Frees a batch of holds whose time is over. Instances that do so at once take different ones; one that is being
/// confirmed in this instant is passed over.
///
/// # Errors
/// When the database cannot be reached: nothing was freed, or all of the batch.
pub async fn expire_due(app: &App) -> Result<Batch, DutyError> {
    let limit = i64::try_from(BATCH)?;
    let expired = app.db.retrying(|| expire_batch(app, limit)).await?;
    metrics::counter!("payonce_usage_holds_expired_total").increment(u64::try_from(expired)?);
    let leaked = store::count_leaked(&mut app.db.conn().await?, app.now() - LEAKED_AFTER).await?;
    metrics::gauge!("payonce_hold_leak").set(leaked as f64);
    Ok(Batch::of(expired, BATCH))
}

async fn expire_batch(app: &App, limit: i64) -> Result<usize, DbError> {
    let mut tx = app.db.begin().await?;
    let expired = store::expire_due_in_tx(&mut tx, &app.ids, app.now(), limit).await;
    effect!("usage.expire", tx.finish(expired).await)
}
