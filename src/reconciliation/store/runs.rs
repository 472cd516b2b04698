//! The rows of `reconciliations`, and their history.

use std::collections::BTreeMap;

use sqlx::types::Json;
use time::{Date, OffsetDateTime, Time};

use crate::channels::TO_OTHERS;
use crate::channels::bills::{BadStatement, Fault, Format};
use crate::infra::db::{Conn, DbError, Tx, expect_one_row};
use crate::reconciliation::model::{DayEvent, DayStatus, Reconciliation, Source, Totals};

/// A day in the hands of a worker. Whoever takes it after the lease, or begins it again, makes its version another.
#[derive(Clone, Debug)]
pub(in crate::reconciliation) struct Claimed {
    pub(in crate::reconciliation) reconciliation_id: String,
    pub(in crate::reconciliation) channel: String,
    pub(in crate::reconciliation) day: Date,
    pub(in crate::reconciliation) begins_at: OffsetDateTime,
    pub(in crate::reconciliation) ends_at: OffsetDateTime,
    pub(in crate::reconciliation) status: DayStatus,
    pub(in crate::reconciliation) round: i32,
    pub(in crate::reconciliation) source: Source,
    pub(in crate::reconciliation) format: Option<Format>,
    pub(in crate::reconciliation) file_id: Option<String>,
    pub(in crate::reconciliation) lines: i64,
    pub(in crate::reconciliation) next_page: Option<String>,
    pub(in crate::reconciliation) after_kind: String,
    pub(in crate::reconciliation) after_channel_id: String,
    pub(in crate::reconciliation) after_line_no: i64,
    pub(in crate::reconciliation) is_walked: bool,
    pub(in crate::reconciliation) walked_until: Option<OffsetDateTime>,
    pub(in crate::reconciliation) compared_at: Option<OffsetDateTime>,
    pub(in crate::reconciliation) totals: Json<Totals>,
    pub(in crate::reconciliation) attempts: i32,
    pub(in crate::reconciliation) accepts_empty: bool,
    pub(super) version: i32,
}

/// A day to begin.
#[derive(Clone, Debug)]
pub(in crate::reconciliation) struct NewRun<'a> {
    pub(in crate::reconciliation) reconciliation_id: &'a str,
    pub(in crate::reconciliation) channel: &'a str,
    pub(in crate::reconciliation) day: Date,
    pub(in crate::reconciliation) begins_at: OffsetDateTime,
    pub(in crate::reconciliation) ends_at: OffsetDateTime,
    pub(in crate::reconciliation) source: Source,
    pub(in crate::reconciliation) file: Option<NewFile<'a>>,
}

/// A file to begin a day with.
#[derive(Clone, Copy, Debug)]
pub(in crate::reconciliation) struct NewFile<'a> {
    pub(in crate::reconciliation) format: Format,
    /// Where it is kept.
    pub(in crate::reconciliation) file_id: &'a str,
    /// Its fingerprint.
    pub(in crate::reconciliation) sha256: &'a str,
    /// Whether somebody says that it may have nothing of ours although something moved here.
    pub(in crate::reconciliation) accepts_empty: bool,
}

