//! The rows of `products`, `product_prices`, `usage_holds`, `usage_cycles`, `usage_messages` and `usage_history`.
//!
//! Who writes locks in one order: holds by id, cycles by key, what users can spend by name, keys of new holds, other balances
//! by name; nobody then waits in a circle.

mod act;
mod cycles;
mod find;
mod list;
mod products;
mod take;
mod write;

pub(super) use act::{Act, Deed, expire_in_tx};
pub(super) use find::{InHand, count_leaked, delete_marks_before, find, list_due};
pub(super) use list::list;
pub(super) use products::{list as list_prices, upsert as upsert_product, upsert_price};
pub(super) use take::Take;
