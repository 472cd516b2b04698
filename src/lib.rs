//! Payonce: an order is paid once, settled once, refunded once, cancelled once and reported once.
pub mod app;
pub mod audit;
pub mod channels;
pub mod compensation;
pub mod config;
pub mod exceptions;
pub mod ids;
pub mod infra;
pub mod local;
pub mod merchants;
pub mod money;
pub mod orders;
pub mod outbox;
pub mod pay;
pub mod refunds;
