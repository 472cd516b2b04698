//! What workers do with tasks, each with one statement for a whole batch.

use serde_json::Value;
use time::OffsetDateTime;

use crate::compensation::model::{Action, Hold, Lane, Task, TaskStatus};
use crate::infra::db::{Conn, DbError, Tx};

/// A row in a worker's hands. Its action is a word and its payload a text: what this version does not know or cannot
/// read must not spoil a claim.
#[derive(Clone, Debug)]
pub(in crate::compensation) struct Claimed {
    pub(in crate::compensation) id: i64,
    pub(in crate::compensation) claim: i64,
    pub(in crate::compensation) action: String,
    pub(in crate::compensation) subject: String,
    pub(in crate::compensation) merchant_id: Option<String>,
    pub(in crate::compensation) order_no: Option<String>,
    pub(in crate::compensation) attempts: i32,
    pub(in crate::compensation) created_at: OffsetDateTime,
    pub(in crate::compensation) was_due_at: OffsetDateTime,
    pub(in crate::compensation) was_touched_at: OffsetDateTime,
    pub(in crate::compensation) payload: Option<String>,
}

impl Claimed {
    pub(in crate::compensation) const fn hold(&self) -> Hold {
        Hold { id: self.id, claim: self.claim }
    }

    /// The task, where its action is known here.
    pub(in crate::compensation) fn task(&self) -> Option<Task> {
        Some(Task {
            hold: self.hold(),
            action: Action::of(&self.action)?,
            subject: self.subject.clone(),
            merchant_id: self.merchant_id.clone(),
            order_no: self.order_no.clone(),
            attempts: self.attempts,
            created_at: self.created_at,
            touched_at: self.was_touched_at,
            payload: self.payload.clone(),
            is_fresh: false,
        })
    }
}

impl From<&Task> for Claimed {
    fn from(task: &Task) -> Self {
        Self {
            id: task.hold.id,
            claim: task.hold.claim,
            action: task.action.as_str().to_owned(),
            subject: task.subject.clone(),
            merchant_id: task.merchant_id.clone(),
            order_no: task.order_no.clone(),
            attempts: task.attempts,
            created_at: task.created_at,
            was_due_at: task.created_at,
            was_touched_at: task.touched_at,
            payload: task.payload.clone(),
        }
    }
}

/// Takes up to `limit` tasks of a lane that are due between these instants for a worker, those of dead workers included;
/// none while the lane is paused.
pub(in crate::compensation) async fn claim_due(
    conn: &mut Conn,
    lane: Lane,
    (from, now): (OffsetDateTime, OffsetDateTime),
    lease_until: OffsetDateTime,
    limit: i64,
) -> Result<Vec<Claimed>, DbError> {
    let tasks = sqlx::query_as!(
        Claimed,
        r#"WITH due AS MATERIALIZED (
               -- Once: a plan that joined a subquery anew for each row would take another batch each time.
               SELECT ctid AS place_of_row, due_at,
                      -- Whoever died with it may have made a call until their lease was over.
                      CASE status WHEN 'RUNNING' THEN due_at ELSE updated_at END AS touched_at
               FROM compensations
               WHERE lane = $3 AND status IN ('READY', 'RUNNING') AND due_at >= $5 AND due_at <= $1
                 AND NOT EXISTS (SELECT 1 FROM compensation_lanes AS resting
                                 WHERE resting.lane = $3 AND resting.paused_at IS NOT NULL)
               ORDER BY due_at
               LIMIT $4
               -- Any number of instances work side by side.
               FOR UPDATE SKIP LOCKED
           )
           UPDATE compensations AS task
           SET status = 'RUNNING', attempts = task.attempts + 1, claims = task.claims + 1, due_at = $2,
               last_error = NULL, updated_at = $1
           -- Locked, so they stay where they are; and no plan can walk to them.
           FROM due
           WHERE task.ctid = due.place_of_row
           RETURNING task.id, task.claims AS claim, task.action, task.subject, task.merchant_id, task.order_no,
                     task.attempts, task.created_at, due.due_at AS was_due_at,
                     due.touched_at AS "was_touched_at!",
                     -- As text: what cannot be read is the failure of its own task, and spoils no claim.
                     task.payload::text"#,
        now,
        lease_until,
        lane.as_str(),
        limit,
        from,
    )
    .fetch_all(conn)
    .await?;
    Ok(tasks)
}

