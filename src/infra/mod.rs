//! What everything else stands on: the stores, the lock, time, background work. No rule of the business here.

pub mod amqp;
pub mod base64;
pub mod body;
pub mod causes;
pub mod changes;
pub mod clock;
pub mod crash;
pub mod db;
pub mod descriptors;
pub mod duty;
#[cfg(test)]
pub(crate) mod fuzz;
pub mod gather;
pub mod http_client;
pub mod lease;
pub mod lock;
pub mod low_water;
pub mod memory;
pub(crate) mod numeric;
pub mod outside;
pub(crate) mod panics;
pub mod redis;
pub mod repeat;
pub mod request;
pub mod rooms;
pub mod secret_box;
pub mod served;
pub mod tasks;
pub mod telemetry;
pub mod text;
pub(crate) mod words;
