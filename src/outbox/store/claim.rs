//! Taking deliveries that are due.

use time::OffsetDateTime;

use crate::infra::db::{Conn, DbError};
use crate::outbox::lanes::Room;
use crate::outbox::marks::{Looks, Seen};
use crate::outbox::model::{Delivery, DeliveryKind};

/// What a turn came to.
#[derive(Debug, Default)]
pub(in crate::outbox) struct Claimed {
    pub(in crate::outbox) taken: Vec<Delivery>,
    /// The lanes that were come to.
    pub(in crate::outbox) seen: Vec<Seen>,
    /// The last of them, when there may be more.
    pub(in crate::outbox) last_lane: Option<String>,
}

/// Takes what is due, those of dead senders included: of each lane as much as it has room for, and of each order only
/// the first that has not arrived. Looks at so many lanes from behind `from` on, those that have a mark from there on.
pub(in crate::outbox) async fn claim_due(
    conn: &mut Conn,
    now: OffsetDateTime,
    leased_until: OffsetDateTime,
    room: &Room,
    looks: &Looks,
    (from, most_lanes): (&str, u16),
) -> Result<Claimed, DbError> {
    let (marked, marks) = looks.from();
    let rows = sqlx::query_file!(
        "src/outbox/store/claim_due.sql",
        now,
        leased_until,
        &room.lanes,
        &room.of_lanes,
        room.of_others,
        i32::from(most_lanes),
        from,
        room.of_all,
        &marked as &[&str],
        &marks,
    )
    .fetch_all(conn)
    .await?;
    let mut claimed = Claimed::default();
    for row in rows {
        if let Some(lane) = row.seen {
            if row.is_last == Some(true) {
                claimed.last_lane = Some(lane.clone());
            }
            claimed.seen.push(Seen { lane, first_due_at: row.first_due_at });
            continue;
        }
        let taken = || {
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
        };
        claimed.taken.extend(taken());
    }
    Ok(claimed)
}

impl Claimed {
    /// Behind which lane the next turn begins: where there was no room for what the lanes behind have, it begins with them.
    pub(in crate::outbox) fn next_turn(&self, room: &Room) -> Option<String> {
        let is_cut_off = i64::try_from(self.taken.len()).is_ok_and(|taken| taken == room.of_all);
        let last_taken = self.taken.iter().map(|delivery| &delivery.lane).max().filter(|_| is_cut_off);
        last_taken.or(self.last_lane.as_ref()).cloned()
    }
}
