//! Reconciliation: what the channels say of a day, against what is written here.
//!
//! Always true: a channel's day is one row, however often it is compared, and a difference is one row, however often it
//! is found; nothing is done about a statement that was not read to its end and does not add up, and the day stays open
//! for the right one; money moves through the functions that callbacks use, once for each trade and refund number; a
//! difference is applied, dismissed by a person, resolved by itself, or shown to a person by an exception. What may give
//! money back, or take it from a user, waits for a person unless `RECON_AUTO=all`, and then up to the day's cap.
//! [`model::DayStatus::after`] and [`model::ItemStatus::after`] are the two lives.
//!
//! In reading order: `begin` and `upload` make a day's row; `run` carries it on, one bounded batch at a time: `fetch`
//! copies the statement's lines in chunks, each with the place behind it, from the channel or from a `file`; `compare`
//! walks their lines and then our movements, by statements over bounded ranges of keys; `act` takes the differences up,
//! `carry_out`, `ask` and `charge` do what is to be done, `decide` is what a person says, `reverse` gives a charge back,
//! and `listed` is what statements say of charges. `find` is what people see of it.

mod act;
mod ask;
mod begin;
mod carry_out;
mod charge;
mod compare;
mod decide;
mod error;
mod fetch;
mod file;
mod find;
mod forget;
mod listed;
pub mod model;
mod publish;
mod report;
mod reverse;
mod run;
mod store;
mod upload;

pub use act::act_due;
pub use begin::{NewReconciliation, begin, begin_daily};
pub use decide::{Decision, decide};
pub use error::ReconciliationError;
pub use find::{csv, find, list, list_items};
pub use forget::forget_old;
pub use model::read_day;
pub use publish::publish;
pub use report::{Report, TotalLine};
pub use reverse::reverse_charge;
pub use run::run_due;
pub use upload::{NewUpload, Uploaded, upload};
