//! The only place that reads the time, so that a test can move it, and so that all instances go by the same one: the
//! database's. What a machine's own clock shows is where it begins, and nothing is judged by that: from the first connection
//! on time goes by how long the machine has run, asleep or not, which no one sets, and is held against the database's again
//! and again. So it does not matter to an order on which machine its deadline was set, or on which one it is looked at.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use time::OffsetDateTime;

/// Where "now" comes from. Clones are one clock.
#[derive(Clone, Debug)]
pub struct Clock(Arc<Inside>);

#[derive(Debug)]
struct Inside {
    /// Microseconds since the Unix epoch when the machine began to run, as far as is known by now.
    begun_micros: AtomicI64,
    /// Whether another clock was asked.
    is_known: AtomicBool,
    /// Microseconds that a test has moved it ahead.
    ahead_micros: AtomicI64,
}

/// How far the clocks of machines may be apart before somebody should set one: signatures of callbacks allow for five
/// minutes.
pub const MOST_SKEW: time::Duration = time::Duration::seconds(2);

/// The moment in which another clock was asked.
#[derive(Clone, Copy, Debug)]
pub struct Asked(i64);

impl Clock {
    /// One that begins with the machine's time.
    #[must_use]
    pub fn system() -> Self {
        let begun_micros = AtomicI64::new(machine_micros() - run_micros());
        Self(Arc::new(Inside {
            begun_micros,
            is_known: AtomicBool::new(false),
            ahead_micros: AtomicI64::new(0),
        }))
    }

    /// The present instant in UTC, in whole microseconds as PostgreSQL keeps them, so that a value read back equals the
    /// value written.
    #[must_use]
    pub fn now(&self) -> OffsetDateTime {
        let begun = self.0.begun_micros.load(Ordering::Relaxed) + self.0.ahead_micros.load(Ordering::Relaxed);
        OffsetDateTime::UNIX_EPOCH + time::Duration::microseconds(begun + run_micros())
    }

    /// Whether it goes by another clock already, and not by the machine's own.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.0.is_known.load(Ordering::Acquire)
    }

    /// To be called before another clock is asked, for [`follow`](Self::follow).
    #[must_use]
    pub fn ask() -> Asked {
        Asked(run_micros())
    }

    /// Goes by the clock that was asked and showed so many microseconds since the Unix epoch, at some time between the
    /// question and now: moves by as little as makes that possible, so not at all where it is in step. Gives how far the
    /// machine's own clock is ahead of that one.
    pub fn follow(&self, asked: Asked, there_micros: i64) -> time::Duration {
        let (machine, run) = (machine_micros(), run_micros());
        let latest = there_micros + (run - asked.0).max(0);
        // Others may be told of the same step in this very moment: it is taken once.
        self.0.begun_micros.update(Ordering::Relaxed, Ordering::Relaxed, |begun| {
            (begun + run).clamp(there_micros, latest) - run
        });
        self.0.is_known.store(true, Ordering::Release);
        time::Duration::microseconds(machine - machine.clamp(there_micros, latest))
    }

    /// Moves this clock and every clone of it forward. Meant for tests; timers of the runtime do not move.
    pub fn advance(&self, by: Duration) {
        self.0.ahead_micros.fetch_add(micros_of(by), Ordering::Relaxed);
    }

    /// Moves this clock and every clone of it backward. Meant for tests.
    pub fn set_back(&self, by: Duration) {
        self.0.ahead_micros.fetch_sub(micros_of(by), Ordering::Relaxed);
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::system()
    }
}

/// How long the machine has run, in microseconds, asleep or not.
fn run_micros() -> i64 {
    let run = clock_gettime(ClockId::Boottime);
    run.tv_sec * 1_000_000 + run.tv_nsec / 1_000
}

/// The machine's own clock, which somebody may set while we look.
#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the machine's time")]
fn machine_micros() -> i64 {
    unix_micros(OffsetDateTime::now_utc())
}

fn micros_of(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

/// Whole microseconds since the Unix epoch.
#[must_use]
pub fn unix_micros(at: OffsetDateTime) -> i64 {
    i64::try_from((at - OffsetDateTime::UNIX_EPOCH).whole_microseconds()).unwrap_or(i64::MAX)
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

    use super::{Clock, deadline_millis, unix_micros, unix_millis};

    const HOUR: Duration = Duration::hours(1);

    #[test]
    fn a_clock_that_is_off_goes_by_the_one_that_was_asked_and_one_in_step_stays() {
        for off in [-HOUR, HOUR] {
            let clock = Clock::system();
            let machine = clock.now();
            let asked = Clock::ask();
            let ahead = clock.follow(asked, unix_micros(machine - off));
            assert!((ahead - off).abs() < Duration::SECOND, "the machine is {ahead} ahead, not {off}");
            assert!((clock.now() - (machine - off)).abs() < Duration::SECOND, "{} after {off}", clock.now());
        }
        // The other clock may have shown that time at any moment since it was asked: nothing says that ours is wrong.
        let clock = Clock::system();
        let (asked, shown) = (Clock::ask(), unix_micros(clock.now()));
        std::thread::sleep(std::time::Duration::from_millis(20));
        let before = clock.0.begun_micros.load(std::sync::atomic::Ordering::Relaxed);
        assert_eq!(clock.follow(asked, shown), Duration::ZERO);
        assert_eq!(clock.0.begun_micros.load(std::sync::atomic::Ordering::Relaxed), before);
    }

    #[test]
    fn what_a_test_moves_stays_moved_whatever_the_other_clock_shows() {
        let clock = Clock::system();
        let machine = clock.now();
        clock.advance(std::time::Duration::from_secs(3_600));
        clock.follow(Clock::ask(), unix_micros(machine + HOUR));
        assert!((clock.now() - (machine + HOUR + HOUR)).abs() < Duration::SECOND, "{}", clock.now());
    }

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
