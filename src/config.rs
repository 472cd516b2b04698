//! stub
use std::time::Duration;
/// db
#[derive(Clone, Debug)]
pub struct DatabaseConfig {
    /// u
    pub url: String,
    /// p
    pub pool_size: u32,
    /// a
    pub acquire_deadline: Duration,
    /// d
    pub statement_deadline: Duration,
}
