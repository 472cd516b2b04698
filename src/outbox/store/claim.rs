//! Taking deliveries that are due, and what is needed to send them.

use time::OffsetDateTime;

use crate::infra::db::{Conn, DbError};
use crate::outbox::model::{Delivery, DeliveryKind};

/// Takes what is due, those of dead senders included: of each lane as much as it has room for, and of each order only
/// the first that has not arrived. `room` names the lanes that have not `first` places.
pub(in crate::outbox) async fn claim_due(
    conn: &mut Conn,
    now: OffsetDateTime,
    leased_until: OffsetDateTime,
    room: &(Vec<String>, Vec<i64>),
    first: i64,
    most_lanes: i32,
) -> Result<Vec<Delivery>, DbError> {
    let deliveries = sqlx::query_as!(
        Delivery,
        r#"WITH RECURSIVE lane (name, place) AS (
             SELECT (SELECT lane FROM deliveries WHERE status = 'PENDING' AND lane >= '' ORDER BY lane LIMIT 1), 1
             UNION ALL
             -- From one lane to the next, whatever waits in them.
             SELECT (SELECT next.lane FROM deliveries AS next
                     WHERE next.status = 'PENDING' AND next.lane > lane.name ORDER BY next.lane LIMIT 1), place + 1
             FROM lane WHERE lane.name IS NOT NULL AND place < $6
           ), due AS MATERIALIZED (
             SELECT one.place_of_row
             FROM lane
             LEFT JOIN unnest($3::text[], $4::bigint[]) AS known (name, room) ON known.name = lane.name
             CROSS JOIN LATERAL (
                 SELECT delivery.ctid AS place_of_row
                 FROM deliveries AS delivery
                 WHERE delivery.lane = lane.name AND delivery.status = 'PENDING' AND delivery.due_at <= $1
                   AND (delivery.leased_until IS NULL OR delivery.leased_until <= $1)
                   -- No join: its plan could walk.
                   AND (SELECT ahead.event_id FROM deliveries AS ahead
                        WHERE ahead.merchant_id = delivery.merchant_id AND ahead.order_no = delivery.order_no
                          AND ahead.kind = delivery.kind AND ahead.status = 'PENDING'
                          AND ahead.event_id < delivery.event_id LIMIT 1) IS NULL
                 ORDER BY delivery.due_at, delivery.event_id
                 LIMIT coalesce(known.room, $5)
                 FOR UPDATE OF delivery SKIP LOCKED
             ) AS one
           )
           UPDATE deliveries AS delivery SET leased_until = $2
           -- Locked, so they stay where they are; and no plan can walk to them.
           FROM due WHERE delivery.ctid = due.place_of_row
           RETURNING delivery.event_id, delivery.kind AS "kind: DeliveryKind", delivery.event, delivery.merchant_id,
                     delivery.order_no, delivery.lane, delivery.url, delivery.body, delivery.attempts,
                     delivery.leased_until AS "leased_until!""#,
        now,
        leased_until,
        &room.0,
        &room.1,
        first,
        most_lanes,
    )
    .fetch_all(conn)
    .await?;
    Ok(deliveries)
}

/// Where a merchant is told, and what proves that it is us.
#[derive(Debug)]
pub(in crate::outbox) struct Addressee {
    pub(in crate::outbox) merchant_id: String,
    pub(in crate::outbox) notify_url: Option<String>,
    /// Encrypted.
    pub(in crate::outbox) notify_secret: Vec<u8>,
    /// Those that were replaced and still sign, the newest first.
    pub(in crate::outbox) retired: Vec<Vec<u8>>,
    /// Endpoints of it that answered 410.
    pub(in crate::outbox) disabled: Vec<String>,
}

/// These merchants, as they are now.
pub(in crate::outbox) async fn find_addressees(
    conn: &mut Conn,
    merchants: &[String],
    now: OffsetDateTime,
) -> Result<Vec<Addressee>, DbError> {
    let addressees = sqlx::query_as!(
        Addressee,
        r#"SELECT merchant_id, notify_url, notify_secret,
                  ARRAY(SELECT sealed FROM retired_notify_secrets AS retired
                        WHERE retired.merchant_id = merchants.merchant_id AND retired.expires_at > $2
                        ORDER BY retired.expires_at DESC LIMIT 4) AS "retired!",
                  ARRAY(SELECT url FROM disabled_endpoints AS disabled
                        WHERE disabled.merchant_id = merchants.merchant_id LIMIT 1000) AS "disabled!"
           FROM merchants WHERE merchant_id = ANY($1)"#,
        merchants,
        now,
    )
    .fetch_all(conn)
    .await?;
    Ok(addressees)
}
