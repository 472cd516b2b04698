//! What the doctor says.

use serde::Serialize;

use crate::infra::words::words;

words! {
    /// How it stands with one thing.
    pub enum Health {
        /// As it should be.
        Fine = "FINE",
        /// Worth knowing; nothing has to be done.
        Note = "NOTE",
        /// Wrong: do what `mend` says.
        Wrong = "WRONG",
        /// Cannot be told, because something before it is wrong.
        Unknown = "UNKNOWN",
    }
}

/// What was found about one thing.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// What was looked at, such as `database.durability`.
    pub check: String,
    /// How it stands.
    pub health: Health,
    /// What was found.
    pub found: String,
    /// The line that mends it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mend: Option<String>,
}

/// Everything that was found.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Whether nothing is wrong.
    pub ok: bool,
    /// One finding for each check.
    pub findings: Vec<Finding>,
}

impl Report {
    pub(super) fn of(findings: Vec<Finding>) -> Self {
        Self { ok: findings.iter().all(|finding| finding.health != Health::Wrong), findings }
    }
}

impl Finding {
    fn new(check: impl Into<String>, health: Health, found: impl Into<String>) -> Self {
        Self { check: check.into(), health, found: found.into(), mend: None }
    }

    pub(super) fn fine(check: impl Into<String>, found: impl Into<String>) -> Self {
        Self::new(check, Health::Fine, found)
    }

    pub(super) fn note(check: impl Into<String>, found: impl Into<String>) -> Self {
        Self::new(check, Health::Note, found)
    }

    pub(super) fn unknown(check: impl Into<String>, found: impl Into<String>) -> Self {
        Self::new(check, Health::Unknown, found)
    }

    pub(super) fn wrong(check: impl Into<String>, found: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { mend: Some(mend.into()), ..Self::new(check, Health::Wrong, found) }
    }
}
