//! Refunds of all merchants: a list, asking for one, and the decision over those above a merchant's limit.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use utoipa::ToSchema;

use super::super::Edge;
use super::super::auth::{Admin, Operator, Viewer};
use super::super::error::Problem;
use super::super::extract::{self, Params, PathId};
use super::super::idempotency::{answer, respond};
use super::super::views::{MerchantRefundView, Page, PageParams};
use super::orders::{WhoseParams, key_of};
use super::{Reason, entry};
use crate::ids::{MerchantId, OrderNo, RefundNo};
use crate::money::Amount;
use crate::refunds::{self, AskedBy, Decision, NewRefund, RefundStatus};

/// Which refunds.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct RefundParams {
    /// In one state.
    status: Option<RefundStatus>,
    /// Entries at most, 1 to 100; 20 by default.
    #[param(minimum = 1, maximum = 100)]
    limit: Option<u8>,
    /// The last entry of the page before.
    starting_after: Option<String>,
}

/// A page of refunds, newest first.
#[utoipa::path(get, path = "/admin/refunds", tag = "admin", params(RefundParams),
    security(("admin_token" = [])),
    responses((status = 200, body = Page<MerchantRefundView>), (status = 422, body = Problem)))]
pub(in crate::http) async fn list(
    State(edge): State<Edge>,
    _viewer: Viewer,
    Params(params): Params<RefundParams>,
) -> Result<Json<Page<MerchantRefundView>>, Problem> {
    let page = PageParams { limit: params.limit, starting_after: params.starting_after };
    let limit = page.limit()?;
    let rows = refunds::list(&edge.app, params.status, page.starting_after.as_deref(), limit + 1).await?;
    Ok(Json(Page::of(rows, limit, MerchantRefundView::from)))
}

/// A refund that an operator asks for.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct AdminRefundBody {
    /// Whose order, where two merchants share the number.
    merchant_id: Option<MerchantId>,
    /// Its number, unique per merchant.
    refund_no: RefundNo,
    /// Which order.
    order_no: OrderNo,
    /// Minor units; by default what is left of the payment.
    amount: Option<Amount>,
    /// Whether the order's stock comes back, once all of its money has gone back.
    #[serde(default)]
    return_stock: bool,
    /// Why; the buyer may read it.
    reason: Reason,
}

/// Gives an order's money back. Above the merchant's limit another operator must let it go.
#[utoipa::path(post, path = "/admin/refunds", tag = "admin",
    params(WhoseParams),
    request_body(content = AdminRefundBody,
                 example = json!({"refund_no": "R-2", "order_no": "A-1", "amount": 500, "reason": "ticket 4711"})),
    security(("admin_token" = [])),
    responses(
        (status = 201, body = MerchantRefundView, description = "Written down"),
        (status = 200, body = MerchantRefundView, description = "It was there already, and is the same"),
        (status = 404, body = Problem, description = "`ORDER_NOT_FOUND`"),
        (status = 409, body = Problem, description = "`ORDER_NOT_PAID`, `TOP_UP_CHARGED`, `AMBIGUOUS_NUMBER`"),
        (status = 422, body = Problem, description = "`VALIDATION_FAILED`, `REFUND_EXCEEDS_PAID` (its detail says what is
         left), `REFUND_PARAMS_MISMATCH`, `INSUFFICIENT_BALANCE`: nothing moved"),
    ))]
pub(in crate::http) async fn create(
    State(edge): State<Edge>,
    Operator(admin): Operator,
    Params(whose): Params<WhoseParams>,
    extract::Json(body): extract::Json<AdminRefundBody>,
) -> Result<Response, Problem> {
    let AdminRefundBody { merchant_id, refund_no, order_no, amount, return_stock, reason } = body;
    let merchant_id = match (merchant_id, whose.merchant_id) {
        (Some(in_body), Some(in_query)) if in_body != in_query => {
            return Err(Problem::invalid("merchant_id", "the query names another merchant than the body"));
        }
        (in_body, in_query) => in_body.or(in_query),
    };
    let key = key_of(&edge, order_no, merchant_id).await?;
    let target = format!("{}/{refund_no} of {}", key.merchant_id, key.order_no);
    let entry = entry(admin, "refunds.create", target, Some(reason));
    let new =
        NewRefund { refund_no, order_no: key.order_no, amount, reason: entry.reason.clone(), return_stock };
    let created = edge
        .owned(
            |app| async move { refunds::create(&app, &key.merchant_id, new, AskedBy::Operator(entry)).await },
        )
        .await?;
    let status = if created.is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok(respond(answer(status, &MerchantRefundView::from(created.refund))))
}

/// Why an operator decides so.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct DecisionBody {
    /// Why; of a refund that is rejected its merchant reads it.
    pub(super) reason: Reason,
}

