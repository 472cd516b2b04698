//! The rows of `settlements`, `rebate_rules`, `user_levels` and `settlement_runs`, and of the orders and balances that
//! they move. What every settlement costs is gathered: see [`FindFacts`] and [`Settle`].

mod claims;
mod claw_back;
mod facts;
mod runs;
mod settle;
mod terms;

pub(super) use claims::list_claims;
pub(super) use claw_back::{Locked, lock, set_clawed_back};
pub(super) use facts::{Facts, FindFacts, find};
pub(super) use runs::{
    Page, Position, add_settled, advance, claim, find_settled, insert_run, list_page, list_runs,
    list_settled, note_error, renew, waiting,
};
pub(super) use settle::Settle;
pub(super) use terms::{list_levels, list_rules, upsert_level, upsert_rule};
