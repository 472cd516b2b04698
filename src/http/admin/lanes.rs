//! The lanes of compensation: looked at, paused, and let go on.

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use utoipa::ToSchema;

use super::super::Edge;
use super::super::auth::{Operator, Viewer};
use super::super::error::Problem;
use super::super::extract::{self, PathId};
use super::super::views::Page;
use super::{Reason, entry};
use crate::compensation::{Lane, LaneStand};
use crate::operations;

/// The lanes of tasks: whether their workers rest, and what waits.
#[utoipa::path(get, path = "/admin/lanes", tag = "admin", security(("admin_token" = [])),
    responses((status = 200, body = Page<LaneStand>)))]
pub(in crate::http) async fn list(
    State(edge): State<Edge>,
    _viewer: Viewer,
) -> Result<Json<Page<LaneStand>>, Problem> {
    Ok(Json(Page { data: operations::lanes(&edge.app).await?, has_more: false }))
}

/// Why a lane is paused, or goes on.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct LaneBody {
    /// Why.
    reason: Reason,
}

/// Lets the workers of a lane rest, at all instances, until they are told to go on. What is under way comes to its end;
/// requests go on, and write their tasks.
#[utoipa::path(post, path = "/admin/lanes/{lane}/pause", tag = "admin",
    request_body(content = LaneBody, example = json!({"reason": "the channel is being moved"})),
    params(("lane" = Lane, Path, description = "`REALTIME` or `SWEEP`", example = "SWEEP")),
    security(("admin_token" = [])),
    responses(
        (status = 200, body = Page<LaneStand>),
        (status = 404, body = Problem, description = "`NOT_FOUND`"),
        (status = 422, body = Problem, description = "`VALIDATION_FAILED`; a reason is required"),
    ))]
pub(in crate::http) async fn pause(
    State(edge): State<Edge>,
    Operator(admin): Operator,
    PathId(lane): PathId<Lane>,
    extract::Json(body): extract::Json<LaneBody>,
) -> Result<Json<Page<LaneStand>>, Problem> {
    let entry = entry(admin, "lanes.pause", lane.as_str(), Some(body.reason));
    let data = edge.owned(|app| async move { operations::pause_lane(&app, lane, &entry).await }).await?;
    Ok(Json(Page { data, has_more: false }))
}

/// Has the workers of a lane go on.
#[utoipa::path(post, path = "/admin/lanes/{lane}/resume", tag = "admin",
    request_body(content = LaneBody, example = json!({"reason": "the channel was moved"})),
    params(("lane" = Lane, Path, description = "`REALTIME` or `SWEEP`", example = "SWEEP")),
    security(("admin_token" = [])),
    responses(
        (status = 200, body = Page<LaneStand>),
        (status = 404, body = Problem, description = "`NOT_FOUND`"),
        (status = 422, body = Problem, description = "`VALIDATION_FAILED`; a reason is required"),
    ))]
pub(in crate::http) async fn resume(
    State(edge): State<Edge>,
    Operator(admin): Operator,
    PathId(lane): PathId<Lane>,
    extract::Json(body): extract::Json<LaneBody>,
) -> Result<Json<Page<LaneStand>>, Problem> {
    let entry = entry(admin, "lanes.resume", lane.as_str(), Some(body.reason));
    let data = edge.owned(|app| async move { operations::resume_lane(&app, lane, &entry).await }).await?;
    Ok(Json(Page { data, has_more: false }))
}
