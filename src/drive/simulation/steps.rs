//! What is done, each in two halves: what is read and asked before a channel's answer, and what is written after it.
//! Between the halves anything may happen, and whoever waits may die.

use super::ops::{Fault, Op, What};
use super::rules::{self, Call};
use super::tasks::Drive;
use super::world::{AMOUNT, Attempt, Flight, Half, Source, Then, Try, World};
use crate::channels::{Answerer, CallError, PayoutState, RefundState, TradeState};
use crate::compensation::Action;
use crate::drive::decide::Remedy;
use crate::drive::store::Facts;
use crate::orders::{CloseReason, OrderStatus};
use crate::pay::report::simulated::Way;
use crate::pay::simulated::Told;
use crate::pay::{PayEvent, PayStatus};
use crate::refunds::{RefundEvent, RefundStatus};
use crate::withdrawals::{WithdrawalEvent, WithdrawalStatus};

/// Attempts, and payments, of a world at most.
const MANY: usize = 6;
/// How long a link lives, by channel: the second one's die before the order does.
const LINK_LIFE: [i64; 2] = [7_200, 300];
/// How long a call may last, and the request behind it.
const PATIENCE: i64 = 11;
/// How long a callback waits for its pay order.
const REMATCH_FOR: i64 = 600;
/// Pauses in seconds.
const PAUSES: [i64; 6] = [1, 2, 12, 30, 120, 700];

/// Of 8 tries one comes to a full room. Those of a draining world, which pick little numbers, never do.
const fn finds_no_room(pick: usize) -> bool {
    pick >> 13 == 7
}

impl World {
    pub(super) fn apply(&mut self, op: Op) {
        let Op { what, pick, faults } = op;
        match what {
            What::AskLink => self.ask_link(pick & 1, pick & 62 == 0, faults),
            What::Pay | What::PayOddly | What::Decline | What::Conclude | What::TakeBack | What::Arrive => {
                self.happen_there(what, pick);
            }
            What::Deliver | What::DeliverFirst | What::Lose => self.deliver(what, pick, faults[0]),
            What::Appear => self.appear(),
            What::Cancel => self.close_order(CloseReason::Cancelled, None, faults),
            What::Expire => self.expire(),
            What::Wait => self.now += PAUSES[pick % PAUSES.len()],
            What::Land => self.land(pick, faults),
            What::Die => {
                if !self.flights.is_empty() {
                    self.flights.swap_remove(pick % self.flights.len());
                }
            }
            What::Work => self.work(pick, faults),
            What::PutBackAgain => {
                if let Some(end) = self.put_back {
                    self.write_end(end);
                }
            }
            What::AskRefund => self.ask_refund(pick),
            What::Approve => self.approve(pick),
            What::Resolve => self.resolve(pick),
            What::Revive => self.revive(),
            What::Settle => self.settle(),
            What::Withdraw => self.withdraw(pick),
            What::Compare => self.compare(),
        }
    }

    /// What buyers and channels do by themselves.
    fn happen_there(&mut self, what: What, pick: usize) {
        self.is_touched = true;
        match what {
            What::Conclude => {
                self.theirs.conclude(pick >> 1, pick & 1 == 0);
            }
            What::TakeBack => self.theirs.take_back(pick),
            What::Arrive => self.theirs.arrive(pick),
            _ if self.attempts.is_empty() => {}
            What::Decline => self.theirs.decline(pick % self.attempts.len()),
            What::Pay => {
                let attempt = pick % self.attempts.len();
                let is_open = matches!(self.theirs.query(attempt, Fault::Nothing), Ok(TradeState::Pending));
                if is_open {
                    self.theirs.take(attempt, AMOUNT, true, None);
                }
            }
            _ if self.theirs.taken.len() < MANY => {
                let minor = [AMOUNT, AMOUNT - 1, 2 * AMOUNT, AMOUNT][pick & 3];
                let reuses = (pick & 64 == 0).then_some((pick >> 8) % 4);
                self.theirs.take((pick >> 2) % self.attempts.len(), minor, pick & 3 != 3, reuses);
            }
            _ => {}
        }
    }

    fn deliver(&mut self, what: What, pick: usize, fault: Fault) {
        if self.theirs.air.is_empty() {
            return;
        }
        let place = pick % self.theirs.air.len();
        match what {
            What::DeliverFirst => self.hear(self.theirs.air[place], fault),
            What::Deliver => {
                let message = self.theirs.air.swap_remove(place);
                self.hear(message, fault);
            }
            // Callbacks of refunds are lost too: whoever takes a refund back has it stand on the statement.
            _ => {
                self.theirs.air.swap_remove(place);
            }
        }
    }

