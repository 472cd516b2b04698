//! What a session has in the air, and so must not lose.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// One claim of a task. A task that is put back untried and claimed anew is the same try again, but another claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hold {
    pub(super) id: i64,
    pub(super) attempts: i32,
    claim: u64,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Held(Mutex<Holds>);

#[derive(Debug, Default)]
struct Holds {
    claims: u64,
    by_id: HashMap<i64, Hold>,
}

impl Held {
    fn holds(&self) -> MutexGuard<'_, Holds> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Holds what was just claimed.
    pub(super) fn hold(&self, id: i64, attempts: i32) -> Hold {
        let mut holds = self.holds();
        holds.claims += 1;
        let hold = Hold { id, attempts, claim: holds.claims };
        holds.by_id.insert(id, hold);
        hold
    }

    /// Lets go of that claim; a later one may be in the air by now.
    pub(super) fn let_go(&self, hold: Hold) {
        let mut holds = self.holds();
        if holds.by_id.get(&hold.id) == Some(&hold) {
            holds.by_id.remove(&hold.id);
        }
    }

    /// All of them, in the order in which whoever writes to several of them locks them.
    pub(super) fn all(&self) -> Vec<Hold> {
        let mut all: Vec<Hold> = self.holds().by_id.values().copied().collect();
        all.sort_unstable_by_key(|hold| hold.id);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_lost_before_a_task_was_claimed_anew_takes_nothing_from_the_new_claim() {
        let held = Held::default();
        let first = held.hold(7, 1);
        let asked = held.all();
        // Meanwhile it is put back untried, which is no try, and claimed anew.
        held.let_go(first);
        let second = held.hold(7, 1);
        asked.into_iter().for_each(|lost| held.let_go(lost));
        assert_eq!(held.all(), [second]);
        held.let_go(second);
        assert_eq!(held.all(), []);
    }

    #[test]
    fn holds_are_told_in_the_order_of_their_tasks() {
        let held = Held::default();
        for id in [5, 3, 9, 1, 7] {
            held.hold(id, 1);
        }
        let ids: Vec<i64> = held.all().iter().map(|hold| hold.id).collect();
        assert_eq!(ids, [1, 3, 5, 7, 9]);
    }
}
