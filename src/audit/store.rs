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

/// Keeps what an audit found, unless what a later one found is kept already.
pub(super) async fn keep(
    conn: &mut Conn,
    report: &AuditReport,
    audited_at: OffsetDateTime,
    next_at: OffsetDateTime,
) -> Result<(), DbError> {
    let report = serde_json::to_value(report).map_err(|error| sqlx::Error::Encode(error.into()))?;
    sqlx::query!(
        "INSERT INTO last_audit (audited_at, next_at, report) VALUES ($1, $2, $3)
         ON CONFLICT (is_only) DO UPDATE
         SET audited_at = excluded.audited_at, next_at = excluded.next_at, report = excluded.report
         WHERE last_audit.audited_at <= excluded.audited_at",
        audited_at,
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
        r#"SELECT line->>'id' AS "check!", (line->>'violations')::bigint AS "violations!", audited_at
           FROM last_audit, jsonb_array_elements(report->'checks') AS line"#,
    )
    .fetch_all(conn)
    .await?;
    Ok(found)
}
