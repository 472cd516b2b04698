//! Bulkheads: each endpoint has a lane of its own, and takes no more of this process than it deserves.
//!
//! A lane begins with a few deliveries at once, and is given more as long as they arrive, where places are few as long as they
//! arrive soon; each failure halves that, down to one. A lane that fails is come to again by the poll and rings no bell. So an endpoint that is dead costs a
//! handful of tries a second and one that hangs a handful of waiting connections, whatever waits behind them.
//!
//! All lanes together have so many places ([`IN_HAND`]). The fewer are free, the fewer a lane begins with, and lanes that
//! lag, be it that they fail or that they take everything late, never have more than half of them: however many endpoints
//! hang or dawdle, there is room for those that are well.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

/// Deliveries at once of a lane that nothing is known of.
const FIRST: usize = 16;
/// Deliveries at once of a lane at most.
const MOST: usize = 128;
/// Deliveries at once of this process at most. Each has a connection, so it must stay well below the 1,024 descriptors
/// that a process often has, and a body of 256 KiB at most, so all of them take 128 MiB at the very worst; 512 that take
/// 100 ms each are 5,000 a second, more than the database writes down.
const IN_HAND: usize = 512;
/// Of these, for lanes that lag.
const FOR_LAGGING: usize = IN_HAND / 2;
/// A delivery that takes longer, whatever comes of it, keeps a place from others.
const LATE: Duration = Duration::from_secs(2);
/// Lanes remembered; past it those that rest are forgotten.
const MAX_REMEMBERED: usize = 4096;

/// The lanes of this process. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Lanes {
    known: Arc<Mutex<Known>>,
    /// The last lane that was looked at; empty when the next turn begins with the first.
    turn: Arc<Mutex<String>>,
    bell: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Known {
    lanes: HashMap<String, Lane>,
    /// Deliveries of all lanes.
    in_hand: usize,
    /// How many lanes that lag were given room so far: the next turn begins behind them.
    lagging_turn: usize,
}

#[derive(Debug, Default)]
struct Lane {
    in_hand: usize,
    /// How many at once; nothing as long as nothing is known of it.
    width: Option<usize>,
    /// Whether the last one failed, or came late.
    lags: bool,
    /// Whether more may be waiting than it had room for.
    is_hungry: bool,
}

/// How much may be taken.
#[derive(Debug)]
pub(super) struct Room {
    /// Of all lanes together.
    pub(super) of_all: i64,
    /// Of a lane that is not named.
    pub(super) of_others: i64,
    /// The lanes that have another room than that, and theirs.
    pub(super) lanes: Vec<String>,
    pub(super) of_lanes: Vec<i64>,
}

impl Room {
    /// Takes nothing from this lane.
    pub(super) fn close(&mut self, lane: String) {
        self.lanes.push(lane);
        self.of_lanes.push(0);
    }
}

impl Lane {
    fn room(&self, first: usize) -> usize {
        self.width.unwrap_or(first).saturating_sub(self.in_hand)
    }
}

impl Known {
    const fn free(&self) -> usize {
        IN_HAND.saturating_sub(self.in_hand)
    }

    /// What a lane begins with: less where many are about.
    const fn first(&self) -> usize {
        match self.free() {
            0 => 0,
            free if free >= IN_HAND / 2 => FIRST,
            free if free >= IN_HAND / 8 => FIRST / 4,
            _ => 1,
        }
    }

    /// What each lane that lags may take: what is left for all of them goes round, so that none waits for good behind
    /// others that have nothing due.
    fn offer_to_lagging(&mut self, first: usize) -> Vec<(String, usize)> {
        let mut left = self.for_lagging();
        let mut lagging: Vec<_> = self.lanes.iter().filter(|(_, lane)| lane.lags).collect();
        let begin = self.lagging_turn % lagging.len().max(1);
        lagging.rotate_left(begin);
        let mut given = 0;
        let offer = |(name, lane): (&String, &Lane)| {
            let room = lane.room(first).min(left);
            left -= room;
            given += usize::from(room > 0);
            (name.clone(), room)
        };
        let offers = lagging.into_iter().map(offer).collect();
        self.lagging_turn = begin + given;
        offers
    }

    /// Places for lanes that lag.
    fn for_lagging(&self) -> usize {
        let lagging = self.lanes.values().filter(|lane| lane.lags).map(|lane| lane.in_hand).sum();
        FOR_LAGGING.saturating_sub(lagging)
    }
}

impl Lanes {
    /// Rings when there is room for more.
    pub(super) const fn bell(&self) -> &Arc<Notify> {
        &self.bell
    }

    fn known(&self) -> MutexGuard<'_, Known> {
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

