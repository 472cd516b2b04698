//! A channel's day as people read it: ours against theirs.

use std::collections::BTreeMap;

use serde::Serialize;
use time::OffsetDateTime;
use utoipa::ToSchema;

use super::model::{DayStatus, Reconciliation, Source, Total};
use crate::channels::bills::{Fault, Format};

/// One kind of movement in one currency, in minor units.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct TotalLine {
    /// What kind of movement.
    #[schema(example = "PAYMENT")]
    pub kind: String,
    /// Of what.
    #[schema(example = "CNY")]
    pub currency: String,
    /// Ours and theirs.
    #[serde(flatten)]
    pub total: Total,
    /// Ours less theirs.
    pub drift: i64,
    /// What neither the differences nor the day's edge explains: zero, or something moved here meanwhile.
    pub unexplained: i64,
}

/// A channel's day, compared.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Report {
    /// Its id.
    #[schema(example = "rc_06H8K2M4N6P8R0T2V4X6Z8B0D2")]
    pub reconciliation_id: String,
    /// Whose statement.
    #[schema(example = "sandbox")]
    pub channel: String,
    /// Which day of the channel's.
    #[schema(example = "2026-11-20")]
    pub day: String,
    /// Where it stands.
    pub status: DayStatus,
    /// How often it was begun.
    pub round: i32,
    /// Where the statement comes from.
    pub source: Source,
    /// Of an upload, what it looks like.
    pub format: Option<Format>,
    /// And its fingerprint, as whoever brought it was told.
    pub file_sha256: Option<String>,
    /// Lines that are here.
    pub lines: i64,
    /// Ours against theirs when they were compared.
    pub totals: Vec<TotalLine>,
    /// Differences by class and state.
    #[schema(example = json!({"MISSING_HERE APPLIED": 2}))]
    pub differences: BTreeMap<String, i64>,
    /// What is wrong with its statement; it then waits for another one.
    pub fault: Option<Fault>,
    /// Where, and what was expected.
    pub detail: Option<String>,
    /// When it was begun first.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    /// When it came to its end.
    #[serde(with = "time::serde::rfc3339::option")]
    pub finished_at: Option<OffsetDateTime>,
}

impl From<Reconciliation> for Report {
    fn from(run: Reconciliation) -> Self {
        let line = |(name, total): (String, Total)| {
            let (kind, currency) = name.split_once(' ').unwrap_or((&name, ""));
            TotalLine {
                kind: kind.to_owned(),
                currency: currency.to_owned(),
                drift: total.drift(),
                unexplained: total.unexplained(),
                total,
            }
        };
        Self {
            reconciliation_id: run.reconciliation_id,
            channel: run.channel,
            day: run.day.to_string(),
            status: run.status,
            round: run.round,
            source: run.source,
            format: run.format,
            file_sha256: run.file_sha256,
            lines: run.lines,
            // What passes between the channel and its customer alone has no side of ours.
            totals: run.totals.0.into_iter().map(line).collect(),
            differences: run.differences,
            fault: run.fault,
            detail: run.detail,
            created_at: run.created_at,
            finished_at: run.finished_at,
        }
    }
}
