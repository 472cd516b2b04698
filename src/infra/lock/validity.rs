//! How long a lock may be relied on: shorter than its time to live, by what clocks may drift apart meanwhile.

use std::time::{Duration, Instant};

/// The part of its time to live by which a server's clock may run faster than ours: one in a hundred.
const DRIFT_PART: u32 = 100;
/// What the coarse expiry of Redis may take besides.
const DRIFT_LEAST: Duration = Duration::from_millis(2);

/// How much of this time to live is not to be relied on.
fn drift(ttl: Duration) -> Duration {
    ttl / DRIFT_PART + DRIFT_LEAST
}

/// What is left of a time to live when its last grant came `elapsed` after the first question; `None` when
/// nothing is, so that the lock is not held.
pub(super) fn left(ttl: Duration, elapsed: Duration) -> Option<Duration> {
    ttl.checked_sub(elapsed)?.checked_sub(drift(ttl)).filter(|left| !left.is_zero())
}

/// Until when a lock holds that was asked for at `asked_at` and granted. The question counts, not the answer:
/// the server may have begun to count at once.
pub(super) fn end(asked_at: Instant, ttl: Duration) -> Instant {
    asked_at + ttl.saturating_sub(drift(ttl))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn millis(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[test]
    fn drift_and_the_time_of_asking_are_subtracted() {
        assert_eq!(drift(millis(10_000)), millis(102));
        assert_eq!(left(millis(10_000), millis(0)), Some(millis(9_898)));
        assert_eq!(left(millis(10_000), millis(50)), Some(millis(9_848)));
        assert_eq!(left(millis(10_000), millis(9_897)), Some(millis(1)));
    }

    #[test]
    fn a_grant_that_took_too_long_is_none() {
        assert_eq!(left(millis(10_000), millis(9_898)), None, "nothing left is not held");
        assert_eq!(left(millis(10_000), millis(9_999)), None);
        assert_eq!(left(millis(10_000), millis(20_000)), None);
        assert_eq!(left(millis(2), millis(0)), None, "shorter than the drift");
    }

    #[test]
    fn the_end_counts_from_the_question() {
        let asked_at = Instant::now();
        assert_eq!(end(asked_at, millis(300)), asked_at + millis(295));
        assert_eq!(end(asked_at, millis(1)), asked_at);
    }
}
