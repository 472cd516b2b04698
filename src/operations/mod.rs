//! Operations: what the features did, seen across all of them, and having a task tried or an event sent again.

mod given_up;
mod lanes;
mod overview;
mod publish;
mod resend;
mod retry;
mod retry_many;
mod store;
mod sweep;
mod timeline;

pub use given_up::settle_given_up;
pub use lanes::{lanes, pause_lane, resume_lane};
pub use overview::{Counted, Overview, overview};
pub use publish::publish;
pub use resend::{ResendError, resend, resend_all};
pub use retry::{RetryError, retry_task};
pub use retry_many::{OrderCompensated, RetriedMany, compensate_order, count_retryable, retry_many};
pub use sweep::{LeftAlone, SLICE, Swept, look_for_left_alone, sweep, sweep_left_alone, sweep_slice};
pub use timeline::{NoPlace, Place, TimelineEntry, TimelineKind, timeline};
