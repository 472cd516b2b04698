//! What is metered, and what is held for it.

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

use super::super::Edge;
use super::super::auth::{Operator, Viewer};
use super::super::error::Problem;
use super::super::extract::{self, Params};
use super::super::usage::HoldView;
use super::super::views::{Page, PageParams};
use super::{Reason, entry};
use crate::ids::{FxVersion, MerchantId, ProductCode, UserId};
use crate::money::Currency;
use crate::usage::{
    self, Hold, HoldStatus, KeyScope, Kind, Price, PricedProduct, Pricing, SetProduct, Units, Which, Whose,
};

/// A product, with one of its prices.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct ProductBody {
    /// Whose.
    merchant_id: MerchantId,
    /// Its name.
    product_code: ProductCode,
    /// The price's currency.
    currency: Currency,
    /// The set of prices that it is of, where it is of one.
    fx_version: Option<FxVersion>,
    /// What its prices are for, `PER_UNIT` by default; never changes.
    pricing: Option<Pricing>,
    /// Minor units for a unit, a call or a cycle: a decimal string with 10 places at most.
    #[schema(value_type = String, example = "0.03")]
    unit_price: Price,
    /// What a user may use in a cycle, held and charged together; `null` for no limit. As it was where it is left out, of
    /// a new product no limit. It counts what is held under one, and all that was charged, also before there was one.
    #[schema(value_type = Option<Units>)]
    #[serde(default, deserialize_with = "said")]
    cycle_quota: Option<Option<Units>>,
    /// What makes the key of a hold, `REQUEST` by default; never changes.
    key_scope: Option<KeyScope>,
    /// Whether reconciliation may charge a user again for usage that was paid with money which never came. As it was where
    /// it is left out, of a new product not.
    allow_compensating_charge: Option<bool>,
    /// Why.
    reason: Option<Reason>,
}

/// `null` is something that is said; nothing at all is the default.
fn said<'de, T: Deserialize<'de>, D: Deserializer<'de>>(value: D) -> Result<Option<T>, D::Error> {
    T::deserialize(value).map(Some)
}

/// Makes a product known or sets what is said of it, and sets one of its prices. Holds keep the price and the quota
/// that they were made by.
#[utoipa::path(post, path = "/admin/products", tag = "admin",
    request_body(content = ProductBody, example = json!({"merchant_id": "demo", "product_code": "llm-tokens",
        "currency": "CNY", "unit_price": "0.03"})),
    security(("admin_token" = [])),
    responses(
        (status = 200, body = PricedProduct),
        (status = 404, body = Problem, description = "`NOT_FOUND`: no such merchant"),
        (status = 409, body = Problem, description = "`PRODUCT_DIFFERS`: pricing and key_scope never change"),
        (status = 422, body = Problem, description = "`VALIDATION_FAILED`: nothing was changed"),
    ))]
pub(in crate::http) async fn set_product(
    State(edge): State<Edge>,
    Operator(admin): Operator,
    extract::Json(body): extract::Json<ProductBody>,
) -> Result<Json<PricedProduct>, Problem> {
    let entry = entry(admin, "products.set", body.told(), body.reason.clone());
    let kind = Kind {
        pricing: body.pricing.unwrap_or(Pricing::PerUnit),
        key_scope: body.key_scope.unwrap_or(KeyScope::Request),
    };
    let product = SetProduct {
        merchant_id: body.merchant_id,
        product_code: body.product_code,
        kind,
        cycle_quota: body.cycle_quota.map(|quota| quota.map(Units::count)),
        allow_compensating_charge: body.allow_compensating_charge,
        currency: body.currency,
        fx_version: body.fx_version.map(Into::into).unwrap_or_default(),
        unit_price: body.unit_price,
    };
    let set = edge.owned(|app| async move { usage::set_product(&app, &product, &entry).await });
    Ok(Json(set.await?))
}

