//! Clearing a debt by an operator's word, once for each number.
//!
//! Round trips: 9 to PostgreSQL (BEGIN, two balances, look, clearing, log, event, booking, COMMIT), 1 more where nothing is owed
//! any more, and 1 where something was shown of it; commits: 1.

use time::OffsetDateTime;

use super::error::ReceivableError;
use super::model::{Clearing, NewClearing};
use super::{settle_shown_in_tx, store};
use crate::admin_log::{self, Entry};
use crate::app::App;
use crate::infra::crash::effect;
use crate::infra::db::Tx;
use crate::ledger;
use crate::outbox;

/// A clearing, and whether this call made it.
#[derive(Clone, Debug)]
pub struct Cleared {
    /// The clearing as it stands.
    pub clearing: Clearing,
    /// `false` when it was there already.
    pub is_new: bool,
}

/// Clears a debt, or gives back the clearing of that number when it is the same.
///
/// # Errors
/// [`ReceivableError::ParamsMismatch`] names the fields in which the existing one differs;
/// [`ReceivableError::NothingOwed`], [`ReceivableError::ExceedsOwed`], [`ReceivableError::InsufficientBalance`]: nothing
/// moved.
pub async fn clear(app: &App, new: &NewClearing, entry: &Entry) -> Result<Cleared, ReceivableError> {
    app.db.retrying(|| clear_once(app, new, entry)).await
}

async fn clear_once(app: &App, new: &NewClearing, entry: &Entry) -> Result<Cleared, ReceivableError> {
    let mut tx = app.db.begin().await?;
    let cleared = clear_in_tx(&mut tx, new, entry, app.now()).await;
    match effect!("receivables.clear", tx.finish(cleared).await) {
        // For another user, in the same instant: nobody waits for the balances of two.
        Err(ReceivableError::Db(error)) if error.constraint() == Some("receivable_clearings_pkey") => {
            let mut conn = app.db.conn().await?;
            let found = store::find(&mut conn, &new.merchant_id, &new.clearing_no).await?;
            found.map_or(Err(error.into()), |found| repeated(found, new))
        }
        cleared => cleared,
    }
}

async fn clear_in_tx(
    tx: &mut Tx,
    new: &NewClearing,
    entry: &Entry,
    now: OffsetDateTime,
) -> Result<Cleared, ReceivableError> {
    let debtor = new.debtor();
    let (available, receivable) = (debtor.available(), debtor.receivable());
    let [has, owes] = ledger::lock_balances_in_tx(tx, [&available, &receivable]).await?;
    // Behind the locks: who asked for the same a moment ago has cleared it by now.
    if let Some(found) = store::find(tx, &new.merchant_id, &new.clearing_no).await? {
        return repeated(found, new);
    }
    let clearing = new.cleared(new.due(owes, has)?, now);

    store::insert(tx, &clearing).await?;
    let target = format!("{}: {} {}", entry.target, clearing.amount, clearing.currency);
    admin_log::append_in_tx(tx, &Entry { target, ..entry.clone() }, now).await?;
    let event = clearing.announcement();
    outbox::append_in_tx(tx, Some(debtor.merchant_id), None, &event, now).await?;
    if clearing.amount == owes {
        settle_shown_in_tx(tx, debtor, (entry.actor.as_str(), entry.reason.as_str()), now).await?;
    }
    ledger::post_in_tx(tx, &[clearing.posting(debtor)], now).await?;
    Ok(Cleared { clearing, is_new: true })
}

/// The answer to a repeat: the clearing as it stands by now, when it is the same.
fn repeated(clearing: Clearing, new: &NewClearing) -> Result<Cleared, ReceivableError> {
    let differing = clearing.differing_fields(new);
    if differing.is_empty() {
        Ok(Cleared { clearing, is_new: false })
    } else {
        Err(ReceivableError::ParamsMismatch(differing))
    }
}
