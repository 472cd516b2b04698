//! Problem documents (RFC 9457): which failure is which status and code is decided here, or beside the
//! routes of the one feature that has it.

use std::borrow::Cow;

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::idempotency::in_progress;
use crate::idempotency::Answer;
use crate::infra::body::FieldError;
use crate::infra::db::DbError;
use crate::infra::duty::DutyError;
use crate::infra::request::request_id;
use crate::infra::tasks::TaskFailed;
use crate::merchants::MerchantError;
use crate::orders::OrderError;
use crate::pay::PayError;
use crate::usage::{HoldStatus, Refusal, UsageError};
use crate::withdrawals::WithdrawalError;

/// An answer that says what was wrong.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct Problem {
    /// A URI that names the kind of problem.
    #[serde(rename = "type")]
    pub kind: String,
    /// The kind of problem, for people.
    pub title: Cow<'static, str>,
    /// The HTTP status.
    pub status: u16,
    /// What was wrong this time, what was expected, and what became of the request.
    pub detail: String,
    /// The id of this request, as in `X-Request-Id` and in the log.
    pub request_id: String,
    /// The kind of problem, for programs: stable and upper case.
    #[schema(example = "VALIDATION_FAILED")]
    pub code: &'static str,
    /// What is wrong with which field.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<FieldError>,
    /// The channel's own code, when a channel refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channel_code: Option<String>,
    /// The channel's own words, when a channel refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channel_message: Option<String>,
    #[serde(skip)]
    retry_after_secs: Option<u32>,
}

/// The URI of a kind of problem.
pub(super) fn kind_of(code: &str) -> String {
    format!("urn:payonce:problem:{}", code.to_ascii_lowercase().replace('_', "-"))
}

impl Problem {
    /// A problem of a kind.
    pub fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        Self {
            kind: kind_of(code),
            title: status.canonical_reason().unwrap_or("Error").into(),
            status: status.as_u16(),
            detail: detail.into(),
            request_id: String::new(),
            code,
            errors: Vec::new(),
            channel_code: None,
            channel_message: None,
            retry_after_secs: None,
        }
    }

    /// Adds what is wrong with a field.
    #[must_use]
    pub fn field(mut self, field: impl Into<String>, detail: impl Into<String>) -> Self {
        self.errors.push(FieldError { field: field.into(), detail: detail.into() });
        self
    }

    /// Adds fields that differ from what is stored.
    #[must_use]
    pub(super) fn differing(self, fields: &[&'static str]) -> Self {
        fields.iter().fold(self, |problem, field| problem.field(*field, "differs from the first request"))
    }

    /// Says when to come back.
    #[must_use]
    pub(super) fn retry_after(mut self, secs: u32) -> Self {
        self.retry_after_secs = Some(secs);
        self
    }

    /// A value that is of the right form and wrong all the same.
    pub fn invalid(field: impl Into<String>, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "VALIDATION_FAILED", "the request was not carried out")
            .field(field, detail)
    }

    /// An operator's deed without its reason.
    pub(super) fn reason_is_missing() -> Self {
        Self::invalid("reason", "expected why, in 1 to 500 characters")
    }

    /// Nothing of that name, or nothing of this caller's.
    #[must_use]
    pub fn not_found() -> Self {
        Self::new(StatusCode::NOT_FOUND, "NOT_FOUND", "there is nothing of that name here")
    }

    /// A number that several merchants gave.
    pub(super) fn ambiguous_number(what: &str) -> Self {
        let detail = format!("several merchants have {what} of that number; add ?merchant_id=");
        Self::new(StatusCode::CONFLICT, "AMBIGUOUS_NUMBER", detail)
    }

    pub(super) fn unavailable(code: &'static str, detail: &str) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, code, detail).retry_after(1)
    }

    /// Somebody else has it in hand.
    pub(super) fn busy(what: &str) -> Self {
        let detail =
            format!("another request is working on this {what}; nothing was done, repeat the same request");
        Self::new(StatusCode::CONFLICT, "LOCK_BUSY", detail).retry_after(1)
    }

    /// It was begun here, and somebody else may have it in hand by now.
    fn overtaken() -> Self {
        let detail = "others got in the way of the work on this order; what was done until then stands, repeat \
                      the same request";
        Self::new(StatusCode::CONFLICT, "LOCK_BUSY", detail).retry_after(1)
    }

    /// No such order of this merchant.
    pub(super) fn order_not_found() -> Self {
        Self::new(StatusCode::NOT_FOUND, "ORDER_NOT_FOUND", "you have no order of that number")
    }

    fn internal() -> Self {
        let detail =
            "a defect of the service; what was committed before it stands, the same request may be repeated";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "INTERNAL_ERROR", detail)
    }
}

