//! Errors over HTTP (RFC 9457) and bodies that are read strictly: what the service's own edge has, in small.

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{FromRequest, Request};
use axum::http::header::{CONTENT_TYPE, HeaderMap};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::error::Category;
use utoipa::ToSchema;

use super::faults::FaultError;
use super::gateway::{GatewayError, Refused};

/// An error as the caller reads it.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SandboxProblem)]
pub(super) struct Problem {
    /// Always `about:blank`: the code says more.
    r#type: &'static str,
    /// The HTTP status in words.
    title: &'static str,
    /// The HTTP status.
    status: u16,
    /// A sentence for people.
    detail: String,
    /// A stable word for programs.
    code: &'static str,
}

impl Problem {
    pub(super) fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        let title = status.canonical_reason().unwrap_or("Error");
        Self { r#type: "about:blank", title, status: status.as_u16(), detail: detail.into(), code }
    }

    pub(super) fn unauthenticated(detail: &str) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "UNAUTHENTICATED", detail)
    }

    fn invalid(detail: String) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "VALIDATION_FAILED", detail)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, axum::Json(self)).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if status == StatusCode::UNAUTHORIZED {
            headers.insert("WWW-Authenticate", HeaderValue::from_static("Bearer"));
        }
        response
    }
}

impl From<Refused> for Problem {
    fn from(refused: Refused) -> Self {
        let status = match refused {
            Refused::TradeNotFound => StatusCode::NOT_FOUND,
            _ => StatusCode::CONFLICT,
        };
        Self::new(status, refused.code(), refused.to_string())
    }
}

impl From<GatewayError> for Problem {
    fn from(error: GatewayError) -> Self {
        match error {
            GatewayError::Refused(refused) => refused.into(),
            GatewayError::NoAnswer => {
                Self::new(StatusCode::GATEWAY_TIMEOUT, "NO_ANSWER", "the answer was lost")
            }
            GatewayError::Books(error) => {
                tracing::error!(error = &error as &dyn std::error::Error, "the sandbox's books failed");
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "SANDBOX_UNAVAILABLE", "try again later")
            }
        }
    }
}

impl From<FaultError> for Problem {
    fn from(error: FaultError) -> Self {
        match error {
            FaultError::Books(error) => GatewayError::Books(error).into(),
            error => Self::invalid(error.to_string()),
        }
    }
}

/// A JSON body in which nothing is unknown; an empty one counts as `{}`.
pub(super) struct JsonBody<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for JsonBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let headers = request.headers().clone();
        let body = Bytes::from_request(request, state).await.map_err(unreadable)?;
        if body.is_empty() {
            return parse(b"{}").map(Self);
        }
        if !is_json(&headers) {
            let detail = "expected Content-Type: application/json";
            return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UNSUPPORTED_MEDIA_TYPE", detail));
        }
        parse(&body).map(Self)
    }
}

/// Reads JSON; what is no JSON at all and what only does not fit are different errors.
pub(super) fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(body).map_err(|error| match error.classify() {
        Category::Data => Problem::invalid(error.to_string()),
        _ => Problem::new(StatusCode::BAD_REQUEST, "MALFORMED_JSON", error.to_string()),
    })
}

fn is_json(headers: &HeaderMap) -> bool {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
}

fn unreadable(rejection: BytesRejection) -> Problem {
    match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => {
            Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "BODY_TOO_LARGE", "expected at most 64 KiB")
        }
        _ => Problem::new(StatusCode::BAD_REQUEST, "MALFORMED_JSON", "the body broke off"),
    }
}