/// Lets a refund above its merchant's limit go. Not by the one who asked for it. The same operator is given it again as it
/// stands.
#[utoipa::path(post, path = "/admin/refunds/{refund_no}/approve", tag = "admin",
    request_body(content = DecisionBody, example = json!({"reason": "ticket 4711"})),
    params(("refund_no" = RefundNo, Path, description = "The refund's number"), WhoseParams),
    security(("admin_token" = [])),
    responses(
        (status = 200, body = MerchantRefundView,
         description = "It is `PENDING`; a task sends the money back. Asked for again it is as it stands"),
        (status = 403, body = Problem, description = "`SAME_OPERATOR`"),
        (status = 404, body = Problem, description = "`NOT_FOUND`"),
        (status = 409, body = Problem, description = "`REFUND_NOT_AWAITING_APPROVAL`, `AMBIGUOUS_NUMBER`"),
        (status = 422, body = Problem, description = "`VALIDATION_FAILED`: a reason is required; `REFUND_EXCEEDS_PAID`: since
         it was asked for, another refund of the order that had failed, or waits as well, was made after all, or may have been"),
    ))]
pub(in crate::http) async fn approve(
    State(edge): State<Edge>,
    Operator(admin): Operator,
    PathId(refund_no): PathId<RefundNo>,
    Params(whose): Params<WhoseParams>,
    extract::Json(body): extract::Json<DecisionBody>,
) -> Result<Json<MerchantRefundView>, Problem> {
    decide(&edge, admin, refund_no, whose, Decision::Approve, body.reason).await
}

/// Ends a refund above its merchant's limit; the money stays. Not by the one who asked for it. The same operator is given it
/// again as it stands.
#[utoipa::path(post, path = "/admin/refunds/{refund_no}/reject", tag = "admin",
    request_body(content = DecisionBody, example = json!({"reason": "ticket 4711"})),
    params(("refund_no" = RefundNo, Path, description = "The refund's number"), WhoseParams),
    security(("admin_token" = [])),
    responses(
        (status = 200, body = MerchantRefundView, description = "It is `FAILED`; asked for again, as it stands"),
        (status = 403, body = Problem, description = "`SAME_OPERATOR`"),
        (status = 404, body = Problem, description = "`NOT_FOUND`"),
        (status = 409, body = Problem, description = "`REFUND_NOT_AWAITING_APPROVAL`, `AMBIGUOUS_NUMBER`"),
        (status = 422, body = Problem, description = "`VALIDATION_FAILED`; a reason is required"),
    ))]
pub(in crate::http) async fn reject(
    State(edge): State<Edge>,
    Operator(admin): Operator,
    PathId(refund_no): PathId<RefundNo>,
    Params(whose): Params<WhoseParams>,
    extract::Json(body): extract::Json<DecisionBody>,
) -> Result<Json<MerchantRefundView>, Problem> {
    decide(&edge, admin, refund_no, whose, Decision::Reject, body.reason).await
}

/// Says of a refund that failed, and of which something told that its channel made it after all, that it was not made. Its channel
/// is asked first. What was booked of it is taken back, and its money can go back by another one. The same again gives it as it
/// stands.
#[utoipa::path(post, path = "/admin/refunds/{refund_no}/not-made", tag = "admin",
    request_body(content = DecisionBody, example = json!({"reason": "ticket 4711"})),
    params(("refund_no" = RefundNo, Path, description = "The refund's number"), WhoseParams),
    security(("admin_token" = [])),
    responses(
        (status = 200, body = MerchantRefundView, description = "It is `FAILED`, as any that was not made"),
        (status = 404, body = Problem, description = "`NOT_FOUND`"),
        (status = 409, body = Problem, description = "`REFUND_NOT_MADE_AFTER_ALL`: it is not known to be; `REFUND_IS_MADE`: its
         channel says so; `AMBIGUOUS_NUMBER`"),
        (status = 422, body = Problem, description = "`VALIDATION_FAILED`; a reason is required"),
        (status = 503, body = Problem, description = "`CHANNEL_UNAVAILABLE`: its channel does not say; repeat the same request"),
    ))]
pub(in crate::http) async fn not_made(
    State(edge): State<Edge>,
    Operator(admin): Operator,
    PathId(refund_no): PathId<RefundNo>,
    Params(whose): Params<WhoseParams>,
    extract::Json(body): extract::Json<DecisionBody>,
) -> Result<Json<MerchantRefundView>, Problem> {
    let entry = entry(admin, "refunds.not_made", refund_no.to_string(), Some(body.reason));
    let refund = edge
        .owned(|app| async move {
            refunds::was_not_made(&app, whose.merchant_id.as_ref(), &refund_no, &entry).await
        })
        .await?;
    Ok(Json(refund.into()))
}

async fn decide(
    edge: &Edge,
    admin: Admin,
    refund_no: RefundNo,
    whose: WhoseParams,
    decision: Decision,
    reason: Reason,
) -> Result<Json<MerchantRefundView>, Problem> {
    let action = match decision {
        Decision::Approve => "refunds.approve",
        Decision::Reject => "refunds.reject",
    };
    let entry = entry(admin, action, refund_no.to_string(), Some(reason));
    let decided = edge
        .owned(|app| async move {
            refunds::decide(&app, whose.merchant_id.as_ref(), &refund_no, decision, &entry).await
        })
        .await?;
    Ok(Json(decided.into()))
}
