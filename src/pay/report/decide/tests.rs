use time::OffsetDateTime;

use super::*;
use crate::channels::{Payment, Refusal};
use crate::money::{Amount, Currency, Money};
use crate::orders::{OrderKey, OrderKind};
use crate::pay::model::PayStatus;
use crate::pay::report::store::Matched;
use crate::refunds::StrayPolicy;

fn cny() -> Currency {
    "CNY".parse().unwrap()
}

fn paid(minor: i64, currency: &str) -> TradeState {
    let money = Money { amount: Amount::try_from(minor).unwrap(), currency: currency.parse().unwrap() };
    TradeState::Paid(Payment { transaction_id: "T1".into(), money, paid_at: OffsetDateTime::UNIX_EPOCH })
}

fn facts(order_status: OrderStatus, attempt_status: PayStatus) -> Facts {
    let matched = Matched {
        key: OrderKey { merchant_id: "demo".parse().unwrap(), order_no: "A1".parse().unwrap() },
        pay_order_id: "po_1".into(),
        user_id: "u1".into(),
        order_kind: OrderKind::Sale,
        order_status,
        order_money: (1990, cny()),
        order_attempts: 1,
        order_made_at: OffsetDateTime::UNIX_EPOCH,
        attempt_status,
        attempt_version: 2,
        attempt_money: (1990, cny()),
        stray_money: StrayPolicy::AutoRefund,
    };
    Facts { earlier: None, known_stray: None, is_trade_known: false, is_whole: true, matched: Some(matched) }
}

fn report(state: TradeState) -> Report<'static> {
    let origin = Origin::Callback { event_id: "e1", body: b"{}", account_matches: true };
    Report { channel: "sandbox", pay_order_id: "po_1", state, origin }
}

#[test]
fn right_money_pays_a_pending_order_whatever_its_attempt_came_to() {
    for attempt in [PayStatus::Init, PayStatus::Paying, PayStatus::Closed, PayStatus::Failed] {
        let remedy = decide(&facts(OrderStatus::Pending, attempt), &report(paid(1990, "CNY")));
        assert_eq!(remedy, Remedy::Pay, "{attempt}");
    }
}

#[test]
fn every_order_state_decides_what_becomes_of_right_money() {
    let event = Some(PayEvent::PaymentConfirmed);
    for &status in OrderStatus::ALL {
        let expected = match status {
            OrderStatus::Pending => Remedy::Pay,
            OrderStatus::Closed => Remedy::Stray { reason: StrayReason::LatePayment, event },
            _ => Remedy::Stray { reason: StrayReason::DuplicatePayment, event },
        };
        assert_eq!(
            decide(&facts(status, PayStatus::Paying), &report(paid(1990, "CNY"))),
            expected,
            "{status}"
        );
    }
}

#[test]
fn wrong_money_never_pays() {
    for &status in OrderStatus::ALL {
        for wrong in [paid(1989, "CNY"), paid(1991, "CNY"), paid(1990, "USD")] {
            let remedy = decide(&facts(status, PayStatus::Paying), &report(wrong));
            assert_eq!(remedy.verdict(), Verdict::AmountMismatch, "{status}");
        }
    }
}

#[test]
fn the_same_event_gets_the_same_verdict() {
    for &verdict in Verdict::ALL {
        let known = Facts {
            earlier: Some(verdict),
            is_trade_known: true,
            ..facts(OrderStatus::Pending, PayStatus::Paying)
        };
        assert_eq!(decide(&known, &report(paid(1990, "CNY"))), Remedy::Repeat(verdict));
    }
}

#[test]
fn unknown_money_under_the_id_of_an_earlier_event_is_another_event() {
    for &earlier in Verdict::ALL {
        let known = Facts { earlier: Some(earlier), ..facts(OrderStatus::Pending, PayStatus::Closed) };
        let is_waited_for = matches!(earlier, Verdict::Unmatched | Verdict::WrongAccount);
        let expected = if is_waited_for { Remedy::Repeat(earlier) } else { Remedy::Split };
        assert_eq!(decide(&known, &report(paid(1990, "CNY"))), expected, "{earlier}");
        assert_eq!(decide(&known, &report(TradeState::Closed)), Remedy::Repeat(earlier));
    }
}

