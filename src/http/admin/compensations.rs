//! Compensation tasks: looked at, tried again, one or many.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::ToSchema;

use super::super::Edge;
use super::super::auth::{Operator, Viewer};
use super::super::error::Problem;
use super::super::extract::{self, Params, PathId};
use super::super::moment;
use super::super::views::{Page, PageParams};
use super::orders::{WhoseParams, key_of};
use super::{Reason, entry};
use crate::compensation::{self, Action, Lane, TaskFilter, TaskKind, TaskStatus, TaskView};
use crate::ids::OrderNo;
use crate::operations::{self, OrderCompensated, RetriedMany, RetryError, Swept};

/// Which tasks.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct TaskParams {
    /// In one state.
    status: Option<TaskStatus>,
    /// Of one kind.
    kind: Option<TaskKind>,
    /// Of one action.
    action: Option<Action>,
    /// Of one lane.
    lane: Option<Lane>,
    /// Of one merchant.
    merchant_id: Option<String>,
    /// Of one order number.
    order_no: Option<String>,
    /// Of one thing.
    subject: Option<String>,
    /// Entries at most, 1 to 100; 20 by default.
    #[param(minimum = 1, maximum = 100)]
    limit: Option<u8>,
    /// The last entry of the page before.
    starting_after: Option<i64>,
}

/// A page of compensation tasks, newest first.
#[utoipa::path(get, path = "/admin/compensations", tag = "admin", params(TaskParams),
    security(("admin_token" = [])),
    responses(
        (status = 200, body = Page<TaskView>),
        (status = 422, body = Problem, description = "`VALIDATION_FAILED`"),
    ))]
pub(in crate::http) async fn list(
    State(edge): State<Edge>,
    _viewer: Viewer,
    Params(params): Params<TaskParams>,
) -> Result<Json<Page<TaskView>>, Problem> {
    let limit = PageParams { limit: params.limit, starting_after: None }.limit()?;
    let rows = i64::try_from(limit + 1).unwrap_or(i64::MAX);
    let filter = TaskFilter {
        status: params.status,
        kind: params.kind,
        action: params.action,
        lane: params.lane,
        merchant_id: params.merchant_id.as_deref(),
        order_no: params.order_no.as_deref(),
        subject: params.subject.as_deref(),
        created_before: None,
    };
    let mut conn = edge.app.db.conn().await?;
    let rows = compensation::list(&mut conn, &filter, params.starting_after, rows).await?;
    Ok(Json(Page::of(rows, limit, |row| row)))
}

/// Why a task is tried again.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct RetryBody {
    /// Why.
    reason: Reason,
}

impl From<RetryError> for Problem {
    fn from(error: RetryError) -> Self {
        match error {
            RetryError::NotFound => Self::not_found(),
            RetryError::NotRetryable => {
                let detail = "it is under way or done, guards a call that may be under way, or a living task drives the \
                              same thing; nothing was changed";
                Self::new(StatusCode::CONFLICT, "TASK_NOT_RETRYABLE", detail)
            }
            RetryError::Db(error) => Self::from(error),
        }
    }
}

/// Makes a task due at once, with all its tries again when it was given up; the exception that said so is resolved.
#[utoipa::path(post, path = "/admin/compensations/{task_id}/retry", tag = "admin",
    request_body(content = RetryBody, example = json!({"reason": "the channel is well again"})),
    params(("task_id" = i64, Path, description = "The task's number", example = 42)),
    security(("admin_token" = [])),
    responses(
        (status = 200, body = TaskView, description = "It is `READY`, and due"),
        (status = 404, body = Problem, description = "`NOT_FOUND`"),
        (status = 409, body = Problem, description = "`TASK_NOT_RETRYABLE`"),
        (status = 422, body = Problem, description = "`VALIDATION_FAILED`; a reason is required"),
    ))]
pub(in crate::http) async fn retry(
    State(edge): State<Edge>,
    Operator(admin): Operator,
    PathId(task_id): PathId<i64>,
    extract::Json(body): extract::Json<RetryBody>,
) -> Result<Json<TaskView>, Problem> {
    let entry = entry(admin, "compensations.retry", task_id.to_string(), Some(body.reason));
    let task = edge.owned(|app| async move { operations::retry_task(&app, task_id, &entry).await }).await?;
    Ok(Json(task))
}

/// Which tasks are tried again; what is left out means any. Tasks under way and those that are done stay as they are.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct RetryManyBody {
    /// In one state: `READY` or `DEAD`.
    status: Option<TaskStatus>,
    /// Of one kind.
    kind: Option<TaskKind>,
    /// Of one action.
    action: Option<Action>,
    /// Of one lane.
    lane: Option<Lane>,
    /// Of one merchant.
    #[schema(example = "demo")]
    merchant_id: Option<String>,
    /// Of one order number.
    #[schema(example = "A-1")]
    order_no: Option<String>,
    /// Of one thing.
    #[schema(example = "rf_06GZV8Y0000000000000000000")]
    subject: Option<String>,
    /// Written before then.
    #[serde(default, deserialize_with = "moment::deserialize_any")]
    created_before: Option<OffsetDateTime>,
    /// Says how many there are, and does nothing.
    #[serde(default)]
    dry_run: bool,
    /// Why; required unless it is a dry run.
    reason: Option<Reason>,
}

/// What it came to.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::http) struct RetriedManyView {
    /// Whether nothing was done.
    dry_run: bool,
    #[serde(flatten)]
    retried: RetriedMany,
}

