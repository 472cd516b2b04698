//! Bulkheads: each endpoint has a lane of its own, and takes no more of this process than it deserves.
//!
//! A lane begins with a few deliveries at once, and is given more as long as they arrive; each failure halves that,
//! down to one. A lane that fails is come to again by the poll and rings no bell. So an endpoint that is dead costs a
//! handful of tries a second and one that hangs a handful of waiting connections, whatever waits behind them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// Deliveries at once of a lane that nothing is known of.
pub(super) const FIRST: usize = 16;
/// Deliveries at once of a lane at most.
const MOST: usize = 128;
/// Lanes remembered; past it those that rest are forgotten.
const MAX_REMEMBERED: usize = 4096;

/// The lanes of this process. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Lanes {
    known: Arc<Mutex<HashMap<String, Lane>>>,
    /// The last lane that was looked at; empty when the next turn begins with the first.
    turn: Arc<Mutex<String>>,
    bell: Arc<Notify>,
}

#[derive(Debug)]
struct Lane {
    in_hand: usize,
    width: usize,
    /// Whether more may be waiting than it had room for.
    is_hungry: bool,
}

impl Default for Lane {
    fn default() -> Self {
        Self { in_hand: 0, width: FIRST, is_hungry: false }
    }
}

impl Lane {
    fn room(&self) -> usize {
        self.width.saturating_sub(self.in_hand)
    }
}

impl Lanes {
    /// Lanes that ring this bell when there is room for more.
    pub(super) fn new(bell: Arc<Notify>) -> Self {
        Self { known: Arc::default(), turn: Arc::default(), bell }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, Lane>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Behind which lane the next turn begins.
    pub(super) fn turn(&self) -> String {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Lets the next turn begin behind this lane.
    pub(super) fn turn_to(&self, name: String) {
        *self.turn.lock().unwrap_or_else(PoisonError::into_inner) = name;
    }

    /// How much room each lane has, where it is not [`FIRST`].
    pub(super) fn room(&self) -> (Vec<String>, Vec<i64>) {
        let mut known = self.known();
        if known.len() > MAX_REMEMBERED {
            known.retain(|_, lane| lane.in_hand > 0);
        }
        let room = |lane: &Lane| i64::try_from(lane.room()).unwrap_or(0);
        let other = known.iter().filter(|(_, lane)| lane.room() != FIRST);
        other.map(|(name, lane)| (name.clone(), room(lane))).unzip()
    }

    /// A place in the lane, if there is one.
    pub(super) fn enter(&self, name: &str) -> Option<Place> {
        let mut known = self.known();
        let lane = known.entry(name.to_owned()).or_default();
        lane.is_hungry |= lane.room() == 0;
        (lane.room() > 0).then(|| self.take(lane, name))
    }

    /// A place in the lane, for what was counted on having one.
    pub(super) fn enter_anyway(&self, name: &str) -> Place {
        let mut known = self.known();
        let lane = known.entry(name.to_owned()).or_default();
        let place = self.take(lane, name);
        lane.is_hungry |= lane.room() == 0;
        place
    }

    fn take(&self, lane: &mut Lane, name: &str) -> Place {
        lane.in_hand += 1;
        Place { lanes: self.clone(), name: name.to_owned(), outcome: None }
    }

    /// Of these lanes so much was taken where there was that much room: what filled it leaves more behind it.
    pub(super) fn note_full<'a>(&self, room: &(Vec<String>, Vec<i64>), taken: impl Iterator<Item = &'a str>) {
        let mut counts: HashMap<&str, i64> = HashMap::new();
        taken.for_each(|name| *counts.entry(name).or_default() += 1);
        let room: HashMap<&str, i64> =
            room.0.iter().map(String::as_str).zip(room.1.iter().copied()).collect();
        let first = i64::try_from(FIRST).unwrap_or(i64::MAX);
        for (name, count) in counts {
            if count >= room.get(name).copied().unwrap_or(first) {
                self.note_waiting(name);
            }
        }
    }

    /// Something waits in the lane behind what is under way.
    pub(super) fn note_waiting(&self, name: &str) {
        self.known().entry(name.to_owned()).or_default().is_hungry = true;
    }

    fn leave(&self, name: &str, outcome: Option<bool>) {
        let mut known = self.known();
        let Some(lane) = known.get_mut(name) else { return };
        lane.in_hand = lane.in_hand.saturating_sub(1);
        lane.width = match outcome {
            Some(true) => (lane.width + 1 + lane.width / 8).min(MOST),
            Some(false) => (lane.width / 2).max(1),
            None => lane.width,
        };
        let rings = outcome == Some(true) && lane.is_hungry && lane.in_hand <= lane.width / 2;
        if rings {
            lane.is_hungry = false;
            drop(known);
            self.bell.notify_one();
        }
    }
}

/// A place in a lane, given back when it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    lanes: Lanes,
    name: String,
    outcome: Option<bool>,
}

impl Place {
    /// Says how the endpoint did.
    pub(super) fn note(&mut self, is_well: bool) {
        self.outcome = Some(is_well);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.lanes.leave(&self.name, self.outcome);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room_of(lanes: &Lanes, name: &str) -> i64 {
        let (names, room) = lanes.room();
        names.iter().zip(room).find(|(known, _)| *known == name).map_or(-1, |(_, room)| room)
    }

    #[test]
    fn a_lane_that_fails_narrows_and_leaves_the_others_alone() {
        let lanes = Lanes::new(Arc::default());
        let places: Vec<_> = std::iter::from_fn(|| lanes.enter("dead")).collect();
        assert_eq!(places.len(), FIRST);
        for mut place in places {
            place.note(false);
        }
        assert_eq!(room_of(&lanes, "dead"), 1);
        assert!(lanes.enter("well").is_some());
    }

    #[test]
    fn a_lane_that_is_filled_while_others_leave_it_rings_all_the_same() {
        let bell = Arc::new(Notify::new());
        let lanes = Lanes::new(bell.clone());
        let early: Vec<_> = (0..4).map(|_| lanes.enter_anyway("well")).collect();
        let room = lanes.room();
        early.into_iter().for_each(|mut place| place.note(true));
        let names = vec!["well"; FIRST - 4];
        let mut taken: Vec<_> = names.iter().map(|name| lanes.enter_anyway(name)).collect();
        lanes.note_full(&room, names.iter().copied());
        taken.iter_mut().for_each(|place| place.note(true));
        taken.truncate(1);
        let rang = futures_util::FutureExt::now_or_never(bell.notified()).is_some();
        assert!(rang, "there is room, and there was more than it could hold");
    }

    #[test]
    fn a_lane_that_does_well_widens_and_rings_when_it_is_half_empty() {
        let bell = Arc::new(Notify::new());
        let lanes = Lanes::new(bell.clone());
        for _ in 0..200 {
            lanes.enter("well").expect("room").note(true);
        }
        assert_eq!(room_of(&lanes, "well"), i64::try_from(MOST).unwrap());
        let mut places: Vec<_> = std::iter::from_fn(|| lanes.enter("well")).collect();
        let rang = || futures_util::FutureExt::now_or_never(bell.notified()).is_some();
        assert!(!rang());
        for mut place in places.drain(..MOST / 2) {
            place.note(true);
        }
        assert!(rang(), "there is room again");
    }
}
