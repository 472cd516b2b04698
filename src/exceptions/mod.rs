//! Exceptions: what a person must look at.
//!
//! Always true: the same thing is reported once while it is open; whoever resolves one gives a reason.

mod model;
mod store;

pub(crate) use model::{BY_ITSELF, TRIED_AGAIN};
pub use model::{Exception, ExceptionAction, ExceptionKind, ExceptionStatus, NewException};
pub(crate) use store::{
    find_subject, list, lock, lock_open, open_in_tx, resolve_in_tx, settle_all_in_tx, settle_by_in_tx,
    settle_in_tx, tell_in_tx, was_shown, was_shown_since,
};
