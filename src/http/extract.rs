//! What comes in, bounded and checked: bodies, paths, queries.

use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, FromRequestParts, Query, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

use super::error::Problem;
use super::overload::{listen, take_place};
use crate::infra::body::{self, BadJson, MAX_BODY, Unreadable};

/// A body as it came, up to [`MAX_BODY`] bytes. With it the request has its place among those under way.
pub(super) async fn read_body(parts: &Parts, body: Body) -> Result<Bytes, Problem> {
    let listening = listen(parts)?;
    let read = body::read(body).await.map_err(|unreadable| match unreadable {
        Unreadable::TooLarge => {
            let detail = format!("the body has more than {MAX_BODY} bytes; nothing was done");
            Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "BODY_TOO_LARGE", detail)
        }
        Unreadable::Incomplete => {
            let detail = "the body ended early; nothing was done";
            Problem::new(StatusCode::BAD_REQUEST, "BODY_INCOMPLETE", detail)
        }
        Unreadable::Late => {
            let detail = "the body did not arrive in time; nothing was done";
            Problem::new(StatusCode::REQUEST_TIMEOUT, "BODY_TIMEOUT", detail)
        }
    })?;
    drop(listening);
    take_place(parts)?;
    Ok(read)
}

/// A body that is announced as JSON.
pub(super) async fn json_bytes(parts: &Parts, body: Body) -> Result<Bytes, Problem> {
    if !body::is_json(&parts.headers) {
        let detail = "expected Content-Type: application/json; nothing was done";
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UNSUPPORTED_MEDIA_TYPE", detail));
    }
    read_body(parts, body).await
}

/// A JSON body of a known shape.
#[derive(Debug)]
pub(super) struct Json<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _state: &S) -> Result<Self, Problem> {
        let (parts, body) = request.into_parts();
        Ok(Self(body::parse(&json_bytes(&parts, body).await?)?))
    }
}

impl From<BadJson> for Problem {
    fn from(bad: BadJson) -> Self {
        match bad {
            BadJson::Malformed(error) => {
                let detail = format!("the body is not JSON ({error}); nothing was done");
                Self::new(StatusCode::BAD_REQUEST, "MALFORMED_JSON", detail)
            }
            BadJson::Invalid(error) => Self::invalid(error.field, error.detail),
        }
    }
}

/// A query of a known shape.
#[derive(Debug)]
pub(super) struct Params<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Params<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Problem> {
        // PostgreSQL cannot hold U+0000 in a text.
        if parts.uri.query().is_some_and(|query| query.contains("%00")) {
            return Err(Problem::invalid("query", "expected text without U+0000"));
        }
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
