//! What refunds, commissions and withdrawals move of the order and of its user's money.

use super::world::{AMOUNT, APPROVAL_ABOVE, Refund, Settlement, Source, Stray, Withdrawal, World};
use crate::compensation::Action;
use crate::orders::{OrderKind, OrderStatus};
use crate::refunds::simulated::Sold;
use crate::refunds::{RefundEvent, RefundStatus, StrayEvent, StrayStatus};
use crate::settlement::SettlementStatus;
use crate::withdrawals::{WithdrawalEvent, WithdrawalStatus};

/// What merchants ask to be given back; nothing is what is left.
const ASKED: [Option<i64>; 6] = [None, Some(1), Some(30), Some(50), Some(61), Some(AMOUNT)];
/// What users want sent out.
const WANTED: [i64; 3] = [7, 20, 40];
/// Refunds and withdrawals of a world at most: its books stay small.
const MANY: usize = 10;

impl World {
    pub(super) fn ask_refund(&mut self, pick: usize) {
        if self.refunds.len() >= MANY {
            return;
        }
        let has_gone = |refund: &&Refund| refund.status != RefundStatus::Failed || refund.is_contradicted;
        let open = self.refunds.iter().filter(|refund| refund.source == Source::Paid).filter(has_gone);
        let sold = Sold {
            kind: self.order.kind,
            status: self.order.status,
            amount: AMOUNT,
            is_paid_by_one: self.order.paid_by.is_some(),
            asked: open.map(|refund| refund.minor).sum(),
            available: self.available,
            approval_above: APPROVAL_ABOVE,
        };
        let Some((minor, status)) = (self.rules.ask)(&sold, ASKED[pick % ASKED.len()]) else { return };
        if self.order.kind == OrderKind::TopUp {
            (self.available, self.held) = (self.available - minor, self.held + minor);
        }
        self.add_refund(Source::Paid, minor, status);
    }

    /// An operator lets a refund go where the number is even, and rejects it otherwise.
    pub(super) fn approve(&mut self, pick: usize) {
        let is_waiting = |refund: &Refund| refund.status == RefundStatus::AwaitingApproval;
        let Some(number) = self.refunds.iter().position(is_waiting) else { return };
        let event = if pick.is_multiple_of(3) { RefundEvent::Rejected } else { RefundEvent::Approved };
        let Some(to) = (self.rules.approval)(RefundStatus::AwaitingApproval, event) else { return };
        self.set_refund(number, to);
        match to {
            RefundStatus::Pending => self.append(Action::DriveRefund, number, self.now),
            _ => self.free(self.refunds[number].minor),
        }
    }

    /// What was set aside of a top-up for a refund is free again.
    fn free(&mut self, minor: i64) {
        if self.order.kind == OrderKind::TopUp {
            (self.available, self.held) = (self.available + minor, self.held - minor);
        }
    }

    /// A refund of the payment ended: the order follows, its user's money, and its commission.
    pub(super) fn end_refund(&mut self, minor: i64, to: RefundStatus, had_succeeded: bool) {
        let before = self.order.refunded;
        let refunded = match (had_succeeded, to) {
            (_, RefundStatus::Succeeded) => before + minor,
            (true, _) => before - minor,
            (false, _) => return self.free(minor),
        };
        let event = (self.rules.refunded)(AMOUNT, before, refunded);
        let moved = self.move_order(event);
        self.must(moved, "an order was to follow its refunds and may not");
        self.order.refunded = refunded;
        if self.order.kind == OrderKind::TopUp {
            if to == RefundStatus::Succeeded {
                self.held -= minor;
            } else {
                self.available += minor;
            }
        }
        self.follow(AMOUNT - refunded);
    }

    fn follow(&mut self, left: i64) {
        let due = self.terms.commission_floor(left);
        let Some(Settlement { status, commission, clawed_back, .. }) = self.settlement else { return };
        let Some((now_clawed, to)) = (self.rules.follow)(status, commission, clawed_back, due) else {
            return;
        };
        let shares = (self.rules.shares)(now_clawed - clawed_back, self.available, self.owed);
        self.available -= shares.of_balance;
        self.owed += shares.of_debt;
        if to != status {
            self.moves.push(super::world::Move::Settlement(status, to));
        }
        if let Some(settlement) = &mut self.settlement {
            (settlement.clawed_back, settlement.status) = (now_clawed, to);
        }
    }

    pub(super) fn settle(&mut self) {
        let is_paid = matches!(self.order.status, OrderStatus::Paid | OrderStatus::PartiallyRefunded);
        if !is_paid || self.settlement.is_some() || self.order.kind == OrderKind::TopUp {
            return;
        }
        let settled_on = AMOUNT - self.order.refunded;
        let commission = self.terms.commission_floor(settled_on);
        let status = SettlementStatus::Settled;
        self.settlement = Some(Settlement { status, commission, clawed_back: 0, settled_on });
        self.available += commission;
        self.is_touched = true;
    }

    /// A person decides over stray money: most of it goes back.
    pub(super) fn resolve(&mut self, pick: usize) {
        let waits = |stray: &Stray| stray.status == StrayStatus::Held && stray.is_shown;
        let Some(number) = self.strays.iter().position(waits) else { return };
        if pick.is_multiple_of(4) {
            self.move_stray(number, StrayEvent::Kept);
            self.strays[number].is_shown = false;
        } else {
            self.strays[number].is_shown = false;
            self.refund_stray(number);
        }
    }

    // ---- withdrawals ------------------------------------------------------------------------------------------

    pub(super) fn withdraw(&mut self, pick: usize) {
        let minor = WANTED[pick % WANTED.len()];
        if minor > self.available || self.withdrawals.len() >= MANY {
            return;
        }
        let Some(status) = (self.rules.withdrawal)(WithdrawalStatus::Created, WithdrawalEvent::Debited)
        else {
            return;
        };
        (self.available, self.held) = (self.available - minor, self.held + minor);
        let number = self.withdrawals.len();
        self.withdrawals.push(Withdrawal { status, minor });
        self.theirs.payouts.push(None);
        self.append(Action::DriveWithdrawal, number, self.now);
    }

    /// A final result of a payout; one that is there already changes nothing.
    pub(super) fn end_payout(&mut self, number: usize, has_gone_out: bool) {
        if self.withdrawals[number].status != WithdrawalStatus::Paying {
            return;
        }
        self.settle_given_up(Action::DriveWithdrawal, number);
        let minor = self.withdrawals[number].minor;
        if has_gone_out {
            let moved = self.move_withdrawal(number, WithdrawalEvent::PayoutSucceeded);
            self.must(moved, "a payout has gone out and may not");
            self.held -= minor;
            return;
        }
        let moved = self.move_withdrawal(number, WithdrawalEvent::PayoutRefused)
            && self.move_withdrawal(number, WithdrawalEvent::GivenBack);
        self.must(moved, "a payout was refused and may not");
        (self.available, self.held) = (self.available + minor, self.held - minor);
    }
}
