//! From what is known of a task's thing to what is to be done: a pure function. It only spares the way to what has
//! come to its end; the use case decides again, under its locks.

use super::store::Facts;
use crate::compensation::Action;
use crate::orders::OrderStatus;
use crate::pay::PayStatus;
use crate::pay::report::Verdict;
use crate::refunds::RefundStatus;
use crate::withdrawals::WithdrawalStatus;

/// What a task calls for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Remedy {
    /// It has come to its end, or was never there.
    Nothing,
    /// Make the call for the link again, or close the attempt where its order wants it no more.
    LinkOrClose,
    /// Close the attempt at its channel.
    CloseAttempt,
    /// Close the order, its attempt at the channel first.
    CloseOrder,
    /// Make the refund, or ask what became of it.
    Refund,
    /// Ask what became of the refund, and apply what the channel says.
    QueryRefund,
    /// Make the payout, or ask what became of it.
    PayOut,
    /// Look for the callback's pay order.
    Rematch,
    /// Apply the update where it fits.
    Replay,
}

impl Remedy {
    /// Whether it sends somebody's money.
    pub(super) const fn moves_money(self) -> bool {
        matches!(self, Self::Refund | Self::PayOut)
    }
}

pub(super) fn decide(action: Action, facts: &Facts) -> Remedy {
    match action {
        Action::DrivePayOrder => match facts.attempt {
            Some(PayStatus::Init) => Remedy::LinkOrClose,
            _ => Remedy::Nothing,
        },
        Action::ClosePayOrder => match facts.attempt {
            // Also one that is closed here: its trade may have come to stand at the channel after that.
            Some(PayStatus::Init | PayStatus::Paying | PayStatus::Failed | PayStatus::Closed) => {
                Remedy::CloseAttempt
            }
            Some(PayStatus::Paid) | None => Remedy::Nothing,
        },
        Action::ExpireOrder => match facts.order {
            Some(OrderStatus::Pending) => Remedy::CloseOrder,
            _ => Remedy::Nothing,
        },
        Action::DriveRefund => match facts.refund {
            Some(RefundStatus::Pending | RefundStatus::Processing) => Remedy::Refund,
            _ => Remedy::Nothing,
        },
        Action::QueryRefund => match facts.refund {
            // Whoever drives one that is under way asks as well.
            Some(RefundStatus::AwaitingApproval | RefundStatus::Succeeded | RefundStatus::Failed) => {
                Remedy::QueryRefund
            }
            Some(RefundStatus::Pending | RefundStatus::Processing) | None => Remedy::Nothing,
        },
        Action::DriveWithdrawal => match facts.withdrawal {
            Some(WithdrawalStatus::Debited | WithdrawalStatus::Paying) => Remedy::PayOut,
            _ => Remedy::Nothing,
        },
        Action::RematchCallback => match facts.callback {
            Some(Verdict::Unmatched) => Remedy::Rematch,
            _ => Remedy::Nothing,
        },
        Action::ApplyUpdate => Remedy::Replay,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is not here calls for nothing.
    fn calls_for(action: Action, facts: &Facts) -> Remedy {
        const TABLE: [(Action, &str, Remedy); 15] = [
            (Action::DrivePayOrder, "INIT", Remedy::LinkOrClose),
            (Action::ClosePayOrder, "INIT", Remedy::CloseAttempt),
            (Action::ClosePayOrder, "PAYING", Remedy::CloseAttempt),
            (Action::ClosePayOrder, "FAILED", Remedy::CloseAttempt),
            (Action::ClosePayOrder, "CLOSED", Remedy::CloseAttempt),
            (Action::ExpireOrder, "PENDING", Remedy::CloseOrder),
            (Action::DriveRefund, "PENDING", Remedy::Refund),
            (Action::DriveRefund, "PROCESSING", Remedy::Refund),
            (Action::QueryRefund, "AWAITING_APPROVAL", Remedy::QueryRefund),
            (Action::QueryRefund, "SUCCEEDED", Remedy::QueryRefund),
            (Action::QueryRefund, "FAILED", Remedy::QueryRefund),
            (Action::DriveWithdrawal, "DEBITED", Remedy::PayOut),
            (Action::DriveWithdrawal, "PAYING", Remedy::PayOut),
            (Action::RematchCallback, "UNMATCHED", Remedy::Rematch),
            (Action::ApplyUpdate, "", Remedy::Replay),
        ];
        let word = match action {
            Action::DrivePayOrder | Action::ClosePayOrder => facts.attempt.map(PayStatus::as_str),
            Action::ExpireOrder => facts.order.map(OrderStatus::as_str),
            Action::DriveRefund | Action::QueryRefund => facts.refund.map(RefundStatus::as_str),
            Action::DriveWithdrawal => facts.withdrawal.map(WithdrawalStatus::as_str),
            Action::RematchCallback => facts.callback.map(Verdict::as_str),
            Action::ApplyUpdate => Some(""),
        };
        let row = TABLE.iter().find(|(of, at, _)| (*of, Some(*at)) == (action, word));
        row.map_or(Remedy::Nothing, |(_, _, remedy)| *remedy)
    }

    fn and_none<T: Copy>(all: &[T]) -> Vec<Option<T>> {
        all.iter().copied().map(Some).chain([None]).collect()
    }

    #[test]
    fn every_combination_of_facts_has_its_remedy() {
        let mut count = 0;
        for attempt in and_none(PayStatus::ALL) {
            for order in and_none(OrderStatus::ALL) {
                for refund in and_none(RefundStatus::ALL) {
                    for withdrawal in and_none(WithdrawalStatus::ALL) {
                        for callback in and_none(Verdict::ALL) {
                            let facts = Facts { attempt, order, refund, withdrawal, callback };
                            for action in Action::ALL {
                                let told = decide(*action, &facts);
                                assert_eq!(told, calls_for(*action, &facts), "{action} of {facts:?}");
                                count += 1;
                            }
                        }
                    }
                }
            }
        }
        assert_eq!(count, 6 * 6 * 6 * 7 * 9 * 8);
    }
}
