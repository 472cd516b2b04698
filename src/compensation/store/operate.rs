//! What operators see and do. Put together from what is asked for, so that the living and the dead are found by their
//! own small indexes.

use sqlx::{Postgres, QueryBuilder};
use time::OffsetDateTime;

use crate::compensation::lanes::LaneStand;
use crate::compensation::model::{Lane, TaskFilter, TaskStatus, TaskView};
use crate::infra::db::{Conn, DbError, Tx, expect_one_row};

/// A page of tasks, newest first: those before `before`.
pub(crate) async fn list(
    conn: &mut Conn,
    filter: &TaskFilter<'_>,
    before: Option<i64>,
    limit: i64,
) -> Result<Vec<TaskView>, DbError> {
    let mut query = QueryBuilder::<Postgres>::new("");
    push_source(&mut query, filter);
    query.push(
        "SELECT id AS task_id, kind, action, subject, merchant_id, order_no, lane, status, attempts, due_at,
                last_error, created_at
         FROM task WHERE true",
    );
    push_filter(&mut query, filter);
    if let Some(before) = before {
        query.push(" AND id < ").push_bind(before);
    }
    query.push(" ORDER BY id DESC LIMIT ").push_bind(limit);
    Ok(query.build_query_as::<TaskView>().fetch_all(conn).await?)
}

/// Where the tasks of a filter are looked for. Those of one thing or one order, or alive, are few and are all fetched, so that no
/// plan goes through the tasks of others, newest first, until it has enough.
fn push_source(query: &mut QueryBuilder<Postgres>, filter: &TaskFilter<'_>) {
    match (filter.subject, filter.order_no) {
        (Some(subject), _) => {
            query.push("WITH task AS MATERIALIZED (SELECT * FROM compensations WHERE ");
            // Each in the words of its own index.
            let arms = ["status NOT IN ('DONE', 'DEAD')", "status = 'DEAD'", "coalesce(status, '') = 'DONE'"];
            for (place, arm) in arms.into_iter().enumerate() {
                query.push(if place == 0 { "" } else { " OR " });
                query.push("subject = ").push_bind(subject.to_owned()).push(" AND ").push(arm);
            }
            query.push(") ");
        }
        (None, Some(order_no)) => {
            query.push("WITH task AS MATERIALIZED (SELECT * FROM compensations WHERE ");
            push_order(query, filter.merchant_id, order_no);
            query.push(
                " AND (attempts > 0 OR action <> 'DRIVE_PAY_ORDER')
                  UNION ALL
                  -- Guards that were not tried yet are found by their attempts only.
                  SELECT guard.*
                  FROM (SELECT pay_order_id FROM pay_orders WHERE ",
            );
            push_order(query, filter.merchant_id, order_no);
            query.push(
                ") AS attempt,
                       LATERAL (SELECT * FROM compensations
                                WHERE subject = attempt.pay_order_id AND action = 'DRIVE_PAY_ORDER'
                                  AND status NOT IN ('DONE', 'DEAD') AND attempts = 0
                                LIMIT 1) AS guard) ",
            );
        }
        (None, None) if filter.status.is_some_and(|status| TaskStatus::ALIVE.contains(&status)) => {
            query.push(
                "WITH task AS MATERIALIZED (SELECT * FROM compensations WHERE status IN ('READY', 'RUNNING')) ",
            );
        }
        (None, None) => {
            query.push("WITH task AS NOT MATERIALIZED (SELECT * FROM compensations) ");
        }
    }
}

/// That something is of an order of this merchant, or of any.
fn push_order(query: &mut QueryBuilder<Postgres>, merchant_id: Option<&str>, order_no: &str) {
    match merchant_id {
        Some(merchant_id) => query.push("merchant_id = ").push_bind(merchant_id.to_owned()),
        None => query.push("merchant_id = ANY(ARRAY(SELECT merchant_id FROM merchants))"),
    };
    query.push(" AND order_no = ").push_bind(order_no.to_owned());
}

