//! Payonce: an order is paid once, settled once, refunded once, cancelled once and reported once.
pub mod channels;
pub mod config;
pub mod ids;
pub mod infra;
pub mod money;