/// Writes a day that was never begun, with the first line of its history.
pub(in crate::reconciliation) async fn insert(
    tx: &mut Tx,
    new: &NewRun<'_>,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    let conn: &mut Conn = tx;
    sqlx::query!(
        "WITH begun AS (
             INSERT INTO reconciliations (reconciliation_id, channel, day, begins_at, ends_at, source, format, file_id,
                                          file_sha256, accepts_empty, leased_until, created_at, updated_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $11, $10, $10, $10)
             RETURNING reconciliation_id, status
         )
         INSERT INTO reconciliation_history (reconciliation_id, seq, to_status, event, created_at)
         SELECT reconciliation_id, 1, status, 'BEGUN', $10 FROM begun",
        new.reconciliation_id,
        new.channel,
        new.day,
        new.begins_at,
        new.ends_at,
        new.source.as_str(),
        new.file.map(|file| file.format.as_str()),
        new.file.map(|file| file.file_id),
        new.file.map(|file| file.sha256),
        now,
        new.file.is_some_and(|file| file.accepts_empty),
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Begins a locked day anew, from the given source: its lines are taken out by whoever carries it on.
pub(in crate::reconciliation) async fn begin_again(
    tx: &mut Tx,
    reconciliation_id: &str,
    new: &NewRun<'_>,
    from: DayStatus,
    to: DayStatus,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    let conn: &mut Conn = tx;
    let begun = sqlx::query!(
        "WITH begun AS (
             UPDATE reconciliations
             SET status = $3, round = round + 1, begins_at = $10, ends_at = $11, source = $4, format = $5, file_id = $6,
                 file_sha256 = $7, accepts_empty = $12, lines = 0,
                 next_page = NULL, after_kind = '', after_channel_id = '', after_line_no = 0, is_walked = false,
                 walked_until = NULL, compared_at = NULL, totals = '{}', fault = NULL, detail = NULL, attempts = 0,
                 leased_until = $9, updated_at = $9, finished_at = NULL, forgotten_at = NULL, version = version + 1
             WHERE reconciliation_id = $1 AND status = $2
             RETURNING reconciliation_id
         )
         INSERT INTO reconciliation_history (reconciliation_id, seq, from_status, to_status, event, created_at)
         SELECT reconciliation_id,
                (SELECT max(seq) + 1 FROM reconciliation_history AS h WHERE h.reconciliation_id = begun.reconciliation_id),
                $2, $3, $8, $9
         FROM begun",
        reconciliation_id,
        from.as_str(),
        to.as_str(),
        new.source.as_str(),
        new.file.map(|file| file.format.as_str()),
        new.file.map(|file| file.file_id),
        new.file.map(|file| file.sha256),
        DayEvent::BegunAgain.as_str(),
        now,
        new.begins_at,
        new.ends_at,
        new.file.is_some_and(|file| file.accepts_empty),
    )
    .execute(conn)
    .await?;
    expect_one_row(&begun)
}

/// A day that was begun.
#[derive(Debug)]
pub(in crate::reconciliation) struct Known {
    pub(in crate::reconciliation) reconciliation_id: String,
    pub(in crate::reconciliation) status: DayStatus,
    /// How often it was begun.
    pub(in crate::reconciliation) round: i32,
    pub(in crate::reconciliation) source: Source,
    pub(in crate::reconciliation) file_id: Option<String>,
}

impl Known {
    /// Whether that is how this began it.
    pub(in crate::reconciliation) fn is_by(&self, new: &NewRun<'_>) -> bool {
        self.source == new.source && self.file_id.as_deref() == new.file.map(|file| file.file_id)
    }
}

/// The day of a channel, locked.
pub(in crate::reconciliation) async fn find_of_day(
    tx: &mut Tx,
    channel: &str,
    day: Date,
) -> Result<Option<Known>, DbError> {
    let conn: &mut Conn = tx;
    let known = sqlx::query_as!(
        Known,
        r#"SELECT reconciliation_id, status AS "status: DayStatus", round, source AS "source: Source", file_id
           FROM reconciliations WHERE channel = $1 AND day = $2 FOR UPDATE"#,
        channel,
        day,
    )
    .fetch_optional(conn)
    .await?;
    Ok(known)
}

