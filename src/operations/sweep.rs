//! The sweep: whatever is old and in the middle gets a task, in a lane of its own.
//!
//! It is done in slices, each well within the time of a request; the same call goes on where one was cut off.
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
use crate::infra::duty::{Batch, DutyError, Within};
use crate::orders::{self, OrderKey};
use crate::pay;

/// Things of one batch.
const BATCH: i64 = 500;
/// How long each of the four parts of a slice may take, and a statement more: all of them end well before a request must.
pub const SLICE: std::time::Duration = std::time::Duration::from_secs(5);
/// What moved so recently is in the hands of whoever moved it.
const GRACE: Duration = Duration::seconds(60);

/// Things in the middle that nothing drives.
#[derive(Clone, Debug, Serialize, sqlx::FromRow, utoipa::ToSchema)]
pub struct LeftAlone {
    /// What would be done with them.
    #[schema(value_type = crate::compensation::Action)]
    pub action: String,
    /// How many; counting stops at 100000.
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
    /// Whether it was cut off before it had seen to all: the same call goes on.
    pub has_more: bool,
    /// Of what so much is under way that nobody could see in time whether any of it was left alone: the same call would not
    /// either.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<crate::compensation::Action>)]
    pub not_seen: Vec<&'static str>,
}

/// What a sweep would find.
///
/// # Errors
/// When the database cannot be reached.
pub async fn look_for_left_alone(app: &App) -> Result<Swept, DbError> {
    let (mut conn, within) = (app.db.conn().await?, Within::of(SLICE));
    let mut found = Swept { left_alone: Vec::new(), written: 0, has_more: false, not_seen: Vec::new() };
    for source in &store::SOURCES {
        if within.is_over() {
            found.not_seen.push(source.action);
            continue;
        }
        match store::count_left_alone(&mut conn, source, app.now() - GRACE).await {
            Ok(counted) => found.left_alone.extend(counted),
            Err(error) if error.took_too_long() => found.not_seen.push(source.action),
            Err(error) => return Err(error),
        }
    }
    found.left_alone.sort_by(|one, other| one.action.cmp(&other.action));
    Ok(found)
}

/// Closes what is due, and writes tasks for everything else that was left alone: a slice of it.
///
/// # Errors
/// When the database cannot be reached: what was swept stays so, and the same call goes on.
pub async fn sweep(app: &App, entry: &Entry) -> Result<Swept, DutyError> {
    admin_log::append(app, entry).await?;
    sweep_slice(app, SLICE).await
}

/// A slice, each of whose parts takes about so long, and does at least a batch.
///
/// # Errors
/// As [`sweep`].
pub async fn sweep_slice(app: &App, slice: std::time::Duration) -> Result<Swept, DutyError> {
    let Swept { left_alone, mut not_seen, .. } = look_for_left_alone(app).await?;
    let has_all_orders = orders::sweep_due_within(app, Within::of(slice)).await?;
    let has_all_links = pay::sweep_dead_links_within(app, Within::of(slice)).await?;
    let adopted = adopt(app, None, Lane::Sweep, Within::of(slice)).await?;
    let has_more = !(has_all_orders && has_all_links && adopted.has_all);
    not_seen.extend(adopted.not_seen);
    not_seen.sort_unstable();
    not_seen.dedup();
    Ok(Swept { left_alone, written: adopted.written, has_more, not_seen })
}

/// The same as a duty.
///
/// # Errors
/// When the database cannot be reached.
pub async fn sweep_left_alone(app: &App) -> Result<Batch, DutyError> {
    let Adopted { written, has_all, not_seen } = adopt(app, None, Lane::Sweep, Within::of(SLICE)).await?;
    if written > 0 {
        tracing::warn!(written, "things in the middle had no task; they have one now");
    }
    metrics::counter!("payonce_tasks_adopted_total").increment(u64::try_from(written)?);
    if !not_seen.is_empty() {
        return Err(format!(
            "nobody can see in time whether any of these was left alone: {}",
            not_seen.join(", ")
        )
        .into());
    }
    Ok(if has_all { Batch::Done } else { Batch::MoreWaiting })
}

/// What came of a look for things without a task.
#[derive(Debug)]
pub(super) struct Adopted {
    /// Tasks that were written.
    pub(super) written: i64,
    /// Whether these were all that were found.
    has_all: bool,
    /// What could not be looked for: its backlog, all of it with tasks, takes longer than a statement may.
    not_seen: Vec<&'static str>,
}

/// Writes tasks for what has none, of one order or of all, for about so long.
pub(super) async fn adopt(
    app: &App,
    of: Option<&OrderKey>,
    lane: Lane,
    within: Within,
) -> Result<Adopted, DbError> {
    let mut adopted = Adopted { written: 0, has_all: true, not_seen: Vec::new() };
    for source in store::SOURCES.iter().filter(|source| of.is_none() || source.is_of_orders()) {
        if within.is_over() && !adopted.not_seen.is_empty() {
            adopted.not_seen.push(source.action);
            continue;
        }
        if within.is_over() && adopted.written > 0 {
            adopted.has_all = false;
            break;
        }
        match adopt_of(app, (source, of), lane, within, &mut adopted.written).await {
            Ok(has_all) => adopted.has_all &= has_all,
            // Of one order there is no backlog.
            Err(error) if of.is_none() && error.took_too_long() => adopted.not_seen.push(source.action),
            Err(error) => return Err(error),
        }
    }
    if adopted.written > 0 {
        app.sweep_wake.notify_one();
    }
    Ok(adopted)
}

/// The same from one source, at least a batch. Gives whether these were all.
async fn adopt_of(
    app: &App,
    (source, of): (&store::Source, Option<&OrderKey>),
    lane: Lane,
    within: Within,
    written: &mut i64,
) -> Result<bool, DbError> {
    loop {
        let mut conn = app.db.conn().await?;
        let (now, grace) = (app.now(), if of.is_some() { Duration::ZERO } else { GRACE });
        let (found, adopted) = effect!(
            "tasks.adopt",
            store::adopt_left_alone(&mut conn, (source, of), now - grace, lane, BATCH, now).await
        )?;
        *written += adopted;
        if found < BATCH {
            return Ok(true);
        }
        if within.is_over() {
            return Ok(false);
        }
    }
}
