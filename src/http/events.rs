//! `/events`: what a merchant is told of, to be read again by one who lost it.

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use time::OffsetDateTime;

use super::Edge;
use super::auth::SecretKey;
use super::error::Problem;
use super::extract::{Params, PathId};
use super::moment;
use super::views::{Page, PageParams};
use crate::ids::OrderNo;
use crate::outbox::{self, PastEvent, PastFilter, parse_event_id};

/// The number of an event, from its id.
#[derive(Clone, Copy, Debug)]
pub(super) struct EventId(pub(super) i64);

impl std::str::FromStr for EventId {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        parse_event_id(text).map(Self).ok_or(())
    }
}

/// The number of an event that a parameter names, where there is one.
pub(super) fn read_event_id(field: &'static str, text: Option<&str>) -> Result<Option<i64>, Problem> {
    let read =
        |text| parse_event_id(text).ok_or_else(|| Problem::invalid(field, "expected the id of an event"));
    text.map(read).transpose()
}

/// Which events.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct PastParams {
    /// Of one order number.
    order_no: Option<OrderNo>,
    /// Those that happened then or since.
    #[serde(default, deserialize_with = "moment::deserialize_any")]
    #[param(value_type = Option<String>, format = DateTime, example = "2026-11-21T00:00:00Z")]
    since: Option<OffsetDateTime>,
    /// Those that happened before.
    #[serde(default, deserialize_with = "moment::deserialize_any")]
    #[param(value_type = Option<String>, format = DateTime, example = "2026-11-22T00:00:00Z")]
    until: Option<OffsetDateTime>,
    /// Entries at most, 1 to 100; 20 by default.
    #[param(minimum = 1, maximum = 100)]
    limit: Option<u8>,
    /// The last event of the page before.
    #[param(example = "evt_42")]
    starting_after: Option<String>,
}

/// A page of your events, newest first, whether they arrived or not. With `order_no` they stand as they are told, the last
/// first; without it the number in `event_id` says which of an order's came first. One may appear a little later than its
/// `timestamp`, behind newer ones that you have read: set `since` a minute before the first that you miss.
#[utoipa::path(get, path = "/events", tag = "events", params(PastParams), security(("secret_key" = [])),
    responses(
        (status = 200, body = Page<PastEvent>),
        (status = 422, body = Problem, description = "`VALIDATION_FAILED`"),
    ))]
pub(super) async fn list(
    State(edge): State<Edge>,
    SecretKey(caller): SecretKey,
    Params(params): Params<PastParams>,
) -> Result<Json<Page<PastEvent>>, Problem> {
    let limit = PageParams { limit: params.limit, starting_after: None }.limit()?;
    let (db, merchant_id) = (&edge.app.db, &caller.merchant_id);
    let after = match read_event_id("starting_after", params.starting_after.as_deref())? {
        None => None,
        Some(id) => {
            let unknown = || Problem::invalid("starting_after", "expected the id of an event of yours");
            let last = outbox::find_past(db, merchant_id, id).await?.ok_or_else(unknown)?;
            Some((last.timestamp, id))
        }
    };
    let filter =
        PastFilter { order_no: params.order_no.as_ref(), since: params.since, until: params.until, after };
    let rows = outbox::list_past(db, merchant_id, filter, limit + 1).await?;
    Ok(Json(Page::of(rows, limit, |event| event)))
}

/// One of your events.
#[utoipa::path(get, path = "/events/{event_id}", tag = "events",
    params(("event_id" = String, Path, description = "The event: its `webhook-id`", example = "evt_42")),
    security(("secret_key" = [])),
    responses(
        (status = 200, body = PastEvent),
        (status = 404, body = Problem, description = "`NOT_FOUND`"),
    ))]
pub(super) async fn find(
    State(edge): State<Edge>,
    SecretKey(caller): SecretKey,
    PathId(EventId(id)): PathId<EventId>,
) -> Result<Json<PastEvent>, Problem> {
    let event = outbox::find_past(&edge.app.db, &caller.merchant_id, id).await?;
    Ok(Json(event.ok_or_else(Problem::not_found)?))
}
