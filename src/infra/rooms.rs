//! Rooms: so much at once for each of the things that may be slow. One that hangs fills its own, and no other's.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What so many may be in.
pub trait Room {
    /// An empty one of that size.
    fn of(size: usize) -> Self;
}

impl Room for Semaphore {
    fn of(size: usize) -> Self {
        Self::new(size)
    }
}

/// The rooms, made as they are asked for.
#[derive(Debug)]
pub struct Rooms<K, R = Semaphore> {
    size: usize,
    by_name: Mutex<HashMap<K, Arc<R>>>,
}

impl<K: Eq + Hash, R: Room> Rooms<K, R> {
    /// Rooms of that size each.
    #[must_use]
    pub fn of(size: usize) -> Self {
        Self { size, by_name: Mutex::default() }
    }

    /// The room of that name.
    pub fn at(&self, name: K) -> Arc<R> {
        let mut by_name = self.by_name.lock().unwrap_or_else(PoisonError::into_inner);
        by_name.entry(name).or_insert_with(|| Arc::new(R::of(self.size))).clone()
    }
}

impl<K: Eq + Hash> Rooms<K> {
    /// A place in the room of that name; nothing when all are taken.
    pub fn enter(&self, name: K) -> Option<OwnedSemaphorePermit> {
        self.at(name).try_acquire_owned().ok()
    }
}