/// Takes a day that waits and that nobody is at, until `until`. One whose statement only others can fetch (`elsewhere`) is left
/// to them for [`TO_OTHERS`].
pub(in crate::reconciliation) async fn claim(
    conn: &mut Conn,
    elsewhere: &[&str],
    until: OffsetDateTime,
    now: OffsetDateTime,
) -> Result<Option<Claimed>, DbError> {
    let claimed = sqlx::query_as!(
        Claimed,
        r#"UPDATE reconciliations SET leased_until = $2, version = version + 1, updated_at = $1
           WHERE reconciliation_id = (
               SELECT reconciliation_id FROM reconciliations
               WHERE status <> 'DONE' AND leased_until <= $1
                 -- A refused file waits for another one.
                 AND CASE source WHEN 'CHANNEL' THEN channel <> ALL($3) OR leased_until < $4 ELSE file_id IS NOT NULL END
               -- Days in their order: each looks at the one before.
               ORDER BY day, leased_until LIMIT 1 FOR UPDATE SKIP LOCKED)
           RETURNING reconciliation_id, channel, day, begins_at, ends_at, status AS "status: DayStatus", round,
                     source AS "source: Source", format AS "format: Format", file_id, lines, next_page, after_kind,
                     after_channel_id, after_line_no, is_walked, walked_until, compared_at,
                     totals AS "totals: Json<Totals>", attempts, accepts_empty, version"#,
        now,
        until,
        elsewhere as &[&str],
        now - TO_OTHERS,
    )
    .fetch_optional(conn)
    .await?;
    Ok(claimed)
}

/// Writes down how far a worker has come, and keeps the day until `until`. `false` when it is no longer theirs.
pub(in crate::reconciliation) async fn note_place(
    tx: &mut Tx,
    run: &Claimed,
    until: OffsetDateTime,
) -> Result<bool, DbError> {
    let conn: &mut Conn = tx;
    let noted = sqlx::query!(
        "UPDATE reconciliations
         SET lines = $3, next_page = $4, after_kind = $5, after_channel_id = $6, after_line_no = $7, is_walked = $8,
             walked_until = $9, compared_at = $10, totals = $11, leased_until = $12,
             attempts = CASE WHEN (lines, next_page, after_kind, after_channel_id, after_line_no, is_walked, walked_until)
                                  IS DISTINCT FROM ($3, $4, $5, $6, $7, $8, $9) THEN 0 ELSE attempts END
         WHERE reconciliation_id = $1 AND version = $2",
        run.reconciliation_id,
        run.version,
        run.lines,
        run.next_page,
        run.after_kind,
        run.after_channel_id,
        run.after_line_no,
        run.is_walked,
        run.walked_until,
        run.compared_at,
        Json(&run.totals.0) as _,
        until,
    )
    .execute(conn)
    .await?;
    Ok(noted.rows_affected() == 1)
}

/// Moves a day on, and lets it go: at once, or to be taken again at `at`. `false` when it is no longer the worker's.
pub(in crate::reconciliation) async fn set_status(
    tx: &mut Tx,
    run: &Claimed,
    to: DayStatus,
    event: DayEvent,
    bad: Option<&BadStatement>,
    at: OffsetDateTime,
    now: OffsetDateTime,
) -> Result<bool, DbError> {
    let conn: &mut Conn = tx;
    if to == DayStatus::Matching {
        lock_beside(conn, run).await?;
    }
    let moved = sqlx::query!(
        "WITH moved AS (
             UPDATE reconciliations
             SET status = $4, fault = $6, detail = $7, leased_until = $8, updated_at = $9, version = version + 1,
                 finished_at = CASE WHEN $4 = 'DONE' THEN $9::timestamptz END,
                 -- Behind the days beside it, whatever a clock says.
                 compared_at = CASE WHEN $4 <> 'MATCHING' THEN compared_at
                     ELSE greatest($9::timestamptz,
                                   (SELECT max(beside.compared_at) + interval '1 microsecond' FROM reconciliations AS beside
                                    WHERE beside.channel = $10 AND beside.day BETWEEN $11::date - 1 AND $11::date + 1)) END,
                 attempts = 0,
                 -- What a refused statement left is taken out before the next one; a refused file is not read again.
                 lines = CASE WHEN $6::text IS NULL THEN lines ELSE 0 END,
                 next_page = NULL,
                 file_id = CASE WHEN $6::text IS NULL THEN file_id END
             WHERE reconciliation_id = $1 AND status = $2 AND version = $3
             RETURNING reconciliation_id
         )
         INSERT INTO reconciliation_history (reconciliation_id, seq, from_status, to_status, event, created_at)
         SELECT reconciliation_id,
                (SELECT max(seq) + 1 FROM reconciliation_history AS h WHERE h.reconciliation_id = moved.reconciliation_id),
                $2, $4, $5, $9
         FROM moved",
        run.reconciliation_id,
        run.status.as_str(),
        run.version,
        to.as_str(),
        event.as_str(),
        bad.map(|bad| bad.fault.as_str()),
        bad.map(|bad| bad.detail.as_str()),
        at,
        now,
        run.channel,
        run.day,
    )
    .execute(conn)
    .await?;
    Ok(moved.rows_affected() == 1)
}

