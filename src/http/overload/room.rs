//! A room: so many places, and who finds none comes again later.
//!
//! All of it is for a burst, which is over in a moment. Half of it keeps two cores busy and fills the batches that share a
//! commit: under a load that lasts, more would only make everybody wait behind everybody. So as soon as more than half have
//! been taken for [`BURST`], half is all that newcomers find, until for [`CALM`] nobody has found it taken. A fixed share
//! and no limit that follows measured times, because gathered commands take longer the more of them share a commit: such a
//! limit would take that for a queue.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

/// How long a burst may last.
const BURST: Duration = Duration::from_secs(1);
/// How long there must be room for a new burst to be one.
const CALM: Duration = Duration::from_millis(500);
/// A room of so few has no more than it needs.
const FEW: usize = 64;
/// Who may be away at once for each place.
const AWAY_FOR_EACH: usize = 4;
/// Bodies at once that did not come along with their header: 16 MiB of them.
const LISTENING: usize = 256;
/// Nobody is told to come again later than after so many seconds.
const LONGEST_AWAY_SECS: usize = 8;

/// Places that are shared. More than there are have only those who come back.
#[derive(Debug)]
pub(super) struct Room {
    size: usize,
    /// What there is under a load that lasts.
    lasting: usize,
    taken: AtomicUsize,
    /// Who has given a place back for a while.
    away: AtomicUsize,
    listening: Semaphore,
    returns: Mutex<Returns>,
    opened_at: Instant,
    /// Since when it has been crowded, and when somebody last found it so: milliseconds since it was opened.
    crowded_since: AtomicU64,
    crowded_last: AtomicU64,
}

impl Room {
    pub(super) fn of(size: usize) -> Self {
        Self { lasting: (size / 2).max(size.min(FEW)), ..Self::always_whole(size) }
    }

    /// One whose size is for a load that lasts, too.
    pub(super) fn always_whole(size: usize) -> Self {
        Self {
            size,
            lasting: size,
            taken: AtomicUsize::new(0),
            away: AtomicUsize::new(0),
            listening: Semaphore::new(LISTENING),
            returns: Mutex::default(),
            opened_at: Instant::now(),
            crowded_since: AtomicU64::new(0),
            // Long before it was opened.
            crowded_last: AtomicU64::new(0),
        }
    }

    /// Whether a newcomer would find a place now.
    pub(super) fn has_place(&self) -> bool {
        self.is_open_to(self.taken.load(Ordering::Relaxed), Instant::now())
    }

    /// Lets a body in that comes piece by piece, while it does: it takes memory before its request has a place. Nothing when
    /// too many do.
    pub(super) fn listen(&self) -> Option<SemaphorePermit<'_>> {
        self.listening.try_acquire().ok()
    }

    /// Takes a place, if there is one.
    pub(super) fn enter(&self) -> bool {
        self.enter_at(Instant::now())
    }

    fn enter_at(&self, now: Instant) -> bool {
        let one_more = |taken| self.is_open_to(taken, now).then_some(taken + 1);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok()
    }

    /// Gives a place back.
    pub(super) fn leave(&self) {
        self.taken.fetch_sub(1, Ordering::Relaxed);
    }

    /// Gives a place back for a while; `false` where too many have done so, who will all come back.
    pub(super) fn leave_for_a_while(&self) -> bool {
        let one_more = |away| (away < self.size.saturating_mul(AWAY_FOR_EACH)).then_some(away + 1);
        let may_leave = self.away.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok();
        if may_leave {
            self.leave();
        }
        may_leave
    }

    /// Takes a place again, whether or not there is one.
    pub(super) fn come_back(&self) {
        self.away.fetch_sub(1, Ordering::Relaxed);
        self.taken.fetch_add(1, Ordering::Relaxed);
    }

    /// After how many seconds the next one who is turned away may come again: in each no more than there are places, as
    /// long as there is such a second.
    pub(super) fn next_return_secs(&self) -> u32 {
        self.next_return_secs_at(Instant::now())
    }

    fn next_return_secs_at(&self, now: Instant) -> u32 {
        let mut returns = self.returns.lock().unwrap_or_else(PoisonError::into_inner);
        returns.next((now - self.opened_at).as_secs(), self.size)
    }

    fn is_open_to(&self, taken: usize, now: Instant) -> bool {
        // Whoever meets a crowd notes it, also where it fills the room.
        taken < self.lasting || self.is_burst_at(now) && taken < self.size
    }

    /// Whether the crowd that somebody meets now came only just now.
    fn is_burst_at(&self, now: Instant) -> bool {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        // From 1 on: nobody was met at 0.
        let now = millis(now - self.opened_at).saturating_add(1);
        let last = self.crowded_last.swap(now, Ordering::Relaxed);
        if last == 0 || now.saturating_sub(last) > millis(CALM) {
            self.crowded_since.store(now, Ordering::Relaxed);
        }
        now.saturating_sub(self.crowded_since.load(Ordering::Relaxed)) < millis(BURST)
    }
}

