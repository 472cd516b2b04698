//! Our books against the channels': days, their differences, and what a person decides over them.

use std::time::Duration;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, Stream};
use futures_util::{StreamExt, TryStreamExt};
use serde::{Deserialize, Serialize};
use time::Date;
use utoipa::ToSchema;

use super::super::Edge;
use super::super::auth::{Operator, Viewer};
use super::super::error::Problem;
use super::super::extract::{self, Params, PathId};
use super::super::views::{Page, PageParams};
use super::{Reason, entry};
use crate::channels::bills::Format;
use crate::ids::{ReconciliationId, ReconciliationItemId};
use crate::reconciliation::model::{Class, Item, ItemStatus, Seen};
use crate::reconciliation::{
    self, Decision, NewReconciliation, NewUpload, ReconciliationError, Report, Uploaded,
};

/// Longest wait for the next piece of an upload.
const PIECE_DEADLINE: Duration = Duration::from_secs(10);
/// Differences of one page of the CSV.
const CSV_PAGE: usize = 1_000;

impl From<ReconciliationError> for Problem {
    fn from(error: ReconciliationError) -> Self {
        let conflict = StatusCode::CONFLICT;
        match error {
            ReconciliationError::NotFound => Self::not_found(),
            ReconciliationError::UnknownChannel(name) => {
                let detail = format!("there is no channel {name} here; nothing was begun");
                Self::new(StatusCode::UNPROCESSABLE_ENTITY, "UNKNOWN_CHANNEL", detail)
                    .field("channel", "expected the name of a channel")
            }
            ReconciliationError::DayNotOver(day) => {
                let detail = format!("the day {day} is not over at this channel; nothing was begun");
                Self::new(conflict, "DAY_NOT_OVER", detail)
            }
            ReconciliationError::NotWaiting(status) => {
                let detail = format!("the difference is {status} and waits for nobody; nothing was changed");
                Self::new(conflict, "DIFFERENCE_NOT_WAITING", detail)
            }
            ReconciliationError::NotAgreed { moves_money } => {
                let detail = if moves_money {
                    "what is proposed gives money back or takes it from a user; nothing was changed"
                } else {
                    "what is proposed moves no money; nothing was changed"
                };
                Self::new(conflict, "DIFFERENCE_NOT_AGREED", detail)
                    .field("moves_money", format!("expected {moves_money}, as the difference says by now"))
            }
            ReconciliationError::NotAsSeen(now) => {
                let now = serde_json::json!(now);
                let detail = "the difference is another one by now; nothing was changed, look at it again";
                Self::new(conflict, "DIFFERENCE_CHANGED", detail)
                    .field("seen", format!("expected {now}, as the difference says by now"))
            }
            ReconciliationError::NotCompared => {
                let detail = "its day is being compared anew, and may find none; nothing was changed, look at it again then";
                Self::new(conflict, "DIFFERENCE_CHANGED", detail)
            }
            ReconciliationError::NotCharged(status) => {
                let detail = format!("the difference is {status} and charged nobody; nothing was changed");
                Self::new(conflict, "DIFFERENCE_NOT_CHARGED", detail)
            }
            ReconciliationError::UploadIncomplete(why) => {
                let detail = format!("the file ended early ({why}); nothing was begun, send it again");
                Self::new(StatusCode::BAD_REQUEST, "BODY_INCOMPLETE", detail)
            }
            ReconciliationError::UploadTooLarge(most) => {
                let detail = format!("the file has more than {most} bytes; nothing was begun");
                Self::new(StatusCode::PAYLOAD_TOO_LARGE, "BODY_TOO_LARGE", detail)
            }
            ReconciliationError::Checksum => {
                let detail =
                    "the bytes that came are not those of the checksum; nothing was begun, send it again";
                Self::new(StatusCode::UNPROCESSABLE_ENTITY, "CHECKSUM_MISMATCH", detail)
                    .field("checksum", "expected SHA-1 or SHA-256 of the file, in hex")
            }
            ReconciliationError::Statement(bad) => {
                let detail =
                    format!("the statement cannot be used ({bad}); the day has one already, and keeps it");
                Self::new(StatusCode::UNPROCESSABLE_ENTITY, "STATEMENT_REFUSED", detail)
            }
            ReconciliationError::NotGiven(why) => {
                let detail = format!("{why}; the day has a statement, and keeps it");
                Self::unavailable("CHANNEL_UNAVAILABLE", &detail).retry_after(60)
            }
            ReconciliationError::Db(error) => Self::from(error),
        }
    }
}

