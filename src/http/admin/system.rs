//! How the whole stands: the audit.

use axum::Json;
use axum::extract::State;

use super::super::Edge;
use super::super::auth::Viewer;
use super::super::error::Problem;
use crate::audit::{self, AuditReport};

/// Checks every invariant in one snapshot.
#[utoipa::path(get, path = "/admin/audit", tag = "admin", security(("admin_token" = [])),
    responses((status = 200, body = AuditReport, description = "`ok` is false when anything is violated")))]
pub(in crate::http) async fn audit(
    State(edge): State<Edge>,
    _viewer: Viewer,
) -> Result<Json<AuditReport>, Problem> {
    let report = audit::audit(&edge.app.db, edge.app.now()).await?;
    audit::publish(&report);
    Ok(Json(report))
}
