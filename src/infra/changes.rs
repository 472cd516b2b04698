//! Wakes those of this process who wait for a change of one thing. A hint, not the truth: they look again
//! anyway, because the change may have been made by another instance.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::Notify;

/// Waiters by key. Keys that nobody waits for take no memory.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    waiters: Arc<Mutex<HashMap<String, Weak<Notify>>>>,
    is_over: Arc<AtomicBool>,
}

impl Changes {
    fn waiters(&self) -> MutexGuard<'_, HashMap<String, Weak<Notify>>> {
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A bell that rings at the next change of `key`, and never again: as long as it has not rung, it can be waited for any
    /// number of times. Subscribe first, then look, then wait.
    #[must_use]
    pub fn subscribe(&self, key: &str) -> Arc<Notify> {
        let mut waiters = self.waiters();
        if let Some(bell) = waiters.get(key).and_then(Weak::upgrade) {
            return bell;
        }
        waiters.retain(|_, bell| bell.strong_count() > 0);
        let bell = Arc::new(Notify::new());
        waiters.insert(key.to_owned(), Arc::downgrade(&bell));
        bell
    }

    /// Rings the bell of `key`, if anybody listens. Call it after the commit.
    pub fn announce(&self, key: &str) {
        if let Some(bell) = self.waiters().remove(key).and_then(|bell| bell.upgrade()) {
            bell.notify_waiters();
        }
    }

    /// Sends everybody home who waits: the process is about to stop.
    pub fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        for bell in self.waiters().drain().filter_map(|(_, bell)| bell.upgrade()) {
            bell.notify_waiters();
        }
    }

    /// Whether nobody should wait any more.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
}
