//! The check of the checks: each rule of the reference is seen to fail when one of our functions is bent.

use super::ops::Fault;
use super::reference::Rule;
use super::rules::{Call, Rules};
use super::world::{Task, Try};
use super::{channel::Channels, play_many};
use crate::channels::{Answerer, CallError, RefundState};
use crate::compensation::{Action, TaskStatus};
use crate::drive::decide::{Remedy, decide};
use crate::orders::{OrderEvent, OrderStatus};
use crate::pay::report::Verdict;
use crate::pay::report::simulated::{Judge, Judged, Says, Seen, Way};
use crate::pay::simulated::Seller;
use crate::pay::{PayEvent, PayStatus};
use crate::refunds::simulated::Sold;
use crate::refunds::{Next, RefundEvent, RefundStatus, StrayEvent, StrayStatus};
use crate::settlement::Shares;
use crate::withdrawals::{WithdrawalEvent, WithdrawalStatus};

/// Lives in which a bent function must show.
const LIVES: u64 = 3_000;

#[track_caller]
fn assert_breaks(bend: impl FnOnce(&mut Rules), expected: &[Rule]) {
    let mut rules = Rules::ours();
    bend(&mut rules);
    match play_many(rules, 1, LIVES) {
        Ok(_) => panic!("expected one of {expected:?} to be broken, and nothing was"),
        Err(broken) => assert!(expected.contains(&broken.rule), "expected one of {expected:?}: {broken}"),
    }
}

#[test]
fn an_attempt_that_leaves_an_end_is_seen() {
    let bent = |from, event| match (from, event) {
        (PayStatus::Closed, PayEvent::AttemptClosed) => Some(PayStatus::Failed),
        (PayStatus::Paying, PayEvent::AttemptClosed) => Some(PayStatus::Init),
        _ => PayStatus::after(from, event),
    };
    assert_breaks(|rules| rules.pay = bent, &[Rule::Edges]);
}

#[test]
fn a_second_live_attempt_is_seen() {
    let tell = |seller: &mut Seller, order, _, channel, now| seller.tell(order, None, channel, now);
    assert_breaks(|rules| rules.tell = tell, &[Rule::OneLive]);
}

#[test]
fn what_nobody_drives_is_seen() {
    let judge = |judge: &mut Judge, seen: &Seen| match judge.judge(seen) {
        (Judged::Unmatched, verdict) => (Judged::Nothing, verdict),
        told => told,
    };
    assert_breaks(|rules| rules.judge = judge, &[Rule::Driven]);
}

#[test]
fn a_closed_order_that_is_paid_is_seen() {
    let order = |from, event| match (from, event) {
        (OrderStatus::Closed, OrderEvent::PaymentConfirmed) => Some(OrderStatus::Paid),
        _ => from.after(event).ok(),
    };
    let judge = |judge: &mut Judge, seen: &Seen| match seen.matched {
        Some((OrderStatus::Closed, attempt, amount)) => {
            judge.judge(&Seen { matched: Some((OrderStatus::Pending, attempt, amount)), ..*seen })
        }
        _ => judge.judge(seen),
    };
    assert_breaks(|rules| (rules.order, rules.judge) = (order, judge), &[Rule::Edges]);
    assert_breaks(|rules| rules.judge = judge, &[Rule::Stuck]);
}

#[test]
fn wrong_money_that_pays_is_seen() {
    let judge = |judge: &mut Judge, seen: &Seen| match seen.says {
        Says::Paid(_, true) => judge.judge(&Seen { says: Says::Paid(super::world::AMOUNT, true), ..*seen }),
        _ => judge.judge(seen),
    };
    assert_breaks(|rules| rules.judge = judge, &[Rule::PaidOnce]);
}

#[test]
fn money_that_is_taken_for_news_twice_is_seen() {
    let judge = |judge: &mut Judge, seen: &Seen| {
        judge.judge(&Seen { known_stray: None, is_trade_known: false, ..*seen })
    };
    assert_breaks(|rules| rules.judge = judge, &[Rule::Stuck, Rule::MoneyOnce]);
}

#[test]
fn money_that_is_passed_over_is_seen_in_the_end() {
    let judge = |judge: &mut Judge, seen: &Seen| match judge.judge(seen) {
        (Judged::Stray(..), verdict) => (Judged::Nothing, verdict),
        told => told,
    };
    assert_breaks(|rules| rules.judge = judge, &[Rule::Ends, Rule::Nearer]);
}

#[test]
fn another_verdict_for_the_same_callback_is_seen() {
    let judge = |judge: &mut Judge, seen: &Seen| match (seen.earlier, seen.way) {
        (Some(Verdict::Applied), Way::Callback) => (Judged::Nothing, Verdict::Repeated),
        _ => judge.judge(seen),
    };
    assert_breaks(|rules| rules.judge = judge, &[Rule::SameVerdict]);
}

#[test]
fn refunds_of_more_than_was_paid_are_seen() {
    let ask = |sold: &Sold, amount| crate::refunds::simulated::ask(&Sold { asked: 0, ..*sold }, amount);
    assert_breaks(|rules| rules.ask = ask, &[Rule::RefundsFit]);
    // A refund that failed is counted as if it had been made.
    let result = |status, was_made, event, answers| match (status, event) {
        (RefundStatus::Processing, RefundEvent::Failed) => Next::Moves(RefundStatus::Succeeded),
        _ => Next::of(status, was_made, event, answers),
    };
    assert_breaks(|rules| rules.result = result, &[Rule::Books]);
}

