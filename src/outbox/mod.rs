//! Outbox: what the outside must hear of, appended in the transaction of the fact, and relayed from there.
//!
//! Always true: a fact and its event commit together. An event reaches every destination that it has at least once,
//! under one id and with one body, or is shown to a person. Events of one order number leave in the order of their ids,
//! one after the other: ids are drawn under the lock of the order's row (of the stray payment's, where no order is
//! known), so an order's earlier event is there before its later one; between orders ids are no order of anything. What is
//! sent again stands in a queue and in lanes of its own, so no new event of another order waits behind it. What
//! was given up or dropped holds nothing up: the events behind it go on. A delivery is held by a lease, so a dead
//! sender's delivery is sent again; whoever has lost the lease neither sends nor writes.
//!
//! The schedule of retries stands on the delivery itself (`REPLAY_CALLBACK`, `RESEND_EVENT`) and not in
//! `compensations`: there an endpoint that hangs would share its worker with money, and the order within an order number
//! and the bulkheads between endpoints would have to be kept twice.

mod catalogue;
mod deliver;
mod endpoint;
mod event;
mod forget;
mod lane;
mod lanes;
mod marks;
mod message;
mod model;
mod notify;
mod past;
mod relay;
mod resend;
mod route;
mod schedule;
mod signature;
mod store;

pub use catalogue::{Told, catalogue};
pub(crate) use endpoint::enable_in_tx;
pub use event::Event;
pub use forget::{forget_old, publish_age};
pub use model::{
    Attempt, DeliveryKind, EventDelivery, EventDeliveryStatus, EventFilter, EventStatus, EventView,
    parse_event_id,
};
pub use past::{PastEvent, PastFilter, find_past, list_past};
pub use relay::{Relay, RelayParts};
pub use resend::{SendAgain, SentAgain, find, list, send_again_in_tx, send_all_again_in_tx};
pub(crate) use store::append_in_tx;
