//! The only place that reads the time, so that a test can move it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use time::OffsetDateTime;

/// Where "now" comes from: the machine, or a hand-moved value in tests.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    /// Microseconds that this clock runs ahead of the machine's.
    ahead_micros: Arc<AtomicI64>,
}

impl Clock {
    /// The machine's clock.
    #[must_use]
    pub fn system() -> Self {
        Self::default()
    }

    /// The present instant in UTC, cut to whole microseconds as PostgreSQL keeps them, so that a value read
    /// back equals the value written.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads the machine's time")]
    pub fn now(&self) -> OffsetDateTime {
        let machine = OffsetDateTime::now_utc();
        let whole_micros = i64::from(machine.microsecond());
        let cut =
            machine - time::Duration::nanoseconds(i64::from(machine.nanosecond()) - whole_micros * 1000);
        cut + time::Duration::microseconds(self.ahead_micros.load(Ordering::Relaxed))
    }

    /// Moves this clock and every clone of it forward. Meant for tests; timers of the runtime do not move.
    pub fn advance(&self, by: Duration) {
        let micros = i64::try_from(by.as_micros()).unwrap_or(i64::MAX);
        self.ahead_micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// Moves this clock and every clone of it backward, as a machine's clock that is set right does. Meant for
    /// tests.
    pub fn set_back(&self, by: Duration) {
        let micros = i64::try_from(by.as_micros()).unwrap_or(i64::MAX);
        self.ahead_micros.fetch_sub(micros, Ordering::Relaxed);
    }
}

/// Whole milliseconds since the Unix epoch.
#[must_use]
pub fn unix_millis(at: OffsetDateTime) -> i64 {
    at.unix_timestamp() * 1000 + i64::from(at.millisecond())
}

/// The millisecond by which a deadline has passed: whoever compares it with the [`unix_millis`] of now is never early.
#[must_use]
pub fn deadline_millis(at: OffsetDateTime) -> i64 {
    let is_whole = at.nanosecond().is_multiple_of(1_000_000);
    unix_millis(at) + i64::from(!is_whole)
}

#[cfg(test)]
mod tests {
    use time::{Duration, OffsetDateTime};

    use super::{deadline_millis, unix_millis};

    #[test]
    fn nobody_is_early_for_a_deadline_and_nobody_late_by_more_than_a_millisecond() {
        let moments = || {
            (0..3_000).step_by(50).map(|micros| OffsetDateTime::UNIX_EPOCH + Duration::microseconds(micros))
        };
        for deadline in moments() {
            for now in moments() {
                let is_due = deadline_millis(deadline) <= unix_millis(now);
                assert!(!is_due || now >= deadline, "{deadline} is not due at {now}");
                assert!(is_due || now < deadline + Duration::milliseconds(1), "{deadline} is due at {now}");
            }
        }
    }
}
