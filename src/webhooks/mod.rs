//! Webhooks: what channels tell us.
//!
//! Always true: a signature is checked over the raw bytes before anything is read; what is not believed leaves no
//! trace but a counter; what is taken in is kept, once, in the transaction of its effect, and a repeat gets the
//! same answer. What a callback says of a trade goes through `pay::report`, of a refund through `refunds`.

mod inbox;
mod inbox_id;
mod receive;
mod rematch;
mod replay;
mod store;

/// Why a callback about a refund is neither taken in nor refused.
const UNDECIDED: &str = "it does not say whether the refund was made";

pub use inbox::{InboxFilter, Kept, Position, list, position};
pub use inbox_id::{InboxId, NoInboxId};
pub use receive::{Incoming, Taken, report_unreadable, take_in, verify};
pub use rematch::{forget_old, rematch};
pub use replay::{ReplayError, Replayed, replay};
