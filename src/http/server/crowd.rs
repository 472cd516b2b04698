//! All connections that are open: how many there may be, whether that is many, and who goes first of those that never
//! came to the point.
//!
//! Thousands of strangers who came within the same moment run out of time within the same moment, too. Closing a
//! connection takes the kernel some ten microseconds, on the thread that serves all the others: at once, that would be
//! felt by each of them. So they take turns, a few in each millisecond, which is as fine as the runtime's clock.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// From one turn to the next, where the crowd is not so large that its last would wait too long.
const EACH: Duration = Duration::from_micros(200);
/// Longest wait for a turn, so that no crowd keeps its places for long.
pub(super) const LONGEST: Duration = Duration::from_secs(1);

/// How long anybody may rest where connections are becoming few, be it between two requests or in one that waits. It ends between
/// the whole seconds after which somebody who was turned away comes again.
pub(super) const REST: Duration = Duration::from_millis(2_500);

/// The connections of one listener.
#[derive(Debug)]
pub struct Crowd {
    most: usize,
    places: Arc<Semaphore>,
    /// From one turn to the next.
    each: Duration,
    next_turn: Mutex<Instant>,
}

impl Crowd {
    /// Nobody, of at most so many.
    pub(in crate::http) fn of(most: usize) -> Arc<Self> {
        let (places, next_turn) = (Arc::new(Semaphore::new(most)), Mutex::new(Instant::now()));
        let each = EACH.min(LONGEST.div_f64(most.max(1) as f64));
        Arc::new(Self { most, places, each, next_turn })
    }

    /// A place in it, once there is one.
    pub(super) async fn place(&self) -> Option<OwnedSemaphorePermit> {
        // Nobody closes the semaphore.
        Arc::clone(&self.places).acquire_owned().await.ok()
    }

    /// Whether more than half of the places are taken.
    pub(in crate::http) fn is_large(&self) -> bool {
        self.places.available_permits() < self.most / 2
    }

    /// Until when somebody may wait, as large as it is now, who has since then and wants to for so long. Behind [`REST`] it is
    /// their turn to make room, one after the other: by then it may be large no more.
    pub(in crate::http) fn ends_at(
        &self,
        (since, wanted): (Instant, Duration),
        turn: &mut Option<Instant>,
    ) -> Instant {
        let (now, wanted) = (Instant::now(), since + wanted);
        if !self.is_large() {
            *turn = None;
            return wanted;
        }
        let rested = since + REST;
        if now < rested {
            rested.min(wanted)
        } else {
            (*turn.get_or_insert_with(|| self.take_turn(now))).min(wanted)
        }
    }

    /// Takes the next turn to be sent away: now, where nobody waits.
    pub(super) fn take_turn(&self, now: Instant) -> Instant {
        let mut next = self.next_turn.lock().unwrap_or_else(PoisonError::into_inner);
        let turn = now.max(*next).min(now + LONGEST);
        *next = turn + self.each;
        turn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_sent_away_at_once_and_many_one_by_one_within_a_second() {
        for (most, each) in [(64, EACH), (10_000, EACH / 2)] {
            let crowd = Crowd::of(most);
            let now = Instant::now();
            let wait = |now| crowd.take_turn(now) - now;
            assert_eq!([wait(now), wait(now), wait(now)], [Duration::ZERO, each, 2 * each]);
            let longest = (3..most).map(|_| wait(now)).max();
            assert!(longest < Some(LONGEST), "nobody has another's turn: {longest:?}");
            let beyond = (0..10_000).map(|_| wait(now)).max();
            assert_eq!(beyond, Some(LONGEST));
            let later = now + LONGEST + each;
            assert_eq!([wait(later), wait(later)], [Duration::ZERO, each], "they are gone");
        }
    }
}