fn push_filter(query: &mut QueryBuilder<Postgres>, filter: &TaskFilter<'_>) {
    if let Some(status) = filter.status {
        // A word of ours and no text from outside; the plan must see it to take the index.
        let column = if status == TaskStatus::Dead { "coalesce(status, 'id')" } else { "status" };
        query.push(format_args!(" AND {column} = '{status}'"));
    }
    if let Some(lane) = filter.lane {
        query.push(format_args!(" AND lane = '{lane}'"));
    }
    if let Some(kind) = filter.kind {
        query.push(" AND kind = ").push_bind(kind.as_str());
    }
    if let Some(action) = filter.action {
        query.push(" AND action = ").push_bind(action.as_str());
    }
    let texts = [
        (" AND merchant_id = ", filter.merchant_id),
        (" AND order_no = ", filter.order_no),
        (" AND subject = ", filter.subject),
    ];
    for (condition, text) in texts {
        if let Some(text) = text {
            query.push(condition).push_bind(text.to_owned());
        }
    }
    if let Some(before) = filter.created_before {
        query.push(" AND created_at < ").push_bind(before);
    }
}

/// That a task has failed and waits: it says why, or was taken over from its tries by somebody who is dead by now. What waits
/// without a failure guards a call that may be under way, or is due by itself.
fn push_failed(query: &mut QueryBuilder<Postgres>, now: OffsetDateTime) {
    query.push("status = 'READY' AND (last_error IS NOT NULL OR attempts > 0 AND updated_at < ");
    query.push_bind(now).push("::timestamptz - interval '1 min')");
}

/// Those of a filter that can be tried again: they failed and wait, or were given up last of all that drove the same
/// thing. Those of one thing or one order are found by it; others by the indexes of the living and of the dead, past any number
/// of tasks that are done.
fn push_retryable(
    query: &mut QueryBuilder<Postgres>,
    filter: &TaskFilter<'_>,
    after: i64,
    now: OffsetDateTime,
) {
    if filter.subject.is_some() || filter.order_no.is_some() {
        push_source(query, filter);
        query.push("SELECT id FROM task WHERE (status = 'DEAD' OR ");
        push_failed(query, now);
        query.push(")");
    } else {
        // Those that are due already are tried anyhow, and whoever goes on with the same call has had them.
        query
            .push("SELECT id FROM (SELECT * FROM compensations WHERE due_at > ")
            .push_bind(now)
            .push(" AND ");
        push_failed(query, now);
        query.push(
            " UNION ALL
              SELECT * FROM compensations WHERE coalesce(status, 'id') = 'DEAD') AS task
             WHERE true",
        );
    }
    query.push(
        "  AND NOT EXISTS (SELECT 1 FROM compensations AS living
                           WHERE living.subject = task.subject AND living.action = task.action
                             AND living.status NOT IN ('DONE', 'DEAD') AND living.id <> task.id)
           AND NOT EXISTS (SELECT 1 FROM compensations AS later
                           WHERE later.subject = task.subject AND later.action = task.action
                             AND later.status = 'DEAD' AND later.id > task.id)
           AND id > ",
    );
    query.push_bind(after);
    push_filter(query, filter);
}

/// How many tasks of a filter can be tried again; counting stops at `most`.
pub(crate) async fn count(
    conn: &mut Conn,
    filter: &TaskFilter<'_>,
    most: i64,
    now: OffsetDateTime,
) -> Result<i64, DbError> {
    let mut query = QueryBuilder::<Postgres>::new("SELECT count(*) FROM (");
    push_retryable(&mut query, filter, 0, now);
    query.push(" LIMIT ").push_bind(most).push(") AS retryable");
    Ok(query.build_query_scalar::<i64>().fetch_one(conn).await?)
}

/// Makes up to `limit` waiting and dead tasks of a filter due at once, those behind `after` in the order of their
/// numbers: the dead in that lane, and the waiting too when it is that of what somebody waits for. Gives their numbers,
/// with the subjects of those that no worker took meanwhile.
pub(crate) async fn revive_many(
    tx: &mut Tx,
    filter: &TaskFilter<'_>,
    lane: Lane,
    after: i64,
    limit: i64,
    now: OffsetDateTime,
) -> Result<Vec<(i64, Option<String>)>, DbError> {
    let conn: &mut Conn = tx;
    let mut query = QueryBuilder::<Postgres>::new("WITH chosen AS MATERIALIZED (");
    push_retryable(&mut query, filter, after, now);
    query.push(" ORDER BY id LIMIT ").push_bind(limit);
    query.push(
        "), again AS (
           UPDATE compensations AS revived
           SET status = 'READY', attempts = CASE revived.status WHEN 'DEAD' THEN 0 ELSE revived.attempts END,
               lane = CASE WHEN revived.status = 'DEAD' OR ",
    );
    query.push_bind(lane == Lane::Realtime).push(" THEN ").push_bind(lane.as_str());
    query.push(" ELSE revived.lane END, due_at = ").push_bind(now);
    // One that a worker took meanwhile stays in its hands.
    query.push(" FROM chosen WHERE revived.id = chosen.id AND (revived.status = 'DEAD' OR ");
    push_failed(&mut query, now);
    query.push(
        ") RETURNING revived.id, revived.subject
         )
         SELECT chosen.id, again.subject FROM chosen LEFT JOIN again ON again.id = chosen.id",
    );
    Ok(query.build_query_as::<(i64, Option<String>)>().fetch_all(conn).await?)
}

