//! Orders: one buyer, one amount, one deadline.
//!
//! Always true: at most one attempt pays an order; its stock is held while `PENDING`, taken once `PAID`, given
//! back once `CLOSED`; a `CLOSED` order has no live attempt. [`OrderStatus::after`] is the whole life. Everything
//! that acts on one order takes `lock:ORDER:{merchant}:{order_no}` first, and is right without it: each write
//! names the state that it was decided on, and meets no row when somebody else was faster.

mod close;
mod create;
mod deadlines;
mod delay_queue;
mod error;
mod expire;
mod find;
mod metadata;
mod model;
mod refunded;
mod store;
mod top_up;

pub use close::close;
pub use create::{Created, create};
pub use delay_queue::{DelayQueue, delay_queue};
pub use error::OrderError;
pub use expire::{expire_due, expire_one, sweep_due, sweep_due_within};
pub(crate) use find::find_in;
pub use find::{OrderDetails, details, list, list_of_number, wait_for_change};
pub use metadata::Metadata;
pub use model::{
    CloseReason, InvalidTransition, NewOrder, Order, OrderEvent, OrderItem, OrderKey, OrderKind, OrderStatus,
    SettleStatus,
};
pub(crate) use refunded::{event_of_refunds, lock_in_tx, return_stock_in_tx, set_refunded_in_tx};
