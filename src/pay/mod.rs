//! Pay orders: attempts to collect an order through one channel.
//!
//! Always true: at most one attempt of an order is live, and none of a closed one; an attempt keeps its number
//! for life, so a call to the channel can always be made again; no call is made inside a transaction; what a
//! channel says of a trade (by callback, by answer to a query or to a close) goes through one function,
//! [`report::apply`], and counts only with the right amount and currency.

mod attempts;
mod end;
mod error;
mod model;
mod pay_url;
mod repair;
pub mod report;
mod store;
mod sweep;

pub use attempts::{drive, find_live_attempt, find_of_merchant, replay_link};
pub(crate) use attempts::{find_attempt, list_attempts};
pub use end::{end_attempt, end_by_id};
pub use error::PayError;
pub(crate) use model::money_of;
pub use model::{Attempt, PayEvent, PayStatus};
#[cfg(test)]
pub(crate) use pay_url::simulated;
pub use pay_url::{Outcome, PayUrl, PayUrlRequest, pay_url};
pub use repair::find_and_repair;
pub use sweep::{sweep_dead_links, sweep_dead_links_within};
