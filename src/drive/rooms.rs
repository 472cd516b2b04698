//! Rooms: so much at once for each channel, and no more who wait for it than can expect a place soon.
//!
//! A silent channel fills its room. Who would wait behind it for long is sent away at once, with the time to come back,
//! so a backlog of any length is passed as fast as it can be claimed. Within [`LATEST`] no more come back than a few for
//! each place that becomes free; who has no turn by then comes back at random. One that answers again is asked again by
//! whoever comes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

use crate::infra::rooms;

/// How long anybody waits for a place.
const WAITS: Duration = Duration::from_secs(1);
/// Of those who wait for a room there are at most so many times its size: with those inside half of what is in the air, so
/// that one such room keeps no others from being claimed.
const WAITING: usize = 3;
/// Who finds no place comes back so soon at best.
const SOONEST: Duration = Duration::from_millis(100);
/// And so late at worst: as late as what was tried five times.
const LATEST: Duration = Duration::from_secs(30);
/// Those who come back, for each place that becomes free.
const FOR_A_PLACE: u32 = 4;

/// The rooms of a lane. What speaks to no channel has one too.
pub(super) type Rooms = rooms::Rooms<Option<String>, Room>;

/// A room.
#[derive(Debug)]
pub(super) struct Room {
    size: usize,
    places: Arc<Semaphore>,
    pace: Mutex<Pace>,
}

/// How fast it moves.
#[derive(Debug)]
struct Pace {
    waiting: usize,
    /// How long the last ones stayed, the latest counting most.
    stay: Duration,
    moved_at: Instant,
    /// When the last of those who were sent away comes back.
    last_return: Instant,
}

impl Pace {
    /// How long those inside stay, as far as it is known by now.
    fn stay(&self) -> Duration {
        self.stay.max(self.moved_at.elapsed())
    }
}

impl rooms::Room for Room {
    fn of(size: usize) -> Self {
        let now = Instant::now();
        let pace = Pace { waiting: 0, stay: Duration::ZERO, moved_at: now, last_return: now };
        Self { size, places: Arc::new(Semaphore::new(size)), pace: Mutex::new(pace) }
    }
}

impl Room {
    fn pace(&self) -> MutexGuard<'_, Pace> {
        self.pace.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place, or how long to stay away. `chance` gives a number from 0 to its argument.
    pub(super) async fn enter(self: Arc<Self>, chance: impl FnOnce(u64) -> u64) -> Result<Place, Duration> {
        if let Ok(free) = self.places.clone().try_acquire_owned() {
            return Ok(self.take(free));
        }
        let Some(waiting) = self.wait() else { return Err(self.time_away(chance)) };
        let entered = timeout(WAITS, self.places.clone().acquire_owned()).await;
        drop(waiting);
        match entered {
            Ok(Ok(free)) => Ok(self.take(free)),
            _ => Err(self.time_away(chance)),
        }
    }

    fn take(self: Arc<Self>, free: OwnedSemaphorePermit) -> Place {
        let since = Instant::now();
        self.pace().moved_at = since;
        Place { room: self, since, _free: free }
    }

    /// Only where all who wait get in while they wait.
    fn wait(&self) -> Option<Waiting<'_>> {
        let mut pace = self.pace();
        let turns = WAITS.as_micros() / pace.stay().as_micros().max(1);
        let most = usize::try_from(turns).map_or(WAITING, |turns| turns.min(WAITING)) * self.size;
        if pace.waiting >= most {
            return None;
        }
        pace.waiting += 1;
        Some(Waiting(self))
    }

    /// Those who are sent away come back one by one.
    fn time_away(&self, chance: impl FnOnce(u64) -> u64) -> Duration {
        let (mut pace, now) = (self.pace(), Instant::now());
        let returns = u32::try_from(self.size).unwrap_or(u32::MAX).saturating_mul(FOR_A_PLACE);
        let step = pace.stay() / returns.max(1);
        let returns_at = pace.last_return.max(now + SOONEST) + step;
        if returns_at <= now + LATEST {
            pace.last_return = returns_at;
            return returns_at - now;
        }
        let half = LATEST / 2;
        half + Duration::from_millis(chance(u64::try_from(half.as_millis()).unwrap_or(0)))
    }
}

/// One who waits for a place.
struct Waiting<'a>(&'a Room);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.pace().waiting -= 1;
    }
}

/// A place, free again when it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    room: Arc<Room>,
    since: Instant,
    _free: OwnedSemaphorePermit,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut pace = self.room.pace();
        pace.stay = (pace.stay * 3 + self.since.elapsed()) / 4;
        pace.moved_at = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::infra::rooms::Room as _;

    #[tokio::test]
    async fn who_cannot_expect_a_place_is_sent_away_at_once_and_comes_back_in_turn() {
        let room = Arc::new(Room::of(2));
        let enter = || room.clone().enter(|most| most);
        let inside = (enter().await.expect("a place"), enter().await.expect("a place"));
        let waiting = [(); 6].map(|()| tokio::spawn(enter()));
        tokio::task::yield_now().await;
        assert!(enter().await.is_err(), "six wait already");
        tokio::time::sleep(Duration::from_millis(1_100)).await;
        for waited in waiting {
            assert!(waited.await.expect("no panic").is_err(), "nothing has moved");
        }

        let since = Instant::now();
        let mut away = Vec::new();
        for _ in 0..1_000 {
            away.push(enter().await.expect_err("it is full"));
        }
        assert!(since.elapsed() < Duration::from_millis(500), "{:?}", since.elapsed());
        assert!(away.iter().all(|away| (SOONEST..=LATEST).contains(away)));
        let step = away[1] - away[0];
        assert!(step > Duration::from_millis(50), "{step:?}: no more come back than a few for each place");

        drop(inside);
        for _ in 0..20 {
            drop(enter().await.expect("a place"));
        }
        let inside = (enter().await.expect("a place"), enter().await.expect("a place"));
        let waiting = tokio::spawn(enter());
        tokio::task::yield_now().await;
        drop(inside);
        assert!(waiting.await.expect("no panic").is_ok(), "it moves again");
    }
}