fn day(text: &str) -> Result<Date, Problem> {
    reconciliation::read_day(text).ok_or_else(|| Problem::invalid("day", "expected a day as YYYY-MM-DD"))
}

/// What to compare.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct BeginBody {
    /// Whose statement.
    channel: String,
    /// Of which day of the channel's calendar.
    day: String,
    /// Why.
    reason: Option<Reason>,
}

/// Compares a day with the channel's own statement. Again, it begins anew, and nothing is done a second time; where the day has
/// a statement, that one is kept unless the channel gives another.
#[utoipa::path(post, path = "/admin/reconciliations", tag = "admin",
    request_body(content = BeginBody,
        example = json!({"channel": "sandbox", "day": "2026-11-20", "reason": "the day was late"})),
    security(("admin_token" = [])),
    responses(
        (status = 200, body = Report),
        (status = 409, body = Problem, description = "`DAY_NOT_OVER`: nothing was begun"),
        (status = 422, body = Problem,
            description = "`VALIDATION_FAILED`, `UNKNOWN_CHANNEL`, `STATEMENT_REFUSED`: nothing was begun"),
        (status = 503, body = Problem,
            description = "`CHANNEL_UNAVAILABLE`: the day has a statement, and the channel gives no other; nothing was begun"),
    ))]
pub(in crate::http) async fn begin(
    State(edge): State<Edge>,
    Operator(admin): Operator,
    extract::Json(body): extract::Json<BeginBody>,
) -> Result<Json<Report>, Problem> {
    let new = NewReconciliation { day: day(&body.day)?, channel: body.channel };
    let entry = entry(admin, "reconciliations.begin", format!("{} {}", new.channel, new.day), body.reason);
    let run = edge.owned(|app| async move { reconciliation::begin(&app, &new, Some(entry)).await });
    Ok(Json(run.await?.into()))
}

/// What an upload is.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct UploadParams {
    /// Whose statement.
    #[param(example = "sandbox")]
    channel: String,
    /// Of which day of the channel's calendar.
    #[param(example = "2026-11-20")]
    day: String,
    /// What it looks like; as the channel is called, by default.
    format: Option<Format>,
    /// SHA-1 or SHA-256 of the file in hex, where its channel gives one.
    checksum: Option<String>,
    /// Compare it also where nothing of ours stands in it although something moved here, be it no line at all or payments of
    /// strangers alone: the channel truly has nothing of that day. It excuses nothing else, and no other upload.
    #[serde(default)]
    #[param(example = true)]
    accept_empty: bool,
    /// Why.
    #[param(value_type = String, example = "the channel sent it by mail")]
    reason: Reason,
}

/// What came of an upload.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::http) struct UploadedView {
    /// The day that it is compared with.
    reconciliation: Report,
    /// Bytes that came.
    bytes: u64,
    /// Their SHA-256 in hex.
    sha256: String,
}

/// Compares a day with a statement from a file: the sandbox's CSV, Alipay's CSV or zip, WeChat Pay's or Stripe's CSV.
/// Nothing is applied from one that does not add up; the day then waits for the right one. So it does where one has no line, or
/// payments of which none is known here, although something was paid here on that day, unless `accept_empty` says that this is
/// right. The same file once more is compared once more, with what came here since, and nothing is done a second time.
#[utoipa::path(post, path = "/admin/reconciliations/upload", tag = "admin", params(UploadParams),
    request_body(content = String, content_type = "application/octet-stream",
        description = "The file, byte for byte, of any size",
        example = "#statement,sandbox,2026-11-20\nkind,our_id,channel_id,amount,currency,at,fee\n#end,0,0\n"),
    security(("admin_token" = [])),
    responses(
        (status = 200, body = UploadedView),
        (status = 409, body = Problem, description = "`DAY_NOT_OVER`: nothing was begun"),
        (status = 422, body = Problem,
            description = "`VALIDATION_FAILED`, `UNKNOWN_CHANNEL`, `CHECKSUM_MISMATCH`, `STATEMENT_REFUSED`: nothing was begun"),
    ))]
