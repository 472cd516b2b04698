//! A compensating charge is given back, by a person's word: its money came after all, or another user spent it.
//!
//! Its booking is reversed, once, in the transaction in which its difference says so. What its user still owes is reduced
//! by what it left them owing; what was written off of that meanwhile is the merchant's again, and what they have paid off of
//! it is theirs. Nobody is charged for the difference a second time. Where no statement lists its money, our books are above
//! the channel's from then on, and a person is shown that.

use time::OffsetDateTime;

use super::act::show_in_tx;
use super::charge::booking_of;
use super::error::ReconciliationError;
use super::model::{Item, ItemAction, ItemEvent, ItemStatus};
use super::store::{self, Move};
use crate::admin_log::{self, Entry};
use crate::app::App;
use crate::exceptions::{self, ExceptionAction, ExceptionKind};
use crate::infra::crash::effect;
use crate::infra::db::{DbError, Tx};
use crate::ledger::{Posting, PostingKind};
use crate::orders::{self, Order, OrderKey};
use crate::outbox::{self, Event};
use crate::receivables::{self, Debtor};

/// What is left to see to where money is neither charged for nor there.
pub(super) const NOWHERE: &str = "what its user was charged for it was given back, and no statement lists it";

/// Gives back what a user was charged for a difference; again, it gives the difference as it stands.
///
/// # Errors
/// [`ReconciliationError::NotFound`], [`ReconciliationError::NotCharged`]: nothing was changed.
pub async fn reverse_charge(app: &App, item_id: &str, entry: &Entry) -> Result<Item, ReconciliationError> {
    let reversed = app.db.retrying(|| async {
        let mut tx = app.db.begin().await?;
        let reversed = reverse_in_tx(app, &mut tx, item_id, entry).await;
        effect!("reconciliation.reverse", tx.finish(reversed).await)
    });
    reversed.await
}

async fn reverse_in_tx(
    app: &App,
    tx: &mut Tx,
    item_id: &str,
    entry: &Entry,
) -> Result<Item, ReconciliationError> {
    let item = store::find_item(tx, item_id).await?.ok_or(ReconciliationError::NotFound)?;
    let order = OrderKey::from_columns(item.merchant_id.as_deref(), item.order_no.as_deref());
    // The order first, as by whoever charges: what is told under its number is told in its order.
    let top_up = match &order {
        Some(key) => orders::lock_in_tx(tx, key).await?,
        None => None,
    };
    let item = store::lock_item(tx, item_id).await?.ok_or(ReconciliationError::NotFound)?;
    let now = app.now(); // Behind the locks: what was told of the order until then is older.
    if item.status == ItemStatus::Reversed {
        return Ok(item);
    }
    let event = ItemEvent::ChargeReversed;
    let to = item.status.after(event).filter(|_| item.action == ItemAction::Charge);
    let to = to.ok_or(ReconciliationError::NotCharged(item.status))?;
    let top_up = top_up.ok_or(ReconciliationError::NotFound)?;

    let why = item.outcome.as_deref().unwrap_or_default();
    let outcome = format!("{why}; {} gave it back: {}", entry.actor, entry.reason);
    let step = Move { event, decided_by: None, outcome: Some(&outcome) };
    if !store::move_item(tx, &item, to, step, now).await? {
        return Err(ReconciliationError::NotCharged(item.status));
    }
    let by = (entry.actor.as_str(), entry.reason.as_str());
    tell_in_tx(tx, (&item, &top_up), now).await?;
    // The balances before what was shown of them, as by whoever clears a debt.
    book_in_tx(tx, (&item, &top_up), by, now).await?;
    // Nothing is owed for it any more, and nothing is left to give back.
    for kind in [ExceptionKind::UsageShortfall, ExceptionKind::Contradiction] {
        exceptions::settle_by_in_tx(tx, &item.our_id, Some(kind), ExceptionAction::None, by, now).await?;
    }
    if !store::is_listed(tx, &item).await? {
        show_in_tx(app, tx, &item, NOWHERE).await?;
    }
    admin_log::append_in_tx(tx, &Entry { order, ..entry.clone() }, now).await?;
    store::find_item(tx, item_id).await?.ok_or(ReconciliationError::NotFound)
}

async fn tell_in_tx(
    tx: &mut Tx,
    (item, top_up): (&Item, &Order),
    now: OffsetDateTime,
) -> Result<(), DbError> {
    let (merchant_id, order_no) = (top_up.merchant_id.as_str(), top_up.order_no.as_str());
    let event = Event::CompensatingChargeReversed {
        charge_id: item.item_id.clone(),
        user_id: top_up.user_id.to_string(),
        order_no: order_no.to_owned(),
        pay_order_id: item.our_id.clone(),
        amount: item.ours.unwrap_or(0),
        currency: item.currency,
    };
    outbox::append_in_tx(tx, Some(merchant_id), Some(order_no), &event, now).await
}

async fn book_in_tx(
    tx: &mut Tx,
    (item, top_up): (&Item, &Order),
    by: (&str, &str),
    now: OffsetDateTime,
) -> Result<(), DbError> {
    let (merchant_id, user_id) = (top_up.merchant_id.as_str(), top_up.user_id.as_str());
    let debtor = Debtor { merchant_id, user_id, currency: item.currency };
    let charge = booking_of(item).transaction_id();
    let paid_back = Posting::new(PostingKind::ChargePaidBack, &item.item_id)
        .of(Some(merchant_id), Some(top_up.order_no.as_str()));
    receivables::undo_in_tx(tx, debtor, (charge, paid_back), by, now).await
}
