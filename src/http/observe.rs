//! What is noted of every request: an id, a log line, and a line in the figures.

use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderName, HeaderValue, Method};
use axum::middleware::Next;
use axum::response::Response;
use tracing::Instrument;

use super::Edge;
use crate::infra::request;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const MAX_REQUEST_ID: usize = 128;

/// When a request came to the door.
#[derive(Clone, Copy, Debug)]
pub(super) struct ArrivedAt(pub(super) Instant);

/// What is noted of a request, whatever becomes of it.
struct Seen {
    id: String,
    method: &'static str,
    arrived_at: Instant,
}

impl Seen {
    /// The id is the caller's own, where it is a sane one.
    fn of(edge: &Edge, request: &Request) -> Self {
        Self {
            id: callers_id(request).unwrap_or_else(|| edge.app.ids.uuid().simple().to_string()),
            method: known_method(request.method()),
            arrived_at: request.extensions().get().map_or_else(Instant::now, |&ArrivedAt(instant)| instant),
        }
    }

    /// Puts the answer into the figures, and the id into the answer.
    fn answered(self, route: String, response: &mut Response) {
        let Self { id, method, arrived_at } = self;
        let status = response.status().as_str().to_owned();
        let labels = [("method", method.to_owned()), ("route", route), ("status", status)];
        metrics::counter!("payonce_http_requests_total", &labels).increment(1);
        metrics::histogram!("payonce_http_request_seconds", "route" => labels[1].1.clone())
            .record(arrived_at.elapsed());
        if let Ok(value) = HeaderValue::from_str(&id) {
            response.headers_mut().insert(REQUEST_ID, value);
        }
    }
}

/// Gives the request an id, a span, and a line in the figures.
pub(super) async fn on_its_way(State(edge): State<Edge>, request: Request, next: Next) -> Response {
    let seen = Seen::of(&edge, &request);
    let route = request.extensions().get::<MatchedPath>().map_or("unmatched", MatchedPath::as_str).to_owned();
    let span = tracing::info_span!("request", id = seen.id, method = seen.method, route);

    let mut response = request::within(seen.id.clone(), next.run(request)).instrument(span.clone()).await;

    span.in_scope(|| tracing::debug!(status = response.status().as_u16(), "answered"));
    seen.answered(route, &mut response);
    response
}

/// The same for one that is answered before its route is looked for.
pub(super) fn at_the_door(edge: &Edge, request: &Request, answer: impl FnOnce() -> Response) -> Response {
    let seen = Seen::of(edge, request);
    let mut response = request::within_at_once(seen.id.clone(), answer);
    tracing::debug!(
        id = seen.id,
        method = seen.method,
        status = response.status().as_u16(),
        "answered at the door"
    );
    seen.answered("door".to_owned(), &mut response);
    response
}

/// HTTP allows any word as a method; as labels, words that callers invent would be kept for ever.
fn known_method(method: &Method) -> &'static str {
    const KNOWN: [Method; 7] = [
        Method::GET,
        Method::POST,
        Method::PUT,
        Method::DELETE,
        Method::OPTIONS,
        Method::HEAD,
        Method::PATCH,
    ];
    KNOWN.iter().find(|known| *known == method).map_or("other", |known| known.as_str())
}

fn callers_id(request: &Request) -> Option<String> {
    let id = request.headers().get(&REQUEST_ID)?.to_str().ok()?;
    let is_sane = (1..=MAX_REQUEST_ID).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_graphic());
    is_sane.then(|| id.to_owned())
}
