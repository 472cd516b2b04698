//! Outbox: what the outside must hear of, appended in the transaction of the fact.
//!
//! Always true: a fact and its event commit together; events of one order number leave in the order of their
//! ids. Appending is all there is here yet; relaying them is a feature of its own.

mod event;
mod store;

pub use event::Event;
pub(crate) use store::append_in_tx;
