//! `/admin`: what operators see and do. Each change carries a reason and is written to the admin log first.

use serde::Deserialize;

use super::Edge;
use super::auth::Admin;
use super::error::Problem;
use crate::admin_log::{self, Entry};
use crate::infra::request::request_id;

pub(super) mod exceptions;
pub(super) mod merchants;
pub(super) mod orders;
pub(super) mod skus;
pub(super) mod system;

/// Characters of a reason at most.
const MAX_REASON: usize = 1000;

/// Why an operator does what they do.
#[derive(Clone, Debug, Default, Deserialize, utoipa::ToSchema)]
#[serde(try_from = "String")]
#[schema(value_type = String, max_length = 1000)]
pub(super) struct Reason(String);

impl TryFrom<String> for Reason {
    type Error = &'static str;
    fn try_from(text: String) -> Result<Self, Self::Error> {
        if text.chars().count() > MAX_REASON {
            Err("expected at most 1000 characters")
        } else {
            Ok(Self(text))
        }
    }
}

impl Reason {
    fn as_str(&self) -> &str {
        &self.0
    }
}

/// Writes down who is about to do what, and why: nothing is done unlogged.
async fn log(edge: &Edge, admin: &Admin, action: &str, target: &str, reason: &Reason) -> Result<(), Problem> {
    let entry = Entry {
        actor: &admin.name,
        role: admin.role,
        action,
        target,
        reason: reason.as_str(),
        request_id: &request_id(),
    };
    Ok(admin_log::append(&edge.app, &entry).await?)
}
