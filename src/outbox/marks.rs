//! Where a look at a lane begins: a low-water mark for each lane in which something waits ([`LowWater`]), so that beside a
//! snapshot that stays open nobody walks past all that the lane had.
//!
//! Each mark costs every turn two look-ups, so they are used only while looks take long without them. A process that comes
//! to be beside a snapshot walks until something waits in the lane.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use time::OffsetDateTime;
use tokio::time::Instant;

use crate::infra::low_water::{Look, LowWater};

/// A look that takes so long may be one past much that is over: from then on marks are used.
const LONG: Duration = Duration::from_millis(20);
/// How long after the last such look marks are used, and after that the mark of a lane is kept in which nothing waits.
const KEPT_FOR: Duration = Duration::from_secs(60);

/// The marks of this process.
#[derive(Debug, Default)]
pub(super) struct Marks(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    lanes: BTreeMap<String, Mark>,
    /// When a look took long.
    long_at: Option<Instant>,
}

#[derive(Debug)]
struct Mark {
    low: LowWater<OffsetDateTime>,
    /// When something was found waiting.
    found_at: Instant,
}

/// A look at the lanes behind one.
#[derive(Debug)]
pub(super) struct Looks {
    each: BTreeMap<String, Look<OffsetDateTime>>,
    uses_marks: bool,
    began: Instant,
}

impl Looks {
    /// The lanes of which no more is looked at than what is due from a moment on, in their order, and those moments.
    pub(super) fn from(&self) -> (Vec<&str>, Vec<OffsetDateTime>) {
        let used = self.each.iter().filter(|_| self.uses_marks);
        used.filter_map(|(lane, look)| Some((lane.as_str(), look.from?))).unzip()
    }
}

/// A lane that was come to, and when the first is due that waits in it, if one does.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) lane: String,
    pub(super) first_due_at: Option<OffsetDateTime>,
}

impl Marks {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a look at the lanes behind this one, of which so many at most are come to.
    pub(super) fn look(&self, behind: &str, most: u16) -> Looks {
        self.look_at(behind, most, Instant::now())
    }

    fn look_at(&self, behind: &str, most: u16, began: Instant) -> Looks {
        let known = self.lock();
        let behind = known.lanes.range::<str, _>((Bound::Excluded(behind), Bound::Unbounded));
        let look = |(lane, mark): (&String, &Mark)| (lane.clone(), mark.low.look_at(began));
        let each = behind.take(most.into()).map(look).collect();
        let is_recent = |at| began.saturating_duration_since(at) <= KEPT_FOR;
        Looks { each, uses_marks: known.long_at.is_some_and(is_recent), began }
    }

    /// Ends it; behind the last lane that was come to there may be more. What comes to wait from now on is due now at the
    /// earliest.
    pub(super) fn found(&self, looks: &Looks, seen: &[Seen], last: Option<&str>, now: OffsetDateTime) {
        self.found_at(looks, seen, last, (now, Instant::now()));
    }

    fn found_at(
        &self,
        looks: &Looks,
        seen: &[Seen],
        last: Option<&str>,
        (now, ended): (OffsetDateTime, Instant),
    ) {
        let first_of = |seen: &Seen| Some((seen.lane.clone(), seen.first_due_at?));
        let firsts: BTreeMap<String, OffsetDateTime> = seen.iter().filter_map(first_of).collect();
        let mut known = self.lock();
        if ended.saturating_duration_since(looks.began) >= LONG {
            known.long_at = Some(ended);
        }
        for lane in firsts.keys() {
            let begin = || Mark { low: LowWater::default(), found_at: ended };
            known.lanes.entry(lane.clone()).or_insert_with(begin).found_at = ended;
        }
        let is_seen = |lane: &str| last.is_none_or(|last| lane <= last);
        for (lane, look) in looks.each.iter().filter(|(lane, _)| is_seen(lane)) {
            let Some(mark) = known.lanes.get(lane) else { continue };
            if !looks.uses_marks && ended.saturating_duration_since(mark.found_at) > KEPT_FOR {
                known.lanes.remove(lane);
            } else {
                let first = firsts.get(lane).copied().unwrap_or(now);
                mark.low.found_at(look, Some(first.min(now)), ended);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lanes, what the time is, and how long a look takes that is whole.
    struct Lanes {
        marks: Marks,
        now: Instant,
        takes: Duration,
    }

    fn at(second: i64) -> OffsetDateTime {
        OffsetDateTime::UNIX_EPOCH + time::Duration::seconds(second)
    }

    /// Lanes, and where looks at them begin.
    fn begun(of: &[(&str, i64)]) -> BTreeMap<String, OffsetDateTime> {
        of.iter().map(|(lane, second)| ((*lane).to_owned(), at(*second))).collect()
    }

    impl Lanes {
        fn new(takes: Duration) -> Self {
            Self { marks: Marks::default(), now: Instant::now(), takes }
        }

        /// Looks for three seconds that find these, and nothing behind `last`. Gives where looks begin then, but for those
        /// that are whole.
        fn look_on(
            &mut self,
            firsts: &[(&str, i64)],
            last: Option<&str>,
        ) -> BTreeMap<String, OffsetDateTime> {
            let seen = |(lane, first): &(&str, i64)| Seen {
                lane: (*lane).to_owned(),
                first_due_at: Some(at(*first)),
            };
            let seen: Vec<Seen> = firsts.iter().map(seen).collect();
            let mut begun = BTreeMap::new();
            for _ in 0..30 {
                let looks = self.marks.look_at("", 10, self.now);
                let (lanes, from) = looks.from();
                begun.extend(lanes.into_iter().map(str::to_owned).zip(from));
                let is_whole = looks.from().0.len() < looks.each.len().max(1);
                let ended = self.now + if is_whole { self.takes } else { Duration::ZERO };
                self.marks.found_at(&looks, &seen, last, (at(1_000), ended));
                self.now += Duration::from_millis(100);
            }
            begun
        }
    }

    #[test]
    fn the_mark_of_a_lane_follows_what_waits_in_it_and_stays_where_nobody_came_to_it() {
        let mut lanes = Lanes::new(LONG);
        assert_eq!(lanes.look_on(&[("a", 10), ("b", 10)], None), begun(&[("a", 10), ("b", 10)]));
        let cut_off = lanes.look_on(&[("a", 20)], Some("a"));
        assert_eq!(cut_off, begun(&[("a", 20), ("b", 10)]), "there was more behind a");
        // Nothing waits in a any more, and in b only what is due later: all that comes is due now.
        assert_eq!(lanes.look_on(&[("b", 2_000)], None), begun(&[("a", 1_000), ("b", 1_000)]));
    }

    #[test]
    fn marks_are_used_and_kept_as_long_as_looks_take_long_without_them() {
        let mut lanes = Lanes::new(LONG);
        lanes.look_on(&[("a", 10)], None);
        for _ in 0..30 {
            assert_eq!(lanes.look_on(&[], None).len(), 1, "in silence for a minute and a half");
        }
        lanes.takes = Duration::ZERO;
        lanes.now += KEPT_FOR;
        assert_eq!(lanes.look_on(&[], None), begun(&[]));
        assert!(lanes.marks.lock().lanes.is_empty());

        let mut quick = Lanes::new(Duration::ZERO);
        assert_eq!(quick.look_on(&[("a", 10)], None), begun(&[]));
    }
}
