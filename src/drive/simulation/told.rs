//! What channels say is applied: of trades by the decision over reports, of refunds by that over results.

use super::channel::{Message, Said};
use super::ops::Fault;
use super::world::{AMOUNT, Attempt, Kept, Known, Refund, Source, Stray, World};
use crate::channels::{Answerer, RefundState, TradeState};
use crate::compensation::Action;
use crate::orders::{OrderEvent, OrderKind, OrderStatus};
use crate::pay::report::Verdict;
use crate::pay::report::simulated::{Judged, Says, Seen, Way};
use crate::pay::{PayEvent, PayStatus};
use crate::refunds::{Next, RefundEvent, RefundStatus, StrayEvent, StrayReason, StrayStatus};

/// A report: of which pay order, what it says, of which payment, and how it comes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told {
    pub(super) attempt: usize,
    pub(super) says: Says,
    pub(super) payment: Option<usize>,
    pub(super) way: Way,
    /// The callback's id, and what it said.
    pub(super) by: Option<((usize, Option<usize>), Said)>,
}

impl World {
    /// A callback arrives; with what goes wrong on the way of a question about it.
    pub(super) fn hear(&mut self, message: Message, fault: Fault) {
        let by = Some(((message.id, None), message.said));
        match message.said {
            Said::RefundMade(refund) => self.learn_of_refund(refund, RefundEvent::Succeeded, None, fault),
            Said::RefundFailed(refund) => self.learn_of_refund(refund, RefundEvent::Failed, None, fault),
            said => {
                let told = self.told(said, Way::Callback, by);
                self.report(told);
            }
        }
    }

    pub(super) fn told(&self, said: Said, way: Way, by: Option<((usize, Option<usize>), Said)>) -> Told {
        let (attempt, says, payment) = match said {
            Said::Paid(payment) => {
                let taken = self.theirs.taken[payment];
                (taken.attempt, Says::Paid(taken.minor, taken.is_asked), Some(payment))
            }
            Said::Failed(attempt) => (attempt, Says::Failed, None),
            Said::Closed(attempt) => (attempt, Says::Closed, None),
            // Told elsewhere.
            Said::RefundMade(_) | Said::RefundFailed(_) => (0, Says::Pending, None),
        };
        Told { attempt, says, payment, way, by }
    }

    /// The answer to a question of ours, or to a close.
    pub(super) fn answered(&mut self, attempt: usize, state: &TradeState, way: Way) {
        let (says, payment) = match state {
            TradeState::Paid(payment) => {
                let number: usize = payment.transaction_id.parse().expect("a number");
                let taken = self.theirs.taken[number];
                (Says::Paid(taken.minor, taken.is_asked), Some(number))
            }
            TradeState::Failed(_) => (Says::Failed, None),
            TradeState::Closed => (Says::Closed, None),
            TradeState::Pending => (Says::Pending, None),
            TradeState::Unseen => (Says::Unseen, None),
        };
        self.report(Told { attempt, says, payment, way, by: None });
    }

    /// Read, decide, write: at once, as the guarded writes make it.
    pub(super) fn report(&mut self, told: Told) {
        let kept = told.by.and_then(|(id, _)| self.inbox.iter().position(|kept| kept.id == id));
        let known = told.payment.and_then(|payment| self.known.iter().find(|known| known.payment == payment));
        let seen = Seen {
            earlier: kept.map(|place| self.inbox[place].verdict),
            known_stray: known.and_then(|known| known.stray).map(|stray| self.strays[stray].reason),
            is_trade_known: known.is_some(),
            matched: self
                .is_visible(told.attempt)
                .then(|| (self.order.status, self.attempts[told.attempt].status, AMOUNT)),
            says: told.says,
            way: told.way,
        };
        let (judged, verdict) = (self.rules.judge)(&mut self.judge, &seen);
        // What waits for its pay order says nothing of money that comes under its id in other words.
        let says_else = |place: usize| told.by.is_some_and(|(_, said)| self.inbox[place].said != said);
        let waits = told.way == Way::Callback && judged == Judged::Nothing && verdict == Verdict::Unmatched;
        if judged == Judged::Split || waits && kept.is_some_and(says_else) {
            if let (Some(((id, None), said)), Some(payment)) = (told.by, told.payment) {
                self.report(Told { by: Some(((id, Some(payment)), said)), ..told });
            }
            return;
        }
        match (kept, told.by) {
            (Some(place), Some(_)) => self.inbox[place].verdict = verdict,
            (None, Some((id, said))) => {
                let received_at = self.now;
                self.inbox.push(Kept { id, said, verdict, received_at });
                self.is_touched = true;
            }
            (_, None) => {}
        }
        self.act_on(judged, &told);
    }

    fn act_on(&mut self, judged: Judged, told: &Told) {
        match judged {
            Judged::Nothing | Judged::Split | Judged::WrongAccount => {}
            Judged::Pay => self.pay(told),
            Judged::Stray(reason, event) => {
                if let Some(event) = event {
                    self.move_by_money(told, event);
                }
                self.hold(told, reason);
            }
            Judged::End(event) => {
                let moved = self.move_attempt(told.attempt, event);
                self.must(moved, "an attempt was to end and may not");
            }
            Judged::Unmatched => {
                let subject = self.inbox.len() - 1;
                self.append(Action::RematchCallback, subject, self.now + 1);
            }
            Judged::GiveUp => self.hold(told, StrayReason::UnknownOrder),
        }
    }

    /// The attempt whose trade took the money, wherever it stands.
    fn move_by_money(&mut self, told: &Told, event: PayEvent) {
        if self.move_attempt(told.attempt, event) && event == PayEvent::PaymentConfirmed {
            self.attempts[told.attempt].transaction = told.payment;
        }
    }