#[test]
fn a_refund_that_comes_back_from_its_end_is_seen() {
    let result = |status, was_made, event, answers| match (status, event) {
        (RefundStatus::Failed, RefundEvent::Succeeded) => Next::Moves(RefundStatus::Succeeded),
        _ => Next::of(status, was_made, event, answers),
    };
    assert_breaks(|rules| rules.result = result, &[Rule::Edges]);
    let deaf = |status, was_made, event, answers| match status {
        RefundStatus::Succeeded => Next::Stays,
        _ => Next::of(status, was_made, event, answers),
    };
    assert_breaks(|rules| rules.result = deaf, &[Rule::Ends, Rule::Books]);
}

#[test]
fn a_refusal_that_is_believed_at_once_is_seen_in_the_books() {
    fn believes(
        books: &mut Channels,
        call: Call,
        faults: [Fault; 2],
    ) -> (Answerer, Result<RefundState, CallError>) {
        (Answerer::Call, books.refund(call.number, call.payment, call.minor, faults[0]))
    }
    assert_breaks(|rules| rules.refund = believes, &[Rule::Books, Rule::RefundsFit]);
}

#[test]
fn a_second_refund_under_another_number_is_seen() {
    // The first call is lost, and the next one goes out as another refund: of all the money, once more.
    let ask = |sold: &Sold, amount| {
        crate::refunds::simulated::ask(
            &Sold { asked: sold.asked.min(super::world::AMOUNT - 1), ..*sold },
            amount,
        )
    };
    assert_breaks(|rules| rules.ask = ask, &[Rule::RefundsFit]);
}

#[test]
fn an_order_that_does_not_follow_its_refunds_is_seen() {
    let refunded = |_, _, _| OrderEvent::RefundedInPart;
    assert_breaks(|rules| rules.refunded = refunded, &[Rule::PaidOnce, Rule::Stuck]);
}

#[test]
fn stray_money_that_is_kept_by_a_refusal_is_seen() {
    let stray = |from, event| match (from, event) {
        (StrayStatus::Refunding, StrayEvent::RefundFailed) => Some(StrayStatus::Kept),
        _ => StrayStatus::after(from, event),
    };
    assert_breaks(|rules| rules.stray = stray, &[Rule::Edges]);
}

#[test]
fn a_payout_that_goes_out_and_comes_back_is_seen() {
    let withdrawal = |from, event| match (from, event) {
        (WithdrawalStatus::Paying, WithdrawalEvent::PayoutRefused) => Some(WithdrawalStatus::Succeeded),
        _ => WithdrawalStatus::after(from, event),
    };
    assert_breaks(|rules| rules.withdrawal = withdrawal, &[Rule::Stuck]);
    let twice = |books: &mut Channels, call: Call, faults: [Fault; 2]| {
        books.payout(call.number, call.minor + i64::from(!call.is_first), faults[0])
    };
    assert_breaks(|rules| rules.payout = twice, &[Rule::RefundsFit, Rule::Books]);
}

#[test]
fn whoever_has_lost_a_task_and_acts_all_the_same_is_seen() {
    let anybody = |task: &Task, of: Try| task.id == of.id && task.status == TaskStatus::Running;
    assert_breaks(|rules| rules.is_held = anybody, &[Rule::Books]);
    // Tries go back where nothing was tried, so two may be at the same one.
    let by_its_try =
        |task: &Task, of: Try| (task.id, task.tries, task.status) == (of.id, of.tries, TaskStatus::Running);
    let (mut rules, lives) = (Rules::ours(), 30 * LIVES);
    rules.is_held = by_its_try;
    assert!(matches!(play_many(rules, 1, lives), Err(broken) if broken.rule == Rule::Books));
}

#[test]
fn a_task_that_is_done_too_soon_is_seen() {
    let remedy = |action, facts: &_| match action {
        Action::DriveRefund => Remedy::Nothing,
        _ => decide(action, facts),
    };
    assert_breaks(|rules| rules.remedy = remedy, &[Rule::Nearer]);
    let closes = |action, facts: &_| match action {
        Action::ClosePayOrder => Remedy::Nothing,
        _ => decide(action, facts),
    };
    assert_breaks(|rules| rules.remedy = closes, &[Rule::Nearer]);
    let waits = |action, facts: &_| match action {
        Action::RematchCallback => Remedy::Nothing,
        _ => decide(action, facts),
    };
    assert_breaks(|rules| rules.remedy = waits, &[Rule::Nearer]);
}

#[test]
fn an_approval_that_nobody_gave_is_seen() {
    let approval = |from, event| match (from, event) {
        (RefundStatus::AwaitingApproval, RefundEvent::Rejected) => Some(RefundStatus::Processing),
        _ => RefundStatus::after(from, event),
    };
    assert_breaks(|rules| rules.approval = approval, &[Rule::Edges]);
}

#[test]
fn a_commission_that_does_not_follow_is_seen() {
    let stays =
        |status, commission, before, _| crate::settlement::follow(status, commission, before, commission);
    assert_breaks(|rules| rules.follow = stays, &[Rule::Commission]);
    let generous = |difference, has, owes| {
        let shares = Shares::of(difference, has, owes);
        Shares { of_debt: 0, ..shares }
    };
    assert_breaks(|rules| rules.shares = generous, &[Rule::Wallet]);
    let greedy = |difference, _, _| Shares { of_balance: difference, of_debt: 0 };
    assert_breaks(|rules| rules.shares = greedy, &[Rule::Wallet]);
}
