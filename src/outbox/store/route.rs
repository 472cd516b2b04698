//! From an event to its deliveries.

use std::collections::HashMap;

use time::OffsetDateTime;

use crate::infra::db::{Conn, DbError, Tx};
use crate::infra::gather::column;
use crate::outbox::model::{DeliveryKind, EventDeliveryStatus, NewDelivery, NewEvent, Queue};

/// What a turn has before it.
#[derive(Clone, Copy, Debug)]
pub(in crate::outbox) struct Waiting {
    /// Whether there is an event that nobody has looked at yet.
    pub(in crate::outbox) has_new: bool,
    /// Whether there is one that is to be sent again.
    pub(in crate::outbox) has_again: bool,
    /// Whether some lane is left alone.
    pub(in crate::outbox) has_rests: bool,
}

/// Looks at what a turn has before it.
pub(in crate::outbox) async fn what_waits(conn: &mut Conn, now: OffsetDateTime) -> Result<Waiting, DbError> {
    let waiting = sqlx::query_as!(
        Waiting,
        r#"SELECT (SELECT id FROM outbox WHERE open_deliveries IS NULL ORDER BY id LIMIT 1) IS NOT NULL AS "has_new!",
                  (SELECT id FROM outbox WHERE open_deliveries = -1 ORDER BY id LIMIT 1) IS NOT NULL AS "has_again!",
                  EXISTS (SELECT FROM resting_lanes WHERE rests_until > $1) AS "has_rests!""#,
        now,
    );
    Ok(waiting.fetch_one(conn).await?)
}

/// The events of a queue, the oldest first; of an order only the first, because the next one must see where this one goes.
/// It is found among the oldest themselves, in the words of the queue's own index; nothing else is, because a plan could
/// walk that index once for each event.
macro_rules! find_waiting {
    ($waits:literal, $mark:literal, $limit:expr, $has_other:expr) => {
        sqlx::query_as!(
            NewEvent,
            r#"WITH oldest AS MATERIALIZED (
                 SELECT id, order_no IS NULL
                            OR row_number() OVER (PARTITION BY merchant_id, order_no ORDER BY id) = 1 AS is_first
                 FROM (SELECT id, merchant_id, order_no FROM outbox WHERE "#
                + $waits
                + r#" ORDER BY id LIMIT 2 * $1::bigint) AS waiting
               )
               SELECT event.id, event.merchant_id, event.order_no, event.event AS name, event.event_version AS version,
                  event.payload::text AS "payload!", event.created_at,
                  event.open_deliveries IS NOT NULL AS "is_again!",
                  orders.notify_url AS "order_url?", merchants.notify_url AS "merchant_url?",
                  EXISTS (SELECT 1 FROM disabled_endpoints AS disabled
                          WHERE disabled.merchant_id = event.merchant_id
                            AND disabled.url = coalesce(orders.notify_url, merchants.notify_url)) AS "is_disabled!",
                  behind.callback AS callback_behind, behind.message AS message_behind,
                  (SELECT count(*) = 2 * $1::bigint OR bool_or(NOT is_first) FROM oldest) AS "has_more!"
           FROM outbox AS event
           LEFT JOIN merchants ON merchants.merchant_id = event.merchant_id
           LEFT JOIN orders ON orders.merchant_id = event.merchant_id AND orders.order_no = event.order_no
           CROSS JOIN LATERAL (SELECT max(due_at) FILTER (WHERE kind = 'REPLAY_CALLBACK') AS callback,
                                      max(due_at) FILTER (WHERE kind = 'RESEND_EVENT') AS message
                               FROM deliveries AS ahead
                               WHERE ahead.merchant_id = event.merchant_id AND ahead.order_no = event.order_no
                                 AND ahead.status = 'PENDING' AND ahead.event_id < event.id) AS behind
           WHERE event.id = ANY (ARRAY(SELECT id FROM oldest WHERE is_first))
             -- As it is when it is locked.
             AND coalesce(event.open_deliveries, -2) = "#
                + $mark
                + r#"
             -- Behind what waits in the other queue.
             AND (NOT $2 OR (SELECT earlier.id FROM outbox AS earlier
                             WHERE earlier.merchant_id = event.merchant_id AND earlier.order_no = event.order_no
                               AND earlier.id < event.id AND coalesce(earlier.open_deliveries, -1) = -1
                             LIMIT 1) IS NULL)
           ORDER BY event.id
           LIMIT $1
           -- Any number of relays work side by side.
           FOR UPDATE OF event SKIP LOCKED"#,
            $limit,
            $has_other,
        )
    };
}