/// When a day was begun last.
pub(in crate::reconciliation) async fn begun_at(
    conn: &mut Conn,
    reconciliation_id: &str,
) -> Result<OffsetDateTime, DbError> {
    let begun_at = sqlx::query_scalar!(
        "SELECT created_at FROM reconciliation_history
         WHERE reconciliation_id = $1 AND event IN ('BEGUN', 'BEGUN_AGAIN') ORDER BY seq DESC LIMIT 1",
        reconciliation_id,
    );
    Ok(begun_at.fetch_one(conn).await?)
}

/// How many statements of a day were refused since it was begun last.
pub(in crate::reconciliation) async fn count_refused(
    conn: &mut Conn,
    reconciliation_id: &str,
) -> Result<i64, DbError> {
    let count = sqlx::query_scalar!(
        r#"SELECT count(*) AS "count!" FROM reconciliation_history
           WHERE reconciliation_id = $1 AND event = 'STATEMENT_REFUSED'
             AND seq > (SELECT max(seq) FROM reconciliation_history
                        WHERE reconciliation_id = $1 AND event IN ('BEGUN', 'BEGUN_AGAIN'))"#,
        reconciliation_id,
    );
    Ok(count.fetch_one(conn).await?)
}

/// Locks a day with those beside it: of two whose comparisons begin at the same time one begins later, and sees the other.
async fn lock_beside(conn: &mut Conn, run: &Claimed) -> Result<(), DbError> {
    sqlx::query!(
        "SELECT day FROM reconciliations WHERE channel = $1 AND day BETWEEN $2::date - 1 AND $2::date + 1
         ORDER BY day FOR UPDATE",
        run.channel,
        run.day,
    )
    .fetch_all(conn)
    .await?;
    Ok(())
}

/// Lets a day go, to be taken again at `at`, after a try that counts or not. Gives how many do since it went on last, or
/// nothing when it is no longer the worker's.
pub(in crate::reconciliation) async fn rest(
    conn: &mut Conn,
    run: &Claimed,
    at: OffsetDateTime,
    counts: bool,
) -> Result<Option<i32>, DbError> {
    let attempts = sqlx::query_scalar!(
        "UPDATE reconciliations SET leased_until = $3, attempts = attempts + CASE WHEN $4 THEN 1 ELSE 0 END
         WHERE reconciliation_id = $1 AND version = $2 RETURNING attempts",
        run.reconciliation_id,
        run.version,
        at,
        counts,
    )
    .fetch_optional(conn)
    .await?;
    Ok(attempts)
}

/// When a channel's days are begun by themselves.
#[derive(Clone, Copy, Debug)]
pub(in crate::reconciliation) struct Daily<'a> {
    /// The time of day.
    pub(in crate::reconciliation) at: Time,
    /// Where it is that time.
    pub(in crate::reconciliation) time_zone: &'a str,
}

