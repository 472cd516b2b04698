//! Turns: while anybody is served, old work is done one after the other and for a quarter of the time; otherwise as fast
//! as there is room for it.
//!
//! Whoever is to begin waits until the one before has had the time that such work takes of late, and three times as long
//! has passed. So what is old takes a quarter of one processor at most, on a fast machine as on a slow one, and a fast
//! one gets more of it done. What takes longer than [`LONGEST`] waits for its channel: that costs nothing, and others
//! begin meanwhile. So at least twelve begin in a second, and a backlog ends in any case.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::infra::served::Served;

/// What a turn takes at most; the rest of it is waiting.
const LONGEST: Duration = Duration::from_millis(20);
/// Of so much time a turn has one part.
const PARTS: u32 = 4;

/// The turns of a lane.
#[derive(Debug)]
pub(super) struct Turns {
    /// When the next one may begin. Who waits for it stands in line here.
    next_at: tokio::sync::Mutex<Instant>,
    /// What the last ones took, the latest counting most.
    takes: Mutex<Duration>,
}

impl Turns {
    pub(super) fn new() -> Self {
        Self { next_at: tokio::sync::Mutex::new(Instant::now()), takes: Mutex::default() }
    }

    /// Waits for a turn where somebody is served, and takes it at once where nobody is.
    pub(super) async fn take(&self, served: &Served) -> Turn<'_> {
        let mut next_at = self.next_at.lock().await;
        if served.is_anybody() {
            sleep_until(*next_at).await;
        }
        let since = Instant::now();
        *next_at = since + *self.takes.lock().unwrap_or_else(PoisonError::into_inner) * PARTS;
        Turn { turns: self, since }
    }
}

/// A turn, until it is dropped.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    turns: &'a Turns,
    since: Instant,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let took = self.since.elapsed().min(LONGEST);
        let mut takes = self.turns.takes.lock().unwrap_or_else(PoisonError::into_inner);
        *takes = (*takes * 3 + took) / 4;
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn who_is_old_rests_while_somebody_is_served_and_never_otherwise() {
        let (turns, served) = (Turns::new(), Served::default());
        let later = async || *turns.next_at.lock().await = Instant::now() + Duration::from_secs(60);
        later().await;
        assert!(turns.take(&served).now_or_never().is_some(), "nobody is served");
        later().await;
        let serving = served.enter();
        assert!(turns.take(&served).now_or_never().is_none(), "somebody is");

        *turns.next_at.lock().await = Instant::now();
        let since = Instant::now();
        for _ in 0..4 {
            *turns.takes.lock().unwrap() = LONGEST;
            drop(turns.take(&served).await);
        }
        assert!(since.elapsed() >= LONGEST * PARTS * 3, "{:?}: three pauses between four", since.elapsed());
        drop(serving);
    }
}