impl Problem {
    /// The same as bytes: what [`IntoResponse`] sends as the body.
    pub(super) fn into_answer(mut self) -> Answer {
        self.request_id = request_id();
        Answer { status: self.status, body: serde_json::to_vec(&self).unwrap_or_default() }
    }
}

impl IntoResponse for Problem {
    fn into_response(mut self) -> Response {
        self.request_id = request_id();
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let retry_after = self.retry_after_secs;
        let mut response = (status, Json(self)).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(secs) = retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(secs));
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

impl From<&DbError> for Problem {
    fn from(error: &DbError) -> Self {
        let source = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
        match error {
            DbError::Unavailable(_) | DbError::Contended(_) => {
                tracing::warn!(%error, source, "a request could not be served for want of the database");
                Self::unavailable(
                    "DATABASE_UNAVAILABLE",
                    "the database did not answer; repeat the same request",
                )
            }
            // An equal request was faster where there was no lock; its answer is there by now.
            DbError::Constraint { name, .. } if name == "idempotency_keys_pkey" => in_progress(),
            _ => {
                tracing::error!(%error, source, "a request met a defect");
                Self::internal()
            }
        }
    }
}

impl From<DutyError> for Problem {
    fn from(error: DutyError) -> Self {
        match error.downcast::<DbError>() {
            Ok(error) => Self::from(*error),
            Err(error) => {
                tracing::error!(%error, "a duty failed for an operator");
                Self::internal()
            }
        }
    }
}

impl From<DbError> for Problem {
    fn from(error: DbError) -> Self {
        Self::from(&error)
    }
}

impl From<TaskFailed> for Problem {
    fn from(error: TaskFailed) -> Self {
        tracing::error!(%error, "a request did not come to its end");
        match error {
            TaskFailed::Panicked => Self::internal(),
            TaskFailed::TimedOut => Self::unavailable(
                "TIMED_OUT",
                "the work takes too long; repeat the same request to see its end",
            ),
        }
    }
}

fn params_mismatch(fields: &[&'static str]) -> Problem {
    let detail = format!("the order exists and differs in {}; nothing was changed", fields.join(", "));
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "ORDER_PARAMS_MISMATCH", detail).differing(fields)
}

fn already_paid() -> Problem {
    Problem::new(StatusCode::CONFLICT, "ORDER_IS_ALREADY_PAID", "the order is paid; nothing was changed")
}

fn channel_unavailable() -> Problem {
    let detail = "the channel did not answer; nothing is lost, repeat the same request";
    Problem::unavailable("CHANNEL_UNAVAILABLE", detail).retry_after(2)
}

/// Less is there than was to be taken.
pub(super) fn insufficient_balance() -> Problem {
    let detail = "the user's available balance does not cover the amount; nothing moved";
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "INSUFFICIENT_BALANCE", detail)
}

fn unknown_channel(name: &str) -> Problem {
    let detail = format!("there is no channel {name} here; nothing was done");
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "UNKNOWN_CHANNEL", detail)
        .field("channel", "expected the name of a channel of this service")
}

impl From<&OrderError> for Problem {
    fn from(error: &OrderError) -> Self {
        let unprocessable = StatusCode::UNPROCESSABLE_ENTITY;
        match error {
            OrderError::NotFound => Self::order_not_found(),
            OrderError::ParamsMismatch(fields) => params_mismatch(fields),
            OrderError::UnknownSku(skus) => skus.iter().fold(
                Self::new(
                    unprocessable,
                    "UNKNOWN_SKU",
                    "nothing was reserved: some of the skus are not on sale",
                ),
                |problem, sku| problem.field("items", format!("there is no sku {sku}")),
            ),
            OrderError::OutOfStock(skus) => skus.iter().fold(
                Self::new(StatusCode::CONFLICT, "OUT_OF_STOCK", "nothing was reserved: not enough is left"),
                |problem, sku| problem.field("items", format!("not enough of {sku} is left")),
            ),
            OrderError::NoTopUp(field) => {
                Self::invalid(*field, "expected none: a top-up sells nothing and earns no commission")
            }
            OrderError::AlreadyPaid => already_paid(),
            OrderError::ChannelUnavailable(_) => channel_unavailable(),
            OrderError::Busy(_) => Self::busy("order"),
            OrderError::Overtaken(_) => Self::overtaken(),
            OrderError::Pay(error) => Self::from(error.as_ref()),
            OrderError::Db(error) => Self::from(error),
        }
    }
}

