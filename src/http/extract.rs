//! What comes in, bounded and checked: bodies, paths, queries.

use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{FromRequest, FromRequestParts, Query, Request};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use serde::de::DeserializeOwned;

use super::error::Problem;

/// Largest body, in bytes.
pub(super) const MAX_BODY: usize = 64 * 1024;
/// Longest wait for a whole body.
const BODY_DEADLINE: Duration = Duration::from_secs(5);

/// A body as it came, up to [`MAX_BODY`] bytes.
pub(super) async fn read_body(body: Body) -> Result<Bytes, Problem> {
    match tokio::time::timeout(BODY_DEADLINE, to_bytes(body, MAX_BODY)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(error)) if is_too_large(&error) => {
            let detail = format!("the body has more than {MAX_BODY} bytes; nothing was done");
            Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "BODY_TOO_LARGE", detail))
        }
        Ok(Err(_)) => Err(Problem::new(
            StatusCode::BAD_REQUEST,
            "BODY_INCOMPLETE",
            "the body ended early; nothing was done",
        )),
        Err(_) => {
            let detail = "the body did not arrive in time; nothing was done";
            Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "BODY_TIMEOUT", detail))
        }
    }
}

fn is_too_large(error: &axum::Error) -> bool {
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        if error.to_string().contains("length limit exceeded") {
            return true;
        }
        source = error.source();
    }
    error.to_string().contains("length limit exceeded")
}

/// A JSON body of a known shape.
#[derive(Debug)]
pub(super) struct Json<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _state: &S) -> Result<Self, Problem> {
        let (parts, body) = request.into_parts();
        if !is_json(&parts) {
            let detail = "expected Content-Type: application/json; nothing was done";
            return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UNSUPPORTED_MEDIA_TYPE", detail));
        }
        parse(&read_body(body).await?).map(Self)
    }
}

fn is_json(parts: &Parts) -> bool {
    let Some(value) = parts.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()) else {
        return false;
    };
    let essence = value.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/json")
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    // PostgreSQL cannot hold U+0000 in a text; nobody's order needs one.
    if bytes.windows(6).any(|window| window == br"\u0000") {
        return Err(Problem::invalid("body", "expected text without U+0000"));
    }
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let path = error.path().to_string();
        let inner = error.into_inner();
        if inner.is_data() {
            let field = if path == "." { "body".to_owned() } else { path };
            Problem::invalid(field, inner.to_string())
        } else {
            malformed(&inner)
        }
    })?;
    deserializer.end().map_err(|error| malformed(&error))?;
    Ok(value)
}

fn malformed(error: &serde_json::Error) -> Problem {
    let detail = format!("the body is not JSON ({error}); nothing was done");
    Problem::new(StatusCode::BAD_REQUEST, "MALFORMED_JSON", detail)
}

/// A query of a known shape.
#[derive(Debug)]
pub(super) struct Params<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Params<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Problem> {
        match Query::<T>::try_from_uri(&parts.uri) {
            Ok(Query(value)) => Ok(Self(value)),
            Err(rejection) => Err(Problem::invalid("query", rejection.body_text())),
        }
    }
}

/// A path parameter that must be a valid identifier; one that cannot be names nothing.
#[derive(Debug)]
pub(super) struct PathId<T>(pub(super) T);

impl<S: Send + Sync, T: std::str::FromStr> FromRequestParts<S> for PathId<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = axum::extract::Path::<String>::from_request_parts(parts, state).await;
        let text = path.map_err(|_| Problem::not_found())?.0;
        text.parse().map(Self).map_err(|_| Problem::not_found())
    }
}