impl RetryManyBody {
    fn filter(&self) -> TaskFilter<'_> {
        TaskFilter {
            status: self.status,
            kind: self.kind,
            action: self.action,
            lane: self.lane,
            merchant_id: self.merchant_id.as_deref(),
            order_no: self.order_no.as_deref(),
            subject: self.subject.as_deref(),
            created_before: self.created_before,
        }
    }

    /// What the log says of it.
    fn in_words(&self) -> String {
        let before = self.created_before.map(|before| before.to_string());
        let words = [
            ("status", self.status.map(TaskStatus::as_str)),
            ("kind", self.kind.map(TaskKind::as_str)),
            ("action", self.action.map(Action::as_str)),
            ("lane", self.lane.map(Lane::as_str)),
            ("merchant_id", self.merchant_id.as_deref()),
            ("order_no", self.order_no.as_deref()),
            ("subject", self.subject.as_deref()),
            ("created_before", before.as_deref()),
        ];
        let given = words.iter().filter_map(|(name, word)| word.map(|word| format!("{name}={word}")));
        let given = given.collect::<Vec<_>>().join(" ");
        if given.is_empty() { "all".to_owned() } else { given }
    }
}

/// Makes tasks that failed and wait due at once, and dead ones alive with all their tries, ten thousand at most in a call; the
/// exceptions that said so are resolved. They are worked in the lane of the sweep.
#[utoipa::path(post, path = "/admin/compensations/retry", tag = "admin",
    request_body(content = RetryManyBody, example = json!({"status": "DEAD", "dry_run": true})),
    security(("admin_token" = [])),
    responses(
        (status = 200, body = RetriedManyView, example = json!({
            "dry_run": true, "matched": 120, "retried": 0, "has_more": false})),
        (status = 422, body = Problem, description = "`VALIDATION_FAILED`; a reason is required"),
    ))]
pub(in crate::http) async fn retry_many(
    State(edge): State<Edge>,
    Operator(admin): Operator,
    extract::Json(mut body): extract::Json<RetryManyBody>,
) -> Result<Json<RetriedManyView>, Problem> {
    let (dry_run, reason) = (body.dry_run, body.reason.take());
    if dry_run {
        let retried = operations::count_retryable(&edge.app, &body.filter()).await?;
        return Ok(Json(RetriedManyView { dry_run, retried }));
    }
    let reason = reason.ok_or_else(Problem::reason_is_missing)?;
    let entry = entry(admin, "compensations.retry_many", body.in_words(), Some(reason));
    let retried =
        edge.owned(|app| async move { operations::retry_many(&app, &body.filter(), &entry).await }).await?;
    Ok(Json(RetriedManyView { dry_run, retried }))
}

/// Has everything that is unfinished about an order tried at once: tasks that wait or were given up, and what stands in
/// the middle without one.
#[utoipa::path(post, path = "/admin/orders/{order_no}/compensate", tag = "admin",
    request_body(content = RetryBody, example = json!({"reason": "the buyer waits"})),
    params(("order_no" = OrderNo, Path, description = "The order's number"), WhoseParams),
    security(("admin_token" = [])),
    responses(
        (status = 200, body = OrderCompensated),
        (status = 404, body = Problem, description = "`ORDER_NOT_FOUND`"),
        (status = 409, body = Problem, description = "`AMBIGUOUS_NUMBER`: name the merchant too"),
        (status = 422, body = Problem, description = "`VALIDATION_FAILED`; a reason is required"),
    ))]
pub(in crate::http) async fn compensate_order(
    State(edge): State<Edge>,
    Operator(admin): Operator,
    PathId(order_no): PathId<OrderNo>,
    Params(params): Params<WhoseParams>,
    extract::Json(body): extract::Json<RetryBody>,
) -> Result<Json<OrderCompensated>, Problem> {
    let key = key_of(&edge, order_no, params.merchant_id).await?;
    let mut entry = entry(admin, "orders.compensate", key.member(), Some(body.reason));
    entry.order = Some(key.clone());
    let done = edge.owned(|app| async move { operations::compensate_order(&app, &key, &entry).await });
    Ok(Json(done.await?))
}

/// Whether to sweep, and why.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct SweepBody {
    /// Says what there is to sweep, and does nothing.
    #[serde(default)]
    dry_run: bool,
    /// Why; required unless it is a dry run.
    reason: Option<Reason>,
}

/// Closes what is due, and writes tasks for whatever stands in the middle with nothing that drives it. They are worked
/// in the lane of the sweep. Answers after a slice of it, of about 20 s: the same call goes on where there is more.
#[utoipa::path(post, path = "/admin/sweep", tag = "admin",
    request_body(content = SweepBody, example = json!({"dry_run": true})),
    security(("admin_token" = [])),
    responses(
        (status = 200, body = Swept, example = json!({
            "left_alone": [{"action": "DRIVE_REFUND", "count": 1}], "written": 0, "has_more": false})),
        (status = 422, body = Problem, description = "`VALIDATION_FAILED`; a reason is required"),
    ))]
pub(in crate::http) async fn sweep(
    State(edge): State<Edge>,
    Operator(admin): Operator,
    extract::Json(body): extract::Json<SweepBody>,
) -> Result<Json<Swept>, Problem> {
    if body.dry_run {
        return Ok(Json(operations::look_for_left_alone(&edge.app).await?));
    }
    let reason = body.reason.ok_or_else(Problem::reason_is_missing)?;
    let entry = entry(admin, "sweep", "all", Some(reason));
    Ok(Json(edge.owned(|app| async move { operations::sweep(&app, &entry).await }).await?))
}
