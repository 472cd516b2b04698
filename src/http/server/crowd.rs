//! All connections that are open: how many there may be, whether that is many, and who goes first of those that are sent
//! away.
//!
//! Thousands of strangers who came within the same moment run out of time within the same moment, too. Closing a
//! connection takes the kernel some ten microseconds, on the thread that serves all the others: at once, that would be
//! felt by each of them.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// Between two who are sent away.
const EACH: Duration = Duration::from_micros(200);
/// Longest wait for a turn, so that no crowd keeps its places for long.
const LONGEST: Duration = Duration::from_secs(1);

/// The connections of one listener.
#[derive(Debug)]
pub(super) struct Crowd {
    most: usize,
    places: Arc<Semaphore>,
    next_turn: Mutex<Instant>,
}

impl Crowd {
    /// Nobody, of at most so many.
    pub(super) fn of(most: usize) -> Arc<Self> {
        let (places, next_turn) = (Arc::new(Semaphore::new(most)), Mutex::new(Instant::now()));
        Arc::new(Self { most, places, next_turn })
    }

    /// A place in it, once there is one.
    pub(super) async fn place(&self) -> Option<OwnedSemaphorePermit> {
        // Nobody closes the semaphore.
        Arc::clone(&self.places).acquire_owned().await.ok()
    }

    /// Whether more than half of the places are taken.
    pub(super) fn is_large(&self) -> bool {
        self.places.available_permits() < self.most / 2
    }

    /// When one is sent away whose time is over: now, where nobody else is.
    pub(super) fn turn(&self, now: Instant) -> Instant {
        let mut next = self.next_turn.lock().unwrap_or_else(PoisonError::into_inner);
        let turn = now.max(*next).min(now + LONGEST);
        *next = turn + EACH;
        turn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_is_sent_away_at_once_and_many_one_by_one_within_a_second() {
        let crowd = Crowd::of(1);
        let now = Instant::now();
        let wait = |now| crowd.turn(now) - now;
        assert_eq!([wait(now), wait(now), wait(now)], [Duration::ZERO, EACH, 2 * EACH]);
        let last = (0..100_000).map(|_| wait(now)).last();
        assert_eq!(last, Some(LONGEST));
        let later = now + LONGEST + EACH;
        assert_eq!([wait(later), wait(later)], [Duration::ZERO, EACH], "they are gone");
    }
}
