//! The words and rows of exceptions.

use serde::Serialize;
use time::OffsetDateTime;

use crate::infra::words::words;

words! {
    /// Why a person must look.
    pub enum ExceptionKind {
        /// A channel took another amount or currency than was asked.
        AmountMismatch = "AMOUNT_MISMATCH",
        /// Money that no order accepts waits for a decision.
        StrayMoney = "STRAY_MONEY",
        /// Money for a pay order, or of a refund or a payout, that nobody knows.
        UnknownOrder = "UNKNOWN_ORDER",
        /// A signed callback speaks for another account than the configured one.
        WrongAccount = "WRONG_ACCOUNT",
        /// A correctly signed callback says something that cannot be.
        UnreadableCallback = "UNREADABLE_CALLBACK",
        /// A channel says of money what cannot be true beside what it said before.
        Contradiction = "CONTRADICTION",
        /// A channel's statement and our books differ, and a person must decide or see to it.
        Reconciliation = "RECONCILIATION",
        /// A channel has not given the statement of a day for a long time.
        LateStatement = "LATE_STATEMENT",
        /// A task, or the delivery of an event, failed to the end of its schedule.
        DeadTask = "DEAD_TASK",
        /// A merchant's endpoint wants no notifications any more.
        EndpointDisabled = "ENDPOINT_DISABLED",
        /// Usage cost more than its user had: the rest is owed. Resolves itself once its user owes nothing in that currency.
        UsageShortfall = "USAGE_SHORTFALL",
        /// A report of usage from the broker was refused: what it said is charged by nobody.
        UsageReportRefused = "USAGE_REPORT_REFUSED",
    }
}

words! {
    /// The life of an exception.
    pub enum ExceptionStatus {
        /// Waits for a person.
        Open = "OPEN",
        /// Dealt with.
        Resolved = "RESOLVED",
    }
}

words! {
    /// What a person decided.
    pub enum ExceptionAction {
        /// Give the stray money back.
        Refund = "REFUND",
        /// Keep the stray money.
        Keep = "KEEP",
        /// Nothing is left to do.
        None = "NONE",
    }
}

/// Who resolves, and why, what came to its end without anybody's decision.
pub(crate) const BY_ITSELF: (&str, &str) = ("payonce", "it came to its end by itself");
/// Who resolves, and why, what goes on.
pub(crate) const TRIED_AGAIN: (&str, &str) = ("payonce", "it is tried again");

/// An exception to open.
#[derive(Clone, Copy, Debug)]
pub struct NewException<'a> {
    /// Why.
    pub kind: ExceptionKind,
    /// Whose, where it is known.
    pub merchant_id: Option<&'a str>,
    /// Of which order, where it is known.
    pub order_no: Option<&'a str>,
    /// The thing itself: a stray payment, the subject of a task, a callback.
    pub subject: &'a str,
    /// What happened, for people.
    pub detail: &'a str,
}

/// An exception as it stands.
#[derive(Clone, Debug, Serialize, sqlx::FromRow, utoipa::ToSchema)]
pub struct Exception {
    /// Its id.
    pub exception_id: String,
    /// Why a person must look.
    pub kind: ExceptionKind,
    /// Whose, where it is known.
    pub merchant_id: Option<String>,
    /// Of which order, where it is known.
    pub order_no: Option<String>,
    /// The thing itself.
    pub subject: String,
    /// What happened.
    pub detail: String,
    /// Whether it still waits.
    pub status: ExceptionStatus,
    /// What was decided.
    pub action: Option<ExceptionAction>,
    /// By whom.
    pub resolved_by: Option<String>,
    /// Why so.
    pub reason: Option<String>,
    /// When it was opened.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
}

impl Exception {
    /// Whether that operator has decided so.
    pub(crate) fn was_decided(&self, action: ExceptionAction, by: &str) -> bool {
        self.action == Some(action) && self.resolved_by.as_deref() == Some(by)
    }
}
