//! A merchant's events, read again.

use serde_json::Value;
use sqlx::{Postgres, QueryBuilder};
use time::OffsetDateTime;

use crate::ids::MerchantId;
use crate::infra::db::{Conn, DbError};
use crate::outbox::model::event_id;
use crate::outbox::{PastEvent, PastFilter};

#[derive(sqlx::FromRow)]
struct Row {
    id: i64,
    name: String,
    version: i16,
    data: Value,
    created_at: OffsetDateTime,
}

impl From<Row> for PastEvent {
    fn from(row: Row) -> Self {
        Self {
            event_id: event_id(row.id),
            r#type: row.name,
            version: row.version,
            timestamp: row.created_at,
            data: row.data,
        }
    }
}

/// A merchant's events; which of them stands behind the end.
const EVENTS: &str = "SELECT id, name, version, data, created_at
     FROM (SELECT id, event AS name, event_version AS version, payload AS data, created_at
           FROM outbox WHERE merchant_id = ";

/// One of a merchant's events; nobody else's is found.
pub(in crate::outbox) async fn find_past(
    conn: &mut Conn,
    merchant_id: &MerchantId,
    id: i64,
) -> Result<Option<PastEvent>, DbError> {
    let mut query = QueryBuilder::<Postgres>::new(EVENTS);
    query.push_bind(merchant_id.as_str()).push(") AS event WHERE id = ").push_bind(id);
    Ok(query.build_query_as::<Row>().fetch_optional(conn).await?.map(Into::into))
}

/// A page of them, newest first. Put together from what is asked for, so that a page costs what it shows: an order's are
/// found by its number and stand as they are told, all others by when they happened.
pub(in crate::outbox) async fn list_past(
    conn: &mut Conn,
    merchant_id: &MerchantId,
    filter: PastFilter<'_>,
    limit: i64,
) -> Result<Vec<PastEvent>, DbError> {
    let mut query = QueryBuilder::<Postgres>::new(EVENTS);
    query.push_bind(merchant_id.as_str());
    let newest_first = match filter.order_no {
        Some(order_no) => {
            // An order has few of them; the plan must not hope to come by them on a walk through all.
            query.push(" AND order_no = ").push_bind(order_no.as_str()).push(" OFFSET 0");
            " ORDER BY id DESC"
        }
        None => " ORDER BY created_at DESC, id DESC",
    };
    query.push(") AS event WHERE true");
    if let Some(since) = filter.since {
        query.push(" AND created_at >= ").push_bind(since);
    }
    if let Some(until) = filter.until {
        query.push(" AND created_at < ").push_bind(until);
    }
    match (filter.after, filter.order_no) {
        (None, _) => {}
        (Some((_, id)), Some(_)) => {
            query.push(" AND id < ").push_bind(id);
        }
        (Some((at, id)), None) => {
            query.push(" AND (created_at, id) < (").push_bind(at).push(", ").push_bind(id).push(")");
        }
    }
    query.push(newest_first).push(" LIMIT ").push_bind(limit);
    Ok(query.build_query_as::<Row>().fetch_all(conn).await?.into_iter().map(Into::into).collect())
}
