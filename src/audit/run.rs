//! Running the checks.

use time::OffsetDateTime;

use super::checks::{self, Definition};
use super::model::{AuditReport, Check};
use crate::infra::db::{Conn, Db, DbError};

/// Runs every check in one snapshot that nothing can change.
///
/// # Errors
/// When the database cannot be reached, or a check takes longer than a statement may.
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

    let mut found = Vec::new();
    for definition in checks::all() {
        found.push(run_one(conn, definition, now).await?);
    }
    let money_at_risk = checks::money_at_risk(conn).await?;
    Ok(AuditReport { ok: found.iter().all(|check| check.violations == 0), checks: found, money_at_risk })
}

async fn run_one(conn: &mut Conn, definition: &Definition, now: OffsetDateTime) -> Result<Check, DbError> {
    let Definition { id, kind, title, find } = *definition;
    let found = find(conn, now).await?;
    Ok(Check { id, kind, title, violations: found.violations, sample: found.sample })
}
