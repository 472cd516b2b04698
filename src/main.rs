//! The `payonce` binary.
fn main() {}
