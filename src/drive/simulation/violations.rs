//! The check of the checks: each rule of the reference is seen to fail when one of our functions is bent.

use super::ops::Fault;
use super::reference::Rule;
use super::rules::{Call, Rules};
use super::world::{AMOUNT, Task, Try};
use super::{channel::Channels, play_many};
use crate::channels::{Answerer, CallError, PayoutState, RefundState};
use crate::compensation::{Action, TaskStatus};
use crate::drive::decide::{Remedy, decide};
use crate::orders::{OrderEvent, OrderStatus};
use crate::pay::report::Verdict;
use crate::pay::report::simulated::{Judge, Judged, Says, Seen, Way};
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

/// For each rule a bent function that it is the first to see.
const fn bend_of(rule: Rule) -> fn(&mut Rules) {
    match rule {
        Rule::Edges => a_rejected_refund_is_made,
        Rule::PaidOnce => wrong_money_pays,
        Rule::MoneyOnce => a_paid_order_is_paid_again,
        Rule::RefundsFit => what_was_asked_for_is_forgotten,
        Rule::OneLive => a_second_attempt_is_begun,
        Rule::Driven => unmatched_callbacks_are_left_alone,
        Rule::Nearer => a_refund_is_done_too_soon,
        Rule::Wallet => debts_are_forgotten,
        Rule::Commission => a_commission_stays,
        Rule::SameVerdict => a_repeat_is_called_one,
        Rule::Stuck => a_closed_order_is_to_be_paid,
        Rule::Ends => nobody_hears_what_became_of_a_payout,
        Rule::Books => a_refused_refund_counts_as_made,
    }
}

fn a_rejected_refund_is_made(rules: &mut Rules) {
    rules.approval = |from, event| match (from, event) {
        (RefundStatus::AwaitingApproval, RefundEvent::Rejected) => Some(RefundStatus::Processing),
        _ => RefundStatus::after(from, event),
    };
}

fn wrong_money_pays(rules: &mut Rules) {
    rules.judge = |judge, seen| match seen.says {
        Says::Paid(_, true) => judge.judge(&Seen { says: Says::Paid(AMOUNT, true), ..*seen }),
        _ => judge.judge(seen),
    };
}

/// By another payment that is right in itself.
fn a_paid_order_is_paid_again(rules: &mut Rules) {
    rules.order = |from, event| match (from, event) {
        (OrderStatus::Paid, OrderEvent::PaymentConfirmed) => Some(OrderStatus::Paid),
        _ => from.after(event).ok(),
    };
    rules.judge = |judge, seen| match (seen.matched, seen.says) {
        (Some((OrderStatus::Paid, attempt, amount)), Says::Paid(AMOUNT, true))
            if attempt != PayStatus::Paid =>
        {
            judge.judge(&Seen { matched: Some((OrderStatus::Pending, attempt, amount)), ..*seen })
        }
        _ => judge.judge(seen),
    };
}

fn what_was_asked_for_is_forgotten(rules: &mut Rules) {
    rules.ask = |sold, amount| crate::refunds::simulated::ask(&Sold { asked: 0, ..*sold }, amount);
}

fn a_second_attempt_is_begun(rules: &mut Rules) {
    rules.tell = |seller, order, _, channel, now| seller.tell(order, None, channel, now);
}

fn unmatched_callbacks_are_left_alone(rules: &mut Rules) {
    rules.judge = |judge, seen| match judge.judge(seen) {
        (Judged::Unmatched, verdict) => (Judged::Nothing, verdict),
        told => told,
    };
}

fn a_refund_is_done_too_soon(rules: &mut Rules) {
    rules.remedy = |action, facts| match action {
        Action::DriveRefund => Remedy::Nothing,
        _ => decide(action, facts),
    };
}

fn debts_are_forgotten(rules: &mut Rules) {
    rules.shares = |difference, has, owes| Shares { of_debt: 0, ..Shares::of(difference, has, owes) };
}

fn a_commission_stays(rules: &mut Rules) {
    rules.follow =
        |status, commission, before, _| crate::settlement::follow(status, commission, before, commission);
}

fn a_repeat_is_called_one(rules: &mut Rules) {
    rules.judge = |judge, seen| match (seen.earlier, seen.way) {
        (Some(Verdict::Applied), Way::Callback) => (Judged::Nothing, Verdict::Repeated),
        _ => judge.judge(seen),
    };
}

fn a_closed_order_is_to_be_paid(rules: &mut Rules) {
    rules.judge = |judge, seen| match seen.matched {
        Some((OrderStatus::Closed, attempt, amount)) => {
            judge.judge(&Seen { matched: Some((OrderStatus::Pending, attempt, amount)), ..*seen })
        }
        _ => judge.judge(seen),
    };
}

fn nobody_hears_what_became_of_a_payout(rules: &mut Rules) {
    rules.payout =
        |books, call, faults| (Rules::ours().payout)(books, call, faults).map(|_| PayoutState::Processing);
}

fn a_refused_refund_counts_as_made(rules: &mut Rules) {
    rules.result = |status, event, answers| match (status, event) {
        (RefundStatus::Processing, RefundEvent::Failed) => Next::Moves(RefundStatus::Succeeded),
        _ => Next::of(status, event, answers),
    };
}

#[test]
fn every_rule_is_required() {
    for rule in Rule::ALL {
        assert_breaks(bend_of(rule), &[rule]);
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
fn a_closed_order_that_is_paid_is_seen() {
    let order = |from, event| match (from, event) {
        (OrderStatus::Closed, OrderEvent::PaymentConfirmed) => Some(OrderStatus::Paid),
        _ => from.after(event).ok(),
    };
    let bend = |rules: &mut Rules| {
        a_closed_order_is_to_be_paid(rules);
        rules.order = order;
    };
    assert_breaks(bend, &[Rule::Edges]);
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
fn a_refund_that_comes_back_from_its_end_is_seen() {
    let result = |status, event, answers| match (status, event) {
        (RefundStatus::Failed, RefundEvent::Succeeded) => Next::Moves(RefundStatus::Succeeded),
        _ => Next::of(status, event, answers),
    };
    assert_breaks(|rules| rules.result = result, &[Rule::Edges]);
    let deaf = |status, event, answers| match status {
        RefundStatus::Succeeded => Next::Stays,
        _ => Next::of(status, event, answers),
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
        crate::refunds::simulated::ask(&Sold { asked: sold.asked.min(AMOUNT - 1), ..*sold }, amount)
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
    assert_breaks(|rules| rules.is_held = anybody, &[Rule::Books, Rule::RefundsFit]);
    // Tries go back where nothing was tried, so two may be at the same one.
    let by_its_try =
        |task: &Task, of: Try| (task.id, task.tries, task.status) == (of.id, of.tries, TaskStatus::Running);
    let (mut rules, lives) = (Rules::ours(), 30 * LIVES);
    rules.is_held = by_its_try;
    let broken = play_many(rules, 1, lives).map(drop).map_err(|broken| broken.rule);
    assert!(matches!(broken, Err(Rule::Books | Rule::RefundsFit)), "{broken:?}");
}

#[test]
fn a_task_that_is_done_too_soon_is_seen() {
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
fn what_a_user_does_not_have_and_is_taken_is_seen() {
    let greedy = |difference, _, _| Shares { of_balance: difference, of_debt: 0 };
    assert_breaks(|rules| rules.shares = greedy, &[Rule::Wallet]);
}
