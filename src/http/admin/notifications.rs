//! Where merchants are told of events, what they were told, and telling it again.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::ToSchema;

use super::super::Edge;
use super::super::auth::{Operator, Viewer};
use super::super::error::Problem;
use super::super::events::{EventId, read_event_id};
use super::super::extract::{self, Params, PathId};
use super::super::moment;
use super::super::views::{Page, PageParams};
use super::merchants::{SecretsView, check_overlap};
use super::{Reason, entry};
use crate::ids::{MerchantId, OrderNo};
use crate::merchants;
use crate::operations::{self, ResendError};
use crate::outbox::{self, EventFilter, EventStatus, EventView, SendAgain};

/// Where a merchant's events go.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct NotifyUrlBody {
    /// An https URL; left out, they go nowhere.
    #[schema(max_length = 2000, example = "https://shop.example/payonce")]
    notify_url: Option<String>,
    /// Why.
    reason: Reason,
}

/// Where a merchant's events go now.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::http) struct NotifyUrlView {
    /// Whose.
    #[schema(example = "demo")]
    merchant_id: String,
    /// Where they go.
    notify_url: Option<String>,
}

/// Sets where a merchant's events go; endpoints of it that answered 410 are told again.
#[utoipa::path(post, path = "/admin/merchants/{merchant_id}/notify-url", tag = "admin",
    request_body(content = NotifyUrlBody,
        example = json!({"notify_url": "https://shop.example/payonce", "reason": "the shop has moved"})),
    params(("merchant_id" = MerchantId, Path, description = "The merchant")),
    security(("admin_token" = [])),
    responses(
        (status = 200, body = NotifyUrlView),
        (status = 404, body = Problem, description = "`NOT_FOUND`"),
        (status = 422, body = Problem, description = "`VALIDATION_FAILED`: why nothing would be sent there"),
    ))]
pub(in crate::http) async fn set_url(
    State(edge): State<Edge>,
    Operator(admin): Operator,
    PathId(merchant_id): PathId<MerchantId>,
    extract::Json(body): extract::Json<NotifyUrlBody>,
) -> Result<Json<NotifyUrlView>, Problem> {
    let NotifyUrlBody { notify_url, reason } = body;
    let target = format!("{merchant_id} {}", notify_url.as_deref().unwrap_or("nowhere"));
    let entry = entry(admin, "merchants.set_notify_url", target, Some(reason));
    let view = NotifyUrlView { merchant_id: merchant_id.to_string(), notify_url: notify_url.clone() };
    edge.owned(|app| async move {
        merchants::set_notify_url(&app, &merchant_id, notify_url.as_deref(), &entry).await
    })
    .await?;
    Ok(Json(view))
}

/// How long the old secret goes on signing.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct RotateSecretBody {
    /// Seconds, 0 to 2592000; a day by default.
    #[schema(minimum = 0, maximum = 2_592_000)]
    overlap_seconds: Option<i64>,
    /// Why.
    reason: Reason,
}

/// Gives a merchant a new secret for its notifications, which for a while bear a signature by the old one too.
#[utoipa::path(post, path = "/admin/merchants/{merchant_id}/notify-secret", tag = "admin",
    request_body(content = RotateSecretBody,
        example = json!({"overlap_seconds": 3600, "reason": "the yearly rotation"})),
    params(("merchant_id" = MerchantId, Path, description = "The merchant")),
    security(("admin_token" = [])),
    responses(
        (status = 201, body = SecretsView, description = "The new secret, shown this once"),
        (status = 404, body = Problem, description = "`NOT_FOUND`"),
        (status = 409, body = Problem, description = "`TOO_MANY_SECRETS`: four replaced ones still sign"),
        (status = 422, body = Problem, description = "`VALIDATION_FAILED`; a reason is required"),
    ))]
pub(in crate::http) async fn rotate_secret(
    State(edge): State<Edge>,
    Operator(admin): Operator,
    PathId(merchant_id): PathId<MerchantId>,
    extract::Json(body): extract::Json<RotateSecretBody>,
) -> Result<(StatusCode, Json<SecretsView>), Problem> {
    let overlap = check_overlap(body.overlap_seconds)?;
    let target = format!("{merchant_id}, the old for {} s", overlap.whole_seconds());
    let entry = entry(admin, "merchants.rotate_notify_secret", target, Some(body.reason));
    let id = merchant_id.clone();
    let (secret, end_at) = edge
        .owned(|app| async move { merchants::rotate_notify_secret(&app, &id, overlap, &entry).await })
        .await?;
    Ok((StatusCode::CREATED, Json(SecretsView::of_notify_secret(&merchant_id, &secret, end_at))))
}

/// Which events.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct EventParams {
    /// In one state.
    status: Option<EventStatus>,
    /// Of one merchant.
    merchant_id: Option<MerchantId>,
    /// Of one order number.
    order_no: Option<OrderNo>,
    /// Entries at most, 1 to 100; 20 by default.
    #[param(minimum = 1, maximum = 100)]
    limit: Option<u8>,
    /// The last entry of the page before.
    starting_after: Option<String>,
}

/// A page of events, newest first, with where each stands.
#[utoipa::path(get, path = "/admin/outbox", tag = "admin", params(EventParams),
    security(("admin_token" = [])),
    responses((status = 200, body = Page<EventView>), (status = 422, body = Problem)))]
