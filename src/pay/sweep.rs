//! Links that died before their order: each is closed at its channel, so that no attempt stays live for nothing. While
//! merchants are served the sweep works a quarter of the time.

use time::{Duration, OffsetDateTime};
use tokio::time::Instant;

use super::store;
use crate::app::App;
use crate::infra::crash::effect;
use crate::infra::duty::{Batch, DutyError, Within};

/// Attempts of one batch.
const BATCH: usize = 500;
/// Whoever asks for a new link, or closes the order, ends the attempt sooner; the sweep leaves them this long.
const GRACE: Duration = Duration::seconds(10);

/// Writes the tasks that close attempts past their end.
///
/// # Errors
/// When the database cannot be reached.
pub async fn sweep_dead_links(app: &App) -> Result<Batch, DutyError> {
    sweep_dead_links_within(app, Within::ever()).await.map(|_| Batch::Done)
}

/// The same for about so long; at least a batch. `false` when it was cut off. One run walks all of them, batch by batch,
/// and meets each once, also those that are driven by tasks already.
///
/// # Errors
/// When the database cannot be reached.
pub async fn sweep_dead_links_within(app: &App, within: Within) -> Result<bool, DutyError> {
    let (now, limit) = (app.now(), i64::try_from(BATCH)?);
    let mut after = OffsetDateTime::UNIX_EPOCH;
    loop {
        let (mut conn, since) = (app.db.conn().await?, Instant::now());
        let (written, last) = effect!(
            "pay.sweep",
            store::leave_dead_links_to_tasks(&mut conn, after, now - GRACE, limit, now).await
        )?;
        drop(conn);
        if written > 0 {
            app.sweep_wake.notify_one();
        }
        let Some(last) = last else { return Ok(true) };
        after = last;
        // What tasks drive already is only read past, so that whoever goes on comes further.
        if written > 0 && within.is_over() || app.changes.is_over() {
            return Ok(false);
        }
        if !within.is_over() {
            app.served.rest_after(since.elapsed()).await;
        }
    }
}
