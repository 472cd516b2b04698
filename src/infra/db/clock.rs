//! The database's clock, which every instance goes by.

use std::sync::atomic::{AtomicBool, Ordering};

use sqlx::{Executor, Postgres, Row};

use super::{Db, DbError};
use crate::infra::clock::{Clock, MOST_SKEW};

impl Db {
    /// Makes sure that the time is the database's, which every connection tells when it is made: before the first one,
    /// nothing is judged or written by what the machine shows. Nothing to do where it is known.
    ///
    /// # Errors
    /// [`DbError::Unavailable`] when the database cannot be asked.
    pub async fn know_time(&self) -> Result<(), DbError> {
        if self.ids.clock().is_known() {
            return Ok(());
        }
        // Boxed: every request passes here, and hardly one ever waits.
        Box::pin(self.keep_time()).await
    }

    /// Stays in step with the database's clock. One round trip.
    ///
    /// # Errors
    /// [`DbError::Unavailable`] when the database cannot be asked: the time goes on from what it showed last.
    pub async fn keep_time(&self) -> Result<(), DbError> {
        let mut conn = self.conn().await?;
        tell(follow(self.ids.clock(), &mut conn).await?);
        Ok(())
    }
}

/// Sets a clock by the database's; gives how far the machine's own is ahead of that.
///
/// # Errors
/// When the database cannot be asked.
pub async fn follow<'c>(
    clock: &Clock,
    conn: impl Executor<'c, Database = Postgres>,
) -> Result<time::Duration, sqlx::Error> {
    let asked = Clock::ask();
    let question = sqlx::raw_sql("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint");
    Ok(clock.follow(asked, conn.fetch_one(question).await?.try_get(0)?))
}

/// Whether the database knows a time zone, which it says when it is to tell its time.
///
/// # Errors
/// When the database cannot be asked.
pub async fn knows_time_zone<'c>(
    conn: impl Executor<'c, Database = Postgres>,
    time_zone: &str,
) -> Result<bool, sqlx::Error> {
    match sqlx::query("SELECT now() AT TIME ZONE $1").bind(time_zone).execute(conn).await {
        Ok(_) => Ok(true),
        // What it was given cannot be.
        Err(sqlx::Error::Database(refusal)) if refusal.code().as_deref() == Some("22023") => Ok(false),
        Err(error) => Err(error),
    }
}

/// Says so when the machine's clock is another one: either of them may be wrong.
pub(super) fn tell(ahead: time::Duration) {
    static IS_OFF: AtomicBool = AtomicBool::new(false);
    metrics::gauge!("payonce_clock_ahead_seconds").set(ahead.as_seconds_f64());
    let is_off = ahead.abs() > MOST_SKEW;
    let was_off = IS_OFF.swap(is_off, Ordering::Relaxed);
    if is_off && !was_off {
        tracing::warn!("this machine's clock is {ahead} ahead of the database's, by which the service goes");
    }
}
