//! The words of compensation.

use time::OffsetDateTime;

use crate::infra::words::words;

words! {
    /// How a task mends what it is for.
    pub enum TaskKind {
        /// Send an event to the broker again.
        ResendEvent = "RESEND_EVENT",
        /// Send a notification to the merchant again, as it was.
        ReplayCallback = "REPLAY_CALLBACK",
        /// Write again what could not be written after the channel had said yes, where it still fits.
        ReplayUpdate = "REPLAY_UPDATE",
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
        /// A refund of which something tells the opposite of what is known, and that its channel could not be asked about.
        QueryRefund = "QUERY_REFUND",
        /// A withdrawal that has not come to its end yet.
        DriveWithdrawal = "DRIVE_WITHDRAWAL",
        /// A callback that came before its pay order.
        RematchCallback = "REMATCH_CALLBACK",
        /// An answer of a channel that could not be written down.
        ApplyUpdate = "APPLY_UPDATE",
    }
}

impl Action {
    /// How a task of this action mends.
    #[must_use]
    pub const fn kind(self) -> TaskKind {
        match self {
            Self::DrivePayOrder
            | Self::ClosePayOrder
            | Self::ExpireOrder
            | Self::DriveRefund
            | Self::QueryRefund
            | Self::DriveWithdrawal
            | Self::RematchCallback => TaskKind::RedoBusiness,
            Self::ApplyUpdate => TaskKind::ReplayUpdate,
        }
    }

    /// The action of that word; a newer version may have others.
    pub(super) fn of(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|action| action.as_str() == word)
    }
}

words! {
    /// Whose workers take a task.
    pub enum Lane {
        /// Somebody waits for it.
        Realtime = "REALTIME",
        /// It is old: found by a sweep, past its deadline, or failing for minutes.
        Sweep = "SWEEP",
    }
}

impl std::str::FromStr for Lane {
    type Err = &'static str;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.iter().copied().find(|lane| lane.as_str() == text).ok_or("there is no such lane")
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

/// That somebody has taken a task. Another taking has another claim, whatever became of the tries in between: they go
/// back where nothing was tried, and begin anew where a person revived it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The row.
    pub id: i64,
    /// The how-manieth taking of it.
    pub claim: i64,
}

/// A task that a worker holds.
#[derive(Clone, Debug)]
pub struct Task {
    /// By which it has it.
    pub hold: Hold,
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
    /// When it was last touched before it was taken: whoever had it before has made no call since.
    pub touched_at: OffsetDateTime,
    /// What an update is to write: JSON, if all is well.
    pub payload: Option<String>,
    /// Whether it was taken as it was written: nobody has had it before.
    pub is_fresh: bool,
}

impl Task {
    /// Whether no call can have been made for it for so long.
    #[must_use]
    pub fn has_rested(&self, long: std::time::Duration, now: OffsetDateTime) -> bool {
        self.touched_at + long <= now
    }
}

/// A task as operators see it.
#[derive(Clone, Debug, serde::Serialize, sqlx::FromRow, utoipa::ToSchema)]
pub struct TaskView {
    /// Its number; a page starts after one.
    #[schema(example = 42)]
    pub task_id: i64,
    /// How it mends what it is for.
    pub kind: TaskKind,
    /// What is driven. A word, because a newer version may know others.
    #[schema(value_type = Action)]
    pub action: String,
    /// Which one.
    #[schema(example = "rf_06GZV8Y0000000000000000000")]
    pub subject: String,
    /// Whose, where it is known.
    pub merchant_id: Option<String>,
    /// Of which order, where it is known.
    pub order_no: Option<String>,
    /// Whose workers take it.
    pub lane: Lane,
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
    /// Nothing was tried: others come before it for so long, and this counts as no try.
    Untried(String, std::time::Duration),
    /// It can never be done: a person must see to it.
    Never(String),
}

/// Which tasks an operator speaks of; what is left out means any.
#[derive(Clone, Debug, Default)]
pub struct TaskFilter<'a> {
    /// In one state.
    pub status: Option<TaskStatus>,
    /// Of one kind.
    pub kind: Option<TaskKind>,
    /// Of one action.
    pub action: Option<Action>,
    /// Of one lane.
    pub lane: Option<Lane>,
    /// Of one merchant.
    pub merchant_id: Option<&'a str>,
    /// Of one order number.
    pub order_no: Option<&'a str>,
    /// Of one thing.
    pub subject: Option<&'a str>,
    /// Written before then.
    pub created_before: Option<OffsetDateTime>,
}