pub(in crate::http) async fn upload(
    State(edge): State<Edge>,
    Operator(admin): Operator,
    Params(params): Params<UploadParams>,
    body: Body,
) -> Result<Json<UploadedView>, Problem> {
    let UploadParams { channel, day: text, format, checksum, accept_empty, reason } = params;
    let unknown = || ReconciliationError::UnknownChannel(channel.clone());
    let format = format.or_else(|| Format::of_channel(&channel)).ok_or_else(unknown)?;
    let new = NewUpload { day: day(&text)?, channel, format, checksum, accepts_empty: accept_empty };
    let entry = entry(admin, "reconciliations.upload", new.to_string(), Some(reason));
    // Who hangs up leaves pieces that nobody reads, so this needs no task of its own.
    let uploaded = Box::pin(reconciliation::upload(&edge.app, &new, pieces(body), Some(entry))).await?;
    let Uploaded { reconciliation, bytes, sha256 } = uploaded;
    Ok(Json(UploadedView { reconciliation: reconciliation.into(), bytes, sha256 }))
}

/// The body as it comes. It may take as long as it takes, but no piece of it longer than its deadline.
fn pieces(body: Body) -> impl Stream<Item = Result<Bytes, String>> {
    stream::try_unfold(Box::pin(body.into_data_stream()), |mut body| async move {
        match tokio::time::timeout(PIECE_DEADLINE, body.next()).await {
            Ok(Some(Ok(piece))) => Ok(Some((piece, body))),
            Ok(Some(Err(error))) => Err(error.to_string()),
            Ok(None) => Ok(None),
            Err(_) => Err("the next piece did not arrive in time".to_owned()),
        }
    })
}

/// Which days.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct RunParams {
    /// Of one channel.
    channel: Option<String>,
    /// Entries at most, 1 to 100; 20 by default.
    #[param(minimum = 1, maximum = 100)]
    limit: Option<u8>,
    /// The last entry of the page before.
    starting_after: Option<String>,
}

/// A page of days that were compared, newest first.
#[utoipa::path(get, path = "/admin/reconciliations", tag = "admin", params(RunParams),
    security(("admin_token" = [])),
    responses((status = 200, body = Page<Report>), (status = 422, body = Problem)))]
pub(in crate::http) async fn list(
    State(edge): State<Edge>,
    _viewer: Viewer,
    Params(params): Params<RunParams>,
) -> Result<Json<Page<Report>>, Problem> {
    let page = PageParams { limit: params.limit, starting_after: params.starting_after };
    let (limit, after) = (page.limit()?, page.starting_after.as_deref());
    let rows = reconciliation::list(&edge.app, params.channel.as_deref(), after, limit + 1).await?;
    Ok(Json(Page::of(rows, limit, Into::into)))
}

/// A channel's day: totals by kind and currency, ours against theirs, and what became of the differences.
#[utoipa::path(get, path = "/admin/reconciliations/{reconciliation_id}", tag = "admin",
    params(("reconciliation_id" = ReconciliationId, Path, description = "The day")),
    security(("admin_token" = [])),
    responses((status = 200, body = Report), (status = 404, body = Problem, description = "`NOT_FOUND`")))]
pub(in crate::http) async fn find(
    State(edge): State<Edge>,
    _viewer: Viewer,
    PathId(id): PathId<ReconciliationId>,
) -> Result<Json<Report>, Problem> {
    Ok(Json(reconciliation::find(&edge.app, id.as_str()).await?.into()))
}

