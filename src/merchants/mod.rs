//! Merchants, their keys, and what they have on sale.
//!
//! Always true: a key is shown once and stored as its SHA-256; an answer to "whose key is this" is remembered for
//! `keys::REMEMBERED_FOR` at most and never past the key's own end. So an end that was set at least that long ahead
//! is kept to the moment by every instance, and one that was set sooner within that time.

mod create;
mod keys;
mod model;
mod notify;
mod skus;
mod store;

pub use create::{
    DEMO_NOTIFY_SECRET, MerchantError, NewKeys, create, ensure_demo, find_other, list, list_keys, rotate_keys,
};
pub use keys::{Caller, KeyCache, Recalled, look_up, recall};
pub use model::{ApiKey, KeyKind, Merchant, NewMerchant, SkuStock};
pub use notify::{rotate_notify_secret, set_notify_url};
pub use skus::{NewStock, list_skus, set_stock};