impl ProductBody {
    /// All that is said of it, for the log.
    fn told(&self) -> String {
        let Self { merchant_id, product_code, unit_price, currency, .. } = self;
        let mut told = format!("{merchant_id}/{product_code} = {unit_price} {currency}");
        if let Some(fx_version) = &self.fx_version {
            told += &format!(" of {}", fx_version.as_str());
        }
        match self.cycle_quota {
            Some(Some(quota)) => told += &format!(", quota {}", quota.count()),
            Some(None) => told += ", no quota",
            None => {}
        }
        if let Some(allowed) = self.allow_compensating_charge {
            told += &format!(", compensating charge {}", if allowed { "allowed" } else { "not allowed" });
        }
        told
    }
}

/// Whose products.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct ProductParams {
    /// Whose.
    #[param(value_type = String)]
    merchant_id: MerchantId,
    /// Entries at most, 1 to 100; 20 by default.
    #[param(minimum = 1, maximum = 100)]
    limit: Option<u8>,
    /// The last entry of the page before, as `product_code:currency:fx_version`.
    starting_after: Option<String>,
}

/// A page of a merchant's prices with their products, by product, currency and fx version.
#[utoipa::path(get, path = "/admin/products", tag = "admin", params(ProductParams),
    security(("admin_token" = [])),
    responses((status = 200, body = Page<PricedProduct>), (status = 422, body = Problem)))]
pub(in crate::http) async fn list_products(
    State(edge): State<Edge>,
    _viewer: Viewer,
    Params(params): Params<ProductParams>,
) -> Result<Json<Page<PricedProduct>>, Problem> {
    let page = PageParams { limit: params.limit, starting_after: params.starting_after };
    let limit = page.limit()?;
    let after = page.after("product_code:currency:fx_version", last_of)?;
    let rows = usage::list_products(&edge.app, &params.merchant_id, after, limit + 1).await?;
    Ok(Json(Page::of(rows, limit, |row| row)))
}

/// The last part is empty, or left out, for a price without an fx version.
fn last_of(text: &str) -> Option<(&str, &str, &str)> {
    let (product_code, rest) = text.split_once(':')?;
    let (currency, fx_version) = rest.split_once(':').unwrap_or((rest, ""));
    Some((product_code, currency, fx_version))
}

/// Which holds.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct HoldParams {
    /// Of one merchant.
    #[param(value_type = Option<String>)]
    merchant_id: Option<MerchantId>,
    /// Of one user of that merchant.
    #[param(value_type = Option<String>)]
    user_id: Option<UserId>,
    /// In one state.
    #[param(value_type = Option<String>)]
    status: Option<HoldStatus>,
    /// Entries at most, 1 to 100; 20 by default.
    #[param(minimum = 1, maximum = 100)]
    limit: Option<u8>,
    /// The last hold of the page before.
    starting_after: Option<String>,
}

/// A hold and whose it is.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::http) struct MerchantHoldView {
    /// Whose.
    merchant_id: String,
    /// The rest, as its merchant sees it.
    #[serde(flatten)]
    hold: HoldView,
}

impl From<Hold> for MerchantHoldView {
    fn from(hold: Hold) -> Self {
        Self { merchant_id: hold.merchant_id.to_string(), hold: hold.into() }
    }
}

/// A page of holds and charges, newest first.
#[utoipa::path(get, path = "/admin/usage/holds", tag = "admin", params(HoldParams),
    security(("admin_token" = [])),
    responses((status = 200, body = Page<MerchantHoldView>), (status = 422, body = Problem)))]
pub(in crate::http) async fn list_holds(
    State(edge): State<Edge>,
    _viewer: Viewer,
    Params(params): Params<HoldParams>,
) -> Result<Json<Page<MerchantHoldView>>, Problem> {
    let limit = PageParams { limit: params.limit, starting_after: None }.limit()?;
    let HoldParams { merchant_id, user_id, status, starting_after: before, .. } = params;
    let whose = match (merchant_id, user_id) {
        (None, None) => Whose::Everybody,
        (Some(merchant_id), None) => Whose::Merchant(merchant_id),
        (Some(merchant_id), Some(user_id)) => Whose::User(merchant_id, user_id),
        (None, Some(_)) => return Err(Problem::invalid("merchant_id", "expected whose user it is")),
    };
    let which = Which { whose, status, before };
    let rows = usage::list(&edge.app, &which, limit + 1).await?;
    Ok(Json(Page::of(rows, limit, MerchantHoldView::from)))
}