    /// Whether there is any place left.
    pub(super) fn has_room(&self) -> bool {
        self.known().free() > 0
    }

    /// How much may be taken now.
    pub(super) fn room(&self) -> Room {
        let mut known = self.known();
        if known.lanes.len() > MAX_REMEMBERED {
            known.lanes.retain(|_, lane| lane.in_hand > 0);
        }
        let (free, first) = (known.free(), known.first());
        let well = known.lanes.iter().filter(|(_, lane)| !lane.lags);
        let mut rooms: Vec<_> = well.map(|(name, lane)| (name.clone(), lane.room(first))).collect();
        rooms.extend(known.offer_to_lagging(first));
        let rooms = rooms.into_iter().filter(|(_, room)| *room != first);
        let rooms = rooms.map(|(name, room)| (name, count(room)));
        let (lanes, of_lanes) = rooms.unzip();
        Room { of_all: count(free), of_others: count(first), lanes, of_lanes }
    }

    /// A place in the lane, if there is one.
    pub(super) fn enter(&self, name: &str) -> Option<Place> {
        let mut known = self.known();
        let (is_crowded, first) = (known.free() == 0, known.first());
        let lane = known.lanes.entry(name.to_owned()).or_default();
        let (is_full, lags) = (is_crowded || lane.room(first) == 0, lane.lags);
        if is_full || lags && known.for_lagging() == 0 {
            note_hungry(&mut known, name);
            return None;
        }
        Some(self.take(&mut known, name))
    }

    /// A place in the lane, for what was counted on having one.
    pub(super) fn enter_anyway(&self, name: &str) -> Place {
        self.take(&mut self.known(), name)
    }

    fn take(&self, known: &mut Known, name: &str) -> Place {
        known.in_hand += 1;
        known.lanes.entry(name.to_owned()).or_default().in_hand += 1;
        Place { lanes: self.clone(), name: name.to_owned(), outcome: None }
    }

    /// From these lanes that was taken where there was that much room: what filled it leaves more behind it.
    pub(super) fn note_full<'a>(&self, room: &Room, taken: impl Iterator<Item = &'a str>) {
        let mut counts: HashMap<&str, i64> = HashMap::new();
        taken.for_each(|name| *counts.entry(name).or_default() += 1);
        let is_all_full = counts.values().sum::<i64>() >= room.of_all;
        let named: HashMap<&str, i64> =
            room.lanes.iter().map(String::as_str).zip(room.of_lanes.iter().copied()).collect();
        for (name, count) in counts {
            if is_all_full || count >= named.get(name).copied().unwrap_or(room.of_others) {
                self.note_waiting(name);
            }
        }
    }

    /// Something waits in the lane behind what is under way.
    pub(super) fn note_waiting(&self, name: &str) {
        note_hungry(&mut self.known(), name);
    }

    fn leave(&self, name: &str, outcome: Option<Outcome>) {
        let mut known = self.known();
        let (was_full, was_busy) = (known.free() == 0, known.free() < IN_HAND / 2);
        known.in_hand = known.in_hand.saturating_sub(1);
        let Some(lane) = known.lanes.get_mut(name) else { return };
        lane.in_hand = lane.in_hand.saturating_sub(1);
        let width = lane.width.unwrap_or(FIRST);
        let mut is_inviting = false;
        if let Some(Outcome { is_well, is_late }) = outcome {
            let next = match is_well {
                // Where others want the places, too.
                true if is_late && was_busy => width.min(FIRST),
                true => (width + 1 + width / 8).min(MOST),
                false => (width / 2).max(1),
            };
            (lane.lags, lane.width) = (!is_well || is_late, Some(next));
            is_inviting = is_well && lane.is_hungry && lane.in_hand <= width.min(next) / 2;
        }
        if is_inviting {
            lane.is_hungry = false;
        }
        drop(known);
        // Where no place was left, others may be waiting for this one.
        if is_inviting || was_full {
            self.bell.notify_one();
        }
    }
}

fn note_hungry(known: &mut Known, name: &str) {
    known.lanes.entry(name.to_owned()).or_default().is_hungry = true;
}

fn count(places: usize) -> i64 {
    i64::try_from(places).unwrap_or(i64::MAX)
}

/// How an endpoint did.
#[derive(Clone, Copy, Debug)]
struct Outcome {
    is_well: bool,
    is_late: bool,
}

/// A place in a lane, given back when it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    lanes: Lanes,
    name: String,
    outcome: Option<Outcome>,
}