impl From<OrderError> for Problem {
    fn from(error: OrderError) -> Self {
        Self::from(&error)
    }
}

impl From<&PayError> for Problem {
    fn from(error: &PayError) -> Self {
        match error {
            PayError::OrderNotFound => Self::order_not_found(),
            PayError::NotFound => Self::not_found(),
            PayError::OrderAlreadyPaid => already_paid(),
            PayError::OrderClosed => {
                let detail = "the order is closed or past its deadline; make a new order";
                Self::new(StatusCode::CONFLICT, "ORDER_CLOSED", detail)
            }
            PayError::CurrencyMissing => {
                Self::invalid("currency", "expected a currency beside the amount, to make the order with")
            }
            PayError::ParamsMismatch(fields) => params_mismatch(fields),
            PayError::UnknownChannel(name) => unknown_channel(name),
            PayError::ChannelRefused(refusal) => {
                let detail = "the channel refused the payment; the order can be tried again";
                let problem = Self::new(StatusCode::PAYMENT_REQUIRED, "CHANNEL_REFUSED", detail);
                Self {
                    channel_code: Some(refusal.code.clone()),
                    channel_message: Some(refusal.message.clone()),
                    ..problem
                }
            }
            PayError::ChannelUnavailable(_) => channel_unavailable(),
            PayError::Order(error) => Self::from(error.as_ref()),
            PayError::Busy(_) => Self::busy("order"),
            PayError::Overtaken(_) => Self::overtaken(),
            PayError::Db(error) => Self::from(error),
        }
    }
}

impl From<PayError> for Problem {
    fn from(error: PayError) -> Self {
        Self::from(&error)
    }
}

impl From<WithdrawalError> for Problem {
    fn from(error: WithdrawalError) -> Self {
        let unprocessable = StatusCode::UNPROCESSABLE_ENTITY;
        match error {
            WithdrawalError::NotFound => Self::not_found(),
            WithdrawalError::ParamsMismatch(fields) => {
                let fields_text = fields.join(", ");
                let detail =
                    format!("the withdrawal exists and differs in {fields_text}; nothing was changed");
                Self::new(unprocessable, "WITHDRAWAL_PARAMS_MISMATCH", detail).differing(&fields)
            }
            WithdrawalError::InsufficientBalance => insufficient_balance(),
            WithdrawalError::UnknownChannel(name) => unknown_channel(&name),
            WithdrawalError::Busy(_) => Self::busy("user"),
            WithdrawalError::Ambiguous => Self::ambiguous_number("a withdrawal"),
            WithdrawalError::NotSentOut(status) => {
                let detail = format!(
                    "the withdrawal is {status}, and its money is not known to have gone out; nothing was changed"
                );
                Self::new(StatusCode::CONFLICT, "WITHDRAWAL_NOT_SENT_OUT", detail)
            }
            WithdrawalError::IsMade => {
                let detail = "its channel says that it made the withdrawal, and that counts: its money is known to have gone out";
                Self::new(StatusCode::CONFLICT, "WITHDRAWAL_IS_MADE", detail)
            }
            WithdrawalError::ChannelSilent(why) => {
                let detail = format!(
                    "the channel does not say now what became of the withdrawal: {why}; nothing was changed"
                );
                Self::unavailable("CHANNEL_UNAVAILABLE", &detail).retry_after(2)
            }
            WithdrawalError::Db(error) => Self::from(error),
        }
    }
}

impl From<UsageError> for Problem {
    fn from(error: UsageError) -> Self {
        match error {
            UsageError::Refused(refusal) => Self::from(&refusal),
            UsageError::UnknownMerchant => Self::not_found(),
            UsageError::ProductDiffers(fields) => {
                let names = fields.join(", ");
                let detail = format!("{names} of a product never change; nothing was changed");
                Self::new(StatusCode::CONFLICT, "PRODUCT_DIFFERS", detail).differing(&fields)
            }
            UsageError::Db(error) => Self::from(error),
        }
    }
}