/// Holds tasks for longer: the leases of a worker that lives. Gives those that it has lost: they have come to their end
/// another way, or were taken over because the worker looked dead.
///
/// Waits for no row: one that is locked just now has its turn with the next renewal, and all the others have theirs.
pub(in crate::compensation) async fn renew(
    conn: &mut Conn,
    held: &[Hold],
    lease_until: OffsetDateTime,
    now: OffsetDateTime,
) -> Result<Vec<Hold>, DbError> {
    let (ids, claims): (Vec<i64>, Vec<i64>) = held.iter().map(|hold| (hold.id, hold.claim)).unzip();
    let lost = sqlx::query_as!(
        Hold,
        r#"WITH held AS MATERIALIZED (
             SELECT held.id, held.claim, task.id IS NOT NULL AS is_ours
             FROM (SELECT unnest($1::bigint[]) AS id, unnest($2::bigint[]) AS claim) AS held
             -- A parameter, because the word would let the plan walk the index of all living tasks.
             LEFT JOIN compensations AS task
               ON task.id = held.id AND task.claims = held.claim AND task.status = $5 AND task.due_at > $4
           ), free AS MATERIALIZED (
             SELECT task.id FROM held JOIN compensations AS task ON task.id = held.id
             WHERE task.claims = held.claim AND task.status = $5 AND task.due_at > $4
             FOR NO KEY UPDATE OF task SKIP LOCKED
           ), renewed AS (
             UPDATE compensations AS task SET due_at = $3, updated_at = $4 FROM free WHERE task.id = free.id
           )
           SELECT id AS "id!", claim AS "claim!" FROM held WHERE NOT is_ours"#,
        &ids,
        &claims,
        lease_until,
        now,
        TaskStatus::Running.as_str(),
    )
    .fetch_all(conn)
    .await?;
    Ok(lost)
}

/// Whether a worker still has a task, and nobody may take it from it now. Here and below the state is a parameter, because the
/// word would let the plan walk all that is open.
pub(in crate::compensation) async fn is_held(
    conn: &mut Conn,
    hold: Hold,
    now: OffsetDateTime,
) -> Result<bool, DbError> {
    let held = sqlx::query!(
        "SELECT 1 AS one FROM compensations WHERE id = $1 AND claims = $2 AND status = $4 AND due_at > $3",
        hold.id,
        hold.claim,
        now,
        TaskStatus::Running.as_str(),
    )
    .fetch_optional(conn)
    .await?;
    Ok(held.is_some())
}

/// Whether a worker still has a task; then nobody else takes it before the transaction ends.
pub(crate) async fn is_held_in_tx(tx: &mut Tx, hold: Hold) -> Result<bool, DbError> {
    let conn: &mut Conn = tx;
    let held = sqlx::query!(
        "SELECT 1 AS one FROM compensations WHERE id = $1 AND claims = $2 AND status = $3 FOR UPDATE",
        hold.id,
        hold.claim,
        TaskStatus::Running.as_str(),
    )
    .fetch_optional(conn)
    .await?;
    Ok(held.is_some())
}

/// The same, where its lease is not over either: who overslept it asks for nothing, although nobody has taken it over yet.
pub(crate) async fn is_leased_in_tx(tx: &mut Tx, hold: Hold, now: OffsetDateTime) -> Result<bool, DbError> {
    let conn: &mut Conn = tx;
    let leased = sqlx::query!(
        "SELECT 1 AS one FROM compensations
         WHERE id = $1 AND claims = $2 AND status = $4 AND due_at > $3 FOR UPDATE",
        hold.id,
        hold.claim,
        now,
        TaskStatus::Running.as_str(),
    )
    .fetch_optional(conn)
    .await?;
    Ok(leased.is_some())
}

/// How a try ended that gave nothing up: the task is done, or waits for its next try.
#[derive(Clone, Debug)]
pub(in crate::compensation) struct End {
    pub(in crate::compensation) hold: Hold,
    /// When, why, and where another lane takes it; nothing for a task that is done.
    pub(in crate::compensation) again: Option<(OffsetDateTime, String, Option<Lane>)>,
    /// The claim counts as no try, and its task as untouched since then.
    pub(in crate::compensation) untried_since: Option<OffsetDateTime>,
}

