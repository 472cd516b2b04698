//! The audit by itself, beside the traffic: one instance at a time, on one core, and for a tenth of the time (more only
//! where it takes longer than seven minutes, because it is made every hour or so all the same).

use time::{Duration, OffsetDateTime};

use super::model::AuditReport;
use super::publish::publish;
use super::run::{Pace, run_checks_at};
use super::store;
use crate::infra::clock::Clock;
use crate::infra::crash::effect;
use crate::infra::db::{Db, DbError};
use crate::infra::duty::{Batch, DutyError};

/// How long it rests at least.
const REST_MIN: Duration = Duration::minutes(5);
/// How long it rests at most: an alarm must not be older than that.
const REST_MAX: Duration = Duration::hours(1);
/// It rests so many times as long as it took: of a large database it takes minutes, and all that time nothing that is
/// taken from a queue can be cleared away.
const RESTS: i32 = 9;

/// Audits where that is due and no other instance is at it, and publishes what the last audit found.
///
/// # Errors
/// When the database cannot be reached, or a check takes longer than a statement may: `payonce_audited_at_seconds` tells
/// how old the last one is.
pub async fn run_due(db: &Db, clock: &Clock) -> Result<Batch, DutyError> {
    let now = clock.now();
    // Who dies here loses the turn at once: the lock is the transaction's.
    let mut tx = db.begin_snapshot().await?;
    let found = match store::is_our_turn(&mut tx, now).await {
        Ok(true) => run_checks_at(&mut tx, Pace::Calm, now).await.map(Some),
        Ok(false) => Ok(None),
        Err(error) => Err(error),
    };
    // Kept before the turn is over, so that whoever has the next one sees it; one that failed rests as well.
    let kept = match &found {
        Ok(None) => Ok(()),
        Ok(found) => keep(db, found.as_ref(), (now, clock.now())).await,
        Err(_) => keep(db, None, (now, clock.now())).await,
    };
    tx.finish(found).await?;
    kept?;
    publish(db).await?;
    Ok(Batch::Done)
}

/// Keeps and publishes what an audit found that somebody asked for; it is as good as one that was due.
///
/// # Errors
/// When the database cannot be reached.
pub async fn note(
    db: &Db,
    report: &AuditReport,
    (begun_at, ended_at): (OffsetDateTime, OffsetDateTime),
) -> Result<(), DbError> {
    keep(db, Some(report), (begun_at, ended_at)).await?;
    publish(db).await
}

async fn keep(
    db: &Db,
    found: Option<&AuditReport>,
    (begun_at, ended_at): (OffsetDateTime, OffsetDateTime),
) -> Result<(), DbError> {
    let rest = ((ended_at - begun_at) * RESTS).clamp(REST_MIN, REST_MAX);
    let mut conn = db.conn().await?;
    effect!("audit.keep", store::keep(&mut conn, found, begun_at, ended_at + rest).await)
}
