//! The lanes as they stand, and whether their workers rest.

use serde::Serialize;
use time::OffsetDateTime;

use super::model::Lane;

/// A lane, and what waits in it.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct LaneStand {
    /// Which one.
    pub lane: Lane,
    /// Since when its workers rest; `null` while they work.
    #[serde(with = "time::serde::rfc3339::option")]
    pub paused_at: Option<OffsetDateTime>,
    /// Who paused it.
    pub paused_by: Option<String>,
    /// Why.
    pub reason: Option<String>,
    /// Living tasks; counting stops at 100000.
    #[schema(example = 3)]
    pub living: i64,
    /// Those of them whose time has come; counting stops at 100000.
    #[schema(example = 0)]
    pub due: i64,
    /// Since when the longest of them waits.
    #[serde(with = "time::serde::rfc3339::option")]
    pub oldest_due_at: Option<OffsetDateTime>,
}
