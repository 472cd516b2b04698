//! A person's decision about a difference that waits.

use super::error::ReconciliationError;
use super::model::{Item, ItemEvent};
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

/// Writes a decision down; what is approved the workers carry out.
///
/// # Errors
/// [`ReconciliationError::NotFound`], [`ReconciliationError::NotWaiting`], [`ReconciliationError::NotAgreed`]: nothing was
/// changed.
pub async fn decide(
    app: &App,
    item_id: &str,
    decision: Decision,
    entry: &Entry,
) -> Result<Item, ReconciliationError> {
    let mut tx = app.db.begin().await?;
    let decided = decide_in_tx(app, &mut tx, item_id, decision, entry).await;
    let item = effect!("reconciliation.person", tx.finish(decided).await)?;
    app.reconciliation_act_wake.notify_one();
    Ok(item)
}

async fn decide_in_tx(
    app: &App,
    tx: &mut Tx,
    item_id: &str,
    decision: Decision,
    entry: &Entry,
) -> Result<Item, ReconciliationError> {
    let now = app.now();
    let item = store::lock_item(tx, item_id).await?.ok_or(ReconciliationError::NotFound)?;
    let event = match decision {
        Decision::Approve { .. } => ItemEvent::Decided,
        Decision::Dismiss => ItemEvent::Dismissed,
    };
    // What was only just found is the service's to look at first.
    let to = item.status.after(event).filter(|_| item.status != super::model::ItemStatus::Proposed);
    let to = to.ok_or(ReconciliationError::NotWaiting(item.status))?;
    if let Decision::Approve { moves_money } = decision
        && moves_money != item.moves_money
    {
        return Err(ReconciliationError::NotAgreed { moves_money: item.moves_money });
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
