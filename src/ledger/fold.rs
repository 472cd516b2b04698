//! Folding what moved the accounts that are no user's into their balances.

use time::OffsetDateTime;

use super::store;
use crate::infra::crash::effect;
use crate::infra::db::Db;
use crate::infra::duty::{Batch, DutyError};

/// Movements folded in one batch: whoever reads a balance adds those that are not folded yet, so there should be few.
const BATCH: usize = 5000;

/// Takes a batch of movements out and adds them to the balances of their accounts, in one statement. Instances that do
/// so at once take different movements, and lock accounts in the order of their names.
///
/// # Errors
/// When the database cannot be reached: nothing was folded, or all of the batch.
pub async fn fold(db: &Db, now: OffsetDateTime) -> Result<Batch, DutyError> {
    let limit = i64::try_from(BATCH)?;
    let mut conn = db.conn().await?;
    let folded = effect!("ledger.fold", store::fold_movements(&mut conn, limit, now).await)?;
    Ok(Batch::of(usize::try_from(folded)?, BATCH))
}
