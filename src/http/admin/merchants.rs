//! Merchants and their keys.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use secrecy::ExposeSecret;
use serde::{Deserialize, Serialize};
use time::{Duration, OffsetDateTime};
use utoipa::ToSchema;

use super::super::Edge;
use super::super::auth::{Operator, Viewer};
use super::super::error::Problem;
use super::super::extract::{self, Params, PathId};
use super::super::orders::check_url;
use super::super::views::{Page, PageParams};
use super::{Reason, log};
use crate::ids::MerchantId;
use crate::merchants::{self, Merchant, NewKeys, NewMerchant};
use crate::money::MAX_MINOR;
use crate::refunds::StrayPolicy;

/// Characters of a merchant's name at most.
const MAX_NAME: usize = 200;
/// Longest overlap of old and new keys, in seconds: 30 days.
const MAX_OVERLAP_SECS: i64 = 2_592_000;

/// A merchant to create.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"merchant_id": "shop-2", "name": "Second shop", "stray_money": "auto_refund",
    "notify_url": "https://shop.example/payonce", "reason": "a new shop"}))]
pub(in crate::http) struct NewMerchantBody {
    /// Its id.
    merchant_id: MerchantId,
    /// Its name.
    name: String,
    /// What it wants done with stray money.
    stray_money: Option<StrayPolicy>,
    /// Where its events go.
    notify_url: Option<String>,
    /// Refunds above this many minor units wait for approval.
    #[schema(minimum = 0)]
    refund_approval_above: Option<i64>,
    /// Why.
    #[serde(default)]
    reason: Reason,
}

/// A new merchant's secrets, shown this once.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::http) struct NewMerchantView {
    /// Its id.
    merchant_id: String,
    /// For its backend.
    secret_key: String,
    /// For browsers and apps.
    publishable_key: String,
    /// Signs what we notify it of.
    #[serde(skip_serializing_if = "Option::is_none")]
    notify_secret: Option<String>,
}

impl NewMerchantView {
    fn of(merchant_id: &MerchantId, keys: NewKeys, notify_secret: Option<String>) -> Self {
        Self {
            merchant_id: merchant_id.to_string(),
            secret_key: keys.secret_key.expose_secret().to_owned(),
            publishable_key: keys.publishable_key,
            notify_secret,
        }
    }
}

/// A merchant.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::http) struct MerchantView {
    /// Its id.
    merchant_id: String,
    /// Its name.
    name: String,
    /// What it wants done with stray money.
    stray_money: StrayPolicy,
    /// Where its events go.
    notify_url: Option<String>,
    /// Refunds above this many minor units wait for approval.
    refund_approval_above: Option<i64>,
    /// When it was created.
    #[serde(with = "time::serde::rfc3339")]
    created_at: OffsetDateTime,
}

impl From<Merchant> for MerchantView {
    fn from(merchant: Merchant) -> Self {
        Self {
            merchant_id: merchant.merchant_id.into(),
            name: merchant.name,
            stray_money: merchant.stray_money,
            notify_url: merchant.notify_url,
            refund_approval_above: merchant.refund_approval_above,
            created_at: merchant.created_at,
        }
    }
}

/// Creates a merchant with its first keys.
#[utoipa::path(post, path = "/admin/merchants", tag = "admin", request_body = NewMerchantBody,
    security(("admin_token" = [])),
    responses(
        (status = 201, body = NewMerchantView, description = "Created; its secrets are shown this once"),
        (status = 409, body = Problem, description = "`MERCHANT_EXISTS`"),
        (status = 422, body = Problem, description = "`VALIDATION_FAILED`"),
    ))]
pub(in crate::http) async fn create(
    State(edge): State<Edge>,
    Operator(admin): Operator,
    extract::Json(body): extract::Json<NewMerchantBody>,
) -> Result<(StatusCode, Json<NewMerchantView>), Problem> {
    if body.name.trim().is_empty() || body.name.chars().count() > MAX_NAME {
        return Err(Problem::invalid("name", format!("expected 1 to {MAX_NAME} characters")));
    }
    if body.refund_approval_above.is_some_and(|above| !(0..=MAX_MINOR).contains(&above)) {
        return Err(Problem::invalid(
            "refund_approval_above",
            "expected minor units from 0 to 1000000000000",
        ));
    }
    check_url("notify_url", body.notify_url.as_deref())?;
    let new = NewMerchant {
        merchant_id: body.merchant_id,
        name: body.name,
        stray_money: body.stray_money.unwrap_or(StrayPolicy::AutoRefund),
        notify_url: body.notify_url,
        refund_approval_above: body.refund_approval_above,
    };
    log(&edge, &admin, "merchants.create", new.merchant_id.as_str(), &body.reason).await?;
    let (merchant, keys, secret) =
        edge.owned(|app| async move { merchants::create(&app, &new).await }).await?;
    let view = NewMerchantView::of(&merchant.merchant_id, keys, Some(secret.expose_secret().to_owned()));
    Ok((StatusCode::CREATED, Json(view)))
}

/// A page of merchants, by id.
#[utoipa::path(get, path = "/admin/merchants", tag = "admin", params(PageParams),
    security(("admin_token" = [])), responses((status = 200, body = Page<MerchantView>)))]
pub(in crate::http) async fn list(
    State(edge): State<Edge>,
    _viewer: Viewer,
    Params(page): Params<PageParams>,
) -> Result<Json<Page<MerchantView>>, Problem> {
    let limit = page.limit()?;
    let rows = merchants::list(&edge.app, page.starting_after.as_deref(), limit + 1).await?;
    Ok(Json(Page::of(rows, limit, Into::into)))
}

/// How long old keys go on working.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct RotateBody {
    /// Seconds, 0 to 2592000; a day by default.
    #[schema(minimum = 0, maximum = 2_592_000, example = 86400)]
    overlap_seconds: Option<i64>,
    /// Why.
    #[serde(default)]
    reason: Reason,
}

/// Gives a merchant new keys; the old ones go on working for a while.
#[utoipa::path(post, path = "/admin/merchants/{merchant_id}/keys", tag = "admin", request_body = RotateBody,
    params(("merchant_id" = MerchantId, Path, description = "The merchant")), security(("admin_token" = [])),
    responses(
        (status = 201, body = NewMerchantView, description = "The new keys, shown this once"),
        (status = 404, body = Problem, description = "`NOT_FOUND`"),
        (status = 422, body = Problem, description = "`VALIDATION_FAILED`"),
    ))]
pub(in crate::http) async fn rotate(
    State(edge): State<Edge>,
    Operator(admin): Operator,
    PathId(merchant_id): PathId<MerchantId>,
    extract::Json(body): extract::Json<RotateBody>,
) -> Result<(StatusCode, Json<NewMerchantView>), Problem> {
    let overlap = body.overlap_seconds.unwrap_or(86_400);
    if !(0..=MAX_OVERLAP_SECS).contains(&overlap) {
        return Err(Problem::invalid("overlap_seconds", "expected seconds from 0 to 2592000"));
    }
    log(&edge, &admin, "merchants.rotate_keys", merchant_id.as_str(), &body.reason).await?;
    let (id, overlap) = (merchant_id.clone(), Duration::seconds(overlap));
    let keys = edge.owned(|app| async move { merchants::add_keys(&app, &id, overlap).await }).await?;
    Ok((StatusCode::CREATED, Json(NewMerchantView::of(&merchant_id, keys, None))))
}
