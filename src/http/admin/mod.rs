//! `/admin`: what operators see and do. Each change carries a reason and is written to the admin log: in its own
//! transaction where it is one, before it otherwise.

use serde::Deserialize;

use super::auth::Admin;
use crate::admin_log::Entry;
use crate::infra::request::request_id;

pub(super) mod compensations;
pub(super) mod exceptions;
pub(super) mod lanes;
pub(super) mod ledger;
pub(super) mod merchants;
pub(super) mod notifications;
pub(super) mod orders;
pub(super) mod receivables;
pub(super) mod reconciliations;
pub(super) mod refunds;
pub(super) mod settlements;
pub(super) mod skus;
pub(super) mod system;
pub(super) mod usage;
pub(super) mod users;
pub(super) mod webhooks;
pub(super) mod withdrawals;

/// Characters of a reason at most.
pub(in crate::http) const MAX_REASON: usize = 500;

/// Why an operator does what they do.
#[derive(Clone, Debug, Deserialize, utoipa::ToSchema)]
#[serde(try_from = "String")]
#[schema(value_type = String, min_length = 1, max_length = 500, example = "ticket 4711")]
pub(crate) struct Reason(String);

impl TryFrom<String> for Reason {
    type Error = &'static str;
    fn try_from(text: String) -> Result<Self, Self::Error> {
        if text.trim().is_empty() || text.chars().count() > MAX_REASON {
            Err("expected why, in 1 to 500 characters, not only spaces")
        } else {
            Ok(Self(text))
        }
    }
}

impl From<Reason> for String {
    fn from(reason: Reason) -> Self {
        reason.0
    }
}

/// What the admin log says of a deed that may go without a reason.
pub(super) fn entry(
    admin: Admin,
    action: &'static str,
    target: impl Into<String>,
    reason: Option<Reason>,
) -> Entry {
    Entry {
        actor: admin.name,
        role: admin.role,
        action,
        target: target.into(),
        order: None,
        reason: reason.map(String::from).unwrap_or_default(),
        request_id: request_id(),
    }
}
