//! Operations: what the features did, seen across all of them, and having a task tried or an event sent again.

mod overview;
mod resend;
mod retry;
mod store;
mod timeline;

pub use overview::{Counted, Overview, overview};
pub use resend::{ResendError, resend, resend_all};
pub use retry::{RetryError, retry_task};
pub use timeline::{TimelineEntry, TimelineKind, timeline};
