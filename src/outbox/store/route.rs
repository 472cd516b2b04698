//! From an event to its deliveries.

use std::collections::HashMap;

use time::OffsetDateTime;

use crate::infra::db::{Conn, DbError, Tx};
use crate::infra::gather::column;
use crate::outbox::model::{DeliveryKind, NewDelivery, NewEvent, Queue};

/// What a turn has before it.
#[derive(Clone, Copy, Debug)]
pub(in crate::outbox) struct Waiting {
    /// The first event that nobody has looked at yet.
    pub(in crate::outbox) first_new: Option<i64>,
    /// Whether neither the order nor the merchant of that one has an endpoint.
    pub(in crate::outbox) is_first_unaddressed: bool,
    /// The first that is to be sent again.
    pub(in crate::outbox) first_again: Option<i64>,
    /// Whether some lane is left alone.
    pub(in crate::outbox) has_rests: bool,
}

/// Looks at what a turn has before it, at new events from this one on.
pub(in crate::outbox) async fn what_waits(
    conn: &mut Conn,
    from: i64,
    now: OffsetDateTime,
) -> Result<Waiting, DbError> {
    let waiting = sqlx::query_as!(
        Waiting,
        r#"SELECT first.event_id AS "first_new?",
                  first.event_id IS NOT NULL
                  AND (SELECT notify_url FROM merchants
                       WHERE merchants.merchant_id = first.merchant_id LIMIT 1) IS NULL
                  AND (SELECT notify_url FROM orders
                       WHERE orders.merchant_id = first.merchant_id AND orders.order_no = first.order_no
                         AND orders.notify_url IS NOT NULL
                       LIMIT 1) IS NULL AS "is_first_unaddressed!",
                  (SELECT event_id FROM outbox_queue WHERE is_again ORDER BY event_id LIMIT 1) AS first_again,
                  EXISTS (SELECT FROM resting_lanes WHERE rests_until > $1) AS "has_rests!"
           FROM (VALUES (1)) AS one
           LEFT JOIN LATERAL (SELECT event_id, merchant_id, order_no FROM outbox_queue
                              WHERE NOT is_again AND event_id >= $2
                              ORDER BY event_id LIMIT 1) AS first ON true"#,
        now,
        from,
    );
    Ok(waiting.fetch_one(conn).await?)
}

/// What became of new events that nobody is to be told of.
#[derive(Clone, Copy, Debug)]
pub(in crate::outbox) struct Discarded {
    /// Whether some went, and there may be more behind those that were looked at.
    pub(in crate::outbox) has_more: bool,
    /// Whether some of those have an endpoint.
    pub(in crate::outbox) leaves_some: bool,
}

/// Takes from the queue, of up to `limit` new events from this one on, those whose merchants and orders have no endpoint:
/// they count as published. What another relay holds is passed over.
pub(in crate::outbox) async fn discard_unaddressed(
    conn: &mut Conn,
    from: i64,
    limit: i64,
) -> Result<Discarded, DbError> {
    let discarded = sqlx::query_file_as!(Discarded, "src/outbox/store/discard_unaddressed.sql", limit, from);
    Ok(discarded.fetch_one(conn).await?)
}

/// Takes up to `limit` events from a queue, the oldest first, from this one on; of an order only the first, because the
/// next one must see where this one goes.
pub(in crate::outbox) async fn take_waiting(
    tx: &mut Tx,
    queue: Queue,
    from: i64,
    limit: i64,
) -> Result<Vec<NewEvent>, DbError> {
    let conn: &mut Conn = tx;
    let events = sqlx::query_file_as!(
        NewEvent,
        "src/outbox/store/take_waiting.sql",
        limit,
        queue == Queue::Again,
        from
    );
    Ok(events.fetch_all(conn).await?)
}

/// Writes where events go; one that goes nowhere counts as published. Gives the bodies that were told before and are told
/// again.
pub(in crate::outbox) async fn hand_out(
    tx: &mut Tx,
    routed: &[(Vec<NewDelivery>, NewEvent)],
    now: OffsetDateTime,
) -> Result<HashMap<(i64, DeliveryKind), String>, DbError> {
    let conn: &mut Conn = tx;
    let all: Vec<(&NewEvent, &NewDelivery)> =
        routed.iter().flat_map(|(to, event)| to.iter().map(move |delivery| (event, delivery))).collect();
    if all.is_empty() {
        return Ok(HashMap::new());
    }
    let told_before = sqlx::query!(
        r#"WITH handed AS (
             INSERT INTO deliveries (event_id, kind, event, merchant_id, order_no, lane, url, body, status, due_at,
                                     leased_until, last_error, created_at, updated_at)
             SELECT unnest($1::bigint[]), unnest($2::text[]), unnest($3::text[]), unnest($4::text[]), unnest($5::text[]),
                    unnest($6::text[]), unnest($7::text[]), unnest($8::text[]), unnest($9::text[]),
                    unnest($10::timestamptz[]), unnest($11::timestamptz[]), unnest($12::text[]), $13, $13
             -- Sent once more: to where it goes now, with the bytes of the first time.
             ON CONFLICT (event_id, kind) DO UPDATE
             SET lane = excluded.lane, url = excluded.url, status = excluded.status, attempts = 0,
                 due_at = excluded.due_at, leased_until = excluded.leased_until, last_error = excluded.last_error,
                 created_at = excluded.created_at, updated_at = excluded.updated_at,
                 -- Empty where it could not be told.
                 body = CASE deliveries.body WHEN '' THEN excluded.body ELSE deliveries.body END
             -- Only a row that was there already has been locked.
             RETURNING event_id, kind, CASE WHEN xmax <> '0' THEN body END AS body_before
         )
         SELECT event_id, kind AS "kind: DeliveryKind", body_before AS "body!" FROM handed
         WHERE body_before IS NOT NULL"#,
        &column(&all, |(event, _)| event.id),
        &column(&all, |(_, delivery)| delivery.kind.as_str()) as &[&str],
        &column(&all, |(event, _)| event.name.as_str()) as &[&str],
        &column(&all, |(event, _)| event.merchant_id.as_deref()) as &[Option<&str>],
        &column(&all, |(event, _)| event.order_no.as_deref()) as &[Option<&str>],
        &column(&all, |(_, delivery)| delivery.lane.as_str()) as &[&str],
        &column(&all, |(_, delivery)| delivery.url.as_deref()) as &[Option<&str>],
        &column(&all, |(_, delivery)| delivery.body.as_str()) as &[&str],
        &column(&all, |(_, delivery)| delivery.status.as_str()) as &[&str],
        &column(&all, |(_, delivery)| delivery.due_at),
        &column(&all, |(_, delivery)| delivery.leased_until) as &[Option<OffsetDateTime>],
        &column(&all, |(_, delivery)| delivery.last_error.as_deref()) as &[Option<&str>],
        now,
    )
    .fetch_all(conn)
    .await?;
    Ok(told_before.into_iter().map(|row| ((row.event_id, row.kind), row.body)).collect())
}

/// Where a transaction goes back to when an event cannot be handed out; it takes the place of the one before.
pub(in crate::outbox) async fn save_point(tx: &mut Tx) -> Result<(), DbError> {
    let conn: &mut Conn = tx;
    sqlx::query!("SAVEPOINT one_event").execute(conn).await?;
    Ok(())
}

/// Goes back there; locks that were taken before it are kept.
pub(in crate::outbox) async fn back_to_save_point(tx: &mut Tx) -> Result<(), DbError> {
    let conn: &mut Conn = tx;
    sqlx::query!("ROLLBACK TO SAVEPOINT one_event").execute(conn).await?;
    Ok(())
}