/// Which differences.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct ItemParams {
    /// In one state.
    status: Option<ItemStatus>,
    /// Of one class.
    class: Option<Class>,
    /// Entries at most, 1 to 100; 20 by default.
    #[param(minimum = 1, maximum = 100)]
    limit: Option<u8>,
    /// The last entry of the page before.
    starting_after: Option<String>,
}

/// A page of a day's differences.
#[utoipa::path(get, path = "/admin/reconciliations/{reconciliation_id}/items", tag = "admin",
    params(("reconciliation_id" = ReconciliationId, Path, description = "The day"), ItemParams),
    security(("admin_token" = [])),
    responses(
        (status = 200, body = Page<Item>),
        (status = 404, body = Problem, description = "`NOT_FOUND`"),
        (status = 422, body = Problem),
    ))]
pub(in crate::http) async fn list_items(
    State(edge): State<Edge>,
    _viewer: Viewer,
    PathId(id): PathId<ReconciliationId>,
    Params(params): Params<ItemParams>,
) -> Result<Json<Page<Item>>, Problem> {
    let ItemParams { status, class, limit, starting_after } = params;
    let page = PageParams { limit, starting_after };
    let (limit, after) = (page.limit()?, page.starting_after.as_deref());
    reconciliation::find(&edge.app, id.as_str()).await?;
    let rows = reconciliation::list_items(&edge.app, id.as_str(), status, class, after, limit + 1).await?;
    Ok(Json(Page::of(rows, limit, |item| item)))
}

/// All differences of a day as CSV.
#[utoipa::path(get, path = "/admin/reconciliations/{reconciliation_id}/items.csv", tag = "admin",
    params(("reconciliation_id" = ReconciliationId, Path, description = "The day")),
    security(("admin_token" = [])),
    responses(
        (status = 200, body = String, content_type = "text/csv", example = "item_id,class,kind\n"),
        (status = 404, body = Problem, description = "`NOT_FOUND`"),
    ))]
pub(in crate::http) async fn csv(
    State(edge): State<Edge>,
    _viewer: Viewer,
    PathId(id): PathId<ReconciliationId>,
) -> Result<Response, Problem> {
    reconciliation::find(&edge.app, id.as_str()).await?;
    let app = edge.app.clone();
    let pages = stream::try_unfold(Some(None::<String>), move |after| {
        let (app, id) = (app.clone(), id.clone());
        async move {
            let Some(after) = after else { return Ok(None) };
            let (text, next) = reconciliation::csv(&app, id.as_str(), after.as_deref(), CSV_PAGE).await?;
            Ok::<_, crate::infra::db::DbError>(Some((text, next.map(Some))))
        }
    });
    let body = Body::from_stream(pages.map_ok(Bytes::from));
    Ok(([(header::CONTENT_TYPE, "text/csv; charset=utf-8")], body).into_response())
}

/// A person's decision.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct DifferenceBody {
    /// Why.
    reason: Reason,
}

/// A person's consent.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct ApprovalBody {
    /// Why.
    reason: Reason,
    /// As the difference said when it was looked at: `true` where money may be given back, or taken from a user. One that
    /// was approved before may be back with more than that, under the same id.
    #[serde(default)]
    moves_money: bool,
    /// What was looked at: where the difference is another one by now, nothing is decided.
    seen: Option<Seen>,
}

/// A person's wish to leave it so.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct DismissalBody {
    /// Why.
    reason: Reason,
    /// What was looked at: where the difference is another one by now, nothing is decided.
    seen: Option<Seen>,
}

