//! Compensation: what is left in the middle is driven to an end.
//!
//! Always true: a task is written in the transaction of the state that needs it, before the outside call that
//! it guards; there is one living task for one thing; a worker holds a task by a lease, so a dead worker's task
//! is taken over; the last failed try leaves `DEAD` and an open exception. What a task does is decided in
//! `drive`, one tier up, from the state it finds then, never from what was true when it was written.

mod forget;
mod model;
mod run;
mod store;

pub use forget::forget_old;
pub use model::{Action, Drive, NewTask, Task, TaskKind, TaskStatus, TaskView, retry_after};
pub use run::run_due;
pub(crate) use store::{append, exists, finish_by_subject, list, make_due, revive, take};
