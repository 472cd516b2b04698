//! Merchants and their keys.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use time::{Duration, OffsetDateTime};
use utoipa::ToSchema;

use super::super::Edge;
use super::super::auth::{Operator, Viewer};
use super::super::error::Problem;
use super::super::extract::{self, Params, PathId};
use super::super::views::{Page, PageParams};
use super::{Reason, entry};
use crate::ids::MerchantId;
use crate::merchants::{self, ApiKey, KeyKind, Merchant, NewKeys, NewMerchant};
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
    #[schema(min_length = 1, max_length = 200)]
    name: String,
    /// What it wants done with stray money.
    stray_money: Option<StrayPolicy>,
    /// Where its events go.
    #[schema(max_length = 2000)]
    notify_url: Option<String>,
    /// Refunds above this many minor units wait for approval.
    #[schema(minimum = 0, maximum = 1_000_000_000_000_i64)]
    refund_approval_above: Option<i64>,
    /// Why.
    reason: Option<Reason>,
}

/// New secrets, shown this once.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::http) struct SecretsView {
    /// Whose.
    merchant_id: String,
    /// For its backend.
    #[serde(skip_serializing_if = "Option::is_none")]
    secret_key: Option<String>,
    /// For browsers and apps.
    #[serde(skip_serializing_if = "Option::is_none")]
    publishable_key: Option<String>,
    /// Signs what we notify it of.
    #[serde(skip_serializing_if = "Option::is_none")]
    notify_secret: Option<String>,
    /// Until when the keys that these replace go on working.
    #[serde(skip_serializing_if = "Option::is_none", with = "time::serde::rfc3339::option")]
    old_keys_end_at: Option<OffsetDateTime>,
}

impl SecretsView {
    fn of(merchant_id: &MerchantId, keys: NewKeys) -> Self {
        Self {
            merchant_id: merchant_id.to_string(),
            secret_key: keys.secret_key.map(|key| key.expose_secret().to_owned()),
            publishable_key: keys.publishable_key,
            notify_secret: None,
            old_keys_end_at: None,
        }
    }

    pub(super) fn of_notify_secret(
        merchant_id: &MerchantId,
        secret: &SecretString,
        end_at: OffsetDateTime,
    ) -> Self {
        Self {
            notify_secret: Some(secret.expose_secret().to_owned()),
            old_keys_end_at: Some(end_at),
            ..Self::of(merchant_id, NewKeys::default())
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
#[utoipa::path(post, path = "/admin/merchants", tag = "admin",
    request_body(content = NewMerchantBody, example = json!({"merchant_id": "tea-shop", "name": "The tea shop"})),
    security(("admin_token" = [])),
    responses(
        (status = 201, body = SecretsView, description = "Created; its secrets are shown this once"),
        (status = 409, body = Problem, description = "`MERCHANT_EXISTS`"),
        (status = 422, body = Problem, description = "`VALIDATION_FAILED`"),
    ))]
pub(in crate::http) async fn create(
    State(edge): State<Edge>,
    Operator(admin): Operator,
    extract::Json(body): extract::Json<NewMerchantBody>,
) -> Result<(StatusCode, Json<SecretsView>), Problem> {
    if body.name.trim().is_empty() || body.name.chars().count() > MAX_NAME {
        return Err(Problem::invalid(
            "name",
            format!("expected 1 to {MAX_NAME} characters, not only spaces"),
        ));
    }
    if body.refund_approval_above.is_some_and(|above| !(0..=MAX_MINOR).contains(&above)) {
        return Err(Problem::invalid(
            "refund_approval_above",
            "expected minor units from 0 to 1000000000000",
        ));
    }
    let new = NewMerchant {
        merchant_id: body.merchant_id,
        name: body.name,
        stray_money: body.stray_money.unwrap_or(StrayPolicy::AutoRefund),
        notify_url: body.notify_url,
        refund_approval_above: body.refund_approval_above,
    };
    let entry = entry(admin, "merchants.create", new.merchant_id.as_str(), body.reason);
    let (merchant, keys, secret) =
        edge.owned(|app| async move { merchants::create(&app, &new, &entry).await }).await?;
    let view = SecretsView::of(&merchant.merchant_id, keys);
    Ok((
        StatusCode::CREATED,
        Json(SecretsView { notify_secret: Some(secret.expose_secret().to_owned()), ..view }),
    ))
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

/// Which part of a merchant's keys.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct KeyParams {
    /// Entries at most, 1 to 100; 20 by default.
    #[param(minimum = 1, maximum = 100)]
    limit: Option<u8>,
    /// The last entry of the page before.
    starting_after: Option<i64>,
}

/// A page of a merchant's keys, newest first, those that have ended too: which of them work, and until when. What they are
/// nobody knows any more.
#[utoipa::path(get, path = "/admin/merchants/{merchant_id}/keys", tag = "admin",
    params(("merchant_id" = MerchantId, Path, description = "The merchant"), KeyParams),
    security(("admin_token" = [])),
    responses(
        (status = 200, body = Page<ApiKey>),
        (status = 404, body = Problem, description = "`NOT_FOUND`"),
        (status = 422, body = Problem, description = "`VALIDATION_FAILED`"),
    ))]