    fn pay(&mut self, told: &Told) {
        let Some(payment) = told.payment else { return };
        let moved = self.move_order(OrderEvent::PaymentConfirmed);
        self.must(moved, "an order was to be paid and may not");
        self.move_by_money(told, PayEvent::PaymentConfirmed);
        self.order.paid_by = Some(told.attempt);
        self.note(payment, None);
        if self.order.kind == OrderKind::TopUp {
            self.available += AMOUNT;
        }
        for other in 0..self.attempts.len() {
            let Attempt { status, is_hidden, .. } = self.attempts[other];
            if other != told.attempt && !is_hidden && status.is_live() {
                self.append(Action::ClosePayOrder, other, self.now);
            }
        }
    }

    /// Money is written down once: its number is a primary key.
    fn note(&mut self, payment: usize, stray: Option<usize>) {
        let is_known = self.known.iter().any(|known| known.payment == payment);
        self.must(!is_known, "money was to be written down twice");
        self.known.push(Known { payment, stray });
        self.is_touched = true;
    }

    fn hold(&mut self, told: &Told, reason: StrayReason) {
        let Some(payment) = told.payment else { return };
        let number = self.strays.len();
        self.note(payment, Some(number));
        let minor = self.theirs.taken[payment].minor;
        let is_refunded = self.refunds_strays && reason != StrayReason::UnknownOrder;
        let is_shown = !is_refunded || reason == StrayReason::AmountMismatch;
        self.strays.push(Stray { status: StrayStatus::Held, reason, payment, minor, is_shown });
        if is_refunded {
            self.refund_stray(number);
        }
    }

    /// Sends a held stray payment back.
    pub(super) fn refund_stray(&mut self, number: usize) {
        if !self.move_stray(number, StrayEvent::RefundAsked) {
            return;
        }
        let minor = self.strays[number].minor;
        self.add_refund(Source::Stray(number), minor, RefundStatus::Pending);
    }

    pub(super) fn add_refund(&mut self, source: Source, minor: i64, status: RefundStatus) {
        let number = self.refunds.len();
        self.refunds.push(Refund { status, source, minor, was_made: false, is_contradicted: false });
        self.theirs.refunds.push(None);
        self.is_touched = true;
        if status == RefundStatus::Pending {
            self.append(Action::DriveRefund, number, self.now);
        }
    }

    /// A final result of a refund: what the channel has answered to us, or what a callback tells; with what goes wrong where
    /// the channel is asked behind what contradicts.
    pub(super) fn learn_of_refund(
        &mut self,
        number: usize,
        event: RefundEvent,
        answers: Option<Answerer>,
        fault: Fault,
    ) {
        let Refund { status, minor, source, .. } = self.refunds[number];
        let to = match (self.rules.result)(status, event, answers) {
            Next::Stays => return,
            Next::Moves(to) => to,
            // The channel is asked, and its answer counts instead.
            Next::Doubtful => {
                let said = match self.theirs.query_refund(number, Fault::Nothing) {
                    Ok(RefundState::Succeeded { .. }) => RefundEvent::Succeeded,
                    Ok(RefundState::Failed(_)) => RefundEvent::Failed,
                    _ => return,
                };
                return self.learn_of_refund(number, said, Some(Answerer::Query), Fault::Nothing);
            }
            // The channel is asked, behind both; by a task where it says nothing.
            Next::Contradicts => {
                let said = self.theirs.query_refund(number, fault);
                if said.is_err() {
                    return self.append_anew(Action::QueryRefund, number);
                }
                self.finish_by_subject(Action::QueryRefund, number);
                self.settle_given_up(Action::QueryRefund, number);
                match (event, said) {
                    (RefundEvent::Failed, Ok(RefundState::Failed(_) | RefundState::Unseen)) => {
                        RefundStatus::Failed
                    }
                    (RefundEvent::Failed, _) => return,
                    (_, said) => {
                        // One that it took back was made, and is no contradiction.
                        let is_taken_back = matches!(said, Ok(RefundState::Failed(_)));
                        self.refunds[number].was_made |= is_taken_back;
                        self.refunds[number].is_contradicted |= !is_taken_back;
                        return;
                    }
                }
            }
        };
        let had_succeeded = status == RefundStatus::Succeeded;
        self.set_refund(number, to);
        self.settle_given_up(Action::DriveRefund, number);
        self.refunds[number].was_made |= to == RefundStatus::Succeeded;
        match source {
            Source::Paid => self.end_refund(minor, to, had_succeeded),
            Source::Stray(stray) => self.end_stray_refund(stray, to),
        }
    }

    fn end_stray_refund(&mut self, stray: usize, to: RefundStatus) {
        let is_back = to == RefundStatus::Succeeded;
        let event = if is_back { StrayEvent::RefundSucceeded } else { StrayEvent::RefundFailed };
        let moved = self.move_stray(stray, event);
        self.must(moved, "stray money was to move with its refund and may not");
        self.strays[stray].is_shown = !is_back;
    }

    /// An attempt that callbacks knew before has its row, where its order can have one.
    pub(super) fn appear(&mut self) {
        let hidden = self.attempts.iter().position(|attempt| attempt.is_hidden);
        let (Some(number), None) = (hidden, self.live()) else { return };
        if self.order.status == OrderStatus::Pending {
            self.attempts[number].is_hidden = false;
            self.attempts[number].status = PayStatus::Init;
            self.append(Action::DrivePayOrder, number, self.now + 11);
        }
    }
}
