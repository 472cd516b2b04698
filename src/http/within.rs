//! A request without a socket: a command asks the same router, so roles, reasons, checks and the admin log are the
//! same whichever way an operator comes.

use axum::body::{Body, Bytes};
use axum::http::{Method, Request, Response, header};
use serde_json::Value;
use tower::ServiceExt;

use super::health::Readiness;
use super::{Edge, router};
use crate::app::App;

/// Bytes of an answer at most: a page of a hundred callbacks has a few megabytes.
const MAX_ANSWER: usize = 64 << 20;

/// An answer: its status, and its body as it came.
pub type Answer = (u16, Bytes);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
#[error("the request cannot be made: {0}")]
pub struct BadCall(String);

/// Answers one request.
///
/// # Errors
/// When it is no request at all.
pub async fn answer_within(
    app: &App,
    method: &str,
    path: &str,
    token: &str,
    body: Option<(&'static str, Vec<u8>)>,
) -> Result<Answer, BadCall> {
    let bad = |error: &dyn std::fmt::Display| BadCall(error.to_string());
    let method: Method = method.parse().map_err(|error| bad(&error))?;
    let (kind, bytes) = body.unwrap_or_default();
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::HOST, "localhost")
        .header(header::AUTHORIZATION, format!("Bearer {token}"))
        .header(header::CONTENT_TYPE, kind)
        .body(Body::from(bytes))
        .map_err(|error| bad(&error))?;
    let edge = Edge::new(app.clone(), Readiness::default());
    let Ok(response) = router::router(edge, None, true).oneshot(request).await;
    read(response).await
}

async fn read(response: Response<Body>) -> Result<Answer, BadCall> {
    let status = response.status().as_u16();
    let bytes = axum::body::to_bytes(response.into_body(), MAX_ANSWER).await;
    Ok((status, bytes.map_err(|error| BadCall(error.to_string()))?))
}

/// An answer's body: JSON, or a text where it is something else. A number of many digits becomes a float.
#[must_use]
pub fn read_answer(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap_or_else(|_| match std::str::from_utf8(bytes) {
        Ok(text) if !text.is_empty() => Value::String(text.to_owned()),
        _ => Value::Null,
    })
}
