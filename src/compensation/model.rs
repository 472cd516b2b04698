//! The words of compensation, and its schedule as data.

use time::{Duration, OffsetDateTime};

use crate::infra::words::words;

words! {
    /// How a task mends what it is for.
    pub enum TaskKind {
        /// Ask the channel by our own reference, then run the business flow again.
        RedoBusiness = "REDO_BUSINESS",
    }
}

words! {
    /// What a task drives to an end; its subject says which one.
    pub enum Action {
        /// An attempt that is `INIT`: make the call to the channel again, with the same number.
        DrivePayOrder = "DRIVE_PAY_ORDER",
        /// An attempt that must not be paid any more: close it at its channel.
        ClosePayOrder = "CLOSE_PAY_ORDER",
        /// An order past its deadline whose attempt could not be closed at its channel yet.
        ExpireOrder = "EXPIRE_ORDER",
        /// A refund that has no result yet.
        DriveRefund = "DRIVE_REFUND",
        /// A withdrawal that has not come to its end yet.
        DriveWithdrawal = "DRIVE_WITHDRAWAL",
        /// A callback that came before its pay order.
        RematchCallback = "REMATCH_CALLBACK",
    }
}

words! {
    /// The life of a task.
    pub enum TaskStatus {
        /// Waits for its time.
        Ready = "READY",
        /// A worker has it, until the lease ends.
        Running = "RUNNING",
        /// Driven to an end.
        Done = "DONE",
        /// Given up; an exception says so.
        Dead = "DEAD",
    }
}

impl TaskStatus {
    /// What still drives.
    pub const ALIVE: [Self; 2] = [Self::Ready, Self::Running];
}

/// A task to write.
#[derive(Clone, Debug)]
pub struct NewTask<'a> {
    /// What is to be driven.
    pub action: Action,
    /// Which one.
    pub subject: &'a str,
    /// Whose, where it is known.
    pub merchant_id: Option<&'a str>,
    /// Of which order, where it is known.
    pub order_no: Option<&'a str>,
    /// When it may first be tried: at once, or when the call that it guards must have ended.
    pub due_at: OffsetDateTime,
}

/// A task that a worker holds.
#[derive(Clone, Debug)]
pub struct Task {
    /// The row.
    pub id: i64,
    /// What is to be driven.
    pub action: Action,
    /// Which one.
    pub subject: String,
    /// Whose, where it is known.
    pub merchant_id: Option<String>,
    /// Of which order, where it is known.
    pub order_no: Option<String>,
    /// How often it was tried, this time included.
    pub attempts: i32,
    /// When it was written.
    pub created_at: OffsetDateTime,
}

/// A task as operators see it.
#[derive(Clone, Debug, serde::Serialize, sqlx::FromRow, utoipa::ToSchema)]
pub struct TaskView {
    /// Its number; a page starts after one.
    #[schema(example = 42)]
    pub task_id: i64,
    /// How it mends what it is for.
    pub kind: TaskKind,
    /// What is driven.
    pub action: Action,
    /// Which one.
    #[schema(example = "rf_06GZV8Y0000000000000000000")]
    pub subject: String,
    /// Whose, where it is known.
    pub merchant_id: Option<String>,
    /// Of which order, where it is known.
    pub order_no: Option<String>,
    /// Where it stands.
    pub status: TaskStatus,
    /// How often it was tried.
    pub attempts: i32,
    /// When it may be tried next; while `RUNNING`, when its worker counts as dead.
    #[serde(with = "time::serde::rfc3339")]
    pub due_at: OffsetDateTime,
    /// What the last try came to, when it failed.
    pub last_error: Option<String>,
    /// When it was written.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
}

/// What one try came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Drive {
    /// Nothing is in the middle any more.
    Done,
    /// Not yet; try again by the schedule.
    Again(String),
}

/// Pauses after the first, second, … failed try. Past the last one the task is `DEAD`.
const SCHEDULE_SECS: [i64; 12] = [1, 2, 5, 10, 30, 60, 120, 600, 1_800, 3_600, 10_800, 21_600];

/// A callback is looked at this often at least: its pay order shows up soon or never, a buyer waits for it, and
/// the callback itself knows when to stop looking.
const REMATCH_EVERY_SECS: i64 = 30;
/// Twice the looks that its ten minutes take.
const MAX_REMATCHES: i32 = 50;

/// How long to wait after the given number of failed tries; `None` when it is time to give up.
#[must_use]
pub fn retry_after(action: Action, attempts: i32) -> Option<Duration> {
    let index = usize::try_from(attempts - 1).ok()?;
    let pause = SCHEDULE_SECS.get(index).copied();
    let pause = match action {
        Action::RematchCallback if attempts > MAX_REMATCHES => None,
        Action::RematchCallback => Some(pause.unwrap_or(REMATCH_EVERY_SECS).min(REMATCH_EVERY_SECS)),
        _ => pause,
    };
    pause.map(Duration::seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_end() {
        let pauses: Vec<_> = (1..).map_while(|tries| retry_after(Action::DriveRefund, tries)).collect();
        assert!(pauses.windows(2).all(|pair| pair[0] < pair[1]));
        assert_eq!(pauses.len(), SCHEDULE_SECS.len());
        assert_eq!(retry_after(Action::DriveRefund, 0), None);
    }

    #[test]
    fn a_callback_is_looked_at_for_more_than_its_ten_minutes() {
        let pauses: Vec<_> = (1..).map_while(|tries| retry_after(Action::RematchCallback, tries)).collect();
        assert!(pauses.iter().all(|pause| *pause <= Duration::seconds(30)));
        assert!(pauses.iter().sum::<Duration>() > Duration::minutes(15));
    }
}
