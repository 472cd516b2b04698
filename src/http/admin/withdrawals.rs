//! Withdrawals of all merchants: a list, and what came back of them.

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::super::Edge;
use super::super::auth::{Operator, Viewer};
use super::super::error::Problem;
use super::super::extract::{self, Params, PathId};
use super::super::views::{Page, PageParams};
use super::super::withdrawals::WithdrawalView;
use super::entry;
use super::orders::WhoseParams;
use super::refunds::DecisionBody;
use crate::ids::{MerchantId, UserId, WithdrawalNo};
use crate::withdrawals::{self, WithdrawalDetails, WithdrawalFilter, WithdrawalStatus};

/// A withdrawal as operators see it.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::http) struct MerchantWithdrawalView {
    /// Whose user's money it is.
    merchant_id: String,
    /// The rest, as its merchant sees it.
    #[serde(flatten)]
    withdrawal: WithdrawalView,
}

impl From<WithdrawalDetails> for MerchantWithdrawalView {
    fn from(details: WithdrawalDetails) -> Self {
        Self { merchant_id: details.withdrawal.merchant_id.to_string(), withdrawal: details.into() }
    }
}

/// Which withdrawals.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct MerchantWithdrawalParams {
    /// Of one merchant.
    #[param(value_type = Option<String>)]
    merchant_id: Option<MerchantId>,
    /// Of one of its users; goes with the merchant.
    #[param(value_type = Option<String>)]
    user_id: Option<UserId>,
    /// In one state.
    status: Option<WithdrawalStatus>,
    /// Entries at most, 1 to 100; 20 by default.
    #[param(minimum = 1, maximum = 100)]
    limit: Option<u8>,
    /// The `withdrawal_id` of the last entry of the page before.
    starting_after: Option<String>,
}

/// A page of withdrawals with their legs, newest first.
#[utoipa::path(get, path = "/admin/withdrawals", tag = "admin", params(MerchantWithdrawalParams),
    security(("admin_token" = [])),
    responses(
        (status = 200, body = Page<MerchantWithdrawalView>),
        (status = 422, body = Problem, description = "`VALIDATION_FAILED`; `user_id` goes with `merchant_id`"),
    ))]
pub(in crate::http) async fn list(
    State(edge): State<Edge>,
    _viewer: Viewer,
    Params(params): Params<MerchantWithdrawalParams>,
) -> Result<Json<Page<MerchantWithdrawalView>>, Problem> {
    let page = PageParams { limit: params.limit, starting_after: params.starting_after };
    let limit = page.limit()?;
    if params.user_id.is_some() && params.merchant_id.is_none() {
        return Err(Problem::invalid("merchant_id", "expected the merchant whose user it is"));
    }
    let filter = WithdrawalFilter {
        merchant_id: params.merchant_id.as_ref(),
        user_id: params.user_id.as_ref(),
        status: params.status,
        starting_after: page.after_id("withdrawal_id", "wd_")?,
    };
    let rows = withdrawals::list(&edge.app, filter, limit + 1).await?;
    Ok(Json(Page::of(rows, limit, MerchantWithdrawalView::from)))
}

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
