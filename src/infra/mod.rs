//! What everything else stands on: the stores, the lock, time, background work. No rule of the business here.

pub mod clock;
pub mod db;
pub(crate) mod words;
