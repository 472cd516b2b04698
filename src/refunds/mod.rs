//! Refunds, and stray money: what a channel took that no order accepts.
//!
//! Always true: stray money is one row, unique by channel and trade number, and never unowned: it is being
//! refunded by a task, kept by a person's decision, or an open exception waits for one. A refund has one id for
//! life, so asking the channel again never moves money twice; an unknown result stays `PROCESSING` until the
//! channel says what became of it. The order's own status is not touched by a stray payment's refund. Each of these
//! changes stands in the books (`book`), which its own transaction writes.

mod book;
mod drive;
mod model;
mod resolve;
mod result;
mod store;
mod stray;

pub use drive::drive;
pub use model::{
    NewStray, Refund, RefundEvent, RefundStatus, StrayEvent, StrayPayment, StrayPolicy, StrayReason,
    StrayStatus,
};
pub use resolve::{ResolveError, resolve_exception};
pub use result::{Applied, Claim, RefundReport, Source, apply_result, preview_result};
pub(crate) use store::{list_of_order, list_strays_of_order};
pub(crate) use stray::hold_stray_in_tx;
pub use stray::list_strays;
