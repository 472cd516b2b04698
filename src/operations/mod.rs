//! Operations: what the features did, seen across all of them, and having a task tried again.

mod overview;
mod retry;
mod store;
mod timeline;

pub use overview::{Counted, Overview, overview};
pub use retry::{RetryError, retry_task};
pub use timeline::{TimelineEntry, TimelineKind, timeline};