/// How many were told to come again in which second, so that they come one after the other and not all at once: to turn
/// them away again would cost those inside their share of the machine.
#[derive(Debug, Default)]
struct Returns {
    second: u64,
    /// Of the seconds after that one.
    told: [usize; LONGEST_AWAY_SECS],
}

impl Returns {
    /// How long until the first second for which fewer than `most` were told; where there is none, until that of the
    /// fewest.
    fn next(&mut self, second: u64, most: usize) -> u32 {
        let passed = usize::try_from(second.saturating_sub(self.second)).unwrap_or(usize::MAX);
        self.told.rotate_left(passed.min(LONGEST_AWAY_SECS) % LONGEST_AWAY_SECS);
        let is_new = LONGEST_AWAY_SECS.saturating_sub(passed);
        self.told[is_new..].fill(0);
        self.second = self.second.max(second);

        let seconds = self.told.iter_mut().zip(1..);
        let by_crowd = |(told, _): &(&mut usize, u32)| (**told).max(most.saturating_sub(1));
        seconds.min_by_key(by_crowd).map_or(1, |(told, after)| {
            *told += 1;
            after
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_comes_back_finds_a_place_and_newcomers_none_until_there_are_fewer_again() {
        let room = Room::of(2);
        assert!(room.enter() && room.enter() && !room.enter() && !room.has_place());
        assert!(room.leave_for_a_while());
        assert!(room.has_place() && room.enter());
        room.come_back();
        room.leave();
        assert!(!room.enter(), "two of two are taken");
        room.leave();
        assert!(room.enter());
    }

    #[test]
    fn so_many_are_away_at_once_and_the_others_keep_their_places() {
        let room = Room::of(2);
        for _ in 0..2 * AWAY_FOR_EACH {
            assert!(room.enter() && room.leave_for_a_while());
        }
        assert!(room.enter() && !room.leave_for_a_while());
        room.come_back();
        assert!(!room.enter() && room.leave_for_a_while(), "in place of the one who came back");
    }

    #[test]
    fn a_crowd_that_fills_the_room_for_long_is_no_burst_when_the_first_one_leaves() {
        let room = Room::of(400);
        let mut now = room.opened_at;
        while room.enter_at(now) {}
        assert_eq!(room.taken.load(Ordering::Relaxed), 400);
        for _ in 0..10 {
            now += CALM / 2;
            assert!(!room.enter_at(now));
        }
        room.leave();
        assert!(!room.enter_at(now), "half is all there is");
    }

    #[test]
    fn a_burst_finds_all_places_and_a_load_that_lasts_half() {
        let (room, ms) = (Room::of(400), Duration::from_millis);
        let start = room.opened_at;
        assert_eq!((room.lasting, Room::of(100).lasting, Room::of(8).lasting), (200, 64, 8));
        for step in 0..20 {
            let now = start + step * ms(250);
            assert_eq!(room.is_burst_at(now), now - start < BURST, "{step}");
        }
        let calm = start + 19 * ms(250) + CALM;
        assert!(!room.is_burst_at(calm), "not calm for long enough");
        assert!(room.is_burst_at(calm + CALM + ms(1)), "a new one");
    }

    #[test]
    fn no_more_are_told_to_come_in_the_same_second_than_there_are_places() {
        let room = Room::of(100);
        let told_at = |second, count| {
            let now = room.opened_at + Duration::from_secs(second);
            let mut told = vec![0; LONGEST_AWAY_SECS];
            for _ in 0..count {
                told[room.next_return_secs_at(now) as usize - 1] += 1;
            }
            told
        };
        assert_eq!(told_at(0, 250), [100, 100, 50, 0, 0, 0, 0, 0]);
        assert_eq!(told_at(1, 250), [0, 50, 100, 100, 0, 0, 0, 0], "beside those who were told before");
        assert_eq!(told_at(1, 480), [10, 10, 10, 10, 110, 110, 110, 110], "more than there is room for");
        assert_eq!(told_at(60, 101), [100, 1, 0, 0, 0, 0, 0, 0], "all of them have come");
        assert_eq!(Room::of(0).next_return_secs(), 1);
    }
}
