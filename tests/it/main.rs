//! Payonce's stories, told through the HTTP door and the clock against real PostgreSQL and Redis.
//!
//! `cargo test` needs nothing prepared: `support::stores` finds or installs the servers and starts private ones.
//! Each story has a database and a Redis of its own, and ends with the invariants.

#![expect(
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a story fails by panicking, and prints what it measured"
)]

mod support;

mod access;
mod bad_input;
mod commands;
mod edge;
mod hazards;
mod lock;
mod main_job;