pub(in crate::http) async fn list_keys(
    State(edge): State<Edge>,
    _viewer: Viewer,
    PathId(merchant_id): PathId<MerchantId>,
    Params(params): Params<KeyParams>,
) -> Result<Json<Page<ApiKey>>, Problem> {
    let limit = PageParams { limit: params.limit, starting_after: None }.limit()?;
    let rows = merchants::list_keys(&edge.app, &merchant_id, params.starting_after, limit + 1).await?;
    Ok(Json(Page::of(rows, limit, |row| row)))
}

/// Which keys are replaced, and how long the old ones go on working.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct RotateBody {
    /// Which kind; both when it is left out.
    kind: Option<KeyKind>,
    /// Seconds, 0 to 2592000; a day by default. An end within five seconds may reach other instances that late.
    #[schema(minimum = 0, maximum = 2_592_000)]
    overlap_seconds: Option<i64>,
    /// Why.
    reason: Reason,
}

/// How long what is replaced goes on working: a day unless something else is asked for.
pub(super) fn check_overlap(seconds: Option<i64>) -> Result<Duration, Problem> {
    match seconds.unwrap_or(86_400) {
        seconds @ 0..=MAX_OVERLAP_SECS => Ok(Duration::seconds(seconds)),
        _ => Err(Problem::invalid("overlap_seconds", "expected seconds from 0 to 2592000")),
    }
}

/// Gives a merchant new keys; the old ones of that kind go on working for a while.
#[utoipa::path(post, path = "/admin/merchants/{merchant_id}/keys", tag = "admin",
    request_body(content = RotateBody,
        example = json!({"kind": "SECRET", "overlap_seconds": 3600, "reason": "the yearly rotation"})),
    params(("merchant_id" = MerchantId, Path, description = "The merchant")),
    security(("admin_token" = [])),
    responses(
        (status = 201, body = SecretsView, description = "The new keys, shown this once"),
        (status = 404, body = Problem, description = "`NOT_FOUND`"),
        (status = 422, body = Problem, description = "`VALIDATION_FAILED`; a reason is required"),
    ))]
pub(in crate::http) async fn rotate(
    State(edge): State<Edge>,
    Operator(admin): Operator,
    PathId(merchant_id): PathId<MerchantId>,
    extract::Json(body): extract::Json<RotateBody>,
) -> Result<(StatusCode, Json<SecretsView>), Problem> {
    let RotateBody { kind, overlap_seconds, reason } = body;
    let overlap = check_overlap(overlap_seconds)?;
    let which = kind.map_or("both kinds", KeyKind::as_str);
    let target = format!("{merchant_id} {which}, the old for {} s", overlap.whole_seconds());
    let entry = entry(admin, "merchants.rotate_keys", target, Some(reason));
    let id = merchant_id.clone();
    let (keys, end_at) = edge
        .owned(|app| async move { merchants::rotate_keys(&app, &id, kind, overlap, &entry).await })
        .await?;
    edge.keys.forget(&merchant_id);
    let view = SecretsView { old_keys_end_at: Some(end_at), ..SecretsView::of(&merchant_id, keys) };
    Ok((StatusCode::CREATED, Json(view)))
}
