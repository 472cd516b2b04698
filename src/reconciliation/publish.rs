//! How the comparing stands, as gauges.

use super::store;
use crate::app::App;
use crate::infra::duty::{Batch, DutyError};

/// Sets `payonce_reconciliation_age_seconds{channel}`, the time since the end of the last day that was compared to its
/// end, and `payonce_reconciliation_open{class}`, the differences that are not at theirs.
///
/// # Errors
/// When the database cannot be reached.
pub async fn publish(app: &App) -> Result<Batch, DutyError> {
    let (now, mut conn) = (app.now(), app.db.conn().await?);
    for (channel, ended_at) in store::last_done(&mut conn).await? {
        metrics::gauge!("payonce_reconciliation_age_seconds", "channel" => channel)
            .set((now - ended_at).as_seconds_f64());
    }
    for (class, count) in store::count_open(&mut conn).await? {
        // Gauges are floats, exact for any count that there can be.
        metrics::gauge!("payonce_reconciliation_open", "class" => class.as_str()).set(count as f64);
    }
    Ok(Batch::Done)
}
