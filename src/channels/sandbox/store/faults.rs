//! `sandbox.faults`.

use time::OffsetDateTime;

use crate::channels::sandbox::faults::{ActiveFault, ClaimedFault, FaultKind, FaultOp};
use crate::infra::db::{Conn, DbError, expect_one_row};

pub(crate) async fn set(
    conn: &mut Conn,
    op: FaultOp,
    fault: FaultKind,
    times: i32,
    ms: i32,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    expect_one_row(
        &sqlx::query!(
            "INSERT INTO sandbox.faults (op, fault, times_left, ms, created_at, updated_at)
             VALUES ($1, $2, $3, $4, $5, $5)
             ON CONFLICT ON CONSTRAINT sandbox_faults_pkey DO UPDATE
             SET times_left = excluded.times_left, ms = excluded.ms, updated_at = excluded.updated_at,
                 -- One that was used up queues anew, behind those that still wait.
                 created_at = CASE WHEN faults.times_left = 0 THEN excluded.created_at ELSE faults.created_at END",
            op.as_str(),
            fault.as_str(),
            times,
            ms,
            now,
        )
        .execute(conn)
        .await?,
    )
}

pub(crate) async fn list_active(conn: &mut Conn) -> Result<Vec<ActiveFault>, DbError> {
    Ok(sqlx::query_as!(
        ActiveFault,
        r#"SELECT op AS "op: FaultOp", fault AS "fault: FaultKind", times_left AS times, ms, created_at
           FROM sandbox.faults
           WHERE times_left > 0
           ORDER BY created_at, op, fault"#,
    )
    .fetch_all(conn)
    .await?)
}

pub(crate) async fn clear(conn: &mut Conn) -> Result<(), DbError> {
    sqlx::query!("DELETE FROM sandbox.faults").execute(conn).await?;
    Ok(())
}

/// Takes one use of the operation's oldest fault.
pub(crate) async fn claim(
    conn: &mut Conn,
    op: FaultOp,
    now: OffsetDateTime,
) -> Result<Option<ClaimedFault>, DbError> {
    let claimed = sqlx::query!(
        r#"UPDATE sandbox.faults SET times_left = times_left - 1, updated_at = $2
           WHERE op = $1
             -- FOR UPDATE without SKIP LOCKED: two calls at once use up two, they do not miss one.
             AND fault = (SELECT fault FROM sandbox.faults
                          WHERE op = $1 AND times_left > 0
                          ORDER BY created_at, fault
                          LIMIT 1
                          FOR UPDATE)
           RETURNING fault AS "fault: FaultKind", ms"#,
        op.as_str(),
        now,
    )
    .fetch_optional(conn)
    .await?;
    Ok(claimed.map(|row| ClaimedFault::new(row.fault, row.ms)))
}
