//! Moments of bodies, in UTC: at its edges a calendar of elsewhere has some that UTC's has not.

use serde::Deserializer;
use serde::de::Error;
use time::{OffsetDateTime, UtcOffset};

/// Reads one.
pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<OffsetDateTime, D::Error> {
    in_utc(time::serde::rfc3339::deserialize(from)?)
}

/// Reads one, where there may be none.
pub(super) fn deserialize_any<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<OffsetDateTime>, D::Error> {
    time::serde::rfc3339::option::deserialize(from)?.map(in_utc).transpose()
}

fn in_utc<E: Error>(at: OffsetDateTime) -> Result<OffsetDateTime, E> {
    at.checked_to_offset(UtcOffset::UTC).ok_or_else(|| E::custom("expected a moment that UTC has, too"))
}