/// Writes down how tries ended, in the order of the tasks.
pub(in crate::compensation) async fn finish(
    conn: &mut Conn,
    ends: &[End],
    now: OffsetDateTime,
) -> Result<(), DbError> {
    let column = |of: fn(&End) -> Option<String>| ends.iter().map(of).collect::<Vec<_>>();
    let errors = column(|end| end.again.as_ref().map(|(_, error, _)| error.clone()));
    let lanes = column(|end| end.again.as_ref()?.2.map(|lane| lane.as_str().to_owned()));
    let due_at: Vec<_> = ends.iter().map(|end| end.again.as_ref().map(|(due_at, _, _)| *due_at)).collect();
    // Guarded by the claim: a worker that overslept its lease must not end the run of its successor. A row that is
    // not met also means that the thing came to its end another way meanwhile, which is as good.
    sqlx::query!(
        "UPDATE compensations AS task
         SET status = CASE WHEN tried.due_at IS NULL THEN 'DONE' ELSE 'READY' END,
             due_at = coalesce(tried.due_at, task.due_at), last_error = tried.error,
             attempts = task.attempts - (tried.untried_since IS NOT NULL)::integer,
             lane = coalesce(tried.lane, task.lane), updated_at = coalesce(tried.untried_since, $6)
         FROM (SELECT unnest($1::bigint[]) AS id, unnest($2::bigint[]) AS claim, unnest($3::timestamptz[]) AS due_at,
                      unnest($4::text[]) AS error, unnest($5::text[]) AS lane,
                      unnest($8::timestamptz[]) AS untried_since) AS tried
         -- A parameter: see above.
         WHERE task.id = tried.id AND task.claims = tried.claim AND task.status = $7",
        &ends.iter().map(|end| end.hold.id).collect::<Vec<_>>(),
        &ends.iter().map(|end| end.hold.claim).collect::<Vec<_>>(),
        &due_at as &[Option<OffsetDateTime>],
        &errors as &[Option<String>],
        &lanes as &[Option<String>],
        now,
        TaskStatus::Running.as_str(),
        &ends.iter().map(|end| end.untried_since).collect::<Vec<_>>() as &[Option<OffsetDateTime>],
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Gives a task up; the caller opens the exception in the same transaction. `false` when it came to its end another way
/// meanwhile, or somebody else has it.
pub(in crate::compensation) async fn set_dead(
    tx: &mut Tx,
    row: &Claimed,
    error: &str,
    now: OffsetDateTime,
) -> Result<bool, DbError> {
    let conn: &mut Conn = tx;
    let died = sqlx::query!(
        "UPDATE compensations SET status = 'DEAD', last_error = $3, updated_at = $4
         WHERE id = $1 AND claims = $2 AND status = $5",
        row.id,
        row.claim,
        error,
        now,
        TaskStatus::Running.as_str(),
    )
    .execute(conn)
    .await?;
    Ok(died.rows_affected() == 1)
}

/// Writes the tasks that apply spilled updates, each with whose thing it is about. One that is written already, because another
/// instance drains too, stays as it is.
pub(in crate::compensation) async fn replay_all(
    conn: &mut Conn,
    updates: &[(String, Value)],
    now: OffsetDateTime,
) -> Result<(), DbError> {
    let (subjects, payloads): (Vec<String>, Vec<Value>) = updates.iter().cloned().unzip();
    sqlx::query!(
        "INSERT INTO compensations
             (kind, action, subject, merchant_id, order_no, payload, due_at, created_at, updated_at)
         SELECT $3, $4, subject,
                coalesce((SELECT merchant_id FROM pay_orders WHERE pay_order_id = payload->>'pay_order_id'),
                         (SELECT merchant_id FROM refunds WHERE refund_id = payload->>'refund_id'),
                         (SELECT merchant_id FROM withdrawals WHERE withdrawal_id = payload->>'withdrawal_id')),
                coalesce((SELECT order_no FROM pay_orders WHERE pay_order_id = payload->>'pay_order_id'),
                         (SELECT order_no FROM refunds WHERE refund_id = payload->>'refund_id')),
                payload, $5, $5, $5
         FROM (SELECT unnest($1::text[]) AS subject, unnest($2::jsonb[]) AS payload) AS spilled
         ON CONFLICT (action, subject) WHERE status IN ('READY', 'RUNNING') DO NOTHING",
        &subjects,
        &payloads,
        Action::ApplyUpdate.kind().as_str(),
        Action::ApplyUpdate.as_str(),
        now,
    )
    .execute(conn)
    .await?;
    Ok(())
}
