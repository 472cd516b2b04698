//! Having a compensation task tried again.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use utoipa::ToSchema;

use super::super::Edge;
use super::super::auth::Operator;
use super::super::error::Problem;
use super::super::extract::{self, PathId};
use super::{Reason, entry};
use crate::compensation::TaskView;
use crate::operations::{self, RetryError};

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
                let detail =
                    "it is under way or done, or a living task drives the same thing; nothing was changed";
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
