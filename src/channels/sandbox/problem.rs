//! Errors over HTTP (RFC 9457) and bodies that are read strictly: what the service's own edge has, in small.

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;
use utoipa::ToSchema;

use super::faults::FaultError;
use super::gateway::{GatewayError, Refused};
use crate::ids::PayOrderId;
use crate::infra::body::{self, BadJson, FieldError, Unreadable};
use crate::infra::request::request_id;

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
    /// The id of this request, as in `X-Request-Id` and in the log.
    request_id: String,
    /// A stable word for programs.
    code: &'static str,
    /// What is wrong with which field.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    #[schema(value_type = Vec<FieldError>)]
    errors: Box<[FieldError]>,
}

impl Problem {
    pub(super) fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        let title = status.canonical_reason().unwrap_or("Error");
        Self {
            r#type: "about:blank",
            title,
            status: status.as_u16(),
            detail: detail.into(),
            request_id: request_id(),
            code,
            errors: Box::default(),
        }
    }

    pub(super) fn unavailable() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "SANDBOX_UNAVAILABLE", "try again later")
    }

    pub(super) fn unauthenticated(detail: &str) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "UNAUTHENTICATED", detail)
    }

    pub(super) fn forbidden(detail: &str) -> Self {
        Self::new(StatusCode::FORBIDDEN, "FORBIDDEN", detail)
    }

    fn invalid(field: &str, detail: String) -> Self {
        let errors = [FieldError { field: field.to_owned(), detail }].into();
        let problem = Self::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "VALIDATION_FAILED",
            "the request was not carried out",
        );
        Self { errors, ..problem }
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
                Self::unavailable()
            }
        }
    }
}

impl From<FaultError> for Problem {
    fn from(error: FaultError) -> Self {
        match error {
            FaultError::Books(error) => GatewayError::Books(error).into(),
            error @ FaultError::NoSense(..) => Self::invalid("fault", error.to_string()),
            error @ FaultError::OutOfRange => Self::invalid("times", error.to_string()),
        }
    }
}

/// A body as it came, bounded.
pub(super) struct RawBody(pub(super) Bytes);

impl<S: Send + Sync> FromRequest<S> for RawBody {
    type Rejection = Problem;

    async fn from_request(request: Request, _state: &S) -> Result<Self, Problem> {
        body::read(request.into_body()).await.map(Self).map_err(|unreadable| match unreadable {
            Unreadable::TooLarge => {
                Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "BODY_TOO_LARGE", "expected at most 64 KiB")
            }
            Unreadable::Incomplete => {
                Problem::new(StatusCode::BAD_REQUEST, "BODY_INCOMPLETE", "the body ended early")
            }
            Unreadable::Late => {
                Problem::new(StatusCode::REQUEST_TIMEOUT, "BODY_TIMEOUT", "the body did not arrive in time")
            }
        })
    }
}

/// A JSON body in which nothing is unknown; an empty one counts as `{}`.
pub(super) struct JsonBody<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for JsonBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let is_json = body::is_json(request.headers());
        let RawBody(body) = RawBody::from_request(request, state).await?;
        if body.is_empty() {
            return parse(b"{}").map(Self);
        }
        if !is_json {
            let detail = "expected Content-Type: application/json";
            return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UNSUPPORTED_MEDIA_TYPE", detail));
        }
        parse(&body).map(Self)
    }
}

/// Reads JSON; what is no JSON at all and what only does not fit are different errors.
pub(super) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    body::parse(bytes).map_err(|bad| match bad {
        BadJson::Malformed(error) => Problem::new(StatusCode::BAD_REQUEST, "MALFORMED_JSON", error),
        BadJson::Invalid(error) => Problem::invalid(&error.field, error.detail),
    })
}

/// The trade of the path; a text that cannot be an id names none.
pub(super) struct TradeId(pub(super) PayOrderId);

impl<S: Send + Sync> FromRequestParts<S> for TradeId {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        let id = path.ok().and_then(|Path(text)| text.parse().ok());
        Ok(Self(id.ok_or(Refused::TradeNotFound)?))
    }
}
