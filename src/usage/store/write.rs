//! Writing down what a batch came to.

use time::OffsetDateTime;

use crate::idempotency::Kept;
use crate::infra::db::{Conn, DbError, Tx};
use crate::infra::gather::column;
use crate::usage::desk::{Desk, Notes};
use crate::usage::model::{CycleKey, CycleUse, Hold};
use crate::usage::price::Price;

/// A new hold, and what of it is a part of its key.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewRow<'a> {
    pub(super) hold: &'a Hold,
    pub(super) key_currency: &'a str,
    pub(super) key_fx_version: &'a str,
}

/// Writes new holds with their birth.
pub(super) async fn insert_holds(tx: &mut Tx, rows: &[NewRow<'_>]) -> Result<(), DbError> {
    if rows.is_empty() {
        return Ok(());
    }
    let conn: &mut Conn = tx;
    sqlx::query_file!(
        "src/usage/store/holds.sql",
        &column(rows, |row| row.hold.hold_id.as_str()) as &[&str],
        &column(rows, |row| row.hold.merchant_id.as_str()) as &[&str],
        &column(rows, |row| row.hold.request_id.as_str()) as &[&str],
        &column(rows, |row| row.hold.user_id.as_str()) as &[&str],
        &column(rows, |row| row.hold.product_code.as_str()) as &[&str],
        &column(rows, |row| row.hold.idempotency_key.as_str()) as &[&str],
        &column(rows, |row| row.key_currency) as &[&str],
        &column(rows, |row| row.key_fx_version) as &[&str],
        &column(rows, |row| row.hold.currency.as_str()) as &[&str],
        &column(rows, |row| row.hold.fx_version.as_str()) as &[&str],
        &column(rows, |row| row.hold.cycle.as_str()) as &[&str],
        &column(rows, |row| row.hold.pricing.as_str()) as &[&str],
        &column(rows, |row| row.hold.unit_price) as &[Price],
        &column(rows, |row| row.hold.cycle_quota) as &[Option<i64>],
        &column(rows, |row| row.hold.estimated_units),
        &column(rows, |row| row.hold.counted_units),
        &column(rows, |row| row.hold.carries_fee),
        &column(rows, |row| row.hold.held),
        &column(rows, |row| row.hold.charged),
        &column(rows, |row| row.hold.expires_at),
        &column(rows, |row| row.hold.created_at),
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Writes holds that moved, what the desk noted beside them, and the answers that are to be kept; but for its postings,
/// which come last.
pub(super) async fn write_notes(
    tx: &mut Tx,
    moved: &[&Hold],
    desk: &Desk,
    kept: &[Kept],
    now: OffsetDateTime,
) -> Result<(), DbError> {
    keep_answers(tx, kept, now).await?;
    let notes = &desk.notes;
    let cycles: Vec<_> = notes.cycles.iter().filter_map(|key| desk.cycles.get_key_value(key)).collect();
    // What is added to a cycle is of a hold that moved.
    let is_empty = moved.is_empty() && notes.marks.is_empty() && notes.events.is_empty() && cycles.is_empty();
    if is_empty { Ok(()) } else { write(tx, moved, notes, &cycles, now).await }
}

async fn write(
    tx: &mut Tx,
    moved: &[&Hold],
    notes: &Notes,
    cycles: &[(&CycleKey, &CycleUse)],
    now: OffsetDateTime,
) -> Result<(), DbError> {
    let Notes { changes, marks, events, added, .. } = notes;
    let added: Vec<_> = added.iter().collect();
    if !events.is_empty() {
        tx.ring_after_commit();
    }
    let conn: &mut Conn = tx;
    let met = sqlx::query_file_scalar!(
        "src/usage/store/notes.sql",
        &column(moved, |hold| hold.hold_id.as_str()) as &[&str],
        &column(moved, |hold| hold.status.as_str()) as &[&str],
        &column(moved, |hold| hold.units) as &[Option<i64>],
        &column(moved, |hold| hold.counted_units),
        &column(moved, |hold| hold.held),
        &column(moved, |hold| hold.charged),
        &column(moved, |hold| hold.shortfall),
        &column(moved, |hold| hold.late),
        &column(moved, |hold| hold.extensions),
        &column(moved, |hold| hold.version),
        &column(changes, |change| change.hold_id.as_str()) as &[&str],
        &column(changes, |change| change.seq),
        &column(changes, |change| change.from.as_str()) as &[&str],
        &column(changes, |change| change.to.as_str()) as &[&str],
        &column(changes, |change| change.event.as_str()) as &[&str],
        &column(marks, |mark| mark.hold_id.as_str()) as &[&str],
        &column(marks, |mark| mark.message_id.as_str()) as &[&str],
        &column(marks, |mark| mark.units),
        &column(cycles, |(key, _)| key.merchant_id.as_str()) as &[&str],
        &column(cycles, |(key, _)| key.user_id.as_str()) as &[&str],
        &column(cycles, |(key, _)| key.product_code.as_str()) as &[&str],
        &column(cycles, |(key, _)| key.cycle.as_str()) as &[&str],
        &column(cycles, |(_, taken)| taken.used_units),
        &column(cycles, |(_, taken)| taken.fee_hold_id.as_deref()) as &[Option<&str>],
        &column(events, |(merchant_id, _)| merchant_id.as_str()) as &[&str],
        &column(events, |(_, event)| event.name()) as &[&str],
        &column(events, |(_, event)| event.version()),
        &column(events, |(_, event)| event.payload()),
        now,
        &column(&added, |(key, _)| key.merchant_id.as_str()) as &[&str],
        &column(&added, |(key, _)| key.user_id.as_str()) as &[&str],
        &column(&added, |(key, _)| key.product_code.as_str()) as &[&str],
        &column(&added, |(key, _)| key.cycle.as_str()) as &[&str],
        &column(&added, |(_, units)| **units),
        &column(moved, |hold| hold.exhausted),
        &column(moved, |hold| hold.recoveries),
    )
    .fetch_one(conn)
    .await?;
    let is_whole = usize::try_from(met).is_ok_and(|met| met == moved.len());
    if is_whole { Ok(()) } else { Err(DbError::UnexpectedRows(met.unsigned_abs())) }
}

/// Keeps answers, in the transaction of their effects.
async fn keep_answers(conn: &mut Conn, kept: &[Kept], now: OffsetDateTime) -> Result<(), DbError> {
    if kept.is_empty() {
        return Ok(());
    }
    sqlx::query!(
        "INSERT INTO idempotency_keys (merchant_id, key, request_hash, status, body, created_at)
         SELECT *, $6::timestamptz FROM unnest($1::text[], $2::text[], $3::bytea[], $4::smallint[], $5::bytea[])",
        &column(kept, |kept| kept.request.merchant_id.as_str()) as &[&str],
        &column(kept, |kept| kept.request.key.as_str()) as &[&str],
        &column(kept, |kept| kept.request.request_hash.as_slice()) as &[&[u8]],
        &column(kept, Kept::status),
        &column(kept, |kept| kept.answer.body.as_slice()) as &[&[u8]],
        now,
    )
    .execute(conn)
    .await?;
    Ok(())
}
