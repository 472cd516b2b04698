//! The sandbox: a payment gateway inside the binary, and the adapter to it.
//!
//! Always true: the gateway keeps its own books and knows nothing of Payonce's; the adapter knows nothing of
//! the books and speaks to the gateway as to any provider, in this process or in another one.
//!
//! In reading order: [`signature`] and `protocol` are what both sides agree on; `adapter`, `link` and
//! `callback` are the caller's side; `gateway` is the other one, with what it can do in `trades`, `cashier`,
//! `refunds`, `payouts` and `statement`, what it tells in `webhooks` and `deliver`, how it misbehaves in
//! `faults`, and what it shows in `routes` and `pages`.

mod adapter;
mod books;
mod callback;
mod cashier;
mod deliver;
mod faults;
mod gateway;
mod link;
mod pages;
mod payouts;
mod problem;
mod protocol;
mod refunds;
mod routes;
pub mod signature;
mod statement;
mod store;
mod trades;
mod webhooks;

/// What it is called.
pub const NAME: &str = "sandbox";

pub use adapter::{AdapterSettings, SandboxChannel};
pub use books::{DeliveryView, PaymentView, RefundView, TradeView};
pub use cashier::{PayOptions, Receipt};
pub use faults::{ActiveFault, FaultError, FaultKind, FaultOp, NewFault};
pub use gateway::{Gateway, GatewayError, GatewaySettings, Refused, SetupError};
pub use routes::{Deed, NotAdmitted, Operators, routes};
pub use trades::TradeStatus;
pub use webhooks::DeliveryStatus;
