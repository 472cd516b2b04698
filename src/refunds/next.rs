//! Where a final result leads a refund: a pure function.

use super::model::{RefundEvent, RefundStatus};

/// What a result does to a refund.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// It moves.
    Moves(RefundStatus),
    /// It stands there already, or the result says nothing of it.
    Stays,
    /// Money went back of which we know that it did not, or that nobody has let it.
    Contradicts,
}

impl Next {
    /// Of a refund in that state, which `was_made` once as far as we know, by a result that is the `answer_to_call` that
    /// makes it, or what the channel says of it otherwise.
    pub(crate) fn of(status: RefundStatus, was_made: bool, event: RefundEvent, answer_to_call: bool) -> Self {
        use {RefundEvent as E, RefundStatus as S};
        match (status, event) {
            // Once known to have been made, a refund that failed was taken back by the channel, and repeats of its
            // success are no news.
            (S::Failed, E::Succeeded) if !was_made => Self::Contradicts,
            // Nobody was to be asked for it yet.
            (S::AwaitingApproval, E::Succeeded) => Self::Contradicts,
            // A refusal of the call says nothing of one that succeeded under the same number before.
            (S::Succeeded, _) if answer_to_call => Self::Stays,
            _ => status.after(event).map_or(Self::Stays, Self::Moves),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_success_after_a_refusal_or_before_an_approval_is_shown_and_a_refusal_after_a_success_is_late() {
        use {RefundEvent as E, RefundStatus as S};
        for (status, was_made, event, answer_to_call, expected) in [
            (S::Processing, false, E::Succeeded, true, Next::Moves(S::Succeeded)),
            (S::Processing, false, E::Failed, true, Next::Moves(S::Failed)),
            (S::Succeeded, true, E::Failed, false, Next::Moves(S::Failed)),
            (S::Succeeded, true, E::Failed, true, Next::Stays),
            (S::Succeeded, true, E::Succeeded, true, Next::Stays),
            (S::Failed, false, E::Succeeded, false, Next::Contradicts),
            (S::Failed, true, E::Succeeded, false, Next::Stays),
            (S::AwaitingApproval, false, E::Succeeded, false, Next::Contradicts),
            (S::AwaitingApproval, false, E::Failed, false, Next::Stays),
        ] {
            let told = Next::of(status, was_made, event, answer_to_call);
            assert_eq!(told, expected, "{status} by {event}");
        }
    }
}
