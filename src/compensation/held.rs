//! What a session has in the air, and so must not lose; and what only who has it may do.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use time::OffsetDateTime;

use super::model::Hold;
use super::store;
use crate::channels::CallError;
use crate::infra::db::Db;

/// All of them, by their rows.
#[derive(Debug, Default)]
pub(super) struct Held(Mutex<HashMap<i64, Hold>>);

impl Held {
    fn by_id(&self) -> MutexGuard<'_, HashMap<i64, Hold>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Holds what was just claimed, or handed over; not where a later claim of it is in the air.
    pub(super) fn hold(&self, hold: Hold) {
        let mut by_id = self.by_id();
        let latest = by_id.entry(hold.id).or_insert(hold);
        if latest.claim < hold.claim {
            *latest = hold;
        }
    }

    /// Lets go of that claim; a later one may be in the air by now.
    pub(super) fn let_go(&self, hold: Hold) {
        let mut by_id = self.by_id();
        if by_id.get(&hold.id) == Some(&hold) {
            by_id.remove(&hold.id);
        }
    }

    pub(super) fn all(&self) -> Vec<Hold> {
        self.by_id().values().copied().collect()
    }
}

/// Lets a call that moves money go out only in the name of who has its task: somebody else may have been refused
/// meanwhile, and have written so.
pub(crate) async fn may_call(db: &Db, hold: Hold, now: OffsetDateTime) -> Result<(), CallError> {
    let held = async { store::is_held(&mut db.conn().await?, hold, now).await };
    match held.await {
        Ok(true) => Ok(()),
        Ok(false) => Err(CallError::NotMade("another worker has its task".to_owned())),
        Err(error) => Err(CallError::NotMade(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_lost_before_a_task_was_claimed_anew_takes_nothing_from_the_new_claim() {
        let held = Held::default();
        let (first, second) = (Hold { id: 7, claim: 1 }, Hold { id: 7, claim: 2 });
        held.hold(first);
        let asked = held.all();
        // Meanwhile it is put back, and claimed anew.
        held.let_go(first);
        held.hold(second);
        asked.into_iter().for_each(|lost| held.let_go(lost));
        held.hold(first);
        assert_eq!(held.all(), [second]);
        held.let_go(second);
        assert_eq!(held.all(), []);
    }
}
