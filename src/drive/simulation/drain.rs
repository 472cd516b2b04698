//! The end of a life: channels answer, people decide, statements are compared, and every task runs, until nothing is
//! due any more.

use super::channel::{Said, Way as There};
use super::ops::{Fault, Op, What};
use super::reference::{Reference, Rule};
use super::world::World;
use crate::channels::Answerer;
use crate::compensation::TaskStatus;
use crate::pay::report::simulated::Way;
use crate::refunds::{RefundEvent, RefundStatus};

/// Rounds until nothing may be left: each lets at least one thing come further.
const ROUNDS: usize = 400;
/// A pick that decides for the good end: refunds are let go, and stray money goes back.
const WELL: usize = 2;

impl World {
    /// Lets everything come to its end, and looks at each step.
    pub(super) fn drain(&mut self, reference: &mut Reference) -> Result<(), Rule> {
        let calm = |what| Op { what, pick: WELL, faults: [Fault::Nothing; 2] };
        for _ in 0..ROUNDS {
            if self.theirs.is_waiting() {
                self.apply(calm(What::Arrive));
            } else if !self.flights.is_empty() {
                self.apply(calm(What::Land));
            } else if !self.theirs.air.is_empty() {
                self.apply(calm(What::Deliver));
            } else if self.theirs.conclude(WELL, true) {
                self.is_touched = true;
            } else if self.tasks.iter().any(|task| task.status == TaskStatus::Dead) {
                self.apply(calm(What::Revive));
            } else if let Some(due_at) = self.tasks.iter().map(|task| task.due_at).min() {
                self.now = self.now.max(due_at);
                self.apply(calm(What::Work));
            } else if self.expires_at > self.now {
                self.now = self.expires_at;
            } else if !self.is_at_rest() {
                self.apply(calm(What::Expire));
                self.apply(calm(What::Approve));
                self.apply(calm(What::Resolve));
            } else if !self.is_compared() {
                self.apply(calm(What::Compare));
            } else {
                return Ok(());
            }
            reference.look(self)?;
        }
        // Something never does.
        Err(Rule::Ends)
    }

    /// Whether no timer and no person is waited for.
    fn is_at_rest(&self) -> bool {
        let waits = self.refunds.iter().any(|refund| refund.status == RefundStatus::AwaitingApproval);
        let is_held = self.strays.iter().any(|stray| stray.is_shown);
        self.order.status != crate::orders::OrderStatus::Pending && !waits && !is_held
    }

    /// Whether every line of the channels' statements is known here.
    fn is_compared(&self) -> bool {
        let known = |payment| self.known.iter().any(|known| known.payment == payment);
        let is_taken_back = |number: usize| {
            let theirs = self.theirs.refunds[number];
            theirs.is_some_and(|theirs| theirs.state == There::TakenBack)
                && self.refunds[number].status == RefundStatus::Succeeded
        };
        (0..self.theirs.taken.len()).all(known) && !(0..self.refunds.len()).any(is_taken_back)
    }

    /// Compares the statements: money that we had not heard of is reported as if the channel had called, and a refund
    /// that is none there any more is asked about.
    pub(super) fn compare(&mut self) {
        for payment in 0..self.theirs.taken.len() {
            if !self.known.iter().any(|known| known.payment == payment) {
                let told = self.told(Said::Paid(payment), Way::Statement, None);
                self.report(told);
            }
        }
        for number in 0..self.refunds.len() {
            let is_taken_back =
                self.theirs.refunds[number].is_some_and(|theirs| theirs.state == There::TakenBack);
            if is_taken_back {
                self.learn_of_refund(number, RefundEvent::Failed, Some(Answerer::Query), Fault::Nothing);
            }
        }
    }
}
