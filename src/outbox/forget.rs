//! The end of what was delivered, and how old the rest is.

use time::{Duration, OffsetDateTime};

use super::store;
use crate::infra::crash::effect;
use crate::infra::db::Db;
use crate::infra::duty::{Batch, DutyError};

/// How long a delivery and its tries can be looked at: as long as callbacks.
const KEPT_FOR: Duration = Duration::days(90);
/// Deliveries forgotten in one batch.
const BATCH: usize = 1000;

/// Forgets deliveries that came to an end long ago, and rests of lanes that are over. The events themselves stay with
/// their orders, as their history does: the audit holds one against the other.
///
/// # Errors
/// When the database cannot be reached.
pub async fn forget_old(db: &Db, now: OffsetDateTime) -> Result<Batch, DutyError> {
    let limit = i64::try_from(BATCH)?;
    let mut conn = db.conn().await?;
    let deleted = effect!("outbox.forget", store::delete_old(&mut conn, now - KEPT_FOR, limit).await)?;
    effect!("outbox.forget_rests", store::delete_over(&mut conn, now).await)?;
    Ok(Batch::of(usize::try_from(deleted)?, BATCH))
}

/// Publishes for how long somebody has not got the oldest event, and how many deliveries wait. What is sent again is as
/// old as the wish.
///
/// # Errors
/// When the database cannot be reached.
pub async fn publish_age(db: &Db, now: OffsetDateTime) -> Result<Batch, DutyError> {
    let age = store::measure(&mut db.conn().await?).await?;
    let seconds = age.oldest_at.map_or(0.0, |oldest_at| (now - oldest_at).as_seconds_f64().max(0.0));
    metrics::gauge!("payonce_outbox_oldest_seconds").set(seconds);
    metrics::gauge!("payonce_outbox_pending").set(age.pending as f64);
    Ok(Batch::Done)
}
