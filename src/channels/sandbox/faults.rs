//! Faults: misbehaviour that a test orders, shared by every instance and used up one call at a time.
//!
//! | fault | of | effect |
//! |---|---|---|
//! | `delay` | every call, webhooks | waits `ms` (1 s), then acts |
//! | `timeout_before` | every call | hangs for `ms` (30 s), then drops the call without acting |
//! | `timeout_after` | every call | acts, hangs for `ms` (30 s), and never answers |
//! | `refuse` | every call | refuses with `SANDBOX_REFUSED`, without acting |
//! | `wrong_amount` | query, webhooks | says one minor unit more than was moved |
//! | `wrong_currency` | query, webhooks | says USD, or CNY where it was USD |
//! | `pay_after_close` | close | answers that it is closed, and pays it all the same, webhook included |
//! | `drop` | webhooks | the event is never sent |
//! | `repeat` | webhooks | the event is sent three times over |
//! | `reorder` | webhooks | held until a later event of its trade was delivered, at most `ms` (30 s) |
//! | `reorder` | create | pays at once, and answers only when its webhook was taken in, or after `ms` (30 s) |
//!
//! A call uses up the oldest fault of its operation, a webhook when its event is written. `query` means the
//! query of a trade; asking about refunds and payouts always works.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::ToSchema;

use crate::infra::words::words;

use super::gateway::{Gateway, GatewayError, Refused};
use super::store;

words! {
    /// What misbehaves: a call of the adapter, or the sending of webhooks.
    pub enum FaultOp {
        /// Opening a trade.
        Create = "create",
        /// Asking about a trade.
        Query = "query",
        /// Closing a trade.
        Close = "close",
        /// Giving money back.
        Refund = "refund",
        /// Sending money out.
        Payout = "payout",
        /// Telling the caller.
        Webhook = "webhook",
    }
}

words! {
    /// How it misbehaves; the head of the module says what each does.
    pub enum FaultKind {
        /// Late.
        Delay = "delay",
        /// Silent, nothing done.
        TimeoutBefore = "timeout_before",
        /// Silent, yet done.
        TimeoutAfter = "timeout_after",
        /// Never sent.
        Drop = "drop",
        /// Sent three times.
        Repeat = "repeat",
        /// Sent after a later event, or before the answer to the call that it follows from.
        Reorder = "reorder",
        /// One minor unit too much.
        WrongAmount = "wrong_amount",
        /// Another currency.
        WrongCurrency = "wrong_currency",
        /// A definite no.
        Refuse = "refuse",
        /// Closed, yet paid.
        PayAfterClose = "pay_after_close",
    }
}

impl FaultKind {
    /// Whether this operation can misbehave in this way.
    #[must_use]
    pub fn fits(self, op: FaultOp) -> bool {
        use FaultOp as Op;
        match self {
            Self::Delay => true,
            Self::TimeoutBefore | Self::TimeoutAfter | Self::Refuse => op != Op::Webhook,
            Self::WrongAmount | Self::WrongCurrency => matches!(op, Op::Query | Op::Webhook),
            Self::PayAfterClose => op == Op::Close,
            Self::Reorder => matches!(op, Op::Create | Op::Webhook),
            Self::Drop | Self::Repeat => op == Op::Webhook,
        }
    }

    /// Milliseconds, where none were given.
    const fn default_ms(self) -> i32 {
        match self {
            Self::Delay => 1_000,
            _ => 30_000,
        }
    }
}

/// A fault to set. Setting the same `op` and `fault` again replaces what was left of it.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewFault {
    /// What shall misbehave.
    pub op: FaultOp,
    /// How.
    pub fault: FaultKind,
    /// How many times; 1 by default.
    #[schema(minimum = 1, maximum = 1_000_000)]
    pub times: Option<i32>,
    /// For how long, where time matters: 1 s for `delay`, else 30 s by default.
    #[schema(minimum = 0, maximum = 600_000)]
    pub ms: Option<i32>,
}

/// A fault that still waits for its calls.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ActiveFault {
    /// What will misbehave.
    pub op: FaultOp,
    /// How.
    pub fault: FaultKind,
    /// How many times more.
    pub times: i32,
    /// For how long, where time matters.
    pub ms: i32,
    /// When it was first set: the oldest of an operation acts first.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
}

/// A fault that one call has used up.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClaimedFault {
    pub(super) kind: FaultKind,
    pub(super) pause: Duration,
}

impl ClaimedFault {
    /// From the books' columns, whose CHECK keeps `ms` from going below zero.
    pub(super) fn new(kind: FaultKind, ms: i32) -> Self {
        Self { kind, pause: Duration::from_millis(u64::try_from(ms).unwrap_or(0)) }
    }
}

