//! Orders of all merchants, for operators.

use axum::Json;
use axum::extract::State;
use serde::Deserialize;

use super::super::Edge;
use super::super::auth::Viewer;
use super::super::error::Problem;
use super::super::extract::{Params, PathId};
use super::super::views::{OrderView, Page, PageParams, limit_of};
use crate::ids::{MerchantId, OrderNo};
use crate::operations::{self, NoPlace, Place, TimelineEntry};
use crate::orders::{self, OrderKey, OrderStatus};

/// Which orders.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct OrderParams {
    /// Of one merchant.
    #[param(value_type = Option<String>)]
    merchant_id: Option<MerchantId>,
    /// In one state.
    status: Option<OrderStatus>,
    /// Entries at most, 1 to 100; 20 by default.
    #[param(minimum = 1, maximum = 100)]
    limit: Option<u8>,
    /// The last entry of the page before, as `merchant_id:order_no`.
    starting_after: Option<String>,
}

/// A page of orders, by merchant and number.
#[utoipa::path(get, path = "/admin/orders", tag = "admin", params(OrderParams),
    security(("admin_token" = [])),
    responses((status = 200, body = Page<OrderView>), (status = 422, body = Problem)))]
pub(in crate::http) async fn list(
    State(edge): State<Edge>,
    _viewer: Viewer,
    Params(params): Params<OrderParams>,
) -> Result<Json<Page<OrderView>>, Problem> {
    let page = PageParams { limit: params.limit, starting_after: params.starting_after };
    let limit = page.limit()?;
    let after = page.after("merchant_id:order_no", OrderKey::from_member)?;
    let rows = i64::try_from(limit + 1).unwrap_or(i64::MAX);
    let merchant_id = params.merchant_id.as_ref();
    let mut keys = orders::list(&edge.app, merchant_id, params.status, after.as_ref(), rows).await?;
    let has_more = keys.len() > limit;
    keys.truncate(limit);
    let mut data = Vec::with_capacity(keys.len());
    for key in &keys {
        data.push(view(&edge, key).await?);
    }
    Ok(Json(Page { data, has_more }))
}

async fn view(edge: &Edge, key: &OrderKey) -> Result<OrderView, Problem> {
    let details = orders::details(&edge.app, key).await?;
    Ok(OrderView::from(details).with_merchant(key.merchant_id.to_string()))
}

/// Whose order, where two merchants share the number.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct WhoseParams {
    /// The merchant.
    #[param(value_type = Option<String>)]
    pub(super) merchant_id: Option<MerchantId>,
}

/// The order that a number means, of that merchant where one is named.
pub(super) async fn key_of(
    edge: &Edge,
    order_no: OrderNo,
    merchant_id: Option<MerchantId>,
) -> Result<OrderKey, Problem> {
    let mut keys = orders::list_of_number(&edge.app, &order_no, merchant_id.as_ref()).await?;
    match (keys.pop(), keys.is_empty()) {
        (None, _) => Err(orders::OrderError::NotFound.into()),
        (Some(key), true) => Ok(key),
        (Some(_), false) => Err(Problem::ambiguous_number("an order")),
    }
}

/// The order of that number.
#[utoipa::path(get, path = "/admin/orders/{order_no}", tag = "admin",
    params(("order_no" = OrderNo, Path, description = "The order's number"), WhoseParams),
    security(("admin_token" = [])),
    responses(
        (status = 200, body = OrderView),
        (status = 404, body = Problem, description = "`ORDER_NOT_FOUND`"),
        (status = 409, body = Problem, description = "`AMBIGUOUS_NUMBER`: name the merchant too"),
    ))]
pub(in crate::http) async fn find(
    State(edge): State<Edge>,
    _viewer: Viewer,
    PathId(order_no): PathId<OrderNo>,
    Params(params): Params<WhoseParams>,
) -> Result<Json<OrderView>, Problem> {
    let key = key_of(&edge, order_no, params.merchant_id).await?;
    Ok(Json(view(&edge, &key).await?))
}

/// Entries of a timeline in one answer at most, and where nobody says how many.
const MAX_ENTRIES: u16 = 1000;

/// Which part of an order's timeline.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct TimelineParams {
    /// The merchant, where two share the number.
    #[param(value_type = Option<String>)]
    merchant_id: Option<MerchantId>,
    /// Entries at most, 1 to 1000; 1000 by default.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u16>,
    /// The `entry_id` of the last entry of the page before.
    starting_after: Option<String>,
}

/// A page of everything that touched an order, oldest first: its states and those of its attempts, stray money, refunds
/// and commission, callbacks, bookings, tasks, exceptions, events, and what operators did.
#[utoipa::path(get, path = "/admin/orders/{order_no}/timeline", tag = "admin",
    params(("order_no" = String, Path, description = "The order's number", example = "A-1"), TimelineParams),
    security(("admin_token" = [])),
    responses(
        (status = 200, body = Page<TimelineEntry>, example = json!({"data": [
            {"at": "2026-11-21T10:00:00Z", "kind": "ORDER", "subject": "A-1", "event": "CREATED", "status": "PENDING",
             "details": {"from": null}, "entry_id": "1795255200000000.2.1.A-1"},
            {"at": "2026-11-21T11:00:00Z", "kind": "REFUND", "subject": "rf_06GZV8Y0000000000000000000", "event": "SUCCEEDED",
             "status": "SUCCEEDED", "details": {"from": "PROCESSING", "refund_no": "R-1", "amount": 500, "currency": "CNY",
                                                "reason": "broken", "failure": null},
             "entry_id": "1795258800000000.4.3.rf_06GZV8Y0000000000000000000"}], "has_more": false})),
        (status = 404, body = Problem, description = "`ORDER_NOT_FOUND`"),
        (status = 409, body = Problem, description = "`AMBIGUOUS_NUMBER`: name the merchant too"),
        (status = 422, body = Problem, description = "`VALIDATION_FAILED`"),
    ))]
pub(in crate::http) async fn timeline(
    State(edge): State<Edge>,
    _viewer: Viewer,
    PathId(order_no): PathId<OrderNo>,
    Params(params): Params<TimelineParams>,
) -> Result<Json<Page<TimelineEntry>>, Problem> {
    let limit = limit_of(params.limit, MAX_ENTRIES, MAX_ENTRIES)?;
    let no_place = |error: NoPlace| Problem::invalid("starting_after", error.to_string());
    let after = params.starting_after.map(|text| text.parse::<Place>()).transpose().map_err(no_place)?;
    let key = key_of(&edge, order_no, params.merchant_id).await?;
    let entries = operations::timeline(&edge.app, &key, after.as_ref(), limit + 1).await?;
    if entries.is_empty() && after.is_none() {
        // An order has a history from its first commit on.
        return Err(orders::OrderError::NotFound.into());
    }
    Ok(Json(Page::of(entries, limit, |entry| entry)))
}
