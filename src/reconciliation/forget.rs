//! Lines and files are kept for some days: those beside a day are looked at with it. The lines of a day are kept until
//! those are compared: of two days the one that is compared last answers for what is between them.

use time::Duration;

use super::store;
use crate::app::App;
use crate::infra::crash::effect;
use crate::infra::duty::{Batch, DutyError};

/// How long, from the end of their day's reconciliation.
const KEPT: Duration = Duration::days(7);
/// The same, where nobody begins the day before or behind.
const KEPT_FOR_OTHERS: Duration = Duration::days(31);
/// How long the lines of a day that is forgotten are left where they are: whoever compares a day beside it may have
/// counted on them before.
const LEFT: Duration = Duration::DAY;
/// Lines of one transaction.
const LINES: i64 = 50_000;
/// Pieces of files of one transaction: each has a quarter of a megabyte.
const PARTS: i64 = 200;

/// Forgets a batch of what is old. The differences stay.
///
/// # Errors
/// When the database cannot be reached.
pub async fn forget_old(app: &App) -> Result<Batch, DutyError> {
    let now = app.now();
    let mut conn = app.db.conn().await?;
    effect!(
        "reconciliation.forget_days",
        store::forget_days(&mut conn, now - KEPT, now - KEPT_FOR_OTHERS, now).await
    )?;
    let lines = effect!(
        "reconciliation.forget_lines",
        store::delete_forgotten_lines(&mut conn, now - LEFT, LINES).await
    )?;
    let parts =
        effect!("reconciliation.forget_files", store::delete_old_files(&mut conn, now - KEPT, PARTS).await)?;
    let is_full = i64::try_from(lines)? >= LINES || i64::try_from(parts)? >= PARTS;
    Ok(if is_full { Batch::MoreWaiting } else { Batch::Done })
}
