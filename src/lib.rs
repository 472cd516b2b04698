//! Payonce: an order is paid once, settled once, refunded once, cancelled once and reported once.

pub mod local;
