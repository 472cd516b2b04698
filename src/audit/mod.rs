//! Audit: what must be true of the whole database, checked by SQL in one snapshot, also under load.
//!
//! Always true: a check only reads; an `A` check holds in every snapshot, because what it compares commits
//! together; an `E` check looks only at what has rested longer than its grace; one that cannot be made is named in the
//! report, beside what the others found. A new check is one entry in one file of `checks`, and one seed of its violation
//! in the tests.

mod checks;
mod model;
mod publish;
mod run;
mod store;
mod turn;

pub(crate) use checks::money_at_risk;
pub use model::{AuditReport, Check, CheckKind, Failed, MoneyAtRisk};
pub use publish::publish;
pub use run::{audit, run_checks};
pub use turn::{note, run_due};
