//! What happens to every request: an id, a log line, figures, and an answer also when a handler panics.

use std::any::Any;
use std::time::Instant;

use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tracing::Instrument;

use super::Edge;
use super::error::Problem;
use crate::infra::request;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const MAX_REQUEST_ID: usize = 128;

/// When a request came to the door.
#[derive(Clone, Copy, Debug)]
pub(super) struct ArrivedAt(pub(super) Instant);

/// Gives the request an id (the caller's own, where it is a sane one), a span, and a line in the figures.
pub(super) async fn observe(State(edge): State<Edge>, request: Request, next: Next) -> Response {
    let id = callers_id(&request).unwrap_or_else(|| edge.app.ids.uuid().simple().to_string());
    let method = known_method(request.method());
    let route = request.extensions().get::<MatchedPath>().map_or("unmatched", MatchedPath::as_str).to_owned();
    let span = tracing::info_span!("request", id, method, route);
    let arrived_at = request.extensions().get().map_or_else(Instant::now, |&ArrivedAt(instant)| instant);

    let mut response = request::within(id.clone(), next.run(request)).instrument(span.clone()).await;

    let status = response.status();
    span.in_scope(|| tracing::debug!(status = status.as_u16(), "answered"));
    let labels = [("method", method.to_owned()), ("route", route), ("status", status.as_str().to_owned())];
    metrics::counter!("payonce_http_requests_total", &labels).increment(1);
    metrics::histogram!("payonce_http_request_seconds", "route" => labels[1].1.clone())
        .record(arrived_at.elapsed());
    if let Ok(value) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(REQUEST_ID, value);
    }
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

/// The answer of a handler that panicked: what happened is in the log only.
pub(super) fn panicked(panic: Box<dyn Any + Send + 'static>) -> Response<Body> {
    tracing::error!(panic = message_of(panic.as_ref()), "a handler panicked");
    let detail = "a defect of the service; the same request may be repeated";
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "INTERNAL_ERROR", detail).into_response()
}

/// What a panic says: a text, or one that was put together.
fn message_of(panic: &(dyn Any + Send)) -> &str {
    let plain = panic.downcast_ref::<&str>().copied();
    plain.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_tells_its_message_also_one_that_was_put_together() {
        let count = 3;
        let plain = std::panic::catch_unwind(|| panic!("a text")).unwrap_err();
        let formatted = std::panic::catch_unwind(|| panic!("{count} texts")).unwrap_err();
        let other = std::panic::catch_unwind(|| std::panic::panic_any(7)).unwrap_err();
        let told = [plain, formatted, other].map(|panic| message_of(panic.as_ref()).to_owned());
        assert_eq!(told, ["a text", "3 texts", "no message"]);
    }
}
