//! A person's decision about a difference that waits.

use super::error::ReconciliationError;
use super::model::{Item, ItemEvent, ItemStatus, Seen};
use super::store::{self, Move};
use crate::admin_log::{self, Entry};
use crate::app::App;
use crate::exceptions::{self, ExceptionAction};
use crate::infra::crash::effect;
use crate::infra::db::Tx;
use crate::orders::OrderKey;

/// What a person wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Do what is proposed, also what was tried before.
    Approve {
        /// Whether what was looked at moves money: consent to a question is none to the charge that its answer proposes.
        moves_money: bool,
    },
    /// Leave it as it is.
    Dismiss,
}

/// Writes a decision down; what is approved the workers carry out. The same one by the same operator again gives the difference
/// as it stands, or has what nothing came of tried again.
///
/// # Errors
/// [`ReconciliationError::NotFound`], [`ReconciliationError::NotWaiting`], [`ReconciliationError::NotAgreed`],
/// [`ReconciliationError::NotAsSeen`], [`ReconciliationError::NotCompared`]: nothing was changed.
pub async fn decide(
    app: &App,
    item_id: &str,
    decision: Decision,
    seen: Option<&Seen>,
    entry: &Entry,
) -> Result<Item, ReconciliationError> {
    let decided = app.db.retrying(|| async {
        let mut tx = app.db.begin().await?;
        let decided = decide_in_tx(app, &mut tx, item_id, decision, seen, entry).await;
        effect!("reconciliation.person", tx.finish(decided).await)
    });
    let item = decided.await?;
    app.reconciliation_act_wake.notify_one();
    Ok(item)
}

async fn decide_in_tx(
    app: &App,
    tx: &mut Tx,
    item_id: &str,
    decision: Decision,
    seen: Option<&Seen>,
    entry: &Entry,
) -> Result<Item, ReconciliationError> {
    let now = app.now();
    // The day first, as by whoever ends its comparison.
    let standing = match decision {
        Decision::Approve { .. } => store::lock_standing(tx, item_id).await?,
        Decision::Dismiss => None,
    };
    let item = store::lock_item(tx, item_id).await?.ok_or(ReconciliationError::NotFound)?;
    if seen.is_some_and(|seen| *seen != item.shown()) {
        return Err(ReconciliationError::NotAsSeen(item.shown()));
    }
    let event = match decision {
        Decision::Approve { .. } => ItemEvent::Decided,
        Decision::Dismiss => ItemEvent::Dismissed,
    };
    // What was only just found is the service's to look at first.
    let to = item.status.after(event).filter(|_| item.status != ItemStatus::Proposed);
    let Some(to) = to else {
        // Asked for again, because the answer was lost, be it that to the commit.
        let is_decided_so = item.decided_by.as_ref() == Some(&entry.actor) && stands(&item, decision);
        return if is_decided_so { Ok(item) } else { Err(ReconciliationError::NotWaiting(item.status)) };
    };
    if let Decision::Approve { moves_money } = decision {
        if standing.as_ref() != Some(&item.reconciliation_id) {
            return Err(ReconciliationError::NotCompared);
        }
        if moves_money != item.moves_money {
            return Err(ReconciliationError::NotAgreed { moves_money: item.moves_money });
        }
    }
    let step = Move { event, decided_by: Some(&entry.actor), outcome: None };
    if !store::move_item(tx, &item, to, step, now).await? {
        return Err(ReconciliationError::NotWaiting(item.status));
    }
    let by = (entry.actor.as_str(), entry.reason.as_str());
    exceptions::settle_by_in_tx(tx, item_id, None, ExceptionAction::None, by, now).await?;
    let order = OrderKey::from_columns(item.merchant_id.as_deref(), item.order_no.as_deref());
    admin_log::append_in_tx(tx, &Entry { order, ..entry.clone() }, now).await?;
    store::find_item(tx, item_id).await?.ok_or(ReconciliationError::NotFound)
}

/// Whether a difference stands where such a decision leads.
fn stands(item: &Item, decision: Decision) -> bool {
    match decision {
        Decision::Approve { moves_money } => {
            moves_money == item.moves_money
                && matches!(item.status, ItemStatus::Applying | ItemStatus::Applied | ItemStatus::Resolved)
        }
        Decision::Dismiss => item.status == ItemStatus::Dismissed,
    }
}
