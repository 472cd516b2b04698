//! How the whole stands, as gauges: what the alert rules under `deploy/` look at.

use time::OffsetDateTime;

use super::store::{self, Figures};
use crate::app::App;
use crate::compensation::{self, Action, LaneStand};
use crate::infra::duty::{Batch, DutyError};
use crate::pay::report::Verdict;

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
    begin_at_zero(app);
    set(&figures);
    lanes.iter().for_each(|lane| set_lane(lane, now));
    metrics::gauge!("payonce_figures_read_at_seconds").set(now.unix_timestamp() as f64);
    Ok(Batch::Done)
}

/// Counters that alerts look at are there before they count: the first event of one that begins with it is no increase
/// to Prometheus.
fn begin_at_zero(app: &App) {
    for outcome in ["put", "lost"] {
        metrics::counter!("payonce_updates_spilled_total", "outcome" => outcome).increment(0);
    }
    metrics::counter!("payonce_updates_drained_total").increment(0);
    metrics::counter!("payonce_redis_failures_total").increment(0);
    metrics::counter!("payonce_usage_messages_total", "outcome" => "dead").increment(0);
    for action in Action::ALL {
        let action = action.as_str();
        metrics::counter!("payonce_compensations_total", "action" => action, "outcome" => "dead")
            .increment(0);
    }
    for channel in app.channels.names() {
        for verdict in Verdict::ALL {
            metrics::counter!("payonce_reports_total", "channel" => channel, "verdict" => verdict.as_str())
                .increment(0);
        }
        metrics::counter!("payonce_webhooks_refused_total", "channel" => channel, "verdict" => "BAD_SIGNATURE")
            .increment(0);
    }
}

fn set(figures: &Figures) {
    metrics::gauge!("payonce_orders_stuck").set(figures.orders_stuck as f64);
    metrics::gauge!("payonce_tasks_dead").set(figures.tasks_dead as f64);
    metrics::gauge!("payonce_exceptions_open").set(figures.exceptions_open as f64);
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