/// Locks up to `limit` events of a queue that nobody has looked at yet. Whether anything waits in the other one is to be
/// known; what comes to wait there in this moment was told before.
pub(in crate::outbox) async fn find_waiting(
    tx: &mut Tx,
    queue: Queue,
    limit: i64,
    has_other: bool,
) -> Result<Vec<NewEvent>, DbError> {
    let conn: &mut Conn = tx;
    let events = match queue {
        Queue::New => {
            find_waiting!("open_deliveries IS NULL", "-2", limit, has_other).fetch_all(conn).await?
        }
        Queue::Again => find_waiting!("open_deliveries = -1", "-1", limit, has_other).fetch_all(conn).await?,
    };
    Ok(events)
}

/// Writes where locked events go, and that they were looked at. One that goes nowhere counts as published. Gives the
/// bodies that were told before and are told again.
pub(in crate::outbox) async fn hand_out(
    tx: &mut Tx,
    routed: &[(Vec<NewDelivery>, NewEvent)],
    now: OffsetDateTime,
) -> Result<HashMap<(i64, DeliveryKind), String>, DbError> {
    let conn: &mut Conn = tx;
    let all: Vec<(&NewEvent, &NewDelivery)> =
        routed.iter().flat_map(|(to, event)| to.iter().map(move |delivery| (event, delivery))).collect();
    let is_open = |one: &&NewDelivery| one.status == EventDeliveryStatus::Pending;
    let open = column(routed, |(to, _)| i16::try_from(to.iter().filter(is_open).count()).unwrap_or(0));
    let told_before = sqlx::query!(
        r#"WITH relaxed AS MATERIALIZED (
             -- A crash of the database may take this back: then the event is looked at again, which is harmless, as it
             -- may always arrive more than once. The event itself was flushed with its fact.
             SELECT set_config('synchronous_commit', 'off', true)
           ), handed AS (
             INSERT INTO deliveries (event_id, kind, event, merchant_id, order_no, lane, url, body, status, due_at,
                                     leased_until, last_error, created_at, updated_at)
             SELECT event_id, kind, event, merchant_id, order_no, lane, url, body, status, due_at, leased_until,
                    last_error, $15, $15
             FROM unnest($3::bigint[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[],
                         $10::text[], $11::text[], $12::timestamptz[], $13::timestamptz[], $14::text[])
                  AS new (event_id, kind, event, merchant_id, order_no, lane, url, body, status, due_at, leased_until,
                          last_error)
             -- Sent once more: to where it goes now, with the bytes of the first time.
             ON CONFLICT (event_id, kind) DO UPDATE
             SET lane = excluded.lane, url = excluded.url, status = excluded.status, attempts = 0,
                 due_at = excluded.due_at, leased_until = excluded.leased_until, last_error = excluded.last_error,
                 created_at = excluded.created_at, updated_at = excluded.updated_at,
                 -- Empty where it could not be told.
                 body = CASE deliveries.body WHEN '' THEN excluded.body ELSE deliveries.body END
             -- Only a row that was there already has been locked.
             RETURNING event_id, kind, CASE WHEN xmax <> '0' THEN body END AS body_before
         ), looked_at AS (
             UPDATE outbox SET open_deliveries = routed.open, published_at = CASE routed.open WHEN 0 THEN $15 END
             FROM unnest($1::bigint[], $2::smallint[]) AS routed (id, open), relaxed WHERE outbox.id = routed.id
         )
         SELECT event_id, kind AS "kind: DeliveryKind", body_before AS "body!" FROM handed
         WHERE body_before IS NOT NULL"#,
        &column(routed, |(_, event)| event.id),
        &open,
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
