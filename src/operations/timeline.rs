//! Everything that touched an order, in order.

use serde::Serialize;
use serde_json::Value;
use time::OffsetDateTime;

use super::store;
use crate::app::App;
use crate::infra::db::DbError;
use crate::infra::words::words;
use crate::orders::OrderKey;

words! {
    /// What an entry speaks of. Of one instant, the cause comes before what it brought about.
    pub enum TimelineKind {
        /// A callback that came in, with its verdict.
        Callback = "CALLBACK",
        /// Something that an operator did.
        Admin = "ADMIN",
        /// The order's own state.
        Order = "ORDER",
        /// The state of an attempt to pay it.
        Attempt = "ATTEMPT",
        /// Money that it did not accept.
        StrayPayment = "STRAY_PAYMENT",
        /// Money on its way back.
        Refund = "REFUND",
        /// A commission that was given, or claimed back.
        Settlement = "SETTLEMENT",
        /// A booking of money.
        Booking = "BOOKING",
        /// A task that drives something to its end.
        Task = "TASK",
        /// Something in which a channel's statement differs from it.
        Difference = "DIFFERENCE",
        /// Something that a person was asked to look at.
        Exception = "EXCEPTION",
        /// Something that the outside is told.
        Event = "EVENT",
    }
}

/// One thing that happened.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct TimelineEntry {
    /// When.
    #[serde(with = "time::serde::rfc3339")]
    pub at: OffsetDateTime,
    /// To what.
    pub kind: TimelineKind,
    /// To which one: an id, as the other routes know it.
    #[schema(example = "po_06GZV8Y0000000000000000000")]
    pub subject: String,
    /// What happened.
    #[schema(example = "PAYMENT_CONFIRMED")]
    pub event: String,
    /// Where it led, for what has states.
    #[schema(example = "PAID")]
    pub status: Option<String>,
    /// More about it.
    #[schema(value_type = Object)]
    pub details: Value,
}

/// The first `limit` entries of an order, oldest first, read by one statement and so from one snapshot.
///
/// # Errors
/// When the database cannot be reached.
pub async fn timeline(app: &App, key: &OrderKey, limit: usize) -> Result<Vec<TimelineEntry>, DbError> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    app.db.retrying(|| async { store::list_timeline(&mut app.db.conn().await?, key, limit).await }).await
}
