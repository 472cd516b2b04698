//! Operations: what the features did, seen across all of them. Only reads.

mod overview;
mod store;
mod timeline;

pub use overview::{Counted, Overview, overview};
pub use timeline::{TimelineEntry, TimelineKind, timeline};