/// Why a fault cannot be set.
#[derive(Debug, thiserror::Error)]
pub enum FaultError {
    /// The operation cannot misbehave in that way.
    #[error("`{0}` cannot have the fault `{1}`")]
    NoSense(FaultOp, FaultKind),
    /// `times` or `ms` out of range.
    #[error("expected `times` from 1 to 1000000 and `ms` from 0 to 600000")]
    OutOfRange,
    /// The books cannot be reached.
    #[error(transparent)]
    Books(#[from] crate::infra::db::DbError),
}

impl Gateway {
    /// Orders a misbehaviour, for every instance on these books.
    ///
    /// # Errors
    /// See [`FaultError`].
    pub async fn set_fault(&self, new: NewFault) -> Result<(), FaultError> {
        let (times, ms) = (new.times.unwrap_or(1), new.ms.unwrap_or(new.fault.default_ms()));
        if !new.fault.fits(new.op) {
            return Err(FaultError::NoSense(new.op, new.fault));
        }
        if !(1..=1_000_000).contains(&times) || !(0..=600_000).contains(&ms) {
            return Err(FaultError::OutOfRange);
        }
        Ok(store::faults::set(&mut self.conn().await?, new.op, new.fault, times, ms, self.now()).await?)
    }

    /// The misbehaviours that still wait for their calls, oldest first.
    ///
    /// # Errors
    /// When the books cannot be reached.
    pub async fn list_faults(&self) -> Result<Vec<ActiveFault>, FaultError> {
        Ok(store::faults::list_active(&mut self.conn().await?).await?)
    }

    /// Behaves again.
    ///
    /// # Errors
    /// When the books cannot be reached.
    pub async fn clear_faults(&self) -> Result<(), FaultError> {
        Ok(store::faults::clear(&mut self.conn().await?).await?)
    }

    /// Uses up one fault of this operation, if one waits.
    pub(super) async fn claim_fault(&self, op: FaultOp) -> Result<Option<ClaimedFault>, GatewayError> {
        Ok(store::faults::claim(&mut self.conn().await?, op, self.now()).await?)
    }
}

/// Acts as the claimed fault says: late, silently, or not at all. Faults that twist the act itself are left to
/// the act.
pub(super) async fn act_under<T>(
    fault: Option<ClaimedFault>,
    act: impl Future<Output = Result<T, GatewayError>> + Send,
) -> Result<T, GatewayError> {
    let Some(ClaimedFault { kind, pause }) = fault else { return act.await };
    match kind {
        FaultKind::Delay => {
            tokio::time::sleep(pause).await;
            act.await
        }
        FaultKind::TimeoutBefore => {
            tokio::time::sleep(pause).await;
            Err(GatewayError::NoAnswer)
        }
        FaultKind::TimeoutAfter => {
            let acted = act.await;
            tokio::time::sleep(pause).await;
            acted.and(Err(GatewayError::NoAnswer))
        }
        FaultKind::Refuse => Err(Refused::OnPurpose.into()),
        _ => act.await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_ordered_only_where_they_make_sense() {
        use FaultKind as Kind;
        let kinds_of = |op| FaultKind::ALL.iter().copied().filter(|kind| kind.fits(op)).collect::<Vec<_>>();
        let every_call = [Kind::Delay, Kind::TimeoutBefore, Kind::TimeoutAfter, Kind::Refuse];

        assert_eq!(kinds_of(FaultOp::Create), [&every_call[..3], &[Kind::Reorder, Kind::Refuse]].concat());
        for op in [FaultOp::Refund, FaultOp::Payout] {
            assert_eq!(kinds_of(op), every_call, "{op}");
        }
        assert_eq!(kinds_of(FaultOp::Close), [&every_call[..], &[Kind::PayAfterClose]].concat());
        assert_eq!(
            kinds_of(FaultOp::Webhook),
            [Kind::Delay, Kind::Drop, Kind::Repeat, Kind::Reorder, Kind::WrongAmount, Kind::WrongCurrency]
        );
        assert_eq!(kinds_of(FaultOp::Query).len(), 6);
    }

    #[tokio::test]
    async fn silence_before_does_nothing_and_silence_after_has_done_it() {
        for (kind, is_done) in [(FaultKind::TimeoutBefore, false), (FaultKind::TimeoutAfter, true)] {
            let mut done = false;
            let act = async {
                done = true;
                Ok(())
            };
            let answer = act_under(Some(ClaimedFault::new(kind, 1)), act).await;
            assert!(matches!(answer, Err(GatewayError::NoAnswer)), "{kind}");
            assert_eq!(done, is_done, "{kind}");
        }
    }
}
