//! The inbox: what channels told us, and reading it again.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::ToSchema;

use super::super::Edge;
use super::super::auth::{Operator, Viewer};
use super::super::error::Problem;
use super::super::extract::{self, Params, PathId};
use super::super::views::{Page, PageParams};
use super::orders::key_of;
use super::{Reason, entry};
use crate::ids::{MerchantId, OrderNo};
use crate::pay::report::Verdict;
use crate::webhooks::{self, InboxFilter, InboxId, Kept, ReplayError, Replayed};

/// Characters of a body that a list shows.
const MAX_SHOWN: usize = 4000;

/// Which callbacks.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct WebhookParams {
    /// Of one channel.
    channel: Option<String>,
    /// Of one verdict.
    verdict: Option<Verdict>,
    /// About one order.
    #[param(value_type = Option<String>)]
    order_no: Option<OrderNo>,
    /// Whose order, where two merchants share the number.
    #[param(value_type = Option<String>)]
    merchant_id: Option<MerchantId>,
    /// Entries at most, 1 to 100; 20 by default.
    #[param(minimum = 1, maximum = 100)]
    limit: Option<u8>,
    /// The last entry of the page before.
    starting_after: Option<String>,
}

/// A callback as it is kept.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::http) struct WebhookView {
    /// Its name here.
    #[schema(example = "sandbox:evt_06GZV8Y0000000000000000000")]
    webhook_id: String,
    /// Which channel.
    channel: String,
    /// The channel's own id of the event.
    event_id: String,
    /// What it speaks of, in the channel's words.
    speaks_of: Option<String>,
    /// Whose order, where it has one.
    merchant_id: Option<String>,
    /// Which order, where it has one.
    order_no: Option<String>,
    /// What became of it.
    verdict: Verdict,
    /// The body as it came, its first 4000 characters.
    body: String,
    /// When it came.
    #[serde(with = "time::serde::rfc3339")]
    received_at: OffsetDateTime,
    /// When its verdict was last changed.
    #[serde(with = "time::serde::rfc3339")]
    updated_at: OffsetDateTime,
}

impl From<Kept> for WebhookView {
    fn from(kept: Kept) -> Self {
        Self {
            webhook_id: kept.id().to_string(),
            body: String::from_utf8_lossy(&kept.body).chars().take(MAX_SHOWN).collect(),
            channel: kept.channel,
            event_id: kept.event_id,
            speaks_of: kept.subject,
            merchant_id: kept.merchant_id,
            order_no: kept.order_no,
            verdict: kept.verdict,
            received_at: kept.received_at,
            updated_at: kept.updated_at,
        }
    }
}

/// A page of kept callbacks, newest first.
#[utoipa::path(get, path = "/admin/webhooks", tag = "admin", params(WebhookParams),
    security(("admin_token" = [])),
    responses(
        (status = 200, body = Page<WebhookView>),
        (status = 404, body = Problem, description = "`ORDER_NOT_FOUND`: no order of that number"),
        (status = 409, body = Problem, description = "`AMBIGUOUS_NUMBER`: name the merchant too"),
        (status = 422, body = Problem, description = "`VALIDATION_FAILED`"),
    ))]
pub(in crate::http) async fn list(
    State(edge): State<Edge>,
    _viewer: Viewer,
    Params(params): Params<WebhookParams>,
) -> Result<Json<Page<WebhookView>>, Problem> {
    let WebhookParams { channel, verdict, order_no, merchant_id, limit, starting_after } = params;
    let limit = PageParams { limit, starting_after: None }.limit()?;
    let order = match order_no {
        Some(order_no) => Some(key_of(&edge, order_no, merchant_id).await?),
        None if merchant_id.is_some() => {
            return Err(Problem::invalid("merchant_id", "expected an order_no beside it"));
        }
        None => None,
    };
    let after = match starting_after {
        Some(text) => Some(position(&edge, &text).await?),
        None => None,
    };
    let filter = InboxFilter { channel, verdict, order };
    let rows = webhooks::list(&edge.app, &filter, after.as_ref(), limit + 1).await?;
    Ok(Json(Page::of(rows, limit, Into::into)))
}

async fn position(edge: &Edge, text: &str) -> Result<webhooks::Position, Problem> {
    let unknown = || Problem::invalid("starting_after", "expected the webhook_id of the last entry before");
    let id: InboxId = text.parse().map_err(|_| unknown())?;
    webhooks::position(&edge.app, &id).await?.ok_or_else(unknown)
}

/// Whether it is only asked what would be done.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct ReplayBody {
    /// Says what would be done, and does nothing.
    #[serde(default)]
    dry_run: bool,
    /// Why; required unless it is a dry run.
    reason: Option<Reason>,
}

/// What a replay came to, or would come to.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::http) struct ReplayView {
    /// Whether nothing was done.
    dry_run: bool,
    /// What it was judged before.
    earlier_verdict: Verdict,
    /// How it is judged now: `REPEATED` when its money is where it belongs already.
    verdict: Verdict,
    /// What was done, or would be.
    #[schema(example = "NOTHING")]
    remedy: &'static str,
    /// Whether that changes anything.
    changes: bool,
    /// The callback as it stands.
    webhook: WebhookView,
}

impl From<ReplayError> for Problem {
    fn from(error: ReplayError) -> Self {
        match error {
            ReplayError::NotFound => Self::not_found(),
            ReplayError::NoChannel(name) => {
                let detail = format!("there is no channel {name} here; nothing was done");
                Self::new(StatusCode::CONFLICT, "UNKNOWN_CHANNEL", detail)
            }
            ReplayError::Unreadable => {
                let detail = "the kept body is not what its channel sends; nothing was done";
                Self::new(StatusCode::CONFLICT, "UNREADABLE_CALLBACK", detail)
            }
            ReplayError::Pay(error) => Self::from(error),
            ReplayError::Db(error) => Self::from(error),
        }
    }
}

/// Reads a kept callback again and judges it by what is true now. What it brought already stays where it is.
#[utoipa::path(post, path = "/admin/webhooks/{webhook_id}/replay", tag = "admin",
    request_body(content = ReplayBody, example = json!({"dry_run": true})),
    params(("webhook_id" = String, Path, description = "The callback", example = "sandbox:evt_1")),
    security(("admin_token" = [])),
    responses(
        (status = 200, body = ReplayView),
        (status = 404, body = Problem, description = "`NOT_FOUND`"),
        (status = 409, body = Problem, description = "`UNKNOWN_CHANNEL`, `UNREADABLE_CALLBACK`"),
        (status = 422, body = Problem, description = "`VALIDATION_FAILED`"),
    ))]
pub(in crate::http) async fn replay(
    State(edge): State<Edge>,
    Operator(admin): Operator,
    PathId(webhook_id): PathId<InboxId>,
    extract::Json(body): extract::Json<ReplayBody>,
) -> Result<Json<ReplayView>, Problem> {
    let ReplayBody { dry_run, reason } = body;
    if !dry_run && reason.is_none() {
        return Err(Problem::invalid("reason", "expected why, in 1 to 500 characters"));
    }
    let entry = (!dry_run).then(|| entry(admin, "webhooks.replay", webhook_id.to_string(), reason));
    let replayed = edge.owned(|app| async move { webhooks::replay(&app, &webhook_id, entry).await }).await?;
    let Replayed { kept, earlier, outcome } = replayed;
    Ok(Json(ReplayView {
        dry_run,
        earlier_verdict: earlier,
        verdict: outcome.verdict,
        remedy: outcome.remedy,
        changes: outcome.moves,
        webhook: kept.into(),
    }))
}
