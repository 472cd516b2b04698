//! Low-water marks: where a look at a queue begins.
//!
//! What was taken from a queue is gone, and yet a look from its beginning walks past all that was taken since the oldest
//! snapshot which anybody has open: an audit, a backup, a forgotten session. Beside one, events were told at a seventh of
//! the rate after 60,000 of them. So a look begins where another, a second before, found the first that waited.
//!
//! What comes to wait before the mark, committed late or dated by a clock that is behind, is found by a whole look: there
//! is one a second, and one in five where it takes long. Of a queue in which nothing is ever found all looks are whole.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// What is found is where looks begin so much later: most of what is late has committed by then.
const SETTLES_AFTER: Duration = Duration::from_secs(1);
/// How long after a whole look there is another one, where it took little.
const WHOLE_EVERY: Duration = Duration::from_secs(1);
/// And where it took long: what took long may have waited for something else, and what is late waits for the next.
const WHOLE_AT_LEAST_EVERY: Duration = Duration::from_secs(5);
/// Of so much time whole looks are to take one part.
const PARTS: u32 = 20;

/// The mark of one queue, whose keys grow with time.
#[derive(Debug)]
pub struct LowWater<K>(Mutex<Mark<K>>);

#[derive(Debug)]
struct Mark<K> {
    /// Where looks begin.
    settled: Option<K>,
    /// Where they will begin next.
    coming: Option<K>,
    came_at: Instant,
    whole_at: Instant,
}

impl<K> Default for LowWater<K> {
    fn default() -> Self {
        let now = Instant::now();
        Self(Mutex::new(Mark { settled: None, coming: None, came_at: now, whole_at: now }))
    }
}

/// A look at a queue.
#[derive(Debug)]
pub struct Look<K> {
    /// The first key that is looked at; nothing for all of them.
    pub from: Option<K>,
    began: Instant,
}

impl<K: Copy + Ord> LowWater<K> {
    fn mark(&self) -> MutexGuard<'_, Mark<K>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a look.
    pub fn look(&self) -> Look<K> {
        self.look_at(Instant::now())
    }

    /// [`look`](Self::look), at that moment.
    pub fn look_at(&self, began: Instant) -> Look<K> {
        let mark = self.mark();
        Look { from: mark.settled.filter(|_| began < mark.whole_at), began }
    }

    /// Ends it, with the first key that it found waiting, whether or not it could be taken.
    pub fn found(&self, look: &Look<K>, first: Option<K>) {
        self.found_at(look, first, Instant::now());
    }

    /// [`found`](Self::found), at that moment.
    pub fn found_at(&self, look: &Look<K>, first: Option<K>, now: Instant) {
        let mut mark = self.mark();
        if look.from.is_none() {
            let took = now.saturating_duration_since(look.began);
            mark.whole_at = now + took.saturating_mul(PARTS).clamp(WHOLE_EVERY, WHOLE_AT_LEAST_EVERY);
        }
        let Some(first) = first else { return };
        if mark.settled.is_some_and(|settled| first < settled) {
            // Until it is taken no look passes it over.
            (mark.settled, mark.coming, mark.came_at) = (Some(first), Some(first), now);
        } else if now.saturating_duration_since(mark.came_at) >= SETTLES_AFTER {
            (mark.settled, mark.coming, mark.came_at) = (mark.coming, Some(first), now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BIT: Duration = Duration::from_millis(100);

    /// A queue whose first key is one more at each look.
    struct Queue {
        low: LowWater<i64>,
        now: Instant,
        takes: Duration,
    }

    impl Queue {
        fn new(takes: Duration) -> Self {
            Self { low: LowWater::default(), now: Instant::now(), takes }
        }

        fn look(&mut self, first: Option<i64>) -> Option<i64> {
            let look = self.low.look_at(self.now);
            self.now += if look.from.is_none() { self.takes } else { Duration::ZERO };
            self.low.found_at(&look, first, self.now);
            self.now += BIT;
            look.from
        }

        /// Where so many looks began.
        fn looks(&mut self, firsts: std::ops::Range<i64>) -> Vec<Option<i64>> {
            firsts.map(|first| self.look(Some(first))).collect()
        }
    }

    #[test]
    fn looks_begin_where_one_of_a_second_ago_found_the_first_and_one_a_second_is_whole() {
        let began = Queue::new(Duration::ZERO).looks(0..100);
        assert!(began[..10].iter().all(Option::is_none), "nothing has settled: {began:?}");
        let later = &began[40..];
        let whole = later.iter().filter(|from| from.is_none()).count();
        assert!((5..=7).contains(&whole), "one a second: {began:?}");
        for (key, from) in (40..).zip(later) {
            assert!(from.is_none_or(|from| (key - 21..=key - 10).contains(&from)), "{key}: {from:?}");
        }
    }

    #[test]
    fn what_was_late_is_found_by_a_whole_look_and_passed_over_by_none_until_it_is_taken() {
        let mut queue = Queue::new(Duration::ZERO);
        queue.looks(0..100);
        queue.now += WHOLE_EVERY;
        assert_eq!(queue.look(Some(3)), None, "a whole look finds what was late");
        assert_eq!(
            [queue.look(Some(3)), queue.look(Some(3))],
            [Some(3); 2],
            "and the next ones begin with it"
        );
        let began = queue.looks(100..160);
        assert!(began[0] == Some(3) && began[59].is_none_or(|from| from >= 130), "{began:?}");
    }

    #[test]
    fn whole_looks_that_take_long_are_few_and_an_empty_queue_moves_nothing() {
        for (takes, pause) in [(100, 2_000), (1_000, 5_000), (30_000, 5_000)] {
            let mut queue = Queue::new(Duration::from_millis(takes));
            let began = queue.looks(0..1_000);
            let whole = began[30..].iter().filter(|from| from.is_none()).count();
            let expected = 97_000 / pause;
            assert!((expected - 3..=expected + 1).contains(&whole), "{takes} ms: {whole}, not {expected}");
        }

        let mut queue = Queue::new(Duration::ZERO);
        queue.looks(0..55);
        let began = queue.look(None);
        assert!(began.is_some_and(|from| queue.look(None) == Some(from)), "{began:?}");
    }
}
