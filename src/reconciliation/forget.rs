//! Lines and files are kept for some days: those beside a day are looked at with it.

use time::Duration;

use super::store;
use crate::app::App;
use crate::infra::crash::effect;
use crate::infra::duty::{Batch, DutyError};

/// How long, from the end of their day's reconciliation.
pub(super) const KEPT: Duration = Duration::days(7);
/// Lines of one transaction.
const LINES: i64 = 50_000;
/// Pieces of files of one transaction: each has a quarter of a megabyte.
const PARTS: i64 = 200;

/// Forgets a batch of what is old. The differences stay.
///
/// # Errors
/// When the database cannot be reached.
pub async fn forget_old(app: &App) -> Result<Batch, DutyError> {
    let before = app.now() - KEPT;
    let mut conn = app.db.conn().await?;
    let lines =
        effect!("reconciliation.forget_lines", store::delete_old_lines(&mut conn, before, LINES).await)?;
    let parts =
        effect!("reconciliation.forget_files", store::delete_old_files(&mut conn, before, PARTS).await)?;
    let is_full = i64::try_from(lines)? >= LINES || i64::try_from(parts)? >= PARTS;
    Ok(if is_full { Batch::MoreWaiting } else { Batch::Done })
}
