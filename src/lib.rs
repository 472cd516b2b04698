//! Payonce: an order is paid once, settled once, refunded once, cancelled once and reported once, whatever is
//! retried, repeated, raced, delayed, killed or lost.
//!
//! The modules in reading order, by tier. Imports go downward or sideways, never upward; `tests/it/tidy.rs` holds
//! the rule.
//!
//! | tier | modules | what they are |
//! |---|---|---|
//! | 0 | [`infra`], [`money`], [`ids`], [`config`] | stores, lock, time, values |
//! | 1 | [`channels`], [`ledger`], [`outbox`], [`exceptions`], [`compensation`], [`idempotency`], [`audit`] | what features speak through |
//! | 2 | [`app`] | what a use case may reach |
//! | 3 | [`merchants`], [`orders`], [`pay`], [`refunds`], [`settlement`], [`withdrawals`], [`usage`], [`receivables`], [`admin_log`] | the features |
//! | 4 | [`webhooks`], [`drive`], [`reconciliation`], [`operations`] | what comes from outside, what was left in the middle, our books against the channels', and what operators look at |
//! | 5 | [`http`], [`workers`] | the edge, the duties |
//! | 6 | [`run`], [`local`], [`doctor`], [`cli`] | wiring, private stores, what is wrong around, commands |
//!
//! To follow a pay URL: `http/pay.rs`, `pay/pay_url.rs`, `pay/store.rs`. To follow a callback:
//! `http/webhooks.rs`, `webhooks/receive.rs`, `pay/report/`. To follow a commission: `http/settlements.rs`,
//! `settlement/settle.rs`, `settlement/store/settle.sql`. To follow a refund: `http/refunds.rs`, `refunds/create.rs`,
//! `refunds/desk.rs`, `refunds/store/ask.rs`; to its end: `refunds/drive.rs`, `refunds/plain.rs`. To follow a hold: `http/usage.rs`, `usage/create.rs`,
//! `usage/store/take.rs`, `usage/desk.rs`. To follow a statement: `reconciliation/mod.rs`.

pub mod admin_log;
pub mod app;
pub mod audit;
pub mod channels;
pub mod cli;
pub mod compensation;
pub mod config;
pub mod doctor;
pub mod drive;
pub mod exceptions;
pub mod http;
pub mod idempotency;
pub mod ids;
pub mod infra;
pub mod ledger;
pub mod local;
pub mod merchants;
pub mod money;
pub mod operations;
pub mod orders;
pub mod outbox;
pub mod pay;
pub mod receivables;
pub mod reconciliation;
pub mod refunds;
pub mod run;
pub mod settlement;
pub mod usage;
pub mod webhooks;
pub mod withdrawals;
pub mod workers;
