//! Pausing a lane, and letting it go on. The pause is a row that every claim looks at: all instances obey it with
//! their next claim, and it outlives them. What is in the air lands; requests go on, and write their tasks.

use crate::admin_log::{self, Entry};
use crate::app::App;
use crate::compensation::{self, Lane, LaneStand};
use crate::infra::crash::effect;
use crate::infra::db::{DbError, Tx};

/// The lanes and what waits in them.
///
/// # Errors
/// When the database cannot be reached.
pub async fn lanes(app: &App) -> Result<Vec<LaneStand>, DbError> {
    compensation::stand_of_lanes(&mut app.db.conn().await?, app.now()).await
}

/// Lets the workers of a lane rest.
///
/// # Errors
/// When the database cannot be reached: nothing was changed.
pub async fn pause_lane(app: &App, lane: Lane, entry: &Entry) -> Result<Vec<LaneStand>, DbError> {
    set(app, lane, Some((entry.actor.as_str(), entry.reason.as_str())), entry).await
}

/// Has them work on.
///
/// # Errors
/// As [`pause_lane`].
pub async fn resume_lane(app: &App, lane: Lane, entry: &Entry) -> Result<Vec<LaneStand>, DbError> {
    let lanes = set(app, lane, None, entry).await?;
    match lane {
        Lane::Realtime => app.compensation_wake.notify_one(),
        Lane::Sweep => app.sweep_wake.notify_one(),
    }
    Ok(lanes)
}

async fn set(
    app: &App,
    lane: Lane,
    by: Option<(&str, &str)>,
    entry: &Entry,
) -> Result<Vec<LaneStand>, DbError> {
    let mut tx = app.db.begin().await?;
    let done = set_in_tx(app, &mut tx, lane, by, entry).await;
    effect!("lanes.set", tx.finish(done).await)
}

async fn set_in_tx(
    app: &App,
    tx: &mut Tx,
    lane: Lane,
    by: Option<(&str, &str)>,
    entry: &Entry,
) -> Result<Vec<LaneStand>, DbError> {
    compensation::set_paused(tx, lane, by, app.now()).await?;
    admin_log::append_in_tx(tx, entry, app.now()).await?;
    compensation::stand_of_lanes(tx, app.now()).await
}