/// Makes a waiting task due at once, and a dead one alive with all its tries, because somebody waits; nothing for one that is
/// under way or done, or guards a call that may be under way: that has not failed, nor been taken over from its tries by somebody
/// who is dead by now. It counts as touched by its last try, and not by this. The index of living tasks refuses a second one
/// for the same thing.
pub(crate) async fn revive(
    conn: &mut Conn,
    id: i64,
    now: OffsetDateTime,
) -> Result<Option<TaskView>, DbError> {
    // Put together like the others, so that what has failed is said once.
    let mut query = QueryBuilder::<Postgres>::new(
        "UPDATE compensations
         SET status = 'READY', attempts = CASE status WHEN 'DEAD' THEN 0 ELSE attempts END, lane = 'REALTIME', due_at = ",
    );
    query.push_bind(now).push(" WHERE id = ").push_bind(id).push(" AND (status = 'DEAD' OR ");
    push_failed(&mut query, now);
    query.push(
        ") RETURNING id AS task_id, kind, action, subject, merchant_id, order_no, lane, status, attempts, due_at,
                     last_error, created_at",
    );
    Ok(query.build_query_as::<TaskView>().fetch_optional(conn).await?)
}

/// Whether there is such a task.
pub(crate) async fn exists(conn: &mut Conn, id: i64) -> Result<bool, DbError> {
    let found = sqlx::query_scalar!("SELECT 1 AS one FROM compensations WHERE id = $1", id)
        .fetch_optional(conn)
        .await?;
    Ok(found.is_some())
}

/// What waits in each lane; counting stops at 100,000.
pub(crate) async fn stand_of_lanes(conn: &mut Conn, now: OffsetDateTime) -> Result<Vec<LaneStand>, DbError> {
    let stands = sqlx::query_as!(
        LaneStand,
        r#"SELECT lanes.lane AS "lane: Lane", paused_at, paused_by, reason,
                  (SELECT count(*) FROM (SELECT 1 FROM compensations AS task
                                         WHERE task.lane = lanes.lane AND task.status IN ('READY', 'RUNNING')
                                         LIMIT 100000) AS living) AS "living!",
                  (SELECT count(*) FROM (SELECT 1 FROM compensations AS task
                                         WHERE task.lane = lanes.lane AND task.status IN ('READY', 'RUNNING')
                                           AND task.due_at <= $1
                                         LIMIT 100000) AS late) AS "due!",
                  (SELECT min(task.due_at) FROM compensations AS task
                   WHERE task.lane = lanes.lane AND task.status IN ('READY', 'RUNNING') AND task.due_at <= $1)
                      AS oldest_due_at
           FROM compensation_lanes AS lanes ORDER BY lanes.lane"#,
        now,
    );
    Ok(stands.fetch_all(conn).await?)
}

/// Pauses a lane, or lets it go on (`by` and why left out). Again changes nothing but who and why.
pub(crate) async fn set_paused(
    tx: &mut Tx,
    lane: Lane,
    by: Option<(&str, &str)>,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    let conn: &mut Conn = tx;
    expect_one_row(
        &sqlx::query!(
            "UPDATE compensation_lanes
             SET paused_at = CASE WHEN $2::text IS NULL THEN NULL ELSE coalesce(paused_at, $4) END,
                 paused_by = $2, reason = $3
             WHERE lane = $1",
            lane.as_str(),
            by.map(|(actor, _)| actor),
            by.map(|(_, reason)| reason),
            now,
        )
        .execute(conn)
        .await?,
    )
}
