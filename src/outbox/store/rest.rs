//! Lanes whose endpoint asked to be left alone.

use std::collections::HashSet;

use time::OffsetDateTime;

use super::record::Record;
use crate::infra::db::{Conn, DbError, Tx};
use crate::infra::gather::column;
use crate::outbox::lane;

/// Leaves the lanes alone of what ended with such a wish; of several the longest counts.
pub(super) async fn rest(batch: &[Record], conn: &mut Conn) -> Result<(), DbError> {
    let asked: Vec<(String, Option<&str>, OffsetDateTime)> = batch.iter().flat_map(rests).collect();
    if asked.is_empty() {
        return Ok(());
    }
    sqlx::query!(
        "INSERT INTO resting_lanes (lane, merchant_id, rests_until)
         SELECT lane, coalesce(merchant_id, ''), max(until)
         FROM (SELECT unnest($1::text[]) AS lane, unnest($2::text[]) AS merchant_id,
                      unnest($3::timestamptz[]) AS until) AS asked
         GROUP BY 1, 2 ORDER BY 1
         ON CONFLICT (lane) DO UPDATE SET rests_until = greatest(resting_lanes.rests_until, excluded.rests_until)",
        &column(&asked, |(lane, ..)| lane.as_str()) as &[&str],
        &column(&asked, |(_, merchant_id, _)| *merchant_id) as &[Option<&str>],
        &column(&asked, |(.., until)| *until),
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// The lanes that lead to an endpoint which asked for it.
fn rests(record: &Record) -> impl Iterator<Item = (String, Option<&str>, OffsetDateTime)> {
    let (delivery, rests_until) = (&record.delivery, record.ending.rests_until);
    let lanes = rests_until
        .into_iter()
        .flat_map(move |until| lane::siblings(&delivery.lane).map(|lane| (lane, until)));
    lanes.map(move |(lane, until)| (lane, delivery.merchant_id.as_deref(), until))
}

/// Those of these lanes that are left alone now.
pub(in crate::outbox) async fn find_resting(
    tx: &mut Tx,
    lanes: &[&str],
    now: OffsetDateTime,
) -> Result<HashSet<String>, DbError> {
    let conn: &mut Conn = tx;
    let resting = sqlx::query_scalar!(
        "SELECT lane FROM resting_lanes WHERE lane = ANY($1) AND rests_until > $2",
        lanes as &[&str],
        now,
    );
    Ok(resting.fetch_all(conn).await?.into_iter().collect())
}

/// Forgets the rests that are over.
pub(in crate::outbox) async fn delete_over(conn: &mut Conn, now: OffsetDateTime) -> Result<(), DbError> {
    sqlx::query!("DELETE FROM resting_lanes WHERE rests_until <= $1", now).execute(conn).await?;
    Ok(())
}
