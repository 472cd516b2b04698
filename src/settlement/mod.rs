//! Commission settlement: what an order's user earns, once.
//!
//! Always true: an order has one settlement at most, and only while it is paid and not wholly refunded; its rates are
//! frozen on it, and what is claimed back follows what is left of the order by the same rates. The mark on the order,
//! the settlement, its booking with the user's balance and its event commit together. Users never have less than
//! nothing: what they do not have any more becomes a receivable, which what is given again pays off first, and before that
//! makes good what was written off of it.
//!
//! Who settles takes `lock:ORDER:{merchant}:{order_no}` first, and asks for rates outside of any transaction; the write
//! is guarded by what it was computed from. Runs settle in batches without locks, by the same guarded statement.

mod claw_back;
mod error;
mod find;
mod follow;
mod model;
mod rates;
mod rules;
mod run;
mod runs;
mod settle;
mod store;
mod terms;

pub use claw_back::{claw_back_in_tx, restore_in_tx};
pub use error::SettlementError;
pub use find::find;
pub(crate) use find::find_of_order;
#[cfg(test)]
pub(crate) use follow::{Shares, follow};
pub use model::{
    RebateRule, RunEvent, RunStatus, Settlement, SettlementEvent, SettlementRun, SettlementStatus, UserLevel,
    Waiting,
};
pub use rates::{Line, Question, Quote, RateSource, SourceError};
pub use rules::{list_levels, list_rules, set_level, set_rule};
pub use run::run_due;
pub use runs::{Begun, MAX_DAYS, NewRun, begin_run, find_run, list_runs};
pub use settle::{Settled, settle};
pub use terms::{Factor, InvalidFactor, InvalidRate, Rate, Terms};
