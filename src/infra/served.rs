//! Whether anybody is being served: what can wait leaves the machine to them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Whoever was answered so recently is likely to ask again.
const LINGERS: Duration = Duration::from_secs(1);

/// Requests under way, and when the last one ended. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Served(Arc<Mutex<Count>>);

#[derive(Debug, Default)]
struct Count {
    under_way: usize,
    ended_at: Option<Instant>,
}

impl Served {
    fn count(&self) -> MutexGuard<'_, Count> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Somebody is served for as long as the answer lives.
    #[must_use]
    pub fn enter(&self) -> Serving {
        self.count().under_way += 1;
        Serving(self.clone())
    }

    /// Whether somebody is served now, or was just now.
    #[must_use]
    pub fn is_anybody(&self) -> bool {
        self.is_anybody_at(Instant::now())
    }

    fn is_anybody_at(&self, now: Instant) -> bool {
        let count = self.count();
        count.under_way > 0 || count.ended_at.is_some_and(|ended_at| now < ended_at + LINGERS)
    }

    /// Where somebody is served, rests three times as long as the caller has worked: it then takes a quarter of the time at
    /// most.
    pub async fn rest_after(&self, worked: Duration) {
        if self.is_anybody() {
            tokio::time::sleep(worked * 3).await;
        }
    }
}

/// Somebody who is served, until it is dropped.
#[derive(Debug)]
pub struct Serving(Served);

impl Drop for Serving {
    fn drop(&mut self) {
        let mut count = self.0.count();
        count.under_way -= 1;
        count.ended_at = Some(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn somebody_is_served_until_a_second_after_the_last_request() {
        let served = Served::default();
        assert!(!served.is_anybody());
        let (one, other) = (served.enter(), served.clone().enter());
        drop(one);
        assert!(served.is_anybody_at(Instant::now() + 2 * LINGERS), "one is still under way");
        drop(other);
        assert!(served.is_anybody());
        assert!(!served.is_anybody_at(Instant::now() + LINGERS));
    }
}
