//! Writing down what a batch came to: [`make`] and [`move_all`] are all of it, each in one statement that stands by itself
//! where nothing has to be locked before it.

use time::OffsetDateTime;

use crate::idempotency::Kept;
use crate::infra::db::{Conn, DbError, Tx};
use crate::infra::gather::{Patience, column};
use crate::ledger;
use crate::usage::desk::{Desk, Notes};
use crate::usage::model::Hold;
use crate::usage::price::Price;

/// A new hold, and what of it is a part of its key.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewRow<'a> {
    pub(super) hold: &'a Hold,
    pub(super) key_currency: &'a str,
    pub(super) key_fx_version: &'a str,
}

/// Writes new holds with their birth and what they set aside, and keeps answers; cycles that they pay for are written and
/// told before, by [`write_cycles`] and [`announce`].
///
/// # Errors
/// A constraint: `usage_holds_key` when somebody was faster, [`ledger::USER_BALANCE_CONSTRAINT`] when a user does not have
/// what they set aside.
pub(super) async fn make(
    conn: &mut Conn,
    rows: &[NewRow<'_>],
    notes: &Notes,
    kept: &[Kept],
    patience: Patience,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    if rows.is_empty() && kept.is_empty() {
        return Ok(());
    }
    let wallets: Vec<String> = rows.iter().map(|row| row.hold.wallet().available.to_string()).collect();
    let booked = ledger::Columns::of(&notes.postings);
    sqlx::query_file!(
        "src/usage/store/make.sql",
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
        now,
        patience.millis(),
        &wallets,
        &column(kept, |kept| kept.request.merchant_id.as_str()) as &[&str],
        &column(kept, |kept| kept.request.key.as_str()) as &[&str],
        &column(kept, |kept| kept.request.request_hash.as_slice()) as &[&[u8]],
        &column(kept, Kept::status),
        &column(kept, |kept| kept.answer.body.as_slice()) as &[&[u8]],
        &booked.ids,
        &booked.kinds as &[&str],
        &booked.merchant_ids as &[Option<&str>],
        &booked.order_nos as &[Option<&str>],
        &booked.account_ids,
        &booked.amounts,
        &booked.user_accounts as &[&str],
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Writes holds that moved with what a desk noted beside them, and keeps answers; but for the cycles that are locked.
///
/// # Errors
/// [`DbError::is_outdated`] when a hold is not as it was read.
pub(super) async fn move_all(
    conn: &mut Conn,
    moved: &[&Hold],
    notes: &Notes,
    kept: &[Kept],
    patience: Patience,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    let Notes { changes, marks, events, .. } = notes;
    if moved.is_empty() && marks.is_empty() && kept.is_empty() {
        return Ok(());
    }
    let added: Vec<_> = notes.added.iter().collect();
    let booked = ledger::Columns::of(&notes.postings);
    sqlx::query_file_scalar!(
        "src/usage/store/move.sql",
        &column(moved, |hold| hold.hold_id.as_str()) as &[&str],
        &column(moved, |hold| hold.status.as_str()) as &[&str],
        &column(moved, |hold| hold.units) as &[Option<i64>],
        &column(moved, |hold| hold.counted_units),
        &column(moved, |hold| hold.held),
        &column(moved, |hold| hold.charged),
        &column(moved, |hold| hold.shortfall),
        &column(moved, |hold| hold.late),
        &column(moved, |hold| hold.extensions),
        &column(moved, |hold| hold.exhausted),
        &column(moved, |hold| hold.recoveries),
        &column(moved, |hold| hold.version),
        now,
        &column(moved, |hold| hold.written_by),
        &column(changes, |change| change.hold_id.as_str()) as &[&str],
        &column(changes, |change| change.seq),
        &column(changes, |change| change.from.as_str()) as &[&str],
        &column(changes, |change| change.to.as_str()) as &[&str],
        &column(changes, |change| change.event.as_str()) as &[&str],
        &column(marks, |mark| mark.hold_id.as_str()) as &[&str],
        &column(marks, |mark| mark.message_id.as_str()) as &[&str],
        &column(marks, |mark| mark.units),
        &column(&added, |(key, _)| key.merchant_id.as_str()) as &[&str],
        &column(&added, |(key, _)| key.user_id.as_str()) as &[&str],
        &column(&added, |(key, _)| key.product_code.as_str()) as &[&str],
        &column(&added, |(key, _)| key.cycle.as_str()) as &[&str],
        &column(&added, |(_, units)| **units),
        &column(events, |(merchant_id, _)| merchant_id.as_str()) as &[&str],
        &column(events, |(_, event)| event.name()) as &[&str],
        &column(events, |(_, event)| event.version()),
        &column(events, |(_, event)| event.payload()),
        &column(kept, |kept| kept.request.merchant_id.as_str()) as &[&str],
        &column(kept, |kept| kept.request.key.as_str()) as &[&str],
        &column(kept, |kept| kept.request.request_hash.as_slice()) as &[&[u8]],
        &column(kept, Kept::status),
        &column(kept, |kept| kept.answer.body.as_slice()) as &[&[u8]],
        &booked.ids,
        &booked.kinds as &[&str],
        &booked.merchant_ids as &[Option<&str>],
        &booked.order_nos as &[Option<&str>],
        &booked.account_ids,
        &booked.amounts,
        &booked.user_accounts as &[&str],
        patience.millis(),
    )
    .fetch_one(conn)
    .await?;
    Ok(())
}

/// Writes what was taken of cycles that are locked.
pub(super) async fn write_cycles(conn: &mut Conn, desk: &Desk) -> Result<(), DbError> {
    let cycles: Vec<_> = desk.notes.cycles.iter().filter_map(|key| desk.cycles.get_key_value(key)).collect();
    if cycles.is_empty() {
        return Ok(());
    }
    let written = sqlx::query!(
        "UPDATE usage_cycles AS taken
         SET used_units = new.used_units, fee_hold_id = new.fee_hold_id
         FROM (SELECT unnest($1::text[]) AS merchant_id, unnest($2::text[]) AS user_id,
                      unnest($3::text[]) AS product_code, unnest($4::text[]) AS cycle,
                      unnest($5::bigint[]) AS used_units, unnest($6::text[]) AS fee_hold_id) AS new
         WHERE taken.merchant_id = new.merchant_id AND taken.user_id = new.user_id
           AND taken.product_code = new.product_code AND taken.cycle = new.cycle",
        &column(&cycles, |(key, _)| key.merchant_id.as_str()) as &[&str],
        &column(&cycles, |(key, _)| key.user_id.as_str()) as &[&str],
        &column(&cycles, |(key, _)| key.product_code.as_str()) as &[&str],
        &column(&cycles, |(key, _)| key.cycle.as_str()) as &[&str],
        &column(&cycles, |(_, taken)| taken.used_units),
        &column(&cycles, |(_, taken)| taken.fee_hold_id.as_deref()) as &[Option<&str>],
    )
    .execute(conn)
    .await?;
    let is_whole = written.rows_affected() == cycles.len() as u64;
    if is_whole { Ok(()) } else { Err(DbError::UnexpectedRows(written.rows_affected())) }
}

/// Appends what is told of cycles that were paid for.
pub(super) async fn announce(tx: &mut Tx, notes: &Notes, now: OffsetDateTime) -> Result<(), DbError> {
    let events = &notes.events;
    if events.is_empty() {
        return Ok(());
    }
    tx.ring_after_commit();
    let conn: &mut Conn = tx;
    sqlx::query!(
        "INSERT INTO outbox (merchant_id, event, event_version, payload, created_at)
         SELECT unnest($1::text[]), unnest($2::text[]), unnest($3::smallint[]), unnest($4::jsonb[]), $5::timestamptz",
        &column(events, |(merchant_id, _)| merchant_id.as_str()) as &[&str],
        &column(events, |(_, event)| event.name()) as &[&str],
        &column(events, |(_, event)| event.version()),
        &column(events, |(_, event)| event.payload()),
        now,
    )
    .execute(conn)
    .await?;
    Ok(())
}
