//! Withdrawals of all merchants: what came back of them.

use axum::Json;
use axum::extract::State;

use super::super::Edge;
use super::super::auth::Operator;
use super::super::error::Problem;
use super::super::extract::{self, Params, PathId};
use super::super::withdrawals::WithdrawalView;
use super::entry;
use super::orders::WhoseParams;
use super::refunds::DecisionBody;
use crate::ids::WithdrawalNo;
use crate::withdrawals;

/// Says of a withdrawal whose money is known to have gone out that it came back, or that it was made after all and never was. Its
/// channel is asked first. Its user has the money again, what they owe for it is owed no more, and what they have paid of that is
/// theirs. The same again gives it as it stands.
#[utoipa::path(post, path = "/admin/withdrawals/{withdrawal_no}/returned", tag = "admin",
    request_body(content = DecisionBody, example = json!({"reason": "ticket 4711"})),
    params(("withdrawal_no" = WithdrawalNo, Path, description = "The withdrawal's number"), WhoseParams),
    security(("admin_token" = [])),
    responses(
        (status = 200, body = WithdrawalView, description = "Its status is as it was; `returned_at` says since when its user has it"),
        (status = 404, body = Problem, description = "`NOT_FOUND`"),
        (status = 409, body = Problem, description = "`WITHDRAWAL_NOT_SENT_OUT`: its money is not known to have gone out;
         `WITHDRAWAL_IS_MADE`: its channel says that it made it; `AMBIGUOUS_NUMBER`"),
        (status = 422, body = Problem, description = "`VALIDATION_FAILED`; a reason is required"),
        (status = 503, body = Problem, description = "`CHANNEL_UNAVAILABLE`: its channel does not say; repeat the same request"),
    ))]
pub(in crate::http) async fn returned(
    State(edge): State<Edge>,
    Operator(admin): Operator,
    PathId(withdrawal_no): PathId<WithdrawalNo>,
    Params(whose): Params<WhoseParams>,
    extract::Json(body): extract::Json<DecisionBody>,
) -> Result<Json<WithdrawalView>, Problem> {
    let entry = entry(admin, "withdrawals.returned", withdrawal_no.to_string(), Some(body.reason));
    let details = edge
        .owned(|app| async move {
            withdrawals::was_returned(&app, whose.merchant_id.as_ref(), &withdrawal_no, &entry).await
        })
        .await?;
    Ok(Json(details.into()))
}
