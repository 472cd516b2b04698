//! How the whole stands, as gauges: what the alert rules under `deploy/` look at.

use time::OffsetDateTime;

use super::store::{self, Figures};
use crate::app::App;
use crate::compensation::{self, LaneStand};
use crate::infra::duty::{Batch, DutyError};

/// Reads and sets the gauges. Every instance says the same of the whole.
///
/// # Errors
/// When the database cannot be reached: the gauges stay as they were, and `payonce_figures_read_at_seconds` tells.
pub async fn publish(app: &App) -> Result<Batch, DutyError> {
    let now = app.now();
    let mut conn = app.db.conn().await?;
    let figures = store::read_figures(&mut conn, now).await?;
    let lanes = compensation::stand_of_lanes(&mut conn, now).await?;
    drop(conn);
    set(&figures, now);
    lanes.iter().for_each(|lane| set_lane(lane, now));
    metrics::gauge!("payonce_figures_read_at_seconds").set(now.unix_timestamp() as f64);
    Ok(Batch::Done)
}

fn set(figures: &Figures, now: OffsetDateTime) {
    metrics::gauge!("payonce_orders_stuck").set(figures.orders_stuck as f64);
    metrics::gauge!("payonce_tasks_dead").set(figures.tasks_dead as f64);
    metrics::gauge!("payonce_exceptions_open").set(figures.exceptions_open as f64);
    metrics::gauge!("payonce_outbox_unpublished_age_seconds").set(age(figures.oldest_event_at, now));
}

fn set_lane(stand: &LaneStand, now: OffsetDateTime) {
    let lane = stand.lane.as_str();
    metrics::gauge!("payonce_lane_tasks", "lane" => lane).set(stand.living as f64);
    metrics::gauge!("payonce_lane_late_seconds", "lane" => lane).set(age(stand.oldest_due_at, now));
    metrics::gauge!("payonce_lane_paused_seconds", "lane" => lane).set(age(stand.paused_at, now));
}

/// Seconds since then; zero for what is not.
fn age(since: Option<OffsetDateTime>, now: OffsetDateTime) -> f64 {
    since.map_or(0.0, |since| (now - since).as_seconds_f64().max(0.0))
}
