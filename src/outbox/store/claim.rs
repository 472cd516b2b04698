//! Taking deliveries that are due.

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
    let rows = sqlx::query_file!(
        "src/outbox/store/claim_due.sql",
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
