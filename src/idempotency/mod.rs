//! Idempotency keys: the first answer to a request, kept under the key that its caller gave it.
//!
//! Always true: a kept answer commits with the effect that it tells of, in one statement or one transaction, so
//! neither is ever there without the other. A merchant's key has one answer; who comes second with an effect of
//! their own loses it to the primary key. Only answers that stand are kept: what was done (2xx) and what a channel
//! refused for good (402).

mod forget;
mod model;
mod store;

pub use forget::forget_old;
pub use model::{Answer, Found, Keep, Kept, RequestKey};
pub use store::{find, insert};
