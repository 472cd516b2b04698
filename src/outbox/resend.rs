//! What operators do with events: look, and send again.

use time::OffsetDateTime;

use super::model::{EventFilter, EventView, event_id};
use super::store;
use crate::exceptions::{self, ExceptionAction, ExceptionKind};
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

/// Has an event sent again, to where it goes now; one that waits is due at once. What was shown to a person because of
/// it is resolved. Gives its merchant and order; nothing when there is no such event.
///
/// # Errors
/// When the database cannot be reached.
pub async fn send_again_in_tx(
    tx: &mut Tx,
    id: i64,
    now: OffsetDateTime,
) -> Result<Option<(Option<String>, Option<String>)>, DbError> {
    let Some(order) = store::exists(tx, id).await? else { return Ok(None) };
    store::send_again(tx, id, now).await?;
    let (kind, action) = (ExceptionKind::DeadTask, ExceptionAction::None);
    exceptions::settle_in_tx(tx, &event_id(id), Some(kind), action, now).await?;
    Ok(Some(order))
}

/// Events that one call sends again at most.
const MOST_AGAIN: i64 = 10_000;

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
    /// The last of them.
    pub last: Option<String>,
    /// Whether there may be more behind it.
    pub has_more: bool,
}

/// Has everything of a merchant sent again that happened since an instant, a bounded number at a time.
///
/// # Errors
/// When the database cannot be reached.
pub async fn send_all_again_in_tx(tx: &mut Tx, wanted: &SendAgain) -> Result<SentAgain, DbError> {
    let SendAgain { merchant_id, since, after, only_undelivered, is_dry_run } = wanted;
    let (after, is_real) = (after.unwrap_or(0), !is_dry_run);
    let (count, last) =
        store::send_all_again(tx, merchant_id, *since, after, *only_undelivered, is_real, MOST_AGAIN).await?;
    Ok(SentAgain { count, last: last.map(event_id), has_more: count == MOST_AGAIN })
}
