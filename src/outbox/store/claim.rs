//! Taking deliveries that are due, and what is needed to send them.

use time::OffsetDateTime;

use crate::infra::db::{Conn, DbError};
use crate::outbox::model::{Delivery, DeliveryKind};

/// Takes what is due, those of dead senders included: of each lane as much as it has room for, and of each order only
/// the first that has not arrived. `room` names the lanes that have not `first` places. Looks at so many lanes from
/// behind `from` on, and says which was the last of them when there are more.
pub(in crate::outbox) async fn claim_due(
    conn: &mut Conn,
    now: OffsetDateTime,
    leased_until: OffsetDateTime,
    room: &(Vec<String>, Vec<i64>),
    first: i64,
    (from, most_lanes): (&str, i32),
) -> Result<(Option<String>, Vec<Delivery>), DbError> {
    let rows = sqlx::query!(
        r#"WITH RECURSIVE lane (name, place) AS (
             SELECT (SELECT lane FROM deliveries WHERE status = 'PENDING' AND lane > $7 ORDER BY lane LIMIT 1), 1
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
           ), taken AS (
             UPDATE deliveries AS delivery SET leased_until = $2
             -- Locked, so they stay where they are; and no plan can walk to them.
             FROM due WHERE delivery.ctid = due.place_of_row
             RETURNING delivery.event_id, delivery.kind, delivery.event, delivery.merchant_id, delivery.order_no,
                       delivery.lane, delivery.url, delivery.body, delivery.attempts, delivery.leased_until
           )
           SELECT turn.last_lane, event_id AS "event_id?", kind AS "kind?: DeliveryKind", event AS "event?",
                  merchant_id AS "merchant_id?", order_no AS "order_no?", taken.lane AS "lane?", url AS "url?",
                  body AS "body?", attempts AS "attempts?", leased_until AS "leased_until?"
           FROM (SELECT (SELECT name FROM lane WHERE place = $6) AS last_lane) AS turn
           LEFT JOIN taken ON true"#,
        now,
        leased_until,
        &room.0,
        &room.1,
        first,
        most_lanes,
        from,
    )
    .fetch_all(conn)
    .await?;
    let last_lane = rows.first().and_then(|row| row.last_lane.clone());
    let taken = rows.into_iter().filter_map(|row| {
        Some(Delivery {
            event_id: row.event_id?,
            kind: row.kind?,
            event: row.event?,
            merchant_id: row.merchant_id,
            order_no: row.order_no,
            lane: row.lane?,
            url: row.url,
            body: row.body?,
            attempts: row.attempts?,
            leased_until: row.leased_until?,
        })
    });
    Ok((last_lane, taken.collect()))
}

/// Where a merchant is told, and what proves that it is us.
#[derive(Debug)]
pub(in crate::outbox) struct Addressee {
    pub(in crate::outbox) merchant_id: String,
    pub(in crate::outbox) notify_url: Option<String>,
    /// Moves with every change of it.
    pub(in crate::outbox) version: i32,
    /// Encrypted.
    pub(in crate::outbox) notify_secret: Vec<u8>,
    /// Those that were replaced and still sign, the newest first.
    pub(in crate::outbox) retired: Vec<Vec<u8>>,
    /// Those of the endpoints in question that answered 410.
    pub(in crate::outbox) disabled: Vec<String>,
}

/// These merchants, as they are now, to be told at their own endpoint or at one of these of their orders.
pub(in crate::outbox) async fn find_addressees(
    conn: &mut Conn,
    merchants: &[String],
    urls: &[&str],
    now: OffsetDateTime,
) -> Result<Vec<Addressee>, DbError> {
    let addressees = sqlx::query_as!(
        Addressee,
        r#"SELECT merchant_id, notify_url, version, notify_secret,
                  ARRAY(SELECT sealed FROM retired_notify_secrets AS retired
                        WHERE retired.merchant_id = merchants.merchant_id AND retired.expires_at > $2
                        ORDER BY retired.expires_at DESC LIMIT 4) AS "retired!",
                  ARRAY(SELECT url FROM disabled_endpoints AS disabled
                        WHERE disabled.merchant_id = merchants.merchant_id
                          AND (disabled.url = merchants.notify_url OR disabled.url = ANY($3))) AS "disabled!"
           FROM merchants WHERE merchant_id = ANY($1)"#,
        merchants,
        now,
        urls as &[&str],
    )
    .fetch_all(conn)
    .await?;
    Ok(addressees)
}
