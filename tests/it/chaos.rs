//! Chaos: three instances that answer merchants, and work or leave that to others, and one that only works, between wires
//! that break, to the stores and to whoever asks, and by clocks that are off, over stores that crash and fail over, with a
//! channel that hangs, rivals for the same orders, an endpoint that is not always well, operators who decide over large
//! refunds, and merchants who ask until they know. Afterwards everything comes to its end by itself, every invariant
//! holds, the channel's books and ours agree both ways, what the merchants were told and heard is so, and the statements
//! of those days show no difference.
//!
//! Twenty kills by default, half of them around one Redis and half around a master, a replica and sentinels, with a crash
//! of PostgreSQL there and a failover here; `PAYONCE_KILLS=…` any other number, each twenty of a world with one crash and
//! one loss of Redis. After each hundred the world comes to rest and is judged, so that a long run needs no more memory
//! and no more time for a kill than a short one.
//!
//! `SEED=…` throws the same dice again: which faults, after which pauses, on which clocks, and what each seller does in
//! its turn. What of one meets what of another is for the scheduler to say, and is not repeated.

use tokio::sync::Mutex;

mod callbacks;
mod client;
mod faults;
mod heard;
mod instances;
mod judge;
mod judged;
mod life;
pub mod lost_answers;
mod metering;
mod operators;
mod proxy;
mod redis_side;
mod rest;
mod right_time;
mod rivals;
mod seeded;
mod there;
mod told;
mod truth;
mod world;

use self::faults::Turns;
use self::redis_side::RedisSide;
use self::world::World;
use crate::support::service::is_full;

/// Kills after which the world comes to rest.
const CHAPTER: usize = 100;

fn kills() -> usize {
    let wanted = std::env::var("PAYONCE_KILLS").ok().and_then(|count| count.parse().ok());
    wanted.unwrap_or(if is_full() { 1_000 } else { 20 })
}

/// One world at a time: each is a machine's work.
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

async fn live_through(kills: usize, redis: impl Future<Output = RedisSide>, turns: Turns) {
    let _alone = ONE_AT_A_TIME.lock().await;
    let mut world = World::open(redis.await, turns).await;
    let mut left = kills;
    while left > 0 {
        let chapter = left.min(CHAPTER);
        world.live_through(chapter).await;
        left -= chapter;
    }
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_breaks_around_one_redis_what_was_told_is_so() {
    let turns = Turns { postgres_crashes: 7, redis_is_lost: 17 };
    live_through(kills().div_ceil(2), RedisSide::alone(), turns).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_breaks_around_a_redis_that_fails_over_what_was_told_is_so() {
    let turns = Turns { postgres_crashes: 17, redis_is_lost: 7 };
    live_through(kills() / 2, RedisSide::watched(), turns).await;
}
