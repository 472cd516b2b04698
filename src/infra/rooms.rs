//! Rooms: so much at once for each of the things that may be slow. One that hangs fills its own, and no other's.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The rooms, made as they are asked for.
#[derive(Debug)]
pub struct Rooms<K> {
    size: usize,
    by_name: Mutex<HashMap<K, Arc<Semaphore>>>,
}

impl<K: Eq + Hash> Rooms<K> {
    /// Rooms of that size each.
    #[must_use]
    pub fn of(size: usize) -> Self {
        Self { size, by_name: Mutex::default() }
    }

    /// A place in the room of that name; nothing when all are taken.
    pub fn enter(&self, name: K) -> Option<OwnedSemaphorePermit> {
        let room = {
            let mut by_name = self.by_name.lock().unwrap_or_else(PoisonError::into_inner);
            by_name.entry(name).or_insert_with(|| Arc::new(Semaphore::new(self.size))).clone()
        };
        room.try_acquire_owned().ok()
    }
}