    // ---- links ------------------------------------------------------------------------------------------------

    /// Somebody asks for a link. One that is `hidden` has no row here yet when its first callbacks come.
    fn ask_link(&mut self, channel: usize, hidden: bool, faults: [Fault; 2]) {
        let live = self.live();
        let facts = live.map(|live| {
            let Attempt { channel, status, expires_at, .. } = self.attempts[live];
            (channel, status, expires_at, self.alive(Action::ClosePayOrder, live).is_some())
        });
        let order = (self.order.status, self.expires_at);
        match ((self.rules.tell)(&mut self.seller, order, facts, channel, self.now), live) {
            (Told::Begin, _) if self.attempts.len() < MANY => {
                let number = self.begin(channel, hidden);
                if !hidden {
                    self.append(Action::DrivePayOrder, number, self.now + PATIENCE);
                }
                self.fly_link(number, None, faults[0]);
            }
            (Told::DriveOn, Some(live)) => self.fly_link(live, None, faults[0]),
            (Told::Replace, Some(live)) => self.fly_close(live, Then::Nothing, None, faults),
            _ => {}
        }
    }

    fn begin(&mut self, channel: usize, is_hidden: bool) -> usize {
        let expires_at = self.expires_at.min(self.now + LINK_LIFE[channel]);
        let (status, transaction) = (PayStatus::Init, None);
        self.attempts.push(Attempt { status, channel, transaction, expires_at, is_hidden });
        self.theirs.trades.push(None);
        self.is_touched = true;
        self.attempts.len() - 1
    }

    fn fly_link(&mut self, attempt: usize, of: Option<Try>, fault: Fault) {
        let answer = self.theirs.create(attempt, fault);
        self.flights.push(Flight { half: Half::Link(attempt, answer), of });
    }

    fn land_link(
        &mut self,
        attempt: usize,
        answer: Result<(), CallError>,
        of: Option<Try>,
        faults: [Fault; 2],
    ) {
        if !self.is_visible(attempt) {
            return;
        }
        let is_init = self.attempts[attempt].status == PayStatus::Init;
        match answer {
            Ok(()) if is_init && self.order.status == OrderStatus::Pending => {
                let moved = self.move_attempt(attempt, PayEvent::LinkMade);
                self.must(moved, "a link was made and may not be given out");
                self.finish_by_subject(Action::DrivePayOrder, attempt);
                self.end(of, Drive::Done);
            }
            // The order wants it no more: the trade that was just made must not stay payable.
            Ok(()) if !matches!(self.attempts[attempt].status, PayStatus::Paying | PayStatus::Paid) => {
                self.fly_close(attempt, Then::Nothing, of, faults);
            }
            Ok(()) => self.end(of, Drive::Done),
            Err(CallError::Refused(_)) => match self.theirs.query(attempt, faults[0]) {
                Ok(state @ TradeState::Paid(_)) => {
                    self.answered(attempt, &state, Way::Query);
                    self.end(of, Drive::Done);
                }
                Ok(_) => {
                    if is_init {
                        let moved = self.move_attempt(attempt, PayEvent::AttemptFailed);
                        self.must(moved, "an attempt was refused and may not fail");
                        self.finish_by_subject(Action::DrivePayOrder, attempt);
                        self.finish_by_subject(Action::ClosePayOrder, attempt);
                    }
                    self.end(of, Drive::Done);
                }
                Err(_) => self.leave_link(attempt, of),
            },
            Err(_) => self.leave_link(attempt, of),
        }
    }

    fn leave_link(&mut self, attempt: usize, of: Option<Try>) {
        self.make_due(Action::DrivePayOrder, attempt);
        self.end(of, Drive::Again);
    }

    // ---- closing ----------------------------------------------------------------------------------------------

    fn fly_close(&mut self, attempt: usize, then: Then, of: Option<Try>, faults: [Fault; 2]) {
        self.append(Action::ClosePayOrder, attempt, self.now + 2 * PATIENCE);
        let stood = self.attempts[attempt].status;
        let state = rules::close(&mut self.theirs, attempt, faults);
        self.flights.push(Flight { half: Half::Close(attempt, stood, state, then), of });
    }