impl Place {
    /// Says how the endpoint did, and how long it took.
    pub(super) fn note(&mut self, is_well: bool, took: Duration) {
        self.outcome = Some(Outcome { is_well, is_late: took > LATE });
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
        let Room { of_others, lanes, of_lanes, .. } = lanes.room();
        let known = lanes.iter().zip(of_lanes).find(|(known, _)| *known == name);
        known.map_or(of_others, |(_, room)| room)
    }

    /// As many places as the lane gives.
    fn fill(lanes: &Lanes, name: &str) -> Vec<Place> {
        std::iter::from_fn(|| lanes.enter(name)).collect()
    }

    #[test]
    fn a_lane_that_fails_narrows_and_leaves_the_others_alone() {
        let lanes = Lanes::default();
        let places = fill(&lanes, "dead");
        assert_eq!(places.len(), FIRST);
        for mut place in places {
            place.note(false, Duration::ZERO);
        }
        assert_eq!(room_of(&lanes, "dead"), 1);
        assert!(lanes.enter("well").is_some());
    }

    #[test]
    fn a_lane_that_is_filled_while_others_leave_it_rings_all_the_same() {
        let lanes = Lanes::default();
        let early: Vec<_> = (0..4).map(|_| lanes.enter_anyway("well")).collect();
        let room = lanes.room();
        early.into_iter().for_each(|mut place| place.note(true, Duration::ZERO));
        let names = ["well"; FIRST - 4];
        let mut taken: Vec<_> = names.iter().map(|name| lanes.enter_anyway(name)).collect();
        lanes.note_full(&room, names.iter().copied());
        taken.iter_mut().for_each(|place| place.note(true, Duration::ZERO));
        taken.truncate(1);
        let rang = futures_util::FutureExt::now_or_never(lanes.bell().notified()).is_some();
        assert!(rang, "there is room, and there was more than it could hold");
    }

    #[test]
    fn a_lane_that_does_well_widens_and_rings_when_it_is_half_empty() {
        let lanes = Lanes::default();
        for _ in 0..200 {
            lanes.enter("well").expect("room").note(true, Duration::ZERO);
        }
        assert_eq!(room_of(&lanes, "well"), count(MOST));
        let mut places = fill(&lanes, "well");
        let rang = || futures_util::FutureExt::now_or_never(lanes.bell().notified()).is_some();
        assert!(!rang());
        for mut place in places.drain(..MOST / 2 + 1) {
            place.note(true, Duration::ZERO);
        }
        assert!(rang(), "there is room again");
    }

    #[test]
    fn a_lane_whose_deliveries_arrive_late_has_the_room_of_those_that_fail_and_is_narrow_where_places_are_few()
     {
        let lanes = Lanes::default();
        let late = LATE + Duration::from_millis(1);
        for _ in 0..200 {
            lanes.enter("late").expect("room").note(true, late);
        }
        assert_eq!(room_of(&lanes, "late"), count(MOST), "there is room for all");
        let others: Vec<_> = (0..IN_HAND / 2).map(|number| lanes.enter_anyway(&number.to_string())).collect();
        fill(&lanes, "late").into_iter().for_each(|mut place| place.note(true, late));
        assert_eq!(room_of(&lanes, "late"), count(FIRST));
        drop(others);

        let lagging: Vec<_> = (0..FOR_LAGGING).map(|_| lanes.enter_anyway("late")).collect();
        assert!(lanes.enter("late").is_none() && lanes.enter("well").is_some());
        drop(lagging);
        lanes.enter("late").expect("room").note(true, Duration::ZERO);
        assert_eq!(room_of(&lanes, "late"), count(FIRST + 1 + FIRST / 8), "it arrived soon");
    }

    #[test]
    fn all_lanes_together_have_so_many_places_and_those_that_lag_half_of_them() {
        let lanes = Lanes::default();
        for number in 0..2 * IN_HAND {
            for mut place in fill(&lanes, &format!("dead {number}")) {
                place.note(false, Duration::ZERO);
            }
        }
        let fail = |number: usize| fill(&lanes, &format!("dead {number}"));
        let failing: Vec<Place> = (0..2 * IN_HAND).flat_map(fail).collect();
        assert_eq!(failing.len(), FOR_LAGGING);
        assert!(lanes.room().of_lanes.iter().all(|room| *room == 0));

        let new = |number: usize| fill(&lanes, &format!("new {number}"));
        let others: Vec<Place> = (0..2 * IN_HAND).flat_map(new).collect();
        assert_eq!((others.len(), lanes.room().of_all), (IN_HAND - FOR_LAGGING, 0));
        assert!(new(0).is_empty() && lanes.enter("one more").is_none());
        drop(failing);
        assert!(lanes.enter("one more").is_some());
    }
}
