//! Leaves a server alone for a while after failures in a row.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Failures in a row after which the server is left alone.
const FAILURES_TO_OPEN: u32 = 3;
/// How long it is left alone; then one call tries again.
const OPEN_FOR: Duration = Duration::from_millis(500);

/// Counts failures in a row and shuts the door for a while.
#[derive(Debug)]
pub(super) struct Breaker {
    born: Instant,
    failures: AtomicU32,
    shut_until_millis: AtomicU64,
}

impl Default for Breaker {
    fn default() -> Self {
        Self { born: Instant::now(), failures: AtomicU32::new(0), shut_until_millis: AtomicU64::new(0) }
    }
}

impl Breaker {
    fn elapsed_millis(&self) -> u64 {
        u64::try_from(self.born.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Whether a call may go through.
    pub(super) fn admits(&self) -> bool {
        let shut_until = self.shut_until_millis.load(Ordering::Relaxed);
        if shut_until == 0 {
            return true;
        }
        let now = self.elapsed_millis();
        let next = now + u64::try_from(OPEN_FOR.as_millis()).unwrap_or(0);
        // The one caller who moves the mark goes through and tries; the others stay outside.
        now >= shut_until
            && self
                .shut_until_millis
                .compare_exchange(shut_until, next, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }

    pub(super) fn succeeded(&self) {
        // Either mark alone must go: a failure that is being counted elsewhere may set the second one late.
        let is_marked =
            self.failures.load(Ordering::Relaxed) != 0 || self.shut_until_millis.load(Ordering::Relaxed) != 0;
        if is_marked {
            self.failures.store(0, Ordering::Relaxed);
            self.shut_until_millis.store(0, Ordering::Relaxed);
        }
    }

    /// Counts a failure; gives whether the server is left alone now.
    pub(super) fn failed(&self) -> bool {
        let is_open = self.failures.fetch_add(1, Ordering::Relaxed) + 1 >= FAILURES_TO_OPEN;
        if is_open {
            let until = self.elapsed_millis() + u64::try_from(OPEN_FOR.as_millis()).unwrap_or(0);
            self.shut_until_millis.store(until.max(1), Ordering::Relaxed);
        }
        is_open
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_breaker_opens_after_three_failures_and_lets_one_try() {
        let breaker = Breaker::default();
        for failure in 1..=FAILURES_TO_OPEN {
            assert!(breaker.admits());
            assert_eq!(breaker.failed(), failure == FAILURES_TO_OPEN);
        }
        assert!(!breaker.admits());

        std::thread::sleep(OPEN_FOR + Duration::from_millis(20));
        assert!(breaker.admits(), "one may try again");
        assert!(!breaker.admits(), "the others wait for its result");

        breaker.succeeded();
        assert!(breaker.admits());
    }
}
