//! Holds that nobody ended in time are freed, and what is left behind is counted.

use time::{Duration, OffsetDateTime};

use super::store;
use crate::app::App;
use crate::infra::crash::effect;
use crate::infra::db::DbError;
use crate::infra::duty::{Batch, DutyError};
use crate::infra::gather::Patience;

/// Holds of one batch: 8 round trips and 1 commit for all of them.
const BATCH: usize = 500;
/// A hold that outlives its time by more than that is a leak.
const LEAKED_AFTER: Duration = Duration::seconds(60);

/// Frees the holds whose time is over. One run walks all of them, page by page, and meets each once: one that cannot be
/// freed (somebody has its balance in hand, or its figures are wrong) is left to the next run and holds up nobody.
/// Instances that do so at once take different ones; one that is being confirmed in this instant is passed over.
///
/// # Errors
/// When the database cannot be reached: of each batch nothing was freed, or all of it.
pub async fn expire_due(app: &App) -> Result<Batch, DutyError> {
    let (until, page_size) = (app.now(), i64::try_from(BATCH)?);
    let mut after = (OffsetDateTime::UNIX_EPOCH, String::new());
    loop {
        let (since, hold_id) = (after.0, after.1.as_str());
        let page = store::list_due(&mut app.db.conn().await?, (since, hold_id), until, page_size).await?;
        let Some(last) = page.last().cloned() else { break };
        let hold_ids: Vec<String> = page.into_iter().map(|(_, hold_id)| hold_id).collect();
        let expired = expire_all(app, &hold_ids).await?;
        metrics::counter!("payonce_usage_holds_expired_total").increment(u64::try_from(expired)?);
        if hold_ids.len() < BATCH {
            break;
        }
        after = last;
    }
    let leaked = store::count_leaked(&mut app.db.conn().await?, app.now() - LEAKED_AFTER).await?;
    metrics::gauge!("payonce_hold_leak").set(leaked as f64);
    Ok(Batch::Done)
}

/// Frees them together, and where that cannot be each by itself. Gives how many were.
async fn expire_all(app: &App, hold_ids: &[String]) -> Result<usize, DbError> {
    let failure = match expire_batch(app, hold_ids).await {
        Err(error) if !matches!(error, DbError::Unavailable(_)) => error,
        outcome => return outcome,
    };
    tracing::debug!(error = %failure, holds = hold_ids.len(), "a batch of holds is freed one by one");
    let mut expired = 0;
    for hold_id in hold_ids {
        match expire_batch(app, std::slice::from_ref(hold_id)).await {
            Ok(count) => expired += count,
            Err(error @ DbError::Unavailable(_)) => return Err(error),
            Err(error) => {
                tracing::warn!(hold.id = hold_id, %error, "a hold whose time is over could not be freed and is tried again");
            }
        }
    }
    Ok(expired)
}

/// It has the holds of strangers in hand, so it waits for nobody long.
async fn expire_batch(app: &App, hold_ids: &[String]) -> Result<usize, DbError> {
    let mut tx = app.db.begin().await?;
    tx.limit_waiting(Patience::IN_LANE).await?;
    let expired = store::expire_in_tx(&mut tx, &app.ids, hold_ids, app.now()).await;
    effect!("usage.expire", tx.finish(expired).await)
}
