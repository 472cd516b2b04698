//! Payonce's stories, told through the HTTP door and the clock against real PostgreSQL and Redis.
//!
//! `cargo test` needs nothing prepared: `support::stores` finds or installs the servers and starts private ones.
//! Each story has a database and a Redis of its own, and ends with the invariants.

#![expect(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a story stops where something is wrong, and prints its seed and what it measured"
)]

mod support;

mod access;
mod alerts;
mod audit;
mod bad_input;
mod cashier;
mod chaos;
mod clocks;
mod commands;
mod compensation;
mod contract;
mod crash_points;
mod delay_queue;
mod demo;
mod doctor;
mod edge;
mod exceptions;
mod faults;
mod fuzz;
mod gather;
mod hazards;
mod histories;
mod hostile;
mod idempotency;
mod kills;
mod known_races;
mod ledger;
mod lists;
mod lock;
mod lock_scenes;
mod main_job;
mod money_at_once;
mod notifications;
mod operations;
mod orders;
mod overload;
mod pay_url;
mod pay_url_crashes;
mod pay_url_keys;
mod pay_url_silence;
mod plans;
mod races;
mod random_money;
mod receivables;
mod reconciliation;
mod redlock;
mod refund_reversals;
mod refund_workers;
mod refunds;
mod refunds_at_once;
mod refunds_in_hand;
mod refunds_made_after_all;
mod repair;
mod sentinel;
mod settlements;
mod spill;
mod stock;
mod storms;
mod stray_money;
mod tidy;
mod timeline;
mod timeouts;
mod tls;
mod upgrade;
mod usage;
mod usage_at_once;
mod usage_exhausted;
mod usage_locks;
mod usage_messages;
mod usage_model;
mod usage_quotas;
mod usage_views;
mod webhooks;
mod withdrawal_workers;
mod withdrawals;
mod withdrawals_returned;