impl From<&Refusal> for Problem {
    fn from(refusal: &Refusal) -> Self {
        let unprocessable = StatusCode::UNPROCESSABLE_ENTITY;
        match refusal {
            Refusal::NotFound => Self::not_found(),
            Refusal::UnknownProduct(field) => {
                let detail = "there is no such product, or no such price of it; nothing was held";
                Self::new(unprocessable, "UNKNOWN_PRODUCT", detail)
                    .field(*field, "expected one that the operator has set a price for")
            }
            Refusal::KeyReused(fields) => {
                let names = fields.join(", ");
                let detail = format!("the hold of this key exists and differs in {names}; nothing was held");
                Self::new(unprocessable, "USAGE_KEY_REUSED", detail).differing(fields)
            }
            Refusal::MessageReused { field, said } => {
                let detail =
                    format!("the message was heard before and said {said} units; nothing was changed");
                Self::new(unprocessable, "USAGE_MESSAGE_REUSED", detail).differing(&[*field])
            }
            // These two as whoever reports hears them; `usage.rs` has the words for whoever asks for a hold.
            Refusal::InsufficientBalance => {
                let detail = "the user's available balance does not cover it; what there was is set aside, and what was \
                              reported counts";
                Self::new(unprocessable, "INSUFFICIENT_BALANCE", detail)
            }
            Refusal::QuotaExceeded(left) => {
                let detail = format!(
                    "{left} units are left of the cycle's quota; no more may be used, and what was reported counts"
                );
                Self::new(unprocessable, "QUOTA_EXCEEDED", detail)
            }
            Refusal::TooMuch(field) => {
                Self::invalid(*field, "expected what comes to 1000000000000 minor units at most")
            }
            Refusal::UnitsMissing => {
                Self::invalid("units", "expected a number, because nothing was reported before; zero is zero")
            }
            Refusal::UnitsShrink(reported) => {
                let detail = format!("{reported} units were reported before; nothing was charged");
                Self::new(unprocessable, "UNITS_SHRINK", detail)
                    .field("units", format!("expected at least {reported}"))
            }
            Refusal::HoldClosed(HoldStatus::Expired) => {
                let detail = "the hold is EXPIRED, all of it is free; what is reported of it counts when it is confirmed";
                Self::new(StatusCode::CONFLICT, "HOLD_CLOSED", detail)
            }
            Refusal::HoldClosed(status) => {
                let detail = format!("the hold is {status} and does not take this; nothing was changed");
                Self::new(StatusCode::CONFLICT, "HOLD_CLOSED", detail)
            }
        }
    }
}

fn unchanged(code: &'static str, error: &MerchantError) -> Problem {
    Problem::new(StatusCode::CONFLICT, code, format!("{error}; nothing was changed"))
}

impl From<MerchantError> for Problem {
    fn from(error: MerchantError) -> Self {
        match error {
            error @ MerchantError::Exists => unchanged("MERCHANT_EXISTS", &error),
            MerchantError::NotFound => Self::not_found(),
            error @ MerchantError::StockBelowHeld(_) => unchanged("STOCK_BELOW_HELD", &error),
            error @ MerchantError::StockChanged(_) => unchanged("STOCK_CHANGED", &error),
            MerchantError::TooManySecrets(signing) => {
                let detail = format!(
                    "{signing} replaced secrets still sign notifications; nothing was changed: wait for the end of one, \
                     or end all of them now with overlap_seconds 0"
                );
                Self::new(StatusCode::CONFLICT, "TOO_MANY_SECRETS", detail)
            }
            MerchantError::BadEndpoint(wrong) => Self::invalid("notify_url", wrong),
            MerchantError::Secret(error) => {
                tracing::error!(%error, "a secret could not be encrypted");
                Self::internal()
            }
            MerchantError::Db(error) => Self::from(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_was_answered_meanwhile_is_no_defect() {
        let name = "idempotency_keys_pkey".to_owned();
        let lost = DbError::Constraint { name, source: sqlx::Error::RowNotFound };
        assert_eq!(Problem::from(&lost).code, "REQUEST_IN_PROGRESS");
    }
}
