//! Everything that touched an order, in order.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;
use serde_json::Value;
use time::OffsetDateTime;

use super::store;
use crate::app::App;
use crate::infra::db::DbError;
use crate::infra::words::words;
use crate::orders::OrderKey;

words! {
    /// What an entry speaks of. Of one instant, the cause comes before what it brought about.
    pub enum TimelineKind {
        /// A callback that came in, with its verdict.
        Callback = "CALLBACK",
        /// Something that an operator did.
        Admin = "ADMIN",
        /// The order's own state.
        Order = "ORDER",
        /// The state of an attempt to pay it.
        Attempt = "ATTEMPT",
        /// Money that it did not accept.
        StrayPayment = "STRAY_PAYMENT",
        /// Money on its way back.
        Refund = "REFUND",
        /// A commission that was given, or claimed back.
        Settlement = "SETTLEMENT",
        /// A booking of money.
        Booking = "BOOKING",
        /// A task that drives something to its end.
        Task = "TASK",
        /// Something in which a channel's statement differs from it.
        Difference = "DIFFERENCE",
        /// Something that a person was asked to look at.
        Exception = "EXCEPTION",
        /// Something that the outside is told.
        Event = "EVENT",
    }
}

/// One thing that happened.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct TimelineEntry {
    /// When.
    #[serde(with = "time::serde::rfc3339")]
    pub at: OffsetDateTime,
    /// To what.
    pub kind: TimelineKind,
    /// To which one: an id, as the other routes know it.
    #[schema(example = "po_06GZV8Y0000000000000000000")]
    pub subject: String,
    /// What happened.
    #[schema(example = "PAYMENT_CONFIRMED")]
    pub event: String,
    /// Where it led, for what has states.
    #[schema(example = "PAID")]
    pub status: Option<String>,
    /// More about it.
    #[schema(value_type = Object)]
    pub details: Value,
    /// Its place; a page starts after one.
    #[schema(example = "1795255200000000.2.1.A-1")]
    pub entry_id: String,
}

/// Where an entry stands: no other stands there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub(super) at: OffsetDateTime,
    /// Of one instant, the cause stands before what it brought about.
    pub(super) rank: i32,
    pub(super) seq: i64,
    /// As it is stored.
    pub(super) subject: String,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // PostgreSQL keeps microseconds.
        let micros = self.at.unix_timestamp_nanos() / 1000;
        write!(f, "{micros}.{}.{}.{}", self.rank, self.seq, self.subject)
    }
}

/// A text that names no place.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("expected the entry_id of the last entry before")]
pub struct NoPlace;

impl FromStr for Place {
    type Err = NoPlace;

    fn from_str(text: &str) -> Result<Self, NoPlace> {
        let mut parts = text.splitn(4, '.');
        let mut part = || parts.next().ok_or(NoPlace);
        let micros: u64 = part()?.parse().map_err(|_| NoPlace)?;
        let rank = part()?.parse().map_err(|_| NoPlace)?;
        let seq = part()?.parse().map_err(|_| NoPlace)?;
        let subject = part()?.to_owned();
        let at = OffsetDateTime::from_unix_timestamp_nanos(i128::from(micros) * 1000);
        // PostgreSQL cannot hold U+0000 in a text.
        let is_text = !subject.contains('\0');
        at.ok().filter(|_| is_text).map(|at| Self { at, rank, seq, subject }).ok_or(NoPlace)
    }
}

/// The first `limit` entries of an order, oldest first, or those behind a place; read by one statement and so from one
/// snapshot.
///
/// # Errors
/// When the database cannot be reached.
pub async fn timeline(
    app: &App,
    key: &OrderKey,
    after: Option<&Place>,
    limit: usize,
) -> Result<Vec<TimelineEntry>, DbError> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let list = || async { store::list_timeline(&mut app.db.conn().await?, key, after, limit).await };
    app.db.retrying(list).await
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    #[test]
    fn a_place_is_read_as_it_is_written() {
        let place = Place {
            at: datetime!(2030-01-01 00:00:00.000001 UTC),
            rank: 6,
            seq: 0,
            subject: "a.b c:\u{fc}".to_owned(),
        };
        assert_eq!(place.to_string().parse::<Place>().unwrap(), place);
    }

    #[test]
    fn what_names_no_place_is_refused() {
        for text in [
            "",
            "1.2.3",
            "x.2.3.a",
            "-1.2.3.a",
            "1.x.3.a",
            "1.2.x.a",
            "1.2.3.a\0",
            "9223372036854775807.2.3.a",
        ] {
            assert!(text.parse::<Place>().is_err(), "{text:?}");
        }
    }
}
