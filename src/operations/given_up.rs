//! What was given up, and whose thing came to its end all the same: by another task, a callback, or a person.
//!
//! Refunds and withdrawals settle this in the transaction of their end. An order or an attempt has many ways to its end, and
//! what a channel's answer says that was put aside becomes known in as many; what was given up about it is rare: none of these
//! ways looks for it, and a sweep finds it, through the index of the dead.

use tokio::time::Instant;

use super::store::{self, SettledPage};
use crate::app::App;
use crate::infra::crash::effect;
use crate::infra::db::DbError;
use crate::infra::duty::{Batch, DutyError};

/// Tasks of one page.
const BATCH: i64 = 500;

/// Ends the tasks that were given up about what has ended since, and resolves what was shown to a person because of them.
/// One run walks all that was given up, page by page. While merchants are served it works a quarter of the time.
///
/// # Errors
/// When the database cannot be reached: the pages before are settled.
pub async fn settle_given_up(app: &App) -> Result<Batch, DutyError> {
    let (mut settled, mut after) = (0, String::new());
    while !app.changes.is_over() {
        let since = Instant::now();
        let page = app.db.retrying(|| settle_page(app, &after)).await?;
        settled += page.settled;
        let Some(last) = page.last else { break };
        after = last;
        app.served.rest_after(since.elapsed()).await;
    }
    if settled > 0 {
        tracing::info!(settled, "tasks that were given up are done: their things have ended all the same");
    }
    Ok(Batch::Done)
}

async fn settle_page(app: &App, after: &str) -> Result<SettledPage, DbError> {
    let mut conn = app.db.conn().await?;
    effect!("tasks.settle", store::finish_given_up(&mut conn, after, BATCH, app.now()).await)
}