/// Has a difference carried out that waits for a person, or tried again where nothing came of it.
#[utoipa::path(post, path = "/admin/reconciliation-items/{item_id}/approve", tag = "admin",
    request_body(content = ApprovalBody, example = json!({"reason": "checked with the channel", "moves_money": true,
                                                            "seen": {"our_id": "po_1", "currency": "CNY", "ours": 1990, "theirs": null}})),
    params(("item_id" = ReconciliationItemId, Path, description = "The difference")),
    security(("admin_token" = [])),
    responses(
        (status = 200, body = Item),
        (status = 404, body = Problem, description = "`NOT_FOUND`"),
        (status = 409, body = Problem,
         description = "`DIFFERENCE_NOT_WAITING`, `DIFFERENCE_NOT_AGREED`, `DIFFERENCE_CHANGED`: nothing was changed"),
    ))]
pub(in crate::http) async fn approve(
    State(edge): State<Edge>,
    Operator(admin): Operator,
    PathId(item_id): PathId<ReconciliationItemId>,
    extract::Json(body): extract::Json<ApprovalBody>,
) -> Result<Json<Item>, Problem> {
    let entry = entry(admin, "reconciliations.approve", item_id.as_str(), Some(body.reason));
    let decision = Decision::Approve { moves_money: body.moves_money };
    decide(&edge, item_id, decision, body.seen, entry).await
}

/// Leaves a difference as it is.
#[utoipa::path(post, path = "/admin/reconciliation-items/{item_id}/dismiss", tag = "admin",
    request_body(content = DismissalBody, example = json!({"reason": "the channel has put it right by hand",
                                                            "seen": {"our_id": "po_1", "currency": "CNY", "ours": 1990, "theirs": 1989}})),
    params(("item_id" = ReconciliationItemId, Path, description = "The difference")),
    security(("admin_token" = [])),
    responses(
        (status = 200, body = Item),
        (status = 404, body = Problem, description = "`NOT_FOUND`"),
        (status = 409, body = Problem, description = "`DIFFERENCE_NOT_WAITING`, `DIFFERENCE_CHANGED`: nothing was changed"),
    ))]
pub(in crate::http) async fn dismiss(
    State(edge): State<Edge>,
    Operator(admin): Operator,
    PathId(item_id): PathId<ReconciliationItemId>,
    extract::Json(body): extract::Json<DismissalBody>,
) -> Result<Json<Item>, Problem> {
    let entry = entry(admin, "reconciliations.dismiss", item_id.as_str(), Some(body.reason));
    decide(&edge, item_id, Decision::Dismiss, body.seen, entry).await
}

/// Gives back what a user was charged for a difference, because its money came after all or was not theirs to pay: what
/// they owe for it is owed no more, what was written off of that is their merchant's again, and what was taken from them
/// theirs. Again, it gives the difference as it stands.
#[utoipa::path(post, path = "/admin/reconciliation-items/{item_id}/reverse-charge", tag = "admin",
    request_body(content = DifferenceBody, example = json!({"reason": "the money came on the next statement"})),
    params(("item_id" = ReconciliationItemId, Path, description = "The difference")),
    security(("admin_token" = [])),
    responses(
        (status = 200, body = Item),
        (status = 404, body = Problem, description = "`NOT_FOUND`"),
        (status = 409, body = Problem, description = "`DIFFERENCE_NOT_CHARGED`: nothing was changed"),
    ))]
pub(in crate::http) async fn reverse_charge(
    State(edge): State<Edge>,
    Operator(admin): Operator,
    PathId(item_id): PathId<ReconciliationItemId>,
    extract::Json(body): extract::Json<DifferenceBody>,
) -> Result<Json<Item>, Problem> {
    let entry = entry(admin, "reconciliations.reverse_charge", item_id.as_str(), Some(body.reason));
    let reversed =
        edge.owned(|app| async move { reconciliation::reverse_charge(&app, item_id.as_str(), &entry).await });
    Ok(Json(reversed.await?))
}

async fn decide(
    edge: &Edge,
    item_id: ReconciliationItemId,
    decision: Decision,
    seen: Option<Seen>,
    entry: crate::admin_log::Entry,
) -> Result<Json<Item>, Problem> {
    let decided = edge.owned(|app| async move {
        reconciliation::decide(&app, item_id.as_str(), decision, seen.as_ref(), &entry).await
    });
    Ok(Json(decided.await?))
}
