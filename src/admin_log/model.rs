//! What the log tells.

use serde::Serialize;
use time::OffsetDateTime;

use crate::config::Role;
use crate::orders::OrderKey;

/// One thing that an operator does.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Who.
    pub actor: String,
    /// By which role.
    pub role: Role,
    /// What, such as `merchants.create`.
    pub action: &'static str,
    /// To what.
    pub target: String,
    /// The order that it concerns, where there is one.
    pub order: Option<OrderKey>,
    /// Why.
    pub reason: String,
    /// The request, as in the log of the process.
    pub request_id: String,
}

/// An entry as it stands.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct Logged {
    /// Its number; a page starts after one.
    pub log_id: i64,
    /// Who.
    #[schema(example = "anna")]
    pub actor: String,
    /// By which role.
    #[schema(example = "operator")]
    pub role: String,
    /// What.
    #[schema(example = "merchants.rotate_keys")]
    pub action: String,
    /// To what.
    pub target: String,
    /// Whose order it concerns.
    pub merchant_id: Option<String>,
    /// Which order it concerns.
    pub order_no: Option<String>,
    /// Why.
    pub reason: String,
    /// The request, as in the log of the process.
    pub request_id: String,
    /// When.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
}

/// Which entries.
#[derive(Clone, Copy, Debug)]
pub struct LogFilter<'a> {
    /// Of one operator.
    pub actor: Option<&'a str>,
    /// Before this one: the last of the page before.
    pub before: Option<i64>,
    /// How many.
    pub limit: i64,
}
