//! Running the checks.

use std::error::Error as _;

use futures_util::future::BoxFuture;
use time::OffsetDateTime;

use super::checks;
use super::model::{AuditReport, Check, Failed};
use crate::infra::db::{Conn, Db, DbError};

/// The name in a report of what is no check.
pub(super) const MONEY_AT_RISK: &str = "money_at_risk";

/// Runs every check in one snapshot that nothing can change.
///
/// # Errors
/// When the database cannot be reached.
pub async fn audit(db: &Db, now: OffsetDateTime) -> Result<AuditReport, DbError> {
    let mut tx = db.conn().await?.begin_snapshot().await?;
    let report = run_checks(&mut tx, now).await;
    tx.finish(report).await
}

/// How much of the machine an audit may take.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pace {
    /// As many cores as PostgreSQL gives it: somebody waits.
    Brisk,
    /// One core: nobody does.
    Calm,
}

/// Runs every check inside the caller's transaction, so that a test can look at what it will roll back. Only in
/// a snapshot (`REPEATABLE READ`) do the checks speak of one and the same moment.
///
/// # Errors
/// As [`audit`].
pub async fn run_checks(conn: &mut Conn, now: OffsetDateTime) -> Result<AuditReport, DbError> {
    run_checks_at(conn, Pace::Brisk, now).await
}

/// The same at that pace.
pub(super) async fn run_checks_at(
    conn: &mut Conn,
    pace: Pace,
    now: OffsetDateTime,
) -> Result<AuditReport, DbError> {
    // Whole tables are joined: in memory, where the default would go to disk.
    let settings = match pace {
        Pace::Brisk => "SET LOCAL work_mem = '128MB'",
        Pace::Calm => "SET LOCAL work_mem = '128MB'; SET LOCAL max_parallel_workers_per_gather = 0",
    };
    sqlx::raw_sql(settings).execute(&mut *conn).await?;

    let mut report =
        AuditReport { ok: true, checks: Vec::new(), failed: Vec::new(), money_at_risk: Vec::new() };
    for definition in checks::all() {
        let find = definition.find;
        match by_itself(conn, |conn| find(conn, now)).await? {
            Ok(found) => report.checks.push(Check {
                id: definition.id,
                kind: definition.kind,
                title: definition.title,
                violations: found.violations,
                sample: found.sample,
            }),
            Err(error) => report.failed.push(failed(definition.id, &error)),
        }
    }
    match by_itself(conn, |conn| Box::pin(checks::money_at_risk(conn))).await? {
        Ok(money) => report.money_at_risk = money,
        Err(error) => report.failed.push(failed(MONEY_AT_RISK, &error)),
    }
    report.ok = report.failed.is_empty() && report.checks.iter().all(|check| check.violations == 0);
    Ok(report)
}

/// Makes one part of an audit. What the database refuses of it costs no other part anything; only a connection that is
/// gone ends the whole.
async fn by_itself<T>(
    conn: &mut Conn,
    part: impl for<'c> FnOnce(&'c mut Conn) -> BoxFuture<'c, Result<T, DbError>> + Send,
) -> Result<Result<T, DbError>, DbError> {
    sqlx::raw_sql("SAVEPOINT part").execute(&mut *conn).await?;
    let made = part(&mut *conn).await;
    let end = if made.is_ok() { "RELEASE SAVEPOINT part" } else { "ROLLBACK TO SAVEPOINT part" };
    sqlx::raw_sql(end).execute(conn).await?;
    Ok(made)
}

fn failed(id: &'static str, error: &DbError) -> Failed {
    let reason = error.source().map_or_else(|| error.to_string(), ToString::to_string);
    tracing::warn!(check.id = id, %reason, "the audit could not make {id}");
    Failed { id, reason }
}
