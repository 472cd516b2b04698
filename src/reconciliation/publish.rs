//! How the comparing stands, as gauges.

use time::Duration;

use super::store;
use crate::app::App;
use crate::infra::duty::{Batch, DutyError};

/// Days after which nobody asks any more why one was left out.
const LEFT_OUT_FOR: Duration = Duration::days(92);

/// Sets `payonce_reconciliation_age_seconds{channel}`, the time since the end of the last day that was compared to its
/// end; `payonce_reconciliation_days_left_out{channel}`, the days of the last 92 that nobody began between two that somebody did;
/// and `payonce_reconciliation_open{class}`, the differences that are not at their end.
///
/// # Errors
/// When the database cannot be reached.
pub async fn publish(app: &App) -> Result<Batch, DutyError> {
    let (now, mut conn) = (app.now(), app.db.conn().await?);
    // Gauges are floats, exact for any count that there can be.
    for store::Progress { channel, last_done, left_out } in
        store::list_progress(&mut conn, (now - LEFT_OUT_FOR).date()).await?
    {
        metrics::gauge!("payonce_reconciliation_days_left_out", "channel" => channel.clone())
            .set(left_out as f64);
        if let Some(ended_at) = last_done {
            metrics::gauge!("payonce_reconciliation_age_seconds", "channel" => channel)
                .set((now - ended_at).as_seconds_f64());
        }
    }
    for (class, count) in store::count_open(&mut conn).await? {
        metrics::gauge!("payonce_reconciliation_open", "class" => class.as_str()).set(count as f64);
    }
    Ok(Batch::Done)
}
