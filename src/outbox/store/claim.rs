//! Taking deliveries that are due.

use time::OffsetDateTime;

use crate::infra::db::{Conn, DbError};
use crate::outbox::lanes::Room;
use crate::outbox::model::{Delivery, DeliveryKind};

/// Takes what is due, those of dead senders included: of each lane as much as it has room for, and of each order only
/// the first that has not arrived. Looks at so many lanes from behind `from` on, and says which was the last of them when
/// there may be more.
pub(in crate::outbox) async fn claim_due(
    conn: &mut Conn,
    now: OffsetDateTime,
    leased_until: OffsetDateTime,
    room: &Room,
    (from, most_lanes): (&str, i32),
) -> Result<(Option<String>, Vec<Delivery>), DbError> {
    let rows = sqlx::query_file!(
        "src/outbox/store/claim_due.sql",
        now,
        leased_until,
        &room.lanes,
        &room.of_lanes,
        room.of_others,
        most_lanes,
        from,
        room.of_all,
    )
    .fetch_all(conn)
    .await?;
    let last_lane = rows.first().and_then(|row| row.last_lane.clone());
    let taken: Vec<Delivery> = rows
        .into_iter()
        .filter_map(|row| {
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
        })
        .collect();
    // No room for what the lanes behind have: the next turn begins with them.
    let is_cut_off = i64::try_from(taken.len()).is_ok_and(|taken| taken == room.of_all);
    let last_taken = taken.iter().map(|delivery| &delivery.lane).max().filter(|_| is_cut_off);
    Ok((last_taken.cloned().or(last_lane), taken))
}
