//! What faces outside, fed with whatever there is: nothing panics, nothing reads past its limit, what is read prints
//! back as it was, no cent is lost or invented, and what was bent is not believed. Parsers that are private are fed
//! where they are (`fuzz.rs` beside them).
//!
//! A few thousand cases each, a hundred times as many with `PAYONCE_FULL=1`. What fails is cut down and printed.

use crate::support::fuzz::cases;

mod addresses;
mod answers;
mod around;
mod bodies;
mod names;
mod numbers;
mod settings;
mod signatures;
