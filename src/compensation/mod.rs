//! Compensation: what is left in the middle is driven to an end.
//!
//! Always true: a task is written in the transaction of the state that needs it, before the outside call that
//! it guards; there is one living task for one thing; a worker holds a task by a lease that it renews while it works,
//! so a slow worker's task is not doubled and a dead worker's is taken over; the last failed try leaves `DEAD` and an
//! open exception, unless the thing has come to its end meanwhile; the end of a refund or a withdrawal that comes later
//! settles both (`given_up`), and a sweep does so for all else (`operations::settle_given_up`). What a task does is decided
//! in `drive`, one tier up, from the state it finds then, never from what was true when it was written.
//!
//! Two lanes, each with workers of its own: `REALTIME` for what somebody waits for, `SWEEP` for what is old. An answer
//! of a channel that the database could not take is spilled to Redis and comes back as a task ([`drain`]).

mod forget;
mod given_up;
mod handover;
mod held;
mod lanes;
mod model;
mod run;
mod schedule;
mod spill;
mod store;
mod verdict;

pub use forget::forget_old;
pub(crate) use given_up::{settle_given_up_in_tx, settle_shown_in_tx};
pub use handover::Handover;
pub(crate) use held::may_call;
pub use lanes::LaneStand;
pub use model::{Action, Drive, Hold, Lane, NewTask, Task, TaskFilter, TaskKind, TaskStatus, TaskView};
pub use run::{Crew, run_due};
pub use schedule::retry_after;
pub(crate) use spill::spill_if_lost;
pub use spill::{BroughtBack, Update, drain};
pub(crate) use store::{
    append, append_anew, count, exists, finish_by_subject, finish_dead, is_free, is_held_in_tx,
    is_leased_in_tx, list, make_due, revive, revive_many, set_paused, stand_of_lanes, take,
};
