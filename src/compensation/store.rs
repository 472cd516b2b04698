//! The rows of `compensations`.

use sqlx::{Postgres, QueryBuilder};
use time::OffsetDateTime;

use super::model::{Action, NewTask, Task, TaskKind, TaskStatus, TaskView};
use crate::infra::db::{Conn, DbError, expect_one_row};

/// Writes a task, unless one for the same thing is alive already.
pub(crate) async fn append(conn: &mut Conn, task: &NewTask<'_>, now: OffsetDateTime) -> Result<(), DbError> {
    sqlx::query!(
        "INSERT INTO compensations
             (kind, action, subject, merchant_id, order_no, due_at, created_at, updated_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $7)
         ON CONFLICT (action, subject) WHERE status IN ('READY', 'RUNNING') DO NOTHING",
        TaskKind::RedoBusiness.as_str(),
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

/// Ends the living task for a thing whose end came another way. A guard that was never needed leaves no row.
pub(crate) async fn finish_by_subject(
    conn: &mut Conn,
    action: Action,
    subject: &str,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    sqlx::query!(
        "WITH unneeded AS (
             DELETE FROM compensations
             WHERE action = $1 AND subject = $2 AND status NOT IN ('DONE', 'DEAD') AND attempts = 0
         )
         UPDATE compensations SET status = 'DONE', updated_at = $3
         WHERE action = $1 AND subject = $2 AND status NOT IN ('DONE', 'DEAD') AND attempts > 0",
        action.as_str(),
        subject,
        now,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Takes a thing for the caller until `task.due_at`, writing its task where there is none; `false` when somebody
/// else has it. A task that merely waits for its next try (it has a `last_error`) can be taken.
pub(crate) async fn take(conn: &mut Conn, task: &NewTask<'_>, now: OffsetDateTime) -> Result<bool, DbError> {
    let taken = sqlx::query!(
        "INSERT INTO compensations
             (kind, action, subject, merchant_id, order_no, due_at, created_at, updated_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $7)
         ON CONFLICT (action, subject) WHERE status IN ('READY', 'RUNNING') DO UPDATE
         SET due_at = excluded.due_at, last_error = NULL, updated_at = excluded.updated_at
         WHERE compensations.due_at <= excluded.updated_at
            OR (compensations.status = 'READY' AND compensations.last_error IS NOT NULL)",
        TaskKind::RedoBusiness.as_str(),
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
         -- A worker's own tries follow the schedule; requests that fail in between must not use them up.
         SET due_at = CASE WHEN attempts = 0 THEN $3 ELSE greatest($3, updated_at + interval '1 minute') END,
             last_error = $4, updated_at = $5
         WHERE action = $1 AND subject = $2 AND status NOT IN ('DONE', 'DEAD') AND status = $6",
        action.as_str(),
        subject,
        due_at,
        error,
        now,
        TaskStatus::Ready.as_str(),
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Takes up to `limit` due tasks for a worker, those of dead workers included.
pub(super) async fn claim_due(
    conn: &mut Conn,
    now: OffsetDateTime,
    lease_until: OffsetDateTime,
    limit: i64,
) -> Result<Vec<Task>, DbError> {
    let tasks = sqlx::query_as!(
        Task,
        r#"UPDATE compensations AS task
           SET status = 'RUNNING', attempts = task.attempts + 1, due_at = $2, last_error = NULL, updated_at = $1
           FROM (
               SELECT id FROM compensations
               WHERE status IN ('READY', 'RUNNING') AND due_at <= $1
               ORDER BY due_at
               LIMIT $3
               -- Any number of instances work side by side.
               FOR UPDATE SKIP LOCKED
           ) AS due
           WHERE task.id = due.id
           RETURNING task.id, task.action AS "action: Action", task.subject, task.merchant_id, task.order_no,
                     task.attempts, task.created_at"#,
        now,
        lease_until,
        limit,
    )
    .fetch_all(conn)
    .await?;
    Ok(tasks)
}

/// Ends a task.
pub(super) async fn set_done(conn: &mut Conn, task: &Task, now: OffsetDateTime) -> Result<(), DbError> {
    // Guarded by the attempt: a worker that overslept its lease must not end the run of its successor. Zero rows
    // also means that the thing came to its end another way meanwhile, which is as good.
    sqlx::query!(
        "UPDATE compensations SET status = 'DONE', updated_at = $3
         WHERE id = $1 AND attempts = $2 AND status = 'RUNNING'",
        task.id,
        task.attempts,
        now,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Puts a task back until `due_at`.
pub(super) async fn set_ready(
    conn: &mut Conn,
    task: &Task,
    due_at: OffsetDateTime,
    error: &str,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    sqlx::query!(
        "UPDATE compensations SET status = 'READY', due_at = $3, last_error = $4, updated_at = $5
         WHERE id = $1 AND attempts = $2 AND status = 'RUNNING'",
        task.id,
        task.attempts,
        due_at,
        error,
        now,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Gives a task up; the caller opens the exception in the same transaction.
pub(super) async fn set_dead(
    conn: &mut Conn,
    task: &Task,
    error: &str,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    expect_one_row(
        &sqlx::query!(
            "UPDATE compensations SET status = 'DEAD', last_error = $3, updated_at = $4
             WHERE id = $1 AND attempts = $2 AND status = 'RUNNING'",
            task.id,
            task.attempts,
            error,
            now,
        )
        .execute(conn)
        .await?,
    )
}

/// Makes a waiting task due at once, and a dead one alive with all its tries; nothing for one that is under way or
/// done. The index of living tasks refuses a second one for the same thing.
pub(crate) async fn revive(
    conn: &mut Conn,
    id: i64,
    now: OffsetDateTime,
) -> Result<Option<TaskView>, DbError> {
    let task = sqlx::query_as!(
        TaskView,
        r#"UPDATE compensations
           SET status = 'READY', attempts = CASE status WHEN 'DEAD' THEN 0 ELSE attempts END, due_at = $2,
               updated_at = $2
           WHERE id = $1 AND status IN ('READY', 'DEAD')
           RETURNING id AS task_id, kind AS "kind: TaskKind", action AS "action: Action", subject, merchant_id,
                     order_no, status AS "status: TaskStatus", attempts, due_at, last_error, created_at"#,
        id,
        now,
    )
    .fetch_optional(conn)
    .await?;
    Ok(task)
}

/// Whether there is such a task.
pub(crate) async fn exists(conn: &mut Conn, id: i64) -> Result<bool, DbError> {
    let found = sqlx::query_scalar!("SELECT 1 AS one FROM compensations WHERE id = $1", id)
        .fetch_optional(conn)
        .await?;
    Ok(found.is_some())
}

/// Forgets up to `limit` tasks that were written before `horizon` and are done.
pub(super) async fn delete_done_before(
    conn: &mut Conn,
    horizon: OffsetDateTime,
    limit: i64,
) -> Result<u64, DbError> {
    let deleted = sqlx::query!(
        "DELETE FROM compensations WHERE ctid IN (
             SELECT ctid FROM compensations WHERE created_at < $1 AND status = 'DONE' LIMIT $2)
           AND status = 'DONE'",
        horizon,
        limit,
    )
    .execute(conn)
    .await?;
    Ok(deleted.rows_affected())
}

/// A page of tasks, newest first: those before `before`. Put together from what is asked for, so that the living and
/// the dead are found by their own small indexes.
pub(crate) async fn list(
    conn: &mut Conn,
    status: Option<TaskStatus>,
    before: Option<i64>,
    limit: i64,
) -> Result<Vec<TaskView>, DbError> {
    let mut query = QueryBuilder::<Postgres>::new(
        "SELECT id AS task_id, kind, action, subject, merchant_id, order_no, status, attempts, due_at, last_error,
                created_at
         FROM compensations WHERE true",
    );
    match status {
        // A word of ours and no text from outside; the plan must see it to take the index.
        Some(status) => query.push(format_args!(" AND status = '{status}'")),
        None => &mut query,
    };
    if let Some(before) = before {
        query.push(" AND id < ").push_bind(before);
    }
    query.push(" ORDER BY id DESC LIMIT ").push_bind(limit);
    Ok(query.build_query_as::<TaskView>().fetch_all(conn).await?)
}