#[test]
fn the_same_money_by_another_event_is_a_repeat() {
    let known = Facts { is_trade_known: true, ..facts(OrderStatus::Paid, PayStatus::Paid) };
    assert_eq!(decide(&known, &report(paid(1990, "CNY"))), Remedy::Note(Verdict::Repeated));

    let mismatch = Facts {
        known_stray: Some(StrayReason::AmountMismatch),
        ..facts(OrderStatus::Pending, PayStatus::Failed)
    };
    assert_eq!(decide(&mismatch, &report(paid(1, "CNY"))), Remedy::Note(Verdict::AmountMismatch));
}

#[test]
fn an_attempt_whose_money_was_known_before_it_ends_when_it_is_asked_about() {
    let stray = Some(StrayReason::UnknownOrder);
    for &attempt in PayStatus::ALL {
        let known =
            Facts { known_stray: stray, is_trade_known: true, ..facts(OrderStatus::Pending, attempt) };
        let told = report(paid(1990, "CNY"));
        let noted = Remedy::Note(Verdict::Repeated);
        let expected = if attempt.is_live() { Remedy::End(PayEvent::AttemptFailed) } else { noted };
        assert_eq!(decide(&known, &Report { origin: Origin::Query, ..told.clone() }), expected, "{attempt}");
        assert_eq!(decide(&known, &told), noted, "a callback may speak of another attempt: {attempt}");
    }
}

#[test]
fn ends_without_money_move_live_attempts_only() {
    let refusal = Refusal { code: "NO".into(), message: "no".into() };
    for &attempt in PayStatus::ALL {
        let failed =
            decide(&facts(OrderStatus::Pending, attempt), &report(TradeState::Failed(refusal.clone())));
        let closed = decide(&facts(OrderStatus::Pending, attempt), &report(TradeState::Closed));
        if attempt.is_live() {
            assert_eq!(failed, Remedy::End(PayEvent::AttemptFailed));
            assert_eq!(closed, Remedy::End(PayEvent::AttemptClosed));
        } else {
            assert_eq!((failed, closed), (Remedy::Note(Verdict::Recorded), Remedy::Note(Verdict::Recorded)));
        }
    }
}

#[test]
fn what_the_channel_had_not_seen_ends_an_attempt_only_as_it_was_asked_about() {
    for &attempt in PayStatus::ALL {
        for (version, is_as_asked) in [(1, false), (2, true)] {
            let unseen = Report { origin: Origin::Close { version }, ..report(TradeState::Unseen) };
            let ends = is_as_asked && attempt.is_live();
            let expected =
                if ends { Remedy::End(PayEvent::AttemptClosed) } else { Remedy::Note(Verdict::Recorded) };
            assert_eq!(decide(&facts(OrderStatus::Pending, attempt), &unseen), expected, "{attempt}");
        }
        let asked = Report { origin: Origin::Query, ..report(TradeState::Unseen) };
        let remedy = decide(&facts(OrderStatus::Pending, attempt), &asked);
        assert_eq!(remedy, Remedy::Note(Verdict::Recorded), "only a close ends it: {attempt}");
    }
}

#[test]
fn money_for_nobody_is_looked_for_and_then_held() {
    let nobody = Facts { matched: None, ..facts(OrderStatus::Pending, PayStatus::Init) };
    assert_eq!(decide(&nobody, &report(paid(1990, "CNY"))), Remedy::Unmatched);

    let kept = Facts { earlier: Some(Verdict::Unmatched), ..nobody };
    let again = Report { origin: Origin::Rematch { event_id: "e1" }, ..report(paid(1990, "CNY")) };
    assert_eq!(decide(&kept, &again), Remedy::GiveUpMatching);
}

#[test]
fn another_account_is_not_believed() {
    let origin = Origin::Callback { event_id: "e1", body: b"{}", account_matches: false };
    let foreign = Report { origin, ..report(paid(1990, "CNY")) };
    assert_eq!(decide(&facts(OrderStatus::Pending, PayStatus::Paying), &foreign), Remedy::WrongAccount);
}