pub(in crate::http) async fn list(
    State(edge): State<Edge>,
    _viewer: Viewer,
    Params(params): Params<EventParams>,
) -> Result<Json<Page<EventView>>, Problem> {
    let page = PageParams { limit: params.limit, starting_after: params.starting_after };
    let limit = page.limit()?;
    let filter = EventFilter {
        status: params.status,
        merchant_id: params.merchant_id.as_ref().map(MerchantId::as_str),
        order_no: params.order_no.as_ref().map(OrderNo::as_str),
        before: read_event_id("starting_after", page.starting_after.as_deref())?,
    };
    let rows = outbox::list(&edge.app.db, filter, limit + 1).await?;
    Ok(Json(Page::of(rows, limit, |row| row)))
}

/// An event with every try of each delivery.
#[utoipa::path(get, path = "/admin/outbox/{event_id}", tag = "admin",
    params(("event_id" = String, Path, description = "The event", example = "evt_42")),
    security(("admin_token" = [])),
    responses((status = 200, body = EventView), (status = 404, body = Problem, description = "`NOT_FOUND`")))]
pub(in crate::http) async fn find(
    State(edge): State<Edge>,
    _viewer: Viewer,
    PathId(EventId(id)): PathId<EventId>,
) -> Result<Json<EventView>, Problem> {
    Ok(Json(outbox::find(&edge.app.db, id).await?.ok_or_else(Problem::not_found)?))
}

/// Why an event is sent again.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct ResendBody {
    /// Why.
    reason: Reason,
}

impl From<ResendError> for Problem {
    fn from(error: ResendError) -> Self {
        match error {
            ResendError::NotFound => Self::not_found(),
            ResendError::Db(error) => Self::from(error),
        }
    }
}

/// Sends an event again, under the same id, to where it goes now; one that waits for its next try is due at once.
#[utoipa::path(post, path = "/admin/outbox/{event_id}/resend", tag = "admin",
    request_body(content = ResendBody, example = json!({"reason": "the shop lost its database"})),
    params(("event_id" = String, Path, description = "The event", example = "evt_42")),
    security(("admin_token" = [])),
    responses(
        (status = 200, body = EventView, description = "It is about to be sent"),
        (status = 404, body = Problem, description = "`NOT_FOUND`"),
        (status = 422, body = Problem, description = "`VALIDATION_FAILED`; a reason is required"),
    ))]
pub(in crate::http) async fn resend(
    State(edge): State<Edge>,
    Operator(admin): Operator,
    PathId(EventId(id)): PathId<EventId>,
    extract::Json(body): extract::Json<ResendBody>,
) -> Result<Json<EventView>, Problem> {
    let entry = entry(admin, "outbox.resend", format!("evt_{id}"), Some(body.reason));
    edge.owned(|app| async move { operations::resend(&app, id, &entry).await }).await?;
    Ok(Json(outbox::find(&edge.app.db, id).await?.ok_or_else(Problem::not_found)?))
}

/// Which events of a merchant are sent again.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct ResendAllBody {
    /// Whose.
    merchant_id: MerchantId,
    /// Those that happened since then.
    #[serde(deserialize_with = "moment::deserialize")]
    since: OffsetDateTime,
    /// Only what did not arrive; all of them by default. What has not reached the broker alone is left out by an instance
    /// that has none.
    #[serde(default)]
    only_undelivered: bool,
    /// Go on behind this one: the `last_event_id` of a call that said `has_more`.
    starting_after: Option<String>,
    /// Only say how many.
    #[serde(default)]
    dry_run: bool,
    /// Why.
    reason: Reason,
}

/// How many events are sent again.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::http) struct ResendAllView {
    /// So many, 10000 at most.
    #[schema(example = 3)]
    events: i64,
    /// The last one looked at, whether it is sent again or not; a call looks at 20000 at most.
    #[schema(example = "evt_42")]
    last_event_id: Option<String>,
    /// Whether there may be more behind it, also where nothing is sent again.
    has_more: bool,
}

/// Sends everything of a merchant again that happened since an instant, under the same ids and in the same order.
#[utoipa::path(post, path = "/admin/outbox/resend", tag = "admin",
    request_body(content = ResendAllBody, example = json!({"merchant_id": "demo", "since": "2026-11-21T00:00:00Z",
        "only_undelivered": true, "reason": "the shop was down"})),
    security(("admin_token" = [])),
    responses(
        (status = 200, body = ResendAllView),
        (status = 422, body = Problem, description = "`VALIDATION_FAILED`; a reason is required"),
    ))]
pub(in crate::http) async fn resend_all(
    State(edge): State<Edge>,
    Operator(admin): Operator,
    extract::Json(body): extract::Json<ResendAllBody>,
) -> Result<Json<ResendAllView>, Problem> {
    let ResendAllBody { merchant_id, since, only_undelivered, starting_after, dry_run, reason } = body;
    let wanted = SendAgain {
        merchant_id: merchant_id.to_string(),
        since,
        after: read_event_id("starting_after", starting_after.as_deref())?,
        only_undelivered,
        is_dry_run: dry_run,
    };
    let entry = entry(admin, "outbox.resend_all", format!("{merchant_id} since {since}"), Some(reason));
    let sent = edge.owned(|app| async move { operations::resend_all(&app, &wanted, &entry).await }).await?;
    Ok(Json(ResendAllView { events: sent.count, last_event_id: sent.last, has_more: sent.has_more }))
}
