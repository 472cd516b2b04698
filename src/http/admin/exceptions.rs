//! What a person must look at: exceptions and stray payments.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use utoipa::ToSchema;

use super::super::Edge;
use super::super::auth::{Operator, Viewer};
use super::super::error::Problem;
use super::super::extract::{self, Params, PathId};
use super::super::views::{Page, PageParams, StrayPaymentView};
use super::{Reason, entry};
use crate::exceptions::{self, Exception, ExceptionAction, ExceptionStatus};
use crate::ids::ExceptionId;
use crate::refunds::{self, ResolveError, StrayStatus};

/// Which exceptions.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct ExceptionParams {
    /// In one state.
    status: Option<ExceptionStatus>,
    /// Entries at most, 1 to 100; 20 by default.
    #[param(minimum = 1, maximum = 100)]
    limit: Option<u8>,
    /// The last entry of the page before.
    starting_after: Option<String>,
}

/// A page of exceptions, newest first.
#[utoipa::path(get, path = "/admin/exceptions", tag = "admin", params(ExceptionParams),
    security(("admin_token" = [])),
    responses((status = 200, body = Page<Exception>), (status = 422, body = Problem)))]
pub(in crate::http) async fn list(
    State(edge): State<Edge>,
    _viewer: Viewer,
    Params(params): Params<ExceptionParams>,
) -> Result<Json<Page<Exception>>, Problem> {
    let page = PageParams { limit: params.limit, starting_after: params.starting_after };
    let limit = page.limit()?;
    let after = page.starting_after.as_deref();
    let mut conn = edge.app.db.conn().await?;
    let rows = i64::try_from(limit + 1).unwrap_or(i64::MAX);
    let rows = exceptions::list(&mut conn, params.status, after, rows).await?;
    Ok(Json(Page::of(rows, limit, |row| row)))
}

/// A person's decision.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct ResolveBody {
    /// What to do.
    action: ExceptionAction,
    /// Why.
    reason: Reason,
}

impl From<ResolveError> for Problem {
    fn from(error: ResolveError) -> Self {
        let conflict = StatusCode::CONFLICT;
        match error {
            ResolveError::NotFound => Self::not_found(),
            ResolveError::AlreadyResolved(_) => {
                let detail = "it was decided already, otherwise or by somebody else; nothing was changed";
                Self::new(conflict, "EXCEPTION_RESOLVED", detail)
            }
            ResolveError::MoneyWaits => {
                let detail = "its money is still held, so it wants REFUND or KEEP; nothing was changed";
                Self::new(conflict, "MONEY_IS_HELD", detail)
            }
            ResolveError::NoMoney => {
                let detail = "it holds no money to refund or keep, so it wants NONE; nothing was changed";
                Self::new(conflict, "NO_MONEY_HELD", detail)
            }
            ResolveError::WentBack => {
                let detail = "its money is neither refunded nor kept, because the channel made a refund of it after all that \
                              had failed, so it wants NONE; nothing was changed";
                Self::new(conflict, "MONEY_WENT_BACK", detail)
            }
            ResolveError::MayHaveGone => {
                let detail = "a refund of its money that had failed may have been made after all: wait until its channel is heard, \
                              or, once you have seen there that it was not made, resolve the CONTRADICTION of that refund, which frees \
                              the money; nothing was changed";
                Self::new(conflict, "MONEY_MAY_HAVE_GONE", detail)
            }
            ResolveError::AwaitsApproval => {
                let detail = "the refund that it is about waits for an approval: approve it, so that it is made under its number, or \
                              reject it, so that its channel is asked; nothing was changed";
                Self::new(conflict, "REFUND_AWAITS_APPROVAL", detail)
            }
            ResolveError::NoWayBack => {
                let detail = "the channel that took its money is none that can be asked for anything: give the money back there, and \
                              KEEP it here; nothing was changed";
                Self::new(conflict, "UNKNOWN_CHANNEL", detail)
            }
            ResolveError::Db(error) => Self::from(error),
        }
    }
}

/// Carries out a person's decision and resolves the exception. Where a task was given up, `REFUND` drives its refund
/// on, and `NONE` its withdrawal; where an endpoint answered 410, `NONE` has it told again; where a refund was made after
/// all, `NONE` has its channel asked once more. The same decision by the same operator again gives the exception as it stands.
#[utoipa::path(post, path = "/admin/exceptions/{exception_id}/resolve", tag = "admin",
    request_body(content = ResolveBody, example = json!({"action": "REFUND", "reason": "the buyer paid twice"})),
    params(("exception_id" = ExceptionId, Path, description = "The exception")),
    security(("admin_token" = [])),
    responses(
        (status = 200, body = Exception),
        (status = 404, body = Problem, description = "`NOT_FOUND`"),
        (status = 409, body = Problem, description = "`EXCEPTION_RESOLVED`, `MONEY_IS_HELD`, `NO_MONEY_HELD`,
         `MONEY_WENT_BACK` (a refund of it was made after all), `MONEY_MAY_HAVE_GONE` (it may have been),
         `REFUND_AWAITS_APPROVAL` (approve or reject it), `UNKNOWN_CHANNEL` (no channel that could give it back)"),
        (status = 422, body = Problem, description = "`VALIDATION_FAILED`; a reason is required"),
    ))]
pub(in crate::http) async fn resolve(
    State(edge): State<Edge>,
    Operator(admin): Operator,
    PathId(exception_id): PathId<ExceptionId>,
    extract::Json(body): extract::Json<ResolveBody>,
) -> Result<Json<Exception>, Problem> {
    let target = format!("{exception_id} {}", body.action);
    let entry = entry(admin, "exceptions.resolve", target, Some(body.reason));
    let resolved = edge
        .owned(|app| async move {
            refunds::resolve_exception(&app, exception_id.as_str(), body.action, &entry).await
        })
        .await?;
    Ok(Json(resolved))
}

/// Which stray payments.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct StrayParams {
    /// In one state.
    status: Option<StrayStatus>,
    /// Entries at most, 1 to 100; 20 by default.
    #[param(minimum = 1, maximum = 100)]
    limit: Option<u8>,
    /// The last entry of the page before.
    starting_after: Option<String>,
}

/// A page of stray payments, newest first.
#[utoipa::path(get, path = "/admin/stray-payments", tag = "admin", params(StrayParams),
    security(("admin_token" = [])),
    responses((status = 200, body = Page<StrayPaymentView>), (status = 422, body = Problem)))]
pub(in crate::http) async fn list_strays(
    State(edge): State<Edge>,
    _viewer: Viewer,
    Params(params): Params<StrayParams>,
) -> Result<Json<Page<StrayPaymentView>>, Problem> {
    let page = PageParams { limit: params.limit, starting_after: params.starting_after };
    let limit = page.limit()?;
    let rows =
        refunds::list_strays(&edge.app, params.status, page.starting_after.as_deref(), limit + 1).await?;
    Ok(Json(Page::of(rows, limit, Into::into)))
}
