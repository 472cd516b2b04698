//! A lease is kept by who is at work: it is renewed long before its end, and a dead one renews nothing.

use std::convert::Infallible;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval_at};

/// The shortest time between two renewals.
const LEAST: Duration = Duration::from_millis(10);

/// Renews whenever a third of the lease is over, for as long as it is polled: beside the work, so that the lease does not
/// wait for what the work waits for. A renewal that fails is followed by others in time.
pub async fn keep<F: Future<Output = ()>>(lease: Duration, renew: impl Fn() -> F) -> Infallible {
    let third = (lease / 3).max(LEAST);
    let mut renewal = interval_at(Instant::now() + third, third);
    renewal.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        renewal.tick().await;
        renew().await;
    }
}
