//! What a merchant reads again of what it was told, or would have been told.

use serde::Serialize;
use serde_json::Value;
use time::OffsetDateTime;

use super::store;
use crate::ids::{MerchantId, OrderNo};
use crate::infra::db::{Db, DbError};

/// An event as its merchant is told of it.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
#[schema(example = json!({"event_id": "evt_42", "type": "order.closed", "version": 1, "timestamp": "2026-11-21T10:00:00Z",
    "data": {"order_no": "A-1", "amount": 1990, "currency": "CNY", "close_reason": "TIMEOUT"}}))]
pub struct PastEvent {
    /// Its id: the `webhook-id` that it is told under.
    #[schema(example = "evt_42")]
    pub event_id: String,
    /// Its name.
    #[schema(example = "order.paid")]
    pub r#type: String,
    /// The version of its fields.
    pub version: i16,
    /// When it happened.
    #[serde(with = "time::serde::rfc3339")]
    pub timestamp: OffsetDateTime,
    /// What it tells.
    #[schema(value_type = Object)]
    pub data: Value,
}

/// Which events of a merchant.
#[derive(Clone, Copy, Debug, Default)]
pub struct PastFilter<'a> {
    /// Of one order number.
    pub order_no: Option<&'a OrderNo>,
    /// Those that happened since then.
    pub since: Option<OffsetDateTime>,
    /// Those that happened before.
    pub until: Option<OffsetDateTime>,
    /// From behind this one on, which happened at that instant.
    pub after: Option<(OffsetDateTime, i64)>,
}

/// One of a merchant's events.
///
/// # Errors
/// When the database cannot be reached.
pub async fn find_past(db: &Db, merchant_id: &MerchantId, id: i64) -> Result<Option<PastEvent>, DbError> {
    store::find_past(&mut db.conn().await?, merchant_id, id).await
}

/// A page of a merchant's events, newest first.
///
/// # Errors
/// When the database cannot be reached.
pub async fn list_past(
    db: &Db,
    merchant_id: &MerchantId,
    filter: PastFilter<'_>,
    limit: usize,
) -> Result<Vec<PastEvent>, DbError> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    store::list_past(&mut db.conn().await?, merchant_id, filter, limit).await
}
