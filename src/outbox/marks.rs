//! Where a look at a lane begins: a low-water mark for each lane in which something waits ([`LowWater`]), so that beside a
//! snapshot that stays open nobody walks past all that the lane had.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use time::OffsetDateTime;
use tokio::time::Instant;

use crate::infra::low_water::{Look, LowWater};

/// How long a lane in which nothing waits keeps its mark.
const KEPT_FOR: Duration = Duration::from_secs(60);

/// The marks of this process.
#[derive(Debug, Default)]
pub(super) struct Marks(Mutex<BTreeMap<String, Mark>>);

#[derive(Debug)]
struct Mark {
    low: LowWater<OffsetDateTime>,
    /// When something was found waiting.
    found_at: Instant,
}

/// A look at the lanes behind one.
#[derive(Debug)]
pub(super) struct Looks(BTreeMap<String, Look<OffsetDateTime>>);

impl Looks {
    /// The lanes of which no more is looked at than what is due from a moment on, in their order, and those moments.
    pub(super) fn from(&self) -> (Vec<&str>, Vec<OffsetDateTime>) {
        self.0.iter().filter_map(|(name, look)| Some((name.as_str(), look.from?))).unzip()
    }
}

/// A lane that was come to, and when the first is due that waits in it, if one does.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) lane: String,
    pub(super) first_due_at: Option<OffsetDateTime>,
}

impl Marks {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Mark>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a look at the lanes behind this one, of which so many at most are come to.
    pub(super) fn look(&self, behind: &str, most: u16) -> Looks {
        self.look_at(behind, most, Instant::now())
    }

    fn look_at(&self, behind: &str, most: u16, began: Instant) -> Looks {
        let marks = self.lock();
        let behind = marks.range::<str, _>((Bound::Excluded(behind), Bound::Unbounded));
        let look = |(lane, mark): (&String, &Mark)| (lane.clone(), mark.low.look_at(began));
        Looks(behind.take(most.into()).map(look).collect())
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
        let mut marks = self.lock();
        for lane in firsts.keys() {
            let begin = || Mark { low: LowWater::default(), found_at: ended };
            marks.entry(lane.clone()).or_insert_with(begin).found_at = ended;
        }
        let is_seen = |lane: &str| last.is_none_or(|last| lane <= last);
        for (lane, look) in looks.0.iter().filter(|(lane, _)| is_seen(lane)) {
            let Some(mark) = marks.get(lane) else { continue };
            if ended.saturating_duration_since(mark.found_at) > KEPT_FOR {
                marks.remove(lane);
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

    /// The lanes, and what the time is.
    struct Lanes {
        marks: Marks,
        now: Instant,
    }

    fn at(second: i64) -> OffsetDateTime {
        OffsetDateTime::UNIX_EPOCH + time::Duration::seconds(second)
    }

    impl Lanes {
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
                self.marks.found_at(&looks, &seen, last, (at(1_000), self.now));
                self.now += Duration::from_millis(100);
            }
            begun
        }
    }

    #[test]
    fn the_mark_of_a_lane_follows_what_waits_in_it_and_stays_where_nobody_came_to_it() {
        let mut lanes = Lanes { marks: Marks::default(), now: Instant::now() };
        let begun = |of: &[(&str, i64)]| -> BTreeMap<String, OffsetDateTime> {
            of.iter().map(|(lane, second)| ((*lane).to_owned(), at(*second))).collect()
        };
        assert_eq!(lanes.look_on(&[("a", 10), ("b", 10)], None), begun(&[("a", 10), ("b", 10)]));
        let cut_off = lanes.look_on(&[("a", 20)], Some("a"));
        assert_eq!(cut_off, begun(&[("a", 20), ("b", 10)]), "there was more behind a");
        // Nothing waits in a any more, and in b only what is due later: all that comes is due now.
        assert_eq!(lanes.look_on(&[("b", 2_000)], None), begun(&[("a", 1_000), ("b", 1_000)]));
        lanes.now += KEPT_FOR;
        lanes.look_on(&[("b", 2_000)], None);
        assert_eq!(lanes.look_on(&[("b", 2_000)], None), begun(&[("b", 1_000)]));
    }
}
