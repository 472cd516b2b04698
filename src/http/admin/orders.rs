//! Orders of all merchants, for operators.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;

use super::super::Edge;
use super::super::auth::Viewer;
use super::super::error::Problem;
use super::super::extract::{Params, PathId};
use super::super::views::{OrderView, Page, PageParams};
use crate::ids::{MerchantId, OrderNo};
use crate::orders::{self, OrderKey, OrderStatus};

/// Which orders.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct OrderParams {
    /// Of one merchant.
    #[param(value_type = Option<String>)]
    merchant_id: Option<MerchantId>,
    /// In one state.
    status: Option<OrderStatus>,
    /// Entries at most, 1 to 100; 20 by default.
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
    let after = match page.starting_after.as_deref() {
        None => None,
        Some(text) => Some(OrderKey::from_member(text).ok_or_else(|| {
            Problem::invalid("starting_after", "expected merchant_id:order_no of the last entry before")
        })?),
    };
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
    merchant_id: Option<MerchantId>,
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
    if let Some(merchant_id) = params.merchant_id {
        return Ok(Json(view(&edge, &OrderKey { merchant_id, order_no }).await?));
    }
    let keys = orders::list_of_number(&edge.app, &order_no).await?;
    match keys.as_slice() {
        [] => Err(orders::OrderError::NotFound.into()),
        [key] => Ok(Json(view(&edge, key).await?)),
        _ => {
            let detail = "several merchants have an order of that number; add ?merchant_id=";
            Err(Problem::new(StatusCode::CONFLICT, "AMBIGUOUS_NUMBER", detail))
        }
    }
}