    fn land_close(
        &mut self,
        (attempt, stood): (usize, PayStatus),
        state: Result<TradeState, CallError>,
        then: Then,
        of: Option<Try>,
        faults: [Fault; 2],
    ) {
        let Ok(state) = state else {
            self.make_due(Action::ClosePayOrder, attempt);
            return self.end(of, Drive::Again);
        };
        let has_moved = self.attempts[attempt].status != stood;
        self.answered(attempt, &state, Way::Close { has_moved });
        // Its link was published meanwhile.
        if state == TradeState::Unseen && self.attempts[attempt].status.is_live() {
            return self.fly_close(attempt, then, of, faults);
        }
        self.finish_by_subject(Action::ClosePayOrder, attempt);
        // The call that opens its trade may be on its way.
        if state == TradeState::Unseen && stood == PayStatus::Init {
            self.append(Action::ClosePayOrder, attempt, self.now + 10 * PATIENCE);
        }
        match then {
            Then::Nothing => self.end(of, Drive::Done),
            Then::CloseOrder(reason) => self.close_order(reason, of, faults),
        }
    }

    /// Closes the order, its live attempt at the channel first.
    fn close_order(&mut self, reason: CloseReason, of: Option<Try>, faults: [Fault; 2]) {
        if self.order.status != OrderStatus::Pending {
            return self.end(of, Drive::Done);
        }
        if let Some(live) = self.live() {
            return self.fly_close(live, Then::CloseOrder(reason), of, faults);
        }
        let moved = self.move_order(reason.event());
        self.must(moved, "an order was to be closed and may not");
        self.end(of, Drive::Done);
    }

    /// The timer: an order without a live attempt is closed at once, any other is left to a task.
    fn expire(&mut self) {
        if self.order.status != OrderStatus::Pending || self.expires_at > self.now {
            return;
        }
        match self.live() {
            Some(_) => self.append(Action::ExpireOrder, 0, self.now),
            None => self.close_order(CloseReason::Timeout, None, [Fault::Nothing; 2]),
        }
    }

    // ---- tasks ------------------------------------------------------------------------------------------------

    /// A worker takes a task, and does what its facts call for.
    fn work(&mut self, pick: usize, faults: [Fault; 2]) {
        let Some(of) = self.claim(pick) else { return };
        let (Try { action, subject, .. }, of) = (of, Some(of));
        if finds_no_room(pick) {
            return self.end(of, Drive::Untried);
        }
        match (self.rules.remedy)(action, &self.facts(action, subject)) {
            Remedy::Nothing | Remedy::Replay => self.end(of, Drive::Done),
            Remedy::LinkOrClose => {
                let is_wanted =
                    self.order.status == OrderStatus::Pending && self.attempts[subject].expires_at > self.now;
                match is_wanted {
                    true => self.fly_link(subject, of, faults[0]),
                    false => self.fly_close(subject, Then::Nothing, of, faults),
                }
            }
            Remedy::CloseAttempt => self.fly_close(subject, Then::Nothing, of, faults),
            Remedy::CloseOrder => self.close_order(CloseReason::Timeout, of, faults),
            Remedy::Refund => self.flights.push(Flight { half: Half::MakeRefund(subject), of }),
            Remedy::QueryRefund => {
                // A refusal to answer a question is no result.
                let answer = self.theirs.query_refund(subject, faults[0]).map_err(|_| CallError::NotNow);
                self.flights.push(Flight { half: Half::Refund(subject, Answerer::Query, answer), of });
            }
            Remedy::PayOut => self.flights.push(Flight { half: Half::MakePayout(subject), of }),
            Remedy::Rematch => self.rematch(subject, of),
        }
    }

    pub(super) fn facts(&self, action: Action, subject: usize) -> Facts {
        let mut facts = Facts::default();
        match action {
            Action::DrivePayOrder | Action::ClosePayOrder => {
                facts.attempt = self.is_visible(subject).then(|| self.attempts[subject].status);
            }
            Action::ExpireOrder => facts.order = Some(self.order.status),
            Action::DriveRefund | Action::QueryRefund => {
                facts.refund = Some(self.refunds[subject].status);
            }
            Action::DriveWithdrawal => facts.withdrawal = Some(self.withdrawals[subject].status),
            Action::RematchCallback => facts.callback = self.inbox.get(subject).map(|kept| kept.verdict),
            Action::ApplyUpdate => {}
        }
        facts
    }

