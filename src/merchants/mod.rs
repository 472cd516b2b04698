//! Merchants, their keys, and what they have on sale.
//!
//! Always true: a key is shown once and stored as its SHA-256; an answer to "whose key is this" is remembered for
//! `keys::REMEMBERED_FOR` at most, so a revoked key stops working within that time everywhere.

mod create;
mod keys;
mod model;
mod skus;
mod store;

pub use create::{MerchantError, NewKeys, add_keys, create, ensure_demo, list};
pub use keys::{Caller, KeyCache, authenticate};
pub use model::{KeyKind, Merchant, NewMerchant, SkuStock};
pub use skus::{list_skus, set_stock};
