//! Money that its user was charged for, or is to be, because it never came, and that a statement lists.
//!
//! A charge is marked by the comparison that finds its money, and in which round of its day: begun anew with another file,
//! a day has said nothing yet, and speaks again. Of a charge that was made a person is told, once for a statement; one that
//! is still to be made is made by nobody, for it looks at its mark (see [`super::charge`]); and of one that was given back
//! nothing is missing any more. A round that lists it no longer takes all of that back, unless another day's statement lists
//! it too: then it is that one that speaks.

use time::{Date, OffsetDateTime};

use super::act::show_in_tx;
use super::compare::resolve;
use super::model::{Item, ItemStatus};
use super::reverse::NOWHERE;
use super::store::{self, Claimed};
use crate::app::App;
use crate::exceptions::{self, ExceptionAction, ExceptionKind, NewException};
use crate::infra::db::{DbError, Tx};

/// Notes so many charges at most of which the day says something new. Gives how many there were.
pub(super) async fn note_in_tx(
    app: &App,
    tx: &mut Tx,
    run: &Claimed,
    limit: i64,
    now: OffsetDateTime,
) -> Result<usize, DbError> {
    let listed = store::take_listed_charges(tx, run, limit, now).await?;
    for item in &listed {
        note_listed_in_tx(app, tx, run, item, now).await?;
    }
    // Not before all that this round lists are marked by it.
    if !listed.is_empty() {
        return Ok(listed.len());
    }
    let unlisted = store::take_unlisted_charges(tx, run, limit).await?;
    for item in &unlisted {
        note_unlisted_in_tx(app, tx, item, now).await?;
    }
    Ok(unlisted.len())
}

async fn note_listed_in_tx(
    app: &App,
    tx: &mut Tx,
    run: &Claimed,
    item: &Item,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    match item.status {
        ItemStatus::Applied => tell_in_tx(app, tx, run.day, item, now).await,
        ItemStatus::Reversed => settle_in_tx(tx, &item.item_id, ExceptionKind::Reconciliation, now).await,
        // Another day had missed it for this one, on which it moved, and whose statement was still to come.
        ItemStatus::Proposed | ItemStatus::Waiting | ItemStatus::Escalated
            if item.reconciliation_id != run.reconciliation_id
                && (run.begins_at..run.ends_at).contains(&item.at) =>
        {
            resolve(tx, item, &format!("the statement for {} lists it", run.day), now).await.map(drop)
        }
        _ => Ok(()),
    }
}

async fn note_unlisted_in_tx(
    app: &App,
    tx: &mut Tx,
    item: &Item,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    let listing = store::find_listing(tx, item).await?;
    if let Some(listing) = &listing {
        store::set_listed(tx, item, listing, now).await?;
    }
    match (item.status, listing) {
        (ItemStatus::Applied, listing) => {
            // What is open speaks of a statement that does not count any more.
            settle_in_tx(tx, &item.our_id, ExceptionKind::Contradiction, now).await?;
            match listing {
                Some(listing) => tell_in_tx(app, tx, listing.day, item, now).await,
                None => Ok(()),
            }
        }
        (ItemStatus::Reversed, None) => show_in_tx(app, tx, item, NOWHERE).await,
        _ => Ok(()),
    }
}

async fn settle_in_tx(
    tx: &mut Tx,
    subject: &str,
    kind: ExceptionKind,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    exceptions::settle_in_tx(tx, subject, Some(kind), ExceptionAction::None, now).await
}

/// Its user has paid twice: a person gives the charge back.
async fn tell_in_tx(
    app: &App,
    tx: &mut Tx,
    day: Date,
    item: &Item,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    let detail = format!(
        "the statement of {} for {day} has {} after all; its user was charged for it as {}: give that back",
        item.channel, item.channel_id, item.item_id
    );
    let exception = NewException {
        kind: ExceptionKind::Contradiction,
        merchant_id: item.merchant_id.as_deref(),
        order_no: item.order_no.as_deref(),
        subject: &item.our_id,
        detail: &detail,
    };
    exceptions::open_in_tx(tx, &app.ids, &exception, now).await
}