    fn drive_refund(&mut self, number: usize, of: Option<Try>, faults: [Fault; 2]) {
        if !self.is_held(of) {
            return self.end(of, Drive::Again);
        }
        let is_first = self.refunds[number].status == RefundStatus::Pending;
        if is_first {
            let to = (self.rules.approval)(RefundStatus::Pending, RefundEvent::Requested);
            let Some(to) = to else { return self.must(false, "a refund was to be asked for and may not") };
            self.set_refund(number, to);
        }
        if self.refunds[number].status != RefundStatus::Processing {
            return self.end(of, Drive::Done);
        }
        let payment = match self.refunds[number].source {
            Source::Stray(stray) => Some(self.strays[stray].payment),
            Source::Paid => self.order.paid_by.and_then(|attempt| self.attempts[attempt].transaction),
        };
        let Some(payment) = payment else { return self.must(false, "a refund of nothing") };
        let call = Call { number, payment, minor: self.refunds[number].minor, is_first };
        let (answerer, state) = (self.rules.refund)(&mut self.theirs, call, faults);
        self.flights.push(Flight { half: Half::Refund(number, answerer, state), of });
    }

    fn land_refund(
        &mut self,
        number: usize,
        answerer: Answerer,
        state: Result<RefundState, CallError>,
        of: Option<Try>,
    ) {
        let event = match state {
            Ok(RefundState::Succeeded { .. }) => RefundEvent::Succeeded,
            Ok(RefundState::Failed(_)) | Err(CallError::Refused(_)) => RefundEvent::Failed,
            Ok(RefundState::Processing | RefundState::Unseen) | Err(_) => return self.end(of, Drive::Again),
        };
        // Whoever has the task by now may have made it since, or asks anew about what was told since.
        let is_question = of.is_some_and(|of| of.action == Action::QueryRefund);
        let is_refusal = event == RefundEvent::Failed && answerer == Answerer::Call;
        if (is_question || is_refusal) && !self.is_held(of) {
            return;
        }
        self.learn_of_refund(number, event, Some(answerer), Fault::Nothing);
        self.end(of, Drive::Done);
    }

    fn drive_payout(&mut self, number: usize, of: Option<Try>, faults: [Fault; 2]) {
        if !self.is_held(of) {
            return self.end(of, Drive::Again);
        }
        let is_first = self.withdrawals[number].status == WithdrawalStatus::Debited;
        if is_first {
            let moved = self.move_withdrawal(number, WithdrawalEvent::PayoutAsked);
            self.must(moved, "a payout was to be asked for and may not");
        }
        if self.withdrawals[number].status != WithdrawalStatus::Paying {
            return self.end(of, Drive::Done);
        }
        let call = Call { number, payment: 0, minor: self.withdrawals[number].minor, is_first };
        let state = (self.rules.payout)(&mut self.theirs, call, faults);
        self.flights.push(Flight { half: Half::Payout(number, state), of });
    }

    fn land_payout(&mut self, number: usize, state: Result<PayoutState, CallError>, of: Option<Try>) {
        match state {
            Ok(PayoutState::Succeeded { .. }) => self.end_payout(number, true),
            Ok(PayoutState::Failed(_)) | Err(CallError::Refused(_)) if !self.is_held(of) => return,
            Ok(PayoutState::Failed(_)) | Err(CallError::Refused(_)) => self.end_payout(number, false),
            Ok(PayoutState::Processing | PayoutState::Unseen) | Err(_) => return self.end(of, Drive::Again),
        }
        self.end(of, Drive::Done);
    }

    fn rematch(&mut self, place: usize, of: Option<Try>) {
        let (id, said) = (self.inbox[place].id, self.inbox[place].said);
        let told = self.told(said, Way::Rematch, Some((id, said)));
        if !self.is_visible(told.attempt) && self.now < self.inbox[place].received_at + REMATCH_FOR {
            return self.end(of, Drive::Again);
        }
        self.report(told);
        self.end(of, Drive::Done);
    }

    /// A channel's answer is written down.
    fn land(&mut self, pick: usize, faults: [Fault; 2]) {
        if self.flights.is_empty() {
            return;
        }
        let Flight { half, of } = self.flights.swap_remove(pick % self.flights.len());
        match half {
            Half::Link(attempt, answer) => self.land_link(attempt, answer, of, faults),
            Half::Close(attempt, stood, state, then) => {
                self.land_close((attempt, stood), state, then, of, faults);
            }
            Half::MakeRefund(number) => self.drive_refund(number, of, faults),
            Half::MakePayout(number) => self.drive_payout(number, of, faults),
            Half::Refund(number, answerer, state) => self.land_refund(number, answerer, state, of),
            Half::Payout(number, state) => self.land_payout(number, state, of),
        }
    }
}
