//! What is on sale.

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use utoipa::ToSchema;

use super::super::Edge;
use super::super::auth::{Operator, Viewer};
use super::super::error::Problem;
use super::super::extract::{self, Params};
use super::super::views::{Page, PageParams};
use super::{Reason, entry};
use crate::ids::{MerchantId, Sku};
use crate::merchants::{self, NewStock, SkuStock};
use crate::money::MAX_MINOR;

/// How many of a thing there are.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct SkuBody {
    /// Whose.
    merchant_id: MerchantId,
    /// Its name.
    sku: Sku,
    /// How many, those held for pending orders included.
    #[schema(minimum = 0, maximum = 1_000_000_000_000_i64)]
    stock: i64,
    /// How many there were when this was decided: where there are more or fewer by now, nothing is changed, and the answer says
    /// how many. Left out, whatever there is by now is overwritten, also by a repeat.
    #[schema(minimum = 0, maximum = 1_000_000_000_000_i64)]
    expected_stock: Option<i64>,
    /// Why.
    reason: Option<Reason>,
}

/// Sets how many of a thing there are, making it known when it is not.
#[utoipa::path(post, path = "/admin/skus", tag = "admin", 
    request_body(content = SkuBody, example = json!({"merchant_id": "demo", "sku": "TEA", "stock": 1000})),
    security(("admin_token" = [])),
    responses(
        (status = 200, body = SkuStock),
        (status = 404, body = Problem, description = "`NOT_FOUND`: no such merchant"),
        (status = 409, body = Problem, description = "`STOCK_CHANGED`, `STOCK_BELOW_HELD`: nothing was changed"),
        (status = 422, body = Problem, description = "`VALIDATION_FAILED`"),
    ))]
pub(in crate::http) async fn set(
    State(edge): State<Edge>,
    Operator(admin): Operator,
    extract::Json(body): extract::Json<SkuBody>,
) -> Result<Json<SkuStock>, Problem> {
    let numbers = [("stock", Some(body.stock)), ("expected_stock", body.expected_stock)];
    let is_wrong = |number: Option<i64>| number.is_some_and(|number| !(0..=MAX_MINOR).contains(&number));
    if let Some((field, _)) = numbers.into_iter().find(|(_, number)| is_wrong(*number)) {
        return Err(Problem::invalid(field, "expected a whole number from 0 to 1000000000000"));
    }
    let SkuBody { merchant_id, sku, stock, expected_stock: expected, reason } = body;
    let entry = entry(admin, "skus.set", format!("{merchant_id}/{sku} = {stock}"), reason);
    let wished = NewStock { stock, expected };
    let set = edge
        .owned(
            |app| async move { merchants::set_stock(&app, &merchant_id, &sku, wished, Some(&entry)).await },
        )
        .await?;
    Ok(Json(set))
}

/// Whose skus.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct SkuParams {
    /// Whose.
    #[param(value_type = String)]
    merchant_id: MerchantId,
    /// Entries at most, 1 to 100; 20 by default.
    #[param(minimum = 1, maximum = 100)]
    limit: Option<u8>,
    /// The last entry of the page before.
    starting_after: Option<String>,
}

/// A page of what a merchant has on sale, by name.
#[utoipa::path(get, path = "/admin/skus", tag = "admin", params(SkuParams),
    security(("admin_token" = [])),
    responses((status = 200, body = Page<SkuStock>), (status = 422, body = Problem)))]
pub(in crate::http) async fn list(
    State(edge): State<Edge>,
    _viewer: Viewer,
    Params(params): Params<SkuParams>,
) -> Result<Json<Page<SkuStock>>, Problem> {
    let page = PageParams { limit: params.limit, starting_after: params.starting_after };
    let limit = page.limit()?;
    let after = page.starting_after.as_deref();
    let rows = merchants::list_skus(&edge.app, &params.merchant_id, after, limit + 1).await?;
    Ok(Json(Page::of(rows, limit, |row| row)))
}
