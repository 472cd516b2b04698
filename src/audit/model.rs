//! What an audit says.

use serde::{Deserialize, Serialize};

use crate::infra::words::words;
use crate::money::Currency;

words! {
    /// When a check must hold.
    pub enum CheckKind {
        /// In every snapshot.
        Always = "A",
        /// Once its grace is over: what is in the middle is being driven to an end until then.
        Eventual = "E",
    }
}

/// What one audit found.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct AuditReport {
    /// Whether every check was made, and none found anything.
    pub ok: bool,
    /// What each check found, in the order of the invariants.
    pub checks: Vec<Check>,
    /// What could not be looked at: nothing is known of it.
    pub failed: Vec<Failed>,
    /// Money in unknown, stray or unmatched states, one line for each currency that was ever in one.
    pub money_at_risk: Vec<MoneyAtRisk>,
}

/// What one check found.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct Check {
    /// Its name; also the label of its gauge.
    #[schema(example = "order_paid_by")]
    pub id: &'static str,
    /// When it must hold.
    pub kind: CheckKind,
    /// What it claims, for people.
    pub title: &'static str,
    /// How many things break the claim.
    pub violations: i64,
    /// The first ten of them, for people.
    pub sample: Vec<String>,
}

/// A part of the audit that the database did not answer, as where it takes longer than a statement may.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct Failed {
    /// The check, or `money_at_risk`.
    #[schema(example = "history_chain")]
    pub id: &'static str,
    /// Why, in the database's words.
    #[schema(example = "canceling statement due to statement timeout")]
    pub reason: String,
}

/// Money of one currency that has not come to rest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct MoneyAtRisk {
    /// Of what.
    pub currency: Currency,
    /// Minor units; zero once all of it came to rest.
    pub amount: i64,
}
