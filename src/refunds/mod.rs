//! Refunds of orders, and stray money: what a channel took that no order accepts.
//!
//! Always true: refunds that have not failed never exceed what their payment collected, and none is let go that would
//! with those that failed here and were made after all, or may have been; an order moves on a refund's success and not
//! on its request, and back only when the channel takes one back; a top-up's money is set aside before it may go back;
//! above the merchant's limit a refund waits for an operator who did not ask for it. Stray money is one row, unique by
//! channel and trade number, and never unowned: it is being refunded by a task, kept by a person's decision, gone after
//! all, or an open exception waits for one. A refund has one id for life, so asking the channel again never moves money twice; an
//! unknown result stays `PROCESSING` until the channel says what became of it. What is told against what is known (a
//! success behind its reversal, a failure behind a success that stands) may only be late: the channel is asked before
//! it counts, by a task where it cannot be asked at once (`contradiction`). So it is with every failure that a callback
//! tells: what is being made anew is not free for another refund. The order's own status is not touched by a stray
//! payment's refund.
//! Each of these changes stands in the books (`book`), which its own transaction writes, and in `refund_history` and
//! `stray_history`, which the database writes itself.
//!
//! What is asked for, and what ends plainly, is done for many at once: `desk` and `plain` are the rules, and `store/ask`
//! and `store/succeed` lock, write and commit for a batch.

mod after_all;
mod approve;
mod book;
mod collected;
mod contradiction;
mod create;
mod desk;
mod drive;
mod error;
mod find;
mod model;
mod next;
mod not_made;
mod payment;
mod plain;
mod resolve;
mod result;
#[cfg(test)]
pub(crate) mod simulated;
mod store;
mod stray;
mod told;

pub use approve::{Decision, decide};
pub use contradiction::resolve_contradiction;
pub use create::{AskedBy, Created, create};
pub use drive::{call_of, drive, replay};
pub use error::{Left, RefundError};
pub use find::{find, list, page_of_order};
pub use model::{
    NewRefund, NewStray, Refund, RefundEvent, RefundStatus, StrayEvent, StrayPayment, StrayPolicy,
    StrayReason, StrayStatus,
};
#[cfg(test)]
pub(crate) use next::Next;
pub use not_made::was_not_made;
pub use resolve::{ResolveError, resolve_exception};
pub use result::{Applied, Claim, RefundReport, Source, apply_result, preview_result};
pub(crate) use store::{list_of_order, list_strays_of_order, lock_refund};
pub(crate) use stray::hold_stray_in_tx;
pub use stray::list_strays;
