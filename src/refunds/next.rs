//! Where a final result leads a refund: a pure function.

use super::model::{RefundEvent, RefundStatus};
use crate::channels::Answerer;

/// What a result does to a refund.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// It moves.
    Moves(RefundStatus),
    /// It stands there already, or the result says nothing of it.
    Stays,
    /// Money went back of which we know that it did not, or that nobody has let it; or it did not of which we know that it
    /// did. The channel is asked.
    Contradicts,
    /// A callback says that it failed, before its end is known: this call, or one before it under the same number. The
    /// channel is asked, and its answer counts instead.
    Doubtful,
}

impl Next {
    /// Of a refund in that state, by a result that the channel has answered to us, or that a callback tells, which answers
    /// nothing.
    pub(crate) fn of(status: RefundStatus, event: RefundEvent, answers: Option<Answerer>) -> Self {
        use {RefundEvent as E, RefundStatus as S};
        match (status, event) {
            // It was made after all, or is told late to have been made before the channel took it back; or nobody was to be
            // asked for it yet.
            (S::Failed | S::AwaitingApproval, E::Succeeded) => Self::Contradicts,
            // A refusal of the call says nothing of one that succeeded under the same number before.
            (S::Succeeded, _) if answers == Some(Answerer::Call) => Self::Stays,
            // The channel took it back, or tells late what was before it made it.
            (S::Succeeded, E::Failed) => Self::Contradicts,
            // Whoever drives it may be making it anew.
            (S::Pending | S::Processing, E::Failed) if answers.is_none() => Self::Doubtful,
            _ => status.after(event).map_or(Self::Stays, Self::Moves),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_success_after_a_refusal_or_before_an_approval_and_any_failure_that_is_told_are_asked_about() {
        use {RefundEvent as E, RefundStatus as S};
        let (call, query) = (Some(Answerer::Call), Some(Answerer::Query));
        for (status, event, answers, expected) in [
            (S::Processing, E::Succeeded, call, Next::Moves(S::Succeeded)),
            (S::Processing, E::Succeeded, None, Next::Moves(S::Succeeded)),
            (S::Processing, E::Failed, call, Next::Moves(S::Failed)),
            (S::Processing, E::Failed, query, Next::Moves(S::Failed)),
            (S::Processing, E::Failed, None, Next::Doubtful),
            (S::Pending, E::Failed, None, Next::Doubtful),
            (S::Succeeded, E::Failed, None, Next::Contradicts),
            (S::Succeeded, E::Failed, query, Next::Contradicts),
            (S::Succeeded, E::Failed, call, Next::Stays),
            (S::Succeeded, E::Succeeded, call, Next::Stays),
            (S::Failed, E::Succeeded, None, Next::Contradicts),
            (S::Failed, E::Succeeded, query, Next::Contradicts),
            (S::AwaitingApproval, E::Succeeded, None, Next::Contradicts),
            (S::AwaitingApproval, E::Failed, None, Next::Stays),
        ] {
            let told = Next::of(status, event, answers);
            assert_eq!(told, expected, "{status} by {event}");
        }
    }
}
