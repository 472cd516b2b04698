//! The answer of a handler that panicked.

use std::any::Any;

use axum::body::Body;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use super::error::Problem;
use crate::infra::panics::message_of;

/// What happened is in the log only.
pub(super) fn answer(panic: Box<dyn Any + Send + 'static>) -> Response<Body> {
    tracing::error!(panic = message_of(panic.as_ref()), "a handler panicked");
    let detail = "a defect of the service; the same request may be repeated";
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "INTERNAL_ERROR", detail).into_response()
}
