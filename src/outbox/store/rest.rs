//! Lanes whose endpoint asked to be left alone.

use std::collections::HashSet;

use time::OffsetDateTime;

use super::record::Record;
use crate::infra::db::{Conn, DbError, Tx};
use crate::infra::gather::column;

/// Leaves the lanes alone of what ended with such a wish; of several the longest counts.
pub(super) async fn rest(batch: &[Record], conn: &mut Conn) -> Result<(), DbError> {
    let asked: Vec<&Record> = batch.iter().filter(|record| record.ending.rests_until.is_some()).collect();
    if asked.is_empty() {
        return Ok(());
    }
    sqlx::query!(
        "INSERT INTO resting_lanes (lane, merchant_id, rests_until)
         SELECT lane, coalesce(merchant_id, ''), max(until)
         FROM unnest($1::text[], $2::text[], $3::timestamptz[]) AS asked (lane, merchant_id, until)
         GROUP BY 1, 2 ORDER BY 1
         ON CONFLICT (lane) DO UPDATE SET rests_until = greatest(resting_lanes.rests_until, excluded.rests_until)",
        &column(&asked, |record| record.delivery.lane.as_str()) as &[&str],
        &column(&asked, |record| record.delivery.merchant_id.as_deref()) as &[Option<&str>],
        &column(&asked, |record| record.ending.rests_until) as &[Option<OffsetDateTime>],
    )
    .execute(conn)
    .await?;
    Ok(())
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
