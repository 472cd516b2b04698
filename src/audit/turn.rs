//! The audit by itself, beside the traffic: one instance at a time, on one core, and for a tenth of the time (for more
//! where it takes longer than seven minutes, because no rest is longer than an hour).

use time::{Duration, OffsetDateTime};

use super::model::AuditReport;
use super::publish::publish;
use super::run::{Pace, run_checks_at};
use super::store;
use crate::infra::clock::Clock;
use crate::infra::crash::effect;
use crate::infra::db::{Conn, Db, DbError};
use crate::infra::duty::{Batch, DutyError};

/// How long it rests at least.
const REST_MIN: Duration = Duration::minutes(5);
/// How long it rests at most: what it would find raises its alarm no later.
const REST_MAX: Duration = Duration::hours(1);
/// It rests so many times as long as it took: of a large database it takes minutes, and all that time nothing that is
/// taken from a queue can be cleared away.
const RESTS: i32 = 9;
/// A rest that ends later than so long from now is not believed: clocks of instances differ by less.
const BELIEVED: Duration = Duration::hours(2);

/// Audits where that is due and no other instance is at it.
///
/// # Errors
/// When the database cannot be reached: `payonce_audited_at_seconds` tells how old the last one is.
pub async fn run_due(db: &Db, clock: &Clock) -> Result<Batch, DutyError> {
    let begun_at = clock.now();
    let mut conn = db.conn().await?;
    let mut tx = conn.begin_snapshot().await?;
    // The lock is the transaction's: whoever dies loses the turn with it.
    if !store::take_turn(&mut tx, begun_at, begun_at + BELIEVED).await? {
        tx.finish(Ok::<_, DbError>(())).await?;
        return Ok(Batch::Done);
    }
    let found = run_checks_at(&mut tx, Pace::Calm, begun_at).await;
    // Who looks between this end and what is kept audits once more, and that is all.
    let found = tx.finish_into(&mut conn, found).await;
    if found.is_err() {
        // What failed may have been the connection.
        drop(conn);
        conn = db.conn().await?;
    }
    // One that came to no end rests as well.
    keep(&mut conn, found.as_ref().ok(), (begun_at, clock.now())).await?;
    found?;
    drop(conn);
    publish(db).await
}

/// Keeps what an audit found that somebody asked for: it is as good as one that was due.
///
/// # Errors
/// When the database cannot be reached.
pub async fn note(
    db: &Db,
    report: &AuditReport,
    (begun_at, ended_at): (OffsetDateTime, OffsetDateTime),
) -> Result<(), DbError> {
    keep(&mut db.conn().await?, Some(report), (begun_at, ended_at)).await
}

async fn keep(
    conn: &mut Conn,
    found: Option<&AuditReport>,
    (begun_at, ended_at): (OffsetDateTime, OffsetDateTime),
) -> Result<(), DbError> {
    let rest = ((ended_at - begun_at) * RESTS).clamp(REST_MIN, REST_MAX);
    effect!("audit.keep", store::keep(conn, found, (begun_at, ended_at), ended_at + rest).await)
}
