//! The rows of `compensations`: what features write of them. What workers do with them is in [`work`], what operators
//! do in [`operate`].

use time::OffsetDateTime;

use super::model::{Action, NewTask, TaskStatus};
use crate::infra::db::{Conn, DbError, Tx};

mod operate;
mod work;

pub(crate) use operate::{count, exists, list, revive, revive_many, set_paused, stand_of_lanes};
pub(super) use work::{Claimed, End, claim_due, finish, is_held, renew, replay_all, set_dead};
pub(crate) use work::{is_held_in_tx, is_leased_in_tx};

/// Writes a task, unless one for the same thing is alive already.
pub(crate) async fn append(conn: &mut Conn, task: &NewTask<'_>, now: OffsetDateTime) -> Result<(), DbError> {
    sqlx::query!(
        "INSERT INTO compensations
             (kind, action, subject, merchant_id, order_no, due_at, created_at, updated_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $7)
         ON CONFLICT (action, subject) WHERE status IN ('READY', 'RUNNING') DO NOTHING",
        task.action.kind().as_str(),
        task.action.as_str(),
        task.subject,
        task.merchant_id,
        task.order_no,
        task.due_at,
        now,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Writes a task, or takes the living one for the same thing from whoever is at it, to be begun afresh: what they come to is
/// older than what is asked for now.
pub(crate) async fn append_anew(tx: &mut Tx, task: &NewTask<'_>, now: OffsetDateTime) -> Result<(), DbError> {
    let conn: &mut Conn = tx;
    sqlx::query!(
        "INSERT INTO compensations
             (kind, action, subject, merchant_id, order_no, due_at, created_at, updated_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $7)
         ON CONFLICT (action, subject) WHERE status IN ('READY', 'RUNNING') DO UPDATE
         SET status = 'READY', claims = compensations.claims + 1, attempts = 0, last_error = NULL,
             due_at = excluded.due_at, lane = excluded.lane, updated_at = excluded.updated_at
         WHERE compensations.status = $8",
        task.action.kind().as_str(),
        task.action.as_str(),
        task.subject,
        task.merchant_id,
        task.order_no,
        task.due_at,
        now,
        TaskStatus::Running.as_str(),
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Ends the living task for a thing whose end came another way, also one that is being claimed in this moment. A guard that was
/// never needed leaves no row.
pub(crate) async fn finish_by_subject(
    conn: &mut Conn,
    action: Action,
    subject: &str,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    sqlx::query!(
        "WITH living AS MATERIALIZED (
             SELECT id, attempts FROM compensations
             WHERE action = $1 AND subject = $2 AND status NOT IN ('DONE', 'DEAD') FOR UPDATE
         ), unneeded AS (
             DELETE FROM compensations USING living WHERE compensations.id = living.id AND living.attempts = 0
         )
         UPDATE compensations SET status = 'DONE', updated_at = $3
         FROM living WHERE compensations.id = living.id AND living.attempts > 0",
        action.as_str(),
        subject,
        now,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Ends the tasks for a thing that were given up, because its end came all the same, or another task drives it on.
pub(crate) async fn finish_dead(
    tx: &mut Tx,
    action: Action,
    subject: &str,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    finish_dead_before(tx, action, subject, None, now).await
}

/// The same, or only of those before this one.
pub(super) async fn finish_dead_before(
    tx: &mut Tx,
    action: Action,
    subject: &str,
    before: Option<i64>,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    let conn: &mut Conn = tx;
    sqlx::query!(
        "UPDATE compensations SET status = 'DONE', updated_at = $4
         WHERE subject = $1 AND action = $2 AND status = 'DEAD' AND id < coalesce($3, 9223372036854775807)",
        subject,
        action.as_str(),
        before,
        now,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Whether [`take`] would succeed now.
pub(crate) async fn is_free(
    conn: &mut Conn,
    task: &NewTask<'_>,
    now: OffsetDateTime,
) -> Result<bool, DbError> {
    let is_free = sqlx::query_scalar!(
        r#"SELECT (SELECT due_at > $3 AND NOT (status = 'READY' AND last_error IS NOT NULL)
                   FROM compensations
                   WHERE action = $1 AND subject = $2 AND status NOT IN ('DONE', 'DEAD')
                   LIMIT 1) IS NOT TRUE AS "is_free!""#,
        task.action.as_str(),
        task.subject,
        now,
    );
    Ok(is_free.fetch_one(conn).await?)
}

/// Takes a thing for the caller until `task.due_at`, writing its task where there is none; `false` when somebody
/// else has it. A task that merely waits for its next try (it has a `last_error`) can be taken.
pub(crate) async fn take(conn: &mut Conn, task: &NewTask<'_>, now: OffsetDateTime) -> Result<bool, DbError> {
    let taken = sqlx::query!(
        "INSERT INTO compensations
             (kind, action, subject, merchant_id, order_no, due_at, created_at, updated_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $7)
         ON CONFLICT (action, subject) WHERE status IN ('READY', 'RUNNING') DO UPDATE
         -- What was tried follows its schedule, also where the caller fails.
         SET due_at = CASE WHEN compensations.attempts = 0 THEN excluded.due_at
                           ELSE greatest(compensations.due_at, excluded.due_at) END,
             last_error = NULL, updated_at = excluded.updated_at,
             -- A worker whose lease was over has it no more.
             status = 'READY', claims = compensations.claims + 1,
             -- Somebody waits for it now.
             lane = excluded.lane
         WHERE compensations.due_at <= excluded.updated_at
            OR (compensations.status = 'READY' AND compensations.last_error IS NOT NULL)",
        task.action.kind().as_str(),
        task.action.as_str(),
        task.subject,
        task.merchant_id,
        task.order_no,
        task.due_at,
        now,
    )
    .execute(conn)
    .await?;
    Ok(taken.rows_affected() == 1)
}

/// Lets the task for a thing be tried from `due_at` on, because the call that it guards has ended.
pub(crate) async fn make_due(
    conn: &mut Conn,
    action: Action,
    subject: &str,
    due_at: OffsetDateTime,
    error: &str,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    sqlx::query!(
        "UPDATE compensations
         -- A worker's own tries follow the schedule: requests that fail in between neither use them up nor put them off.
         SET due_at = CASE WHEN attempts = 0 THEN $3 ELSE greatest($3, due_at) END,
             last_error = $4, updated_at = $5, lane = 'REALTIME'
         WHERE action = $1 AND subject = $2 AND status NOT IN ('DONE', 'DEAD') AND status = $6",
        action.as_str(),
        subject,
        due_at,
        // The database takes no NUL in a text.
        error.replace('\0', ""),
        now,
        TaskStatus::Ready.as_str(),
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Forgets up to `limit` tasks that were written before `horizon` and are done.
pub(super) async fn delete_done_before(
    conn: &mut Conn,
    horizon: OffsetDateTime,
    limit: i64,
) -> Result<u64, DbError> {
    let deleted = sqlx::query!(
        "DELETE FROM compensations WHERE ctid = ANY(ARRAY(
             -- In the words of its index, which nothing else names.
             SELECT ctid FROM compensations WHERE created_at < $1 AND coalesce(status, 'age') = 'DONE'
             ORDER BY created_at LIMIT $2))
           AND status = 'DONE'",
        horizon,
        limit,
    )
    .execute(conn)
    .await?;
    Ok(deleted.rows_affected())
}

/// Those of these things of which no task is given up.
pub(super) async fn leave_given_up(tx: &mut Tx, subjects: &[String]) -> Result<Vec<String>, DbError> {
    let conn: &mut Conn = tx;
    let left = sqlx::query_scalar!(
        r#"SELECT thing AS "thing!" FROM unnest($1::text[]) AS thing
           WHERE (SELECT true FROM compensations WHERE subject = thing AND status = 'DEAD' LIMIT 1) IS NULL"#,
        subjects,
    );
    Ok(left.fetch_all(conn).await?)
}
