//! The gateway's books: all SQL of the sandbox, one file per table.

pub(crate) mod deliveries;
pub(crate) mod faults;
pub(crate) mod payments;
pub(crate) mod payouts;
pub(crate) mod refunds;
pub(crate) mod statement;
pub(crate) mod trades;
