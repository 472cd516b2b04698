//! Rooms: so much at once for each channel, and no more who wait for it than can expect a place soon.
//!
//! A silent channel fills its room. Who would wait behind it for long is sent away at once, with the time to come back:
//! one after the other, no more than a few for each place that becomes free, so the more were sent away, the later the
//! next one comes, and of a channel that answers they come twice as fast as it does. A backlog of any length costs little
//! while its channel is silent. One that answers again is asked again by whoever comes, and the last of them come within
//! [`LATEST`].

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
/// And so many times where they get in within a quarter of [`WAITS`]: with those inside all that is in the air, because to
/// be sent away and claimed again costs more than to wait.
const WAITING_BRIEFLY: usize = 7;
/// Who finds no place comes back so soon at best.
const SOONEST: Duration = Duration::from_millis(100);
/// And so late at worst, in the second half of this time: as late as what was tried seven times.
const LATEST: Duration = Duration::from_secs(120);
/// Those who come back, for each place that becomes free: more than can get in, so that no place stays free; half of them
/// are claimed for nothing at worst.
const FOR_A_PLACE: u32 = 2;
/// The same of a channel that is silent: one of them is to notice soon that it answers again.
const FOR_A_SILENT_PLACE: u32 = 4;
/// How long the first ones stay, as far as anybody knows: who is sent away before one of them has left is to come back
/// neither at once nor late.
const FIRST_STAY: Duration = Duration::from_millis(300);

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
        let pace = Pace { waiting: 0, stay: FIRST_STAY, moved_at: now, last_return: now };
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
        let turns = usize::try_from(WAITS.as_micros() / pace.stay().as_micros().max(1)).unwrap_or(usize::MAX);
        let most = turns.min(WAITING).max((turns / 4).min(WAITING_BRIEFLY));
        if pace.waiting >= most * self.size {
            return None;
        }
        pace.waiting += 1;
        Some(Waiting(self))
    }

    /// Those who are sent away come back one by one.
    fn time_away(&self, chance: impl FnOnce(u64) -> u64) -> Duration {
        let (mut pace, now) = (self.pace(), Instant::now());
        let for_a_place = if pace.stay() > WAITS { FOR_A_SILENT_PLACE } else { FOR_A_PLACE };
        let returns = u32::try_from(self.size).unwrap_or(u32::MAX).saturating_mul(for_a_place);
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
        let (mut pace, now) = (self.room.pace(), Instant::now());
        let was_slow = pace.stay > WAITS;
        pace.stay = (pace.stay * 3 + self.since.elapsed()) / 4;
        pace.moved_at = now;
        // It answers again: whoever is sent away from now on does not queue behind those whom its silence sent away.
        if was_slow && pace.stay <= WAITS {
            pace.last_return = now;
        }
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

    #[tokio::test]
    async fn of_a_channel_that_answers_they_come_back_twice_as_fast_as_it_does() {
        for (stay, waiting) in [(30, 64 * WAITING_BRIEFLY), (100, 64 * WAITING), (400, 64 * 2)] {
            let room = Room::of(64);
            room.pace().stay = Duration::from_millis(stay);
            // However long this takes, it is not the room that stands still.
            room.pace().moved_at = Instant::now() + LATEST;
            let last = (0..10_000).map(|_| room.time_away(|most| most)).max().expect("some");
            // What they take once they are inside.
            let takes = Duration::from_millis(10_000 * stay / 64);
            assert!((takes / 3..takes * 2 / 3).contains(&last), "{last:?} for what takes {takes:?}");
            let let_in: Vec<_> = (0..1_000).map_while(|_| room.wait()).collect();
            assert_eq!(let_in.len(), waiting, "{stay}");
        }
    }

    #[tokio::test]
    async fn the_more_were_sent_away_the_later_they_come_back() {
        const COUNT: usize = 100_000;
        // One that has just become full, and one whose channel keeps silent.
        for (stay, soon) in [(FIRST_STAY, 400), (Duration::from_millis(2_500), 90)] {
            let room = Room::of(64);
            room.pace().stay = stay;
            // Scattered evenly, as chance does.
            let mut scatter = 0_u64;
            let mut away: Vec<Duration> = (0..COUNT)
                .map(|_| {
                    scatter = (scatter + 7_919) % 60_000;
                    room.time_away(|most| scatter.min(most))
                })
                .collect();
            away.sort_unstable();
            let in_a_second = |from: usize| away[from..].partition_point(|later| *later < away[from] + WAITS);
            let most = (0..COUNT).step_by(100).map(in_a_second).max().expect("some");
            assert!(most <= 1_700, "{most} of them come back in the same second");
            assert!(away[COUNT - 1] <= LATEST, "{:?}", away[COUNT - 1]);
            assert!(in_a_second(0) >= soon, "a few come back soon: {}", in_a_second(0));
        }
    }
}
