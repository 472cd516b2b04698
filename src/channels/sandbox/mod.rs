//! The sandbox: a payment gateway inside the binary, and the adapter to it.

pub mod signature;
