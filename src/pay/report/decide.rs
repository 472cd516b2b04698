//! From what is known to what is to be done: a pure function.

use super::store::Facts;
use super::{Origin, Report, Verdict};
use crate::channels::TradeState;
use crate::orders::OrderStatus;
use crate::pay::model::PayEvent;
use crate::refunds::StrayReason;

/// What a report calls for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Remedy {
    /// Known already, with this verdict: nothing to write.
    Repeat(Verdict),
    /// Nothing moves: keep the callback, with this verdict.
    Note(Verdict),
    /// The id of an earlier event, and money that nobody knows: a callback of its own, under an id of its own.
    Split,
    /// The first right money: the order is paid by it.
    Pay,
    /// Money that the order does not accept; the attempt may move all the same.
    Stray {
        /// Why not.
        reason: StrayReason,
        /// How the attempt moves.
        event: Option<PayEvent>,
    },
    /// A live attempt ends without money.
    End(PayEvent),
    /// No such pay order: keep the callback and look again for a while.
    Unmatched,
    /// No such pay order, and we have looked long enough: the money is stray and nobody's.
    GiveUpMatching,
    /// It is not about our account.
    WrongAccount,
}

impl Remedy {
    /// The word that operators read.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Repeat(_) | Self::Note(_) | Self::Split => "NOTHING",
            Self::Pay => "PAY_THE_ORDER",
            Self::Stray { .. } => "HOLD_AS_STRAY",
            Self::End(_) => "END_THE_ATTEMPT",
            Self::Unmatched => "LOOK_FOR_THE_PAY_ORDER",
            Self::GiveUpMatching => "HOLD_FOR_A_PERSON",
            Self::WrongAccount => "SHOW_TO_A_PERSON",
        }
    }

    /// Whether anything but the kept callback changes by it.
    pub(super) const fn moves(self) -> bool {
        !matches!(self, Self::Repeat(_) | Self::Note(_) | Self::Split)
    }

    /// The verdict that a callback is stored with.
    pub(super) const fn verdict(self) -> Verdict {
        match self {
            Self::Repeat(verdict) | Self::Note(verdict) => verdict,
            Self::Pay => Verdict::Applied,
            Self::Stray { reason: StrayReason::AmountMismatch, .. } => Verdict::AmountMismatch,
            Self::Stray { .. } => Verdict::Stray,
            Self::End(_) | Self::Split => Verdict::Recorded,
            Self::Unmatched => Verdict::Unmatched,
            Self::GiveUpMatching => Verdict::UnknownOrder,
            Self::WrongAccount => Verdict::WrongAccount,
        }
    }
}

pub(super) fn decide(facts: &Facts, report: &Report<'_>) -> Remedy {
    match (facts.earlier, report.origin) {
        // A callback that waits for its pay order is looked at afresh by its own task only.
        (Some(Verdict::Unmatched), Origin::Rematch { .. }) => {}
        // An operator wants it judged by what is true now. The trade decides whether its money moves again: it
        // does not.
        (Some(earlier), Origin::Replay { .. }) => return afresh(judge(facts, report), earlier),
        (Some(earlier), Origin::Callback { .. }) if is_other_money(facts, report, earlier) => {
            return Remedy::Split;
        }
        (Some(earlier), _) => return Remedy::Repeat(earlier),
        (None, _) => {}
    }
    judge(facts, report)
}

/// Whether a callback comes under the id of an earlier one with money that was never written down. Money of the
/// earlier one itself is written down but where its pay order is still looked for, or where it is not ours.
fn is_other_money(facts: &Facts, report: &Report<'_>, earlier: Verdict) -> bool {
    report.payment().is_some()
        && !facts.is_trade_known
        && !matches!(earlier, Verdict::Unmatched | Verdict::WrongAccount)
}

/// What is waited for, or shown to a person, is so already.
fn afresh(remedy: Remedy, earlier: Verdict) -> Remedy {
    match remedy {
        Remedy::Unmatched | Remedy::WrongAccount if remedy.verdict() == earlier => Remedy::Note(earlier),
        remedy => remedy,
    }
}

fn judge(facts: &Facts, report: &Report<'_>) -> Remedy {
    // A statement tells of a whole day that is over: whoever it names is here by now.
    let is_rematch = matches!(report.origin, Origin::Rematch { .. } | Origin::Statement);
    if let Origin::Callback { account_matches: false, .. } | Origin::Replay { account_matches: false, .. } =
        report.origin
    {
        return Remedy::WrongAccount;
    }
    match &report.state {
        TradeState::Paid(_) => decide_paid(facts, report, is_rematch),
        TradeState::Failed(_) => ended(facts, PayEvent::AttemptFailed),
        TradeState::Closed => ended(facts, PayEvent::AttemptClosed),
        // A link that the channel has not seen yet may be opened until it expires; what is paid through it then
        // is still the first money of its order, or stray.
        TradeState::Unseen if is_as_asked(facts, report) => ended(facts, PayEvent::AttemptClosed),
        TradeState::Pending | TradeState::Unseen => Remedy::Note(Verdict::Recorded),
    }
}

/// Whether the attempt still is as it was when its channel was asked to close it. The answer says nothing of one whose
/// link was published since: its trade stands by now.
fn is_as_asked(facts: &Facts, report: &Report<'_>) -> bool {
    let Origin::Close { version } = report.origin else { return false };
    facts.matched.as_ref().is_some_and(|matched| matched.attempt_version == version)
}

fn decide_paid(facts: &Facts, report: &Report<'_>, is_rematch: bool) -> Remedy {
    if let Some(verdict) = known_as(facts) {
        // Money that was written down before its attempt was here does not move it. Asked about, the attempt has no
        // other end than this: its trade cannot be paid again, and its order would wait for it for ever.
        let end = ended(facts, PayEvent::AttemptFailed);
        let is_end = report.origin.is_answer() && matches!(end, Remedy::End(_));
        return if is_end { end } else { Remedy::Note(verdict) };
    }
    let (Some(matched), Some(payment)) = (&facts.matched, report.payment()) else {
        return if is_rematch { Remedy::GiveUpMatching } else { Remedy::Unmatched };
    };
    let asked = matched.attempt_money;
    if (payment.money.amount.minor(), payment.money.currency) != asked {
        return Remedy::Stray { reason: StrayReason::AmountMismatch, event: Some(PayEvent::AttemptFailed) };
    }
    let event = Some(PayEvent::PaymentConfirmed);
    match matched.order_status {
        OrderStatus::Pending => Remedy::Pay,
        OrderStatus::Closed => Remedy::Stray { reason: StrayReason::LatePayment, event },
        OrderStatus::Paid | OrderStatus::PartiallyRefunded | OrderStatus::Refunded => {
            Remedy::Stray { reason: StrayReason::DuplicatePayment, event }
        }
    }
}

/// The verdict over money that is written down already.
fn known_as(facts: &Facts) -> Option<Verdict> {
    match facts.known_stray {
        Some(StrayReason::AmountMismatch) => Some(Verdict::AmountMismatch),
        Some(_) => Some(Verdict::Repeated),
        None => facts.is_trade_known.then_some(Verdict::Repeated),
    }
}

/// An end without money moves a live attempt only; on any other it is noted.
fn ended(facts: &Facts, event: PayEvent) -> Remedy {
    let moves = facts.matched.as_ref().is_some_and(|matched| matched.attempt_status.after(event).is_some());
    if moves { Remedy::End(event) } else { Remedy::Note(Verdict::Recorded) }
}

#[cfg(test)]
mod tests;
