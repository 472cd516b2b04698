//! What stories are told with.

pub mod app;
pub mod authority;
pub mod books;
pub mod browser;
pub mod chance;
pub mod clocks;
pub mod cluster;
pub mod crash;
pub mod double_grant;
pub mod fake_broker;
#[path = "../../../src/infra/fuzz.rs"]
pub mod fuzz;
mod idle;
mod keyed;
pub mod metering;
mod money;
mod paying;
pub mod raw;
pub mod receiver;
pub mod refunding;
pub mod reply;
pub mod routes;
pub mod servers;
pub mod service;
pub mod settling;
pub mod silent;
pub mod statements;
pub mod stores;
pub mod twin;
pub mod unfinished;
pub mod usage;
mod worker;

pub use app::{
    OPERATOR, PUBLISHABLE_KEY, SANDBOX_SECRET, SECRET_KEY, TestApp, TestOptions, hang_up_once, metric,
    until_at_the_gate, until_waiting, until_waiting_there,
};
pub use chance::Chance;
pub use cluster::Cluster;
pub use crash::Doomed;
pub use reply::Reply;

/// Of `outbox`: what somebody is still to be told of.
pub const UNTOLD: &str = "id IN (SELECT event_id FROM outbox_queue UNION SELECT event_id FROM deliveries WHERE status = 'PENDING')";

/// Whether commands share batches here: the stories of the write paths are told with each command alone, too.
pub fn is_gathered() -> bool {
    std::env::var("PAYONCE_BATCH_MAX").is_err()
}

/// So many minutes, for a hand-moved clock.
pub const fn minutes(count: u64) -> std::time::Duration {
    std::time::Duration::from_secs(60 * count)
}

/// So many seconds, for a hand-moved clock.
pub const fn seconds(count: u64) -> std::time::Duration {
    std::time::Duration::from_secs(count)
}
