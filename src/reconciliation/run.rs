//! The duty that carries days on: one bounded batch of one day at a time.

use super::model::{DayEvent, DayStatus};
use super::store::{self, Claimed};
use super::{compare, fetch};
use crate::app::App;
use crate::infra::crash::effect;
use crate::infra::duty::{Batch, DutyError};

/// How long a day rests that cannot go on, or waits for its differences to be taken up.
const REST: time::Duration = time::Duration::seconds(5);

/// Carries one day a step on, if there is one that nobody else is at.
///
/// # Errors
/// When the database cannot be reached: the day goes on later.
pub async fn run_due(app: &App) -> Result<Batch, DutyError> {
    let (now, mut conn) = (app.now(), app.db.conn().await?);
    let until = now + app.config.task_lease;
    let elsewhere = app.channels.elsewhere();
    let claimed = effect!("reconciliation.claim", store::claim(&mut conn, &elsewhere, until, now).await)?;
    drop(conn);
    let Some(run) = claimed else { return Ok(Batch::Done) };
    let (id, day) = (run.reconciliation_id.clone(), run.clone());
    let outcome = match run.status {
        DayStatus::Open => fetch::clear(app, &run).await,
        DayStatus::Fetching => fetch::fetch(app, run).await,
        DayStatus::Matching => compare::compare(app, run).await,
        DayStatus::Acting | DayStatus::Done => finish(app, &run).await,
    };
    if let Err(error) = &outcome {
        tracing::warn!(%error, reconciliation.id = %id, "the reconciliation {id} goes on later");
        fetch::stumble(app, &day, &error.to_string()).await?;
    }
    outcome
}

/// The day has come to its end once each of its differences was taken up.
async fn finish(app: &App, run: &Claimed) -> Result<Batch, DutyError> {
    let mut conn = app.db.conn().await?;
    if store::has_unfinished(&mut conn, &run.reconciliation_id).await? {
        store::rest(&mut conn, run, app.now() + REST, false).await?;
        return Ok(Batch::Done);
    }
    drop(conn);
    fetch::move_on(app, run, DayEvent::Finished, None).await
}
