//! Usage billing: hold, stream, confirm, and never twice.
//!
//! Always true: what a hold sets aside was there, and nobody else can spend it; its price is the one that it was made
//! by; its key makes one hold, and so one charge, however often it is asked for; the largest report of usage counts, each
//! message once, its mark committed with its effect; an end frees what it does not charge, and a final report after an
//! expiry is charged late, never lost; what a user does not have becomes a receivable, never a negative balance.
//! `model::HoldStatus::after` is the whole life, `desk` holds the rules.
//!
//! No lock is kept while the work runs. Holds and what is told of them come in batches. Each decides on what it has read, and
//! writes it all at once, unless it is not so any more; where that is not enough it is a transaction that locks what it looks
//! at (holds, cycles, balances, in this order) before it decides.
//!
//! Pricing: `PER_UNIT` by the unit; `PER_CALL` once for each piece of work that used anything; `PER_CYCLE` once for each
//! user and cycle, in advance, with the first hold of the cycle, and not given back when that work comes to nothing.

mod act;
mod consume;
mod create;
mod desk;
mod error;
mod expire;
mod find;
mod forget;
mod model;
mod price;
mod products;
mod store;

pub use act::{confirm, progress, release};
pub use consume::consume;
pub use create::create;
pub use error::{Refusal, UsageError};
pub use expire::expire_due;
pub use find::{Which, Whose, find, list};
pub use forget::forget_old;
pub use model::{
    Hold, HoldEvent, HoldStatus, InvalidUnits, KeyScope, MAX_UNITS, NewHold, Pricing, Report, Units,
};
pub use price::{InvalidPrice, Price};
pub use products::{Kind, PricedProduct, SetProduct, list_products, set_product};

/// A hold, and whether this call made it.
#[derive(Clone, Debug)]
pub struct Done {
    /// As it stands.
    pub hold: Hold,
    /// `false` when it was there already.
    pub is_new: bool,
}
