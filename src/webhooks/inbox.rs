//! The kept callbacks, as operators look at them.

use time::{Duration, OffsetDateTime};

use super::inbox_id::InboxId;
use super::store;
use crate::app::App;
use crate::infra::db::DbError;
use crate::orders::OrderKey;
use crate::pay::report::Verdict;

/// A kept callback.
#[derive(Clone, Debug, sqlx::FromRow)]
pub struct Kept {
    /// Which channel.
    pub channel: String,
    /// The channel's own id of the event.
    pub event_id: String,
    /// What it speaks of, in the channel's words.
    pub subject: Option<String>,
    /// Whose order, where it has one.
    pub merchant_id: Option<String>,
    /// Which order, where it has one.
    pub order_no: Option<String>,
    /// What became of it.
    pub verdict: Verdict,
    /// The body, byte for byte.
    pub body: Vec<u8>,
    /// When it came.
    pub received_at: OffsetDateTime,
    /// When its verdict was last changed.
    pub updated_at: OffsetDateTime,
}

impl Kept {
    /// Its name in URLs.
    #[must_use]
    pub fn id(&self) -> InboxId {
        InboxId { channel: self.channel.clone(), event_id: self.event_id.clone() }
    }

    /// The order that it was about.
    #[must_use]
    pub fn order(&self) -> Option<OrderKey> {
        let (merchant_id, order_no) = (self.merchant_id.as_deref()?, self.order_no.as_deref()?);
        Some(OrderKey { merchant_id: merchant_id.parse().ok()?, order_no: order_no.parse().ok()? })
    }
}

/// Which callbacks.
#[derive(Clone, Debug, Default)]
pub struct InboxFilter {
    /// Of one channel.
    pub channel: Option<String>,
    /// Of one verdict.
    pub verdict: Option<Verdict>,
    /// About one order.
    pub order: Option<OrderKey>,
}

/// The place of the last callback of the page before: older ones follow.
#[derive(Clone, Debug)]
pub struct Position {
    pub(super) received_at: OffsetDateTime,
    pub(super) id: InboxId,
}

/// The first look back. Each further one goes ten times as far, so that a page costs what it shows, whether a day
/// brings ten callbacks or a billion: the table has no index of all callbacks by time, which lists of few could walk.
const FIRST_LOOK: Duration = Duration::seconds(1);
/// Further back than any callback is kept.
const HORIZON: Duration = Duration::days(400);

/// Where a page that starts after this callback begins; `None` when it is not kept any more.
///
/// # Errors
/// When the database cannot be reached.
pub async fn position(app: &App, id: &InboxId) -> Result<Option<Position>, DbError> {
    let kept = store::find(&mut app.db.conn().await?, id).await?;
    Ok(kept.map(|kept| Position { received_at: kept.received_at, id: kept.id() }))
}

/// A page of callbacks, newest first.
///
/// # Errors
/// When the database cannot be reached.
pub async fn list(
    app: &App,
    filter: &InboxFilter,
    after: Option<&Position>,
    limit: usize,
) -> Result<Vec<Kept>, DbError> {
    let mut conn = app.db.conn().await?;
    let newest = after.map_or_else(|| app.now() + Duration::MINUTE, |position| position.received_at);
    let is_indexed =
        filter.order.is_some() || filter.verdict.is_some_and(|verdict| verdict != Verdict::Applied);
    let mut look = if is_indexed { HORIZON } else { FIRST_LOOK };
    loop {
        let page = store::list(&mut conn, filter, after, newest - look, limit).await?;
        if page.len() >= limit || look >= HORIZON {
            return Ok(page);
        }
        look *= 10;
    }
}
