//! What operators and gauges look at, and what is forgotten.

use serde_json::Value;
use sqlx::types::Json;
use sqlx::{Postgres, QueryBuilder};
use time::OffsetDateTime;

use crate::infra::db::{Conn, DbError};
use crate::outbox::model::{EventDelivery, EventFilter, EventStatus, EventView, event_id};

/// What is said of events: of which ones stands between the first two, and what is said of their tries between the last
/// two. Where each stands is looked up once it is known that it is shown.
const EVENTS: [&str; 3] = [
    "SELECT event.id, event.merchant_id, event.order_no, event.event AS name, event.event_version AS version,
            event.payload AS data, event.created_at,
            CASE WHEN NOT is_queued AND NOT is_open AND NOT is_dead THEN ended_at END AS published_at,
            CASE WHEN is_queued THEN 'NEW' WHEN is_open THEN 'PENDING' WHEN is_dead THEN 'DEAD' ELSE 'PUBLISHED' END
            AS status,
            deliveries
     FROM (",
    ") AS event
     CROSS JOIN LATERAL (
         SELECT EXISTS (SELECT FROM outbox_queue WHERE is_again = ANY('{false,true}') AND event_id = event.id)
                AS is_queued,
                coalesce(bool_or(way.status = 'PENDING'), false) AS is_open,
                coalesce(bool_or(way.status = 'DEAD'), false) AS is_dead,
                max(way.updated_at) AS ended_at,
                coalesce(jsonb_agg(jsonb_build_object(
                             'kind', kind, 'status', way.status, 'attempts', attempts, 'due_at', due_at,
                             'last_error', last_error, 'log', ",
    ") ORDER BY kind), '[]') AS deliveries
         FROM deliveries AS way WHERE way.event_id = event.id) AS stands
     ORDER BY event.id DESC",
];

#[derive(sqlx::FromRow)]
struct Row {
    id: i64,
    merchant_id: Option<String>,
    order_no: Option<String>,
    name: String,
    version: i16,
    data: Value,
    created_at: OffsetDateTime,
    published_at: Option<OffsetDateTime>,
    status: EventStatus,
    deliveries: Json<Vec<EventDelivery>>,
}

impl From<Row> for EventView {
    fn from(row: Row) -> Self {
        Self {
            event_id: event_id(row.id),
            merchant_id: row.merchant_id,
            order_no: row.order_no,
            r#type: row.name,
            version: row.version,
            status: row.status,
            data: row.data,
            created_at: row.created_at,
            published_at: row.published_at,
            deliveries: row.deliveries.0,
        }
    }
}

/// An event with every try.
pub(in crate::outbox) async fn find(conn: &mut Conn, id: i64) -> Result<Option<EventView>, DbError> {
    let mut query = QueryBuilder::<Postgres>::new(EVENTS[0]);
    query.push("SELECT * FROM outbox WHERE id = ").push_bind(id);
    query.push(EVENTS[1]).push("way.log").push(EVENTS[2]);
    Ok(query.build_query_as::<Row>().fetch_optional(conn).await?.map(Into::into))
}

/// A page of events, newest first. Put together from what is asked for, so that what is unfinished is found by its own
/// small index.
pub(in crate::outbox) async fn list(
    conn: &mut Conn,
    filter: EventFilter<'_>,
    limit: i64,
) -> Result<Vec<EventView>, DbError> {
    let mut query = QueryBuilder::<Postgres>::new(EVENTS[0]);
    query.push("SELECT event.* FROM outbox AS event");
    match filter.status {
        Some(EventStatus::New) => {
            query.push(" JOIN outbox_queue AS one ON one.event_id = event.id WHERE true")
        }
        Some(EventStatus::Published) => query.push(
            // No joins: their plans could walk.
            " WHERE (SELECT event_id FROM outbox_queue
                     WHERE is_again = ANY('{false,true}') AND event_id = event.id LIMIT 1) IS NULL
                AND (SELECT event_id FROM deliveries AS way
                     WHERE way.event_id = event.id AND way.status IN ('PENDING', 'DEAD') LIMIT 1) IS NULL",
        ),
        // The plan must see these words to take the indexes.
        Some(EventStatus::Pending) => query.push(
            " JOIN (SELECT DISTINCT event_id FROM deliveries WHERE coalesce(status, 'age') = 'PENDING') AS one
              ON one.event_id = event.id WHERE true",
        ),
        Some(EventStatus::Dead) => query.push(
            " JOIN (SELECT DISTINCT event_id FROM deliveries WHERE status = 'DEAD') AS one
              ON one.event_id = event.id WHERE true",
        ),
        None => query.push(" WHERE true"),
    };
    if let Some(merchant_id) = filter.merchant_id {
        query.push(" AND event.merchant_id = ").push_bind(merchant_id.to_owned());
    }
    if let Some(order_no) = filter.order_no {
        query.push(" AND event.order_no = ").push_bind(order_no.to_owned());
    }
    if let Some(before) = filter.before {
        query.push(" AND event.id < ").push_bind(before);
    }
    query.push(" ORDER BY event.id DESC LIMIT ").push_bind(limit);
    query.push(EVENTS[1]).push("'[]'::jsonb").push(EVENTS[2]);
    Ok(query.build_query_as::<Row>().fetch_all(conn).await?.into_iter().map(Into::into).collect())
}

/// What waits, and since when.
#[derive(Debug)]
pub(in crate::outbox) struct Age {
    /// Since when somebody has not got the oldest event: since it happened, or since it was to be sent again.
    pub(in crate::outbox) oldest_at: Option<OffsetDateTime>,
    /// Deliveries that have not come to an end; counting stops at 100000.
    pub(in crate::outbox) pending: i64,
}

/// Measures the outbox.
pub(in crate::outbox) async fn measure(conn: &mut Conn) -> Result<Age, DbError> {
    let age = sqlx::query_as!(
        Age,
        r#"SELECT least((SELECT queued_at FROM outbox_queue WHERE NOT is_again ORDER BY event_id LIMIT 1),
                        (SELECT queued_at FROM outbox_queue WHERE is_again ORDER BY event_id LIMIT 1),
                        -- Of all that wait, not only of those that are counted. What waited before its event was to be
                        -- sent again has waited since the event happened.
                        (SELECT CASE WHEN waiting.created_at >= event.again_at THEN event.again_at
                                     ELSE event.created_at END
                         FROM (SELECT event_id, created_at FROM deliveries WHERE coalesce(status, 'age') = 'PENDING'
                               ORDER BY created_at LIMIT 1) AS waiting
                         JOIN outbox AS event ON event.id = waiting.event_id)) AS oldest_at,
                  count(*) AS "pending!"
           FROM (SELECT FROM deliveries WHERE coalesce(status, 'age') = 'PENDING' LIMIT 100000) AS waiting"#,
    )
    .fetch_one(conn)
    .await?;
    Ok(age)
}

/// Forgets up to `limit` deliveries that came to an end before `horizon`. A dead letter stays: without it its event would
/// read as if everybody had it.
pub(in crate::outbox) async fn delete_old(
    conn: &mut Conn,
    horizon: OffsetDateTime,
    limit: i64,
) -> Result<u64, DbError> {
    let deleted = sqlx::query!(
        "DELETE FROM deliveries WHERE ctid = ANY(ARRAY(
             SELECT ctid FROM deliveries WHERE created_at < $1 AND updated_at < $1
                                                  AND status IN ('DELIVERED', 'DROPPED')
             ORDER BY created_at LIMIT $2))
           -- In words that no index has: otherwise a plan may walk all that is over.
           AND (status IN ('DELIVERED', 'DROPPED')) IS TRUE",
        horizon,
        limit,
    )
    .execute(conn)
    .await?;
    Ok(deleted.rows_affected())
}
