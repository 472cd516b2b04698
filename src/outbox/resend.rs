//! What operators do with events: look, and send again.

use time::OffsetDateTime;

use super::model::{DeliveryKind, EventFilter, EventView, event_id};
use super::store;
use crate::exceptions::{self, ExceptionKind};
use crate::infra::db::{Db, DbError, Tx};

/// An event with every try.
///
/// # Errors
/// When the database cannot be reached.
pub async fn find(db: &Db, id: i64) -> Result<Option<EventView>, DbError> {
    store::find(&mut db.conn().await?, id).await
}

/// A page of events, newest first.
///
/// # Errors
/// When the database cannot be reached.
pub async fn list(db: &Db, filter: EventFilter<'_>, limit: usize) -> Result<Vec<EventView>, DbError> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    store::list(&mut db.conn().await?, filter, limit).await
}

/// Has an event sent again, to where it goes now by these ways; one that waits is due at once. What was shown to a person
/// because of it is resolved. Gives its merchant and order; nothing when there is no such event.
///
/// # Errors
/// When the database cannot be reached.
pub async fn send_again_in_tx(
    tx: &mut Tx,
    id: i64,
    ways: &[DeliveryKind],
    now: OffsetDateTime,
) -> Result<Option<(Option<String>, Option<String>)>, DbError> {
    let Some(order) = store::lock(tx, id).await? else { return Ok(None) };
    store::lock_ways(tx, &[id]).await?;
    let revived = store::send_again(tx, &[id], ways, false, now).await?;
    store::make_due(tx, id, now).await?;
    settle_in_tx(tx, &revived, now).await?;
    Ok(Some(order))
}

/// What a person was shown of these is on its way again.
async fn settle_in_tx(tx: &mut Tx, revived: &[i64], now: OffsetDateTime) -> Result<(), DbError> {
    let subjects: Vec<String> = revived.iter().copied().map(event_id).collect();
    exceptions::settle_all_in_tx(tx, &subjects, ExceptionKind::DeadTask, exceptions::TRIED_AGAIN, now).await
}

/// Events that one call sends again at most.
const MOST_AGAIN: i64 = 10_000;

/// Events that one call looks at at most: those that did not arrive may be few among millions. A few look-ups each, so that
/// a call stays far below the time of a statement.
const LOOK: i64 = 20_000;

/// Which events of a merchant are sent again.
#[derive(Clone, Debug)]
pub struct SendAgain {
    /// Whose.
    pub merchant_id: String,
    /// Those that happened since then.
    pub since: OffsetDateTime,
    /// From behind this one on.
    pub after: Option<i64>,
    /// Only what did not arrive.
    pub only_undelivered: bool,
    /// Whether they are only counted.
    pub is_dry_run: bool,
}

/// How many are sent again.
#[derive(Clone, Debug)]
pub struct SentAgain {
    /// So many.
    pub count: i64,
    /// The last one looked at, whether it is sent again or not: a call that found nothing goes on behind it too.
    pub last: Option<String>,
    /// Whether there may be more behind it.
    pub has_more: bool,
}

/// Has everything of a merchant sent again by these ways that happened since an instant: a bounded number at a time, of a
/// bounded number that is looked at.
///
/// # Errors
/// When the database cannot be reached.
pub async fn send_all_again_in_tx(
    tx: &mut Tx,
    wanted: &SendAgain,
    ways: &[DeliveryKind],
    now: OffsetDateTime,
) -> Result<SentAgain, DbError> {
    let page = store::lock_all(tx, wanted, ways, LOOK, MOST_AGAIN).await?;
    if !wanted.is_dry_run {
        store::lock_ways(tx, &page.ids).await?;
        let revived = store::send_again(tx, &page.ids, ways, wanted.only_undelivered, now).await?;
        settle_in_tx(tx, &revived, now).await?;
    }
    let count = i64::try_from(page.ids.len()).unwrap_or(i64::MAX);
    Ok(SentAgain { count, last: page.last.map(event_id), has_more: page.has_more })
}
