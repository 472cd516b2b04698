//! An operator has many tasks tried again: counted first, then in bounded batches.

use serde::Serialize;

use super::sweep;
use crate::admin_log::{self, Entry};
use crate::app::App;
use crate::compensation::{self, Lane, TaskFilter};
use crate::exceptions;
use crate::infra::crash::effect;
use crate::infra::db::{DbError, Tx};
use crate::orders::OrderKey;

/// Looks at one batch while living tasks come up beside it.
const LOOKS: usize = 5;
/// Tasks of one transaction.
const BATCH: i64 = 500;
/// Tasks of one call; counting stops there too.
const MOST: i64 = 10_000;

/// What a call came to, or would come to.
#[derive(Clone, Copy, Debug, Serialize, utoipa::ToSchema)]
pub struct RetriedMany {
    /// Tasks that can be tried again: those that failed and wait, and those that were given up; counting stops at 10000.
    #[schema(example = 120)]
    pub matched: i64,
    /// Those that were made due by this call.
    #[schema(example = 0)]
    pub retried: i64,
    /// Whether there may be more: the same call goes on with them.
    pub has_more: bool,
}

/// How many tasks of a filter can be tried again.
///
/// # Errors
/// When the database cannot be reached.
pub async fn count_retryable(app: &App, filter: &TaskFilter<'_>) -> Result<RetriedMany, DbError> {
    let matched = compensation::count(&mut app.db.conn().await?, filter, MOST + 1, app.now()).await?;
    Ok(RetriedMany { matched: matched.min(MOST), retried: 0, has_more: matched > MOST })
}

/// Makes the tasks of a filter that failed and wait, and the dead ones, due at once, in the lane of the sweep, so that a hundred
/// thousand of them delay nothing fresh. What was shown to a person because of them is resolved, where nothing else about the same thing was
/// given up.
///
/// # Errors
/// When the database cannot be reached: batches that were committed stay, and the same call goes on.
pub async fn retry_many(app: &App, filter: &TaskFilter<'_>, entry: &Entry) -> Result<RetriedMany, DbError> {
    let counted = count_retryable(app, filter).await?;
    admin_log::append(app, entry).await?;
    let retried = revive_all(app, filter, Lane::Sweep).await?;
    app.sweep_wake.notify_one();
    Ok(RetriedMany { retried, has_more: counted.has_more, ..counted })
}

async fn revive_all(app: &App, filter: &TaskFilter<'_>, lane: Lane) -> Result<i64, DbError> {
    let (mut retried, mut after) = (0, 0);
    while retried < MOST {
        let Some((count, last)) = revive_batch(app, filter, lane, after).await? else { break };
        (retried, after) = (retried + count, last);
    }
    Ok(retried)
}

/// A living task may be written for a thing while its dead one is revived: a second look leaves that one out.
async fn revive_batch(
    app: &App,
    filter: &TaskFilter<'_>,
    lane: Lane,
    after: i64,
) -> Result<Option<(i64, i64)>, DbError> {
    let mut looks = 0;
    loop {
        looks += 1;
        let revived = app
            .db
            .retrying(|| async {
                let mut tx = app.db.begin().await?;
                let revived = revive_batch_in_tx(app, &mut tx, filter, lane, after).await;
                effect!("tasks.revive_many", tx.finish(revived).await)
            })
            .await;
        match revived {
            Err(error) if looks < LOOKS && error.constraint() == Some("compensations_one_alive") => {}
            revived => return revived,
        }
    }
}

/// Gives how many, and the last of them; nothing when none was left.
async fn revive_batch_in_tx(
    app: &App,
    tx: &mut Tx,
    filter: &TaskFilter<'_>,
    lane: Lane,
    after: i64,
) -> Result<Option<(i64, i64)>, DbError> {
    let chosen = compensation::revive_many(tx, filter, lane, after, BATCH, app.now()).await?;
    let Some(last) = chosen.iter().map(|(id, _)| *id).max() else { return Ok(None) };
    // Workers may have taken any of them meanwhile, also a whole batch; what is behind it waits all the same.
    let subjects: Vec<String> = chosen.into_iter().filter_map(|(_, subject)| subject).collect();
    compensation::settle_shown_in_tx(tx, &subjects, exceptions::TRIED_AGAIN, app.now()).await?;
    Ok(Some((i64::try_from(subjects.len()).unwrap_or(BATCH), last)))
}

/// What was done for one order.
#[derive(Clone, Copy, Debug, Serialize, utoipa::ToSchema)]
pub struct OrderCompensated {
    /// Tasks that were made due.
    #[schema(example = 1)]
    pub retried: i64,
    /// Tasks that were written for what stood in the middle without one.
    #[schema(example = 0)]
    pub written: i64,
}

/// Has everything that is unfinished about an order tried at once: its tasks, and what has none. Somebody waits, so it
/// is done ahead of what is old.
///
/// # Errors
/// When the database cannot be reached.
pub async fn compensate_order(app: &App, key: &OrderKey, entry: &Entry) -> Result<OrderCompensated, DbError> {
    admin_log::append(app, entry).await?;
    let written = sweep::adopt_of_order(app, key).await?;
    let filter = TaskFilter {
        merchant_id: Some(key.merchant_id.as_str()),
        order_no: Some(key.order_no.as_str()),
        ..TaskFilter::default()
    };
    let retried = revive_all(app, &filter, Lane::Realtime).await?;
    app.compensation_wake.notify_one();
    Ok(OrderCompensated { retried, written })
}
