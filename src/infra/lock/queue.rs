//! One queue per key inside the process, first come, first served.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::OwnedMutexGuard;

use crate::infra::tasks;

type Seat = Arc<tokio::sync::Mutex<()>>;

/// A queue per key. Keys that nobody waits for take no memory.
#[derive(Clone, Debug, Default)]
pub(super) struct KeyedQueue {
    seats: Arc<Mutex<HashMap<String, Seat>>>,
}

impl KeyedQueue {
    fn seats(&self) -> MutexGuard<'_, HashMap<String, Seat>> {
        // The map holds no invariant that a panic could break.
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the turn at `key`; `None` when it does not come in time.
    pub(super) async fn enter(&self, key: &str, deadline: Duration) -> Option<Place> {
        let seat = self.seats().entry(key.to_owned()).or_default().clone();
        let mut place = Place { queue: self.clone(), key: key.to_owned(), turn: None, has_waited: false };
        place.turn = seat.clone().try_lock_owned().ok();
        if place.turn.is_none() {
            place.has_waited = true;
            let turn = tasks::away(tokio::time::timeout(deadline, seat.lock_owned()));
            place.turn = turn.await.ok();
        }
        // A place without a turn is dropped here and tidies up after itself.
        place.turn.is_some().then_some(place)
    }
}

/// The turn at a key, until dropped.
#[derive(Debug)]
pub(super) struct Place {
    queue: KeyedQueue,
    key: String,
    turn: Option<OwnedMutexGuard<()>>,
    /// Whether somebody else had the turn before.
    pub(super) has_waited: bool,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.turn = None;
        let mut seats = self.queue.seats();
        // Counted under the map's own lock: whoever enters clones the seat under it too.
        if seats.get(&self.key).is_some_and(|seat| Arc::strong_count(seat) == 1) {
            seats.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_at_a_time_and_no_trace_left() {
        let queue = KeyedQueue::default();
        let first = queue.enter("k", Duration::from_secs(1)).await;
        assert!(first.as_ref().is_some_and(|place| !place.has_waited));
        assert!(queue.enter("k", Duration::from_millis(20)).await.is_none(), "taken");
        assert!(queue.enter("other", Duration::from_millis(20)).await.is_some(), "keys do not meet");

        let second = async { queue.enter("k", Duration::from_secs(1)).await };
        let (second, ()) = tokio::join!(second, async {
            tokio::task::yield_now().await;
            drop(first);
        });
        assert!(second.is_some_and(|place| place.has_waited));
        assert!(queue.seats().is_empty());
    }
}
