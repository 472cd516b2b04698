//! The judge is judged: a history in which all is well, and for each rule one thing that is not.

use serde_json::{Value, json};

use super::judge::{Kind, Rule, Thing, Told, judge};

fn told(path: &str, key: &str, body: Value, status: u16, answer: &Value) -> Told {
    Told { path: path.to_owned(), key: key.to_owned(), body, status, answer: answer.to_string() }
}

fn thing(kind: Kind, name: &str, fields: Value, standing: Value) -> Thing {
    Thing { kind, name: name.to_owned(), fields, standing }
}

/// An order that was paid, its link, a refund of it, one that was refused, an order that was closed, and a hold.
fn all_is_well() -> (Vec<Told>, Vec<Thing>) {
    let paid = json!({"order_no": "1", "amount": 5, "status": "PENDING"});
    let asked = json!({"amount": 5, "metadata": {"mark": "A"}});
    let closed = json!({"order_no": "2", "amount": 7, "status": "CLOSED"});
    let hold = json!({"hold_id": "h", "status": "HELD", "charged": 0});
    let confirmed = json!({"hold_id": "h", "status": "CONFIRMED", "charged": 30, "units": 10});
    let too_late = json!({"code": "ORDER_IS_ALREADY_PAID"});
    let log = vec![
        told("/orders", "O-A", asked.clone(), 201, &paid),
        told("/orders", "O-A", asked, 201, &paid),
        told(
            "/pay/url",
            "L-A",
            json!({"order_no": "1"}),
            200,
            &json!({"pay_order_id": "p", "status": "PAYING"}),
        ),
        told("/orders/1/close", "X-A", json!({}), 409, &too_late),
        told("/refunds", "R-A", json!({"refund_no": "R-A"}), 201, &json!({"refund_no": "R-A", "amount": 2})),
        told("/refunds", "R-B", json!({"refund_no": "R-B"}), 422, &json!({"code": "REFUND_EXCEEDS_PAID"})),
        told(
            "/orders",
            "O-B",
            json!({"metadata": {"mark": "B"}}),
            201,
            &json!({"order_no": "2", "amount": 7}),
        ),
        told("/orders/2/close", "X-B", json!({}), 200, &closed),
        told("/usage/holds", "H", json!({"idempotency_key": "H"}), 201, &hold),
        told("/usage/holds/h/progress", "H-1", json!({"cumulative_units": 10}), 200, &hold),
        told("/usage/holds/h/confirm", "H-2", json!({}), 200, &confirmed),
    ];
    let there = vec![
        thing(Kind::Order, "A", json!({"order_no": "1", "amount": 5}), json!({"status": "PAID"})),
        thing(Kind::Attempt, "p", json!({"pay_order_id": "p"}), json!({})),
        thing(Kind::Refund, "R-A", json!({"refund_no": "R-A", "amount": 2}), json!({})),
        thing(Kind::Order, "B", json!({"order_no": "2", "amount": 7}), json!({"status": "CLOSED"})),
        thing(
            Kind::Hold,
            "H",
            json!({"hold_id": "h"}),
            json!({"status": "CONFIRMED", "charged": 30, "units": 10}),
        ),
    ];
    (log, there)
}

/// The rules that do not hold after something was changed, each once.
fn broken_by(change: impl FnOnce(&mut Vec<Told>, &mut Vec<Thing>)) -> Vec<Rule> {
    let (mut log, mut there) = all_is_well();
    change(&mut log, &mut there);
    let mut rules: Vec<_> = judge(&log, &there).into_iter().map(|violation| violation.rule).collect();
    rules.dedup();
    rules
}

fn position(there: &[Thing], name: &str) -> usize {
    there.iter().position(|thing| thing.name == name).expect("a thing of that name")
}

fn named<'a>(there: &'a mut [Thing], name: &str) -> &'a mut Thing {
    let position = position(there, name);
    &mut there[position]
}

#[test]
fn a_history_in_which_all_is_well_breaks_no_rule() {
    assert_eq!(broken_by(|_, _| {}), Vec::new());
}

#[test]
fn a_key_that_says_two_things_is_seen() {
    assert_eq!(broken_by(|log, _| log[1].answer.push(' ')), [Rule::ToldAlike]);
    assert_eq!(broken_by(|log, _| log[1].status = 200), [Rule::ToldAlike]);
}

#[test]
fn what_was_done_and_is_gone_is_seen() {
    for name in ["p", "R-A"] {
        let gone = |_: &mut Vec<Told>, there: &mut Vec<Thing>| drop(there.remove(position(there, name)));
        assert_eq!(broken_by(gone), [Rule::DoneIsThere], "{name}");
    }
}

#[test]
fn a_thing_that_reads_otherwise_than_it_was_told_is_seen() {
    assert_eq!(broken_by(|_, there| named(there, "R-A").fields["amount"] = json!(3)), [Rule::ReadsAsTold]);
}

#[test]
fn an_end_that_did_not_last_is_seen() {
    assert_eq!(broken_by(|_, there| named(there, "B").standing["status"] = json!("PAID")), [Rule::EndsStay]);
    assert_eq!(broken_by(|_, there| named(there, "H").standing["charged"] = json!(31)), [Rule::EndsStay]);
}

#[test]
fn an_order_that_was_called_paid_and_is_not_is_seen() {
    for status in ["PENDING", "CLOSED"] {
        let unpaid =
            |_: &mut Vec<Told>, there: &mut Vec<Thing>| named(there, "A").standing["status"] = json!(status);
        assert_eq!(broken_by(unpaid), [Rule::PaidIsPaid], "{status}");
    }
}

#[test]
fn usage_that_was_acknowledged_and_forgotten_is_seen() {
    for units in [json!(9), Value::Null] {
        let forgotten = |log: &mut Vec<Told>, there: &mut Vec<Thing>| {
            // Nobody was told of its end.
            log.pop();
            named(there, "H").standing["units"] = units.clone();
        };
        assert_eq!(broken_by(forgotten), [Rule::UsageIsHeard], "{units}");
    }
}

#[test]
fn what_was_refused_and_is_there_is_seen() {
    let there_after_all = thing(Kind::Refund, "R-B", json!({"refund_no": "R-B"}), json!({}));
    assert_eq!(broken_by(|_, there| there.push(there_after_all)), [Rule::RefusedIsAbsent]);
}

#[test]
fn a_request_that_had_two_effects_is_seen() {
    // Asked for again because nobody had answered, it was given another number.
    let twice = |_: &mut Vec<Told>, there: &mut Vec<Thing>| {
        let mut second = named(there, "A").clone();
        second.fields["order_no"] = json!("3");
        there.push(second);
    };
    assert_eq!(broken_by(twice), [Rule::OneEffect]);
}

#[test]
fn a_thing_that_nobody_asked_for_is_seen() {
    let unasked = thing(Kind::Withdrawal, "W", json!({"withdrawal_no": "W"}), json!({}));
    assert_eq!(broken_by(|_, there| there.push(unasked)), [Rule::NothingUnasked]);
}
