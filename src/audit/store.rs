//! The row of `last_audit`, and whose turn it is.

use serde::Deserialize;
use sqlx::types::Json;
use time::OffsetDateTime;

use super::model::{AuditReport, MoneyAtRisk};
use crate::infra::db::{Conn, DbError, Tx};

/// Takes the turn where an audit is due and nobody else is at one; it is ours until the transaction ends. What is due later
/// than `latest` was put off by a clock that was wrong, and is due now.
pub(super) async fn take_turn(
    tx: &mut Tx,
    now: OffsetDateTime,
    latest: OffsetDateTime,
) -> Result<bool, DbError> {
    let conn: &mut Conn = tx;
    let is_ours = sqlx::query_scalar!(
        r#"SELECT CASE WHEN EXISTS (SELECT 1 FROM last_audit WHERE next_at > $1 AND next_at <= $2) THEN false
                       ELSE pg_try_advisory_xact_lock(hashtext('audit')) END AS "is_ours!""#,
        now,
        latest,
    )
    .fetch_one(conn)
    .await?;
    Ok(is_ours)
}

/// Keeps what an audit found, and when the next one is due; of one that came to no end only that. Nothing is kept where a
/// later one is kept already, unless its time is still to come: that clock was wrong.
pub(super) async fn keep(
    conn: &mut Conn,
    found: Option<&AuditReport>,
    (begun_at, ended_at): (OffsetDateTime, OffsetDateTime),
    next_at: OffsetDateTime,
) -> Result<(), DbError> {
    let report = found.map(serde_json::to_value).transpose();
    let report = report.map_err(|error| sqlx::Error::Encode(error.into()))?;
    sqlx::query!(
        "INSERT INTO last_audit (next_at, audited_at, report)
         VALUES ($3, CASE WHEN $4::jsonb IS NOT NULL THEN $1::timestamptz END, $4)
         ON CONFLICT (is_only) DO UPDATE
         SET next_at = excluded.next_at, audited_at = coalesce(excluded.audited_at, last_audit.audited_at),
             report = coalesce(excluded.report, last_audit.report)
         WHERE last_audit.audited_at IS NULL OR last_audit.audited_at <= $1 OR last_audit.audited_at > $2",
        begun_at,
        ended_at,
        next_at,
        report,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// The last audit that came to its end.
#[derive(Debug)]
pub(super) struct Last {
    pub(super) audited_at: OffsetDateTime,
    pub(super) report: Json<Kept>,
}

/// What is read of a report that may be another version's.
#[derive(Debug, Deserialize)]
pub(super) struct Kept {
    pub(super) checks: Vec<KeptCheck>,
    #[serde(default)]
    pub(super) failed: Vec<KeptFailed>,
    pub(super) money_at_risk: Vec<MoneyAtRisk>,
}

#[derive(Debug, Deserialize)]
pub(super) struct KeptCheck {
    pub(super) id: String,
    pub(super) violations: i64,
}

#[derive(Debug, Deserialize)]
pub(super) struct KeptFailed {
    pub(super) id: String,
}

pub(super) async fn find_last(conn: &mut Conn) -> Result<Option<Last>, DbError> {
    let last = sqlx::query_as!(
        Last,
        r#"SELECT audited_at AS "audited_at!", report AS "report!: Json<Kept>"
           FROM last_audit WHERE report IS NOT NULL"#,
    )
    .fetch_optional(conn)
    .await?;
    Ok(last)
}
