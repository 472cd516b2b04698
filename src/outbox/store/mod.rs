//! The rows of `outbox`, `outbox_queue` and `deliveries`, and what is read of merchants to reach them.

use time::OffsetDateTime;

use super::event::Event;
use crate::infra::db::{Conn, DbError, Tx};

mod addressee;
mod claim;
mod disable;
mod look;
mod past;
mod record;
mod resend;
mod rest;
mod route;

pub(super) use addressee::{Addressee, find_addressees};
pub(super) use claim::claim_due;
pub(super) use disable::{disable, enable, is_still_of_version};
pub(super) use look::{delete_old, find, list, measure};
pub(super) use past::{find_past, list_past};
pub(super) use record::{Ending, Record};
pub(super) use resend::{lock, lock_all, lock_ways, make_due, send_again};
pub(super) use rest::{delete_over, find_resting};
pub(super) use route::{
    Waiting, back_to_save_point, discard_unaddressed, hand_out, save_point, take_waiting, what_waits,
};

/// Appends an event to the transaction of its fact.
pub(crate) async fn append_in_tx(
    tx: &mut Tx,
    merchant_id: Option<&str>,
    order_no: Option<&str>,
    event: &Event,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    tx.ring_after_commit();
    let conn: &mut Conn = tx;
    sqlx::query!(
        "INSERT INTO outbox (merchant_id, order_no, event, event_version, payload, created_at)
         VALUES ($1, $2, $3, $4, $5, $6)",
        merchant_id,
        order_no,
        event.name(),
        event.version(),
        event.payload(),
        now,
    )
    .execute(conn)
    .await?;
    Ok(())
}
