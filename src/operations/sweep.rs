//! The sweep: whatever is old and in the middle gets a task, in a lane of its own.
//!
//! Every state in the middle has its task from the transaction that led to it, so there is nothing to find; this is
//! the net under that, and what brings back what a person took a task from.

use serde::Serialize;
use time::Duration;

use super::store;
use crate::admin_log::{self, Entry};
use crate::app::App;
use crate::compensation::Lane;
use crate::infra::crash::effect;
use crate::infra::db::DbError;
use crate::infra::duty::{Batch, DutyError};
use crate::orders::{self, OrderKey};
use crate::pay;

/// Things of one batch.
const BATCH: i64 = 500;
/// Batches of one call.
const BATCHES: usize = 200;
/// What moved so recently is in the hands of whoever moved it.
const GRACE: Duration = Duration::seconds(60);

/// Things in the middle that nothing drives.
#[derive(Clone, Debug, Serialize, sqlx::FromRow, utoipa::ToSchema)]
pub struct LeftAlone {
    /// What would be done with them.
    #[schema(value_type = crate::compensation::Action)]
    pub action: String,
    /// How many; counting stops at 100000 in all.
    #[schema(example = 0)]
    pub count: i64,
}

/// What a sweep found, and did.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct Swept {
    /// What stood in the middle with nothing that drives it.
    pub left_alone: Vec<LeftAlone>,
    /// Tasks that were written for it.
    #[schema(example = 0)]
    pub written: i64,
}

/// What a sweep would find.
///
/// # Errors
/// When the database cannot be reached.
pub async fn look_for_left_alone(app: &App) -> Result<Swept, DbError> {
    let mut conn = app.db.conn().await?;
    let left_alone = store::count_left_alone(&mut conn, app.now() - GRACE).await?;
    Ok(Swept { left_alone, written: 0 })
}

/// Closes what is due, and writes tasks for everything else that was left alone.
///
/// # Errors
/// When the database cannot be reached: what was swept stays so, and the same call goes on.
pub async fn sweep(app: &App, entry: &Entry) -> Result<Swept, DutyError> {
    admin_log::append(app, entry).await?;
    let Swept { left_alone, .. } = look_for_left_alone(app).await?;
    orders::sweep_due(app).await?;
    pay::sweep_dead_links(app).await?;
    let written = adopt(app, None, Lane::Sweep).await?;
    Ok(Swept { left_alone, written })
}

/// The same as a duty.
///
/// # Errors
/// When the database cannot be reached.
pub async fn sweep_left_alone(app: &App) -> Result<Batch, DutyError> {
    let written = adopt(app, None, Lane::Sweep).await?;
    if written > 0 {
        tracing::warn!(written, "things in the middle had no task; they have one now");
    }
    metrics::counter!("payonce_tasks_adopted_total").increment(u64::try_from(written)?);
    Ok(Batch::Done)
}

/// Writes tasks for what has none, of one order or of all. Gives how many.
pub(super) async fn adopt(app: &App, of: Option<&OrderKey>, lane: Lane) -> Result<i64, DbError> {
    let mut written = 0;
    for _ in 0..BATCHES {
        let mut conn = app.db.conn().await?;
        let (now, grace) = (app.now(), if of.is_some() { Duration::ZERO } else { GRACE });
        let count = effect!(
            "tasks.adopt",
            store::adopt_left_alone(&mut conn, of, now - grace, lane, BATCH, now).await
        )?;
        written += count;
        if count < BATCH {
            break;
        }
    }
    if written > 0 {
        app.sweep_wake.notify_one();
    }
    Ok(written)
}
