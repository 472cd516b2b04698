//! The row of `last_audit`, and whose turn it is.

use time::OffsetDateTime;

use super::model::AuditReport;
use crate::infra::db::{Conn, DbError, Tx};

/// Whether the next audit is due, and nobody else is at it; then nobody else is before the transaction ends.
pub(super) async fn is_our_turn(tx: &mut Tx, now: OffsetDateTime) -> Result<bool, DbError> {
    let conn: &mut Conn = tx;
    sqlx::query_scalar!(
        r#"SELECT CASE WHEN EXISTS (SELECT 1 FROM last_audit WHERE next_at > $1) THEN false
                       ELSE pg_try_advisory_xact_lock(hashtext('audit')) END AS "is_ours!""#,
        now,
    )
    .fetch_one(conn)
    .await
    .map_err(DbError::from)
}

/// Keeps what an audit found, unless what a later one found is kept already; of one that failed, when the next one is due.
pub(super) async fn keep(
    conn: &mut Conn,
    found: Option<&AuditReport>,
    begun_at: OffsetDateTime,
    next_at: OffsetDateTime,
) -> Result<(), DbError> {
    let report = found.map(serde_json::to_value).transpose();
    let report = report.map_err(|error| sqlx::Error::Encode(error.into()))?;
    sqlx::query!(
        "INSERT INTO last_audit (next_at, audited_at, report)
         VALUES ($2, CASE WHEN $3::jsonb IS NOT NULL THEN $1::timestamptz END, $3)
         ON CONFLICT (is_only) DO UPDATE
         SET next_at = excluded.next_at, audited_at = coalesce(excluded.audited_at, last_audit.audited_at),
             report = coalesce(excluded.report, last_audit.report)
         WHERE last_audit.audited_at IS NULL OR last_audit.audited_at <= $1",
        begun_at,
        next_at,
        report,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// What a check of the last audit found.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) check: String,
    pub(super) violations: i64,
    pub(super) audited_at: OffsetDateTime,
}

/// What the last audit found; nothing before the first one.
pub(super) async fn find_last(conn: &mut Conn) -> Result<Vec<Found>, DbError> {
    let found = sqlx::query_as!(
        Found,
        r#"SELECT line->>'id' AS "check!", (line->>'violations')::bigint AS "violations!",
                  audited_at AS "audited_at!"
           FROM last_audit, jsonb_array_elements(report->'checks') AS line"#,
    )
    .fetch_all(conn)
    .await?;
    Ok(found)
}
