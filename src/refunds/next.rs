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
    /// Of a refund in that state, which `was_made` once as far as we know, by a result that the channel has answered to us,
    /// or that a callback tells, which answers nothing.
    pub(crate) fn of(
        status: RefundStatus,
        was_made: bool,
        event: RefundEvent,
        answers: Option<Answerer>,
    ) -> Self {
        use {RefundEvent as E, RefundStatus as S};
        match (status, event) {
            // Once known to have been made, a refund that failed was taken back by the channel, and repeats of its
            // success are no news.
            (S::Failed, E::Succeeded) if !was_made => Self::Contradicts,
            // Nobody was to be asked for it yet.
            (S::AwaitingApproval, E::Succeeded) => Self::Contradicts,
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
        for (status, was_made, event, answers, expected) in [
            (S::Processing, false, E::Succeeded, call, Next::Moves(S::Succeeded)),
            (S::Processing, false, E::Succeeded, None, Next::Moves(S::Succeeded)),
            (S::Processing, false, E::Failed, call, Next::Moves(S::Failed)),
            (S::Processing, false, E::Failed, query, Next::Moves(S::Failed)),
            (S::Processing, false, E::Failed, None, Next::Doubtful),
            (S::Pending, false, E::Failed, None, Next::Doubtful),
            (S::Succeeded, true, E::Failed, None, Next::Contradicts),
            (S::Succeeded, true, E::Failed, query, Next::Contradicts),
            (S::Succeeded, true, E::Failed, call, Next::Stays),
            (S::Succeeded, true, E::Succeeded, call, Next::Stays),
            (S::Failed, false, E::Succeeded, None, Next::Contradicts),
            (S::Failed, true, E::Succeeded, None, Next::Stays),
            (S::AwaitingApproval, false, E::Succeeded, None, Next::Contradicts),
            (S::AwaitingApproval, false, E::Failed, None, Next::Stays),
        ] {
            let told = Next::of(status, was_made, event, answers);
            assert_eq!(told, expected, "{status} by {event}");
        }
    }
}
