//! Payonce's stories, told through the HTTP door and the clock against real PostgreSQL and Redis.
//!
//! `cargo test` needs nothing prepared: `support::stores` finds or installs the servers and starts private ones.
//! Each story has a database and a Redis of its own, and ends with the invariants.

mod support;

mod cashier;
mod main_job;
mod tidy;