/// Which of the given days, each with its end, is a channel's to begin by now: the first `at` at or behind its end has come,
/// nobody ever began it, and it is not older than whatever was begun first, but for the last one. The database knows what
/// a zone means.
pub(in crate::reconciliation) async fn due_days(
    conn: &mut Conn,
    channel: &str,
    (days, ends): (&[Date], &[OffsetDateTime]),
    daily: Daily<'_>,
    now: OffsetDateTime,
) -> Result<Vec<Date>, DbError> {
    let due = sqlx::query_scalar!(
        r#"SELECT day AS "day!"
           FROM (SELECT day, ends_at AT TIME ZONE $4 AS ended_at
                 FROM (SELECT unnest($2::date[]) AS day, unnest($3::timestamptz[]) AS ends_at) AS past) AS past
           WHERE NOT EXISTS (SELECT 1 FROM reconciliations AS begun
                             WHERE begun.channel = $1 AND begun.day = past.day)
             AND day >= coalesce((SELECT min(begun.day) FROM reconciliations AS begun WHERE begun.channel = $1),
                                 (SELECT max(last) FROM unnest($2::date[]) AS last))
             AND (ended_at::date + $5::time
                  + CASE WHEN ended_at::time > $5::time THEN interval '1 day' ELSE interval '0' END)
                 AT TIME ZONE $4 <= $6
           ORDER BY day"#,
        channel,
        days,
        ends,
        daily.time_zone,
        daily.at,
        now,
    );
    Ok(due.fetch_all(conn).await?)
}

/// A page of days, newest first; or the one of that id.
pub(in crate::reconciliation) async fn list(
    conn: &mut Conn,
    reconciliation_id: Option<&str>,
    channel: Option<&str>,
    starting_after: Option<&str>,
    limit: i64,
) -> Result<Vec<Reconciliation>, DbError> {
    let rows = sqlx::query!(
        r#"SELECT reconciliation_id, channel, day, status AS "status: DayStatus", round, source AS "source: Source",
                  format AS "format: Format", file_sha256, lines, totals AS "totals: Json<Totals>", fault AS "fault: Fault", detail,
                  created_at, finished_at,
                  coalesce((SELECT jsonb_object_agg(word, count)
                            FROM (SELECT class || ' ' || item.status AS word, count(*) AS count
                                  FROM reconciliation_items AS item
                                  WHERE item.reconciliation_id = reconciliations.reconciliation_id
                                  GROUP BY word) AS counted), '{}') AS "differences!: Json<BTreeMap<String, i64>>"
           FROM reconciliations
           WHERE ($1::text IS NULL OR reconciliation_id = $1) AND ($2::text IS NULL OR channel = $2)
             AND ($3::text IS NULL OR reconciliation_id < $3)
           ORDER BY reconciliation_id DESC LIMIT $4"#,
        reconciliation_id,
        channel,
        starting_after,
        limit,
    )
    .fetch_all(conn)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| Reconciliation {
            reconciliation_id: row.reconciliation_id,
            channel: row.channel,
            day: row.day,
            status: row.status,
            round: row.round,
            source: row.source,
            format: row.format,
            file_sha256: row.file_sha256,
            lines: row.lines,
            totals: row.totals.0,
            fault: row.fault,
            detail: row.detail,
            created_at: row.created_at,
            finished_at: row.finished_at,
            differences: row.differences.0,
        })
        .collect())
}

/// How far the days of a channel have come.
#[derive(Debug)]
pub(in crate::reconciliation) struct Progress {
    pub(in crate::reconciliation) channel: String,
    /// The end of the last day that was compared to its end.
    pub(in crate::reconciliation) last_done: Option<OffsetDateTime>,
    /// Days that nobody began, of those between the first and the last one that somebody did.
    pub(in crate::reconciliation) left_out: i64,
}

/// How far each channel's days have come, and what they leave out since that day.
pub(in crate::reconciliation) async fn list_progress(
    conn: &mut Conn,
    since: Date,
) -> Result<Vec<Progress>, DbError> {
    let progress = sqlx::query_as!(
        Progress,
        r#"SELECT channel, max(ends_at) FILTER (WHERE status = 'DONE') AS last_done,
                  greatest(max(day) - greatest(min(day), $1) + 1 - count(*) FILTER (WHERE day >= $1), 0)::bigint AS "left_out!"
           FROM reconciliations GROUP BY channel"#,
        since,
    );
    Ok(progress.fetch_all(conn).await?)
}
