//! Requests that two readers may understand differently: what a proxy in front takes for one request may be two here,
//! and the second one nobody's. Refused, and the connection is closed.
//!
//! hyper refuses most of them before they come here (lengths that differ or are no numbers, codings that do not end
//! in `chunked`, spaces before colons, folded lines). Where a request has both a length and a coding it goes by the
//! coding, and closes the connection after the answer, as RFC 9112 allows (section 6.1).

use axum::extract::Request;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Version, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::error::Problem;

/// Lets a request through that can be understood in one way only.
pub(super) async fn refuse(request: Request, next: Next) -> Response {
    let Some(expected) = expected_of(&request) else { return next.run(request).await };
    let detail = format!("expected {expected}; nothing was done");
    let problem = Problem::new(StatusCode::BAD_REQUEST, "AMBIGUOUS_REQUEST", detail);
    let mut response = problem.into_response();
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

/// Whether it is one that [`refuse`] lets through.
pub(super) fn is_plain(request: &Request) -> bool {
    expected_of(request).is_none()
}

/// What a request should have been; `None` when it is just that.
fn expected_of(request: &Request) -> Option<&'static str> {
    let (path, headers) = (request.uri().path(), request.headers());
    if !path.starts_with('/') && path != "*" {
        return Some("a path that begins with a slash");
    }
    if !has_plain_coding(headers) {
        return Some("chunked as the only Transfer-Encoding");
    }
    // RFC 9112, section 3.2: the header is required since HTTP/1.1.
    let is_host_optional = request.version() < Version::HTTP_11;
    if !has_one_host(headers, is_host_optional) {
        return Some("one Host header that names a host");
    }
    None
}

/// Codings before `chunked` would leave a body that nobody here decodes.
fn has_plain_coding(headers: &HeaderMap) -> bool {
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    let first = codings.next();
    first.is_none_or(|first| first.as_bytes().eq_ignore_ascii_case(b"chunked")) && codings.next().is_none()
}

fn has_one_host(headers: &HeaderMap, is_optional: bool) -> bool {
    let mut hosts = headers.get_all(header::HOST).iter();
    match (hosts.next(), hosts.next()) {
        (None, _) => is_optional,
        (Some(host), None) => is_host(host),
        (Some(_), Some(_)) => false,
    }
}

/// A host with or without a port. An empty one is what a client sends whose URL names none.
fn is_host(value: &HeaderValue) -> bool {
    let Ok(text) = value.to_str() else { return false };
    let Ok(authority) = text.parse::<Authority>() else { return text.is_empty() };
    // What stands before it is a user's name; what stands behind it is read as a number only when it is asked for.
    let port = text.strip_prefix(authority.host());
    port.is_some_and(|port| port.trim_start_matches(':').bytes().all(|digit| digit.is_ascii_digit()))
}
