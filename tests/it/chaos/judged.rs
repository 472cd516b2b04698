//! The judge is judged: a history in which all is well, and for each rule something that is not.

use serde_json::{Value, json};

use super::heard::Heard;
use super::judge::{Rule, judge};
use super::told::{CALLBACKS, Kind, Thing, Told};

struct History {
    log: Vec<Told>,
    heard: Vec<Heard>,
    there: Vec<Thing>,
}

fn told(path: &str, key: &str, body: Value, status: u16, answer: &Value) -> Told {
    let answer = answer.as_str().map_or_else(|| answer.to_string(), str::to_owned);
    Told { path: path.to_owned(), key: key.to_owned(), body, status, answer, after: 0 }
}

fn thing(kind: Kind, name: &str, fields: Value, standing: Value) -> Thing {
    Thing { kind, name: name.to_owned(), fields, standing }
}

/// An order that was paid, its link, a refund of it, and one that was refused; an order whose link was refused, and that
/// was closed.
fn orders_told() -> Vec<Told> {
    let paid = json!({"order_no": "1", "amount": 5, "status": "PENDING"});
    let asked = json!({"amount": 5, "metadata": {"mark": "A"}});
    let too_late = json!({"code": "ORDER_IS_ALREADY_PAID"});
    let link = json!({"pay_order_id": "p", "status": "PAYING"});
    let money = json!({"transaction_id": "t", "out_trade_no": "p", "total_fee": 5, "currency": "CNY"});
    let made = json!({"order_no": "2", "amount": 7});
    let no_link = json!({"code": "CHANNEL_REFUSED"});
    let closed = json!({"order_no": "2", "amount": 7, "status": "CLOSED", "close_reason": "CANCELLED"});
    let refund = json!({"refund_no": "R-A", "amount": 2});
    vec![
        told("/orders", "O-A", asked.clone(), 201, &paid),
        told("/orders", "O-A", asked, 201, &paid),
        told("/pay/url", "L-A", json!({"order_no": "1"}), 200, &link),
        told("/orders/1?wait=2", "", Value::Null, 200, &json!({"status": "PENDING"})),
        told(CALLBACKS, "", money, 200, &json!("SUCCESS")),
        told("/orders/1", "", Value::Null, 200, &json!({"status": "PAID"})),
        told("/orders/1/close", "X-A", json!({}), 409, &too_late),
        told("/refunds", "R-A", json!({"refund_no": "R-A"}), 201, &refund),
        told("/admin/refunds/R-A/approve", "", json!({}), 200, &refund),
        told(
            "/admin/refunds/R-A/reject",
            "",
            json!({}),
            409,
            &json!({"code": "REFUND_NOT_AWAITING_APPROVAL"}),
        ),
        told("/refunds", "R-B", json!({"refund_no": "R-B"}), 422, &json!({"code": "REFUND_EXCEEDS_PAID"})),
        told("/orders", "O-B", json!({"metadata": {"mark": "B"}}), 201, &made),
        told("/pay/url", "L-B", json!({"order_no": "2"}), 402, &no_link),
        told("/pay/url", "L-B", json!({"order_no": "2"}), 402, &no_link),
        told("/orders/2/close", "X-B", json!({}), 200, &closed),
    ]
}

/// A hold that is confirmed, one report of which was heard although it was refused; one of which a confirm was refused
/// before it ran out; and one that was let go.
fn usage_told() -> Vec<Told> {
    let hold = |id: &str| json!({"hold_id": id, "status": "HELD", "charged": 0});
    let wanted = |key: &str| json!({"idempotency_key": key});
    let confirmed = json!({"hold_id": "h", "status": "CONFIRMED", "charged": 30, "units": 10});
    let released = json!({"hold_id": "l", "status": "RELEASED", "charged": 0, "units": null});
    let (no_money, no_units) = (json!({"code": "INSUFFICIENT_BALANCE"}), json!({"code": "UNITS_MISSING"}));
    vec![
        told("/usage/holds", "H", wanted("H"), 201, &hold("h")),
        told("/usage/holds/h/progress", "H-1", json!({"cumulative_units": 8}), 200, &hold("h")),
        told("/usage/holds/h/progress", "H-2", json!({"cumulative_units": 9}), 422, &no_money),
        told("/usage/holds/h/confirm", "H-3", json!({"units": 10}), 200, &confirmed),
        told("/usage/holds", "K", wanted("K"), 201, &hold("k")),
        told("/usage/holds/k/confirm", "K-1", json!({}), 422, &no_units),
        told("/usage/holds", "L", wanted("L"), 201, &hold("l")),
        told("/usage/holds/l/release", "L-1", json!({}), 200, &released),
    ]
}

/// Of every end, of one twice.
fn all_heard() -> Vec<Heard> {
    let heard = |id: &str, news: &str, data: Value| Heard {
        id: id.to_owned(),
        body: json!({"type": news, "data": data}).to_string(),
        is_taken: true,
    };
    let paid = heard("1", "order.paid", json!({"order_no": "1", "pay_order_id": "p"}));
    let refund = json!({"order_no": "1", "refund_no": "R-A", "status": "SUCCEEDED"});
    vec![
        Heard { is_taken: false, ..paid.clone() },
        paid,
        heard("2", "refund.finished", refund),
        heard("3", "order.closed", json!({"order_no": "2"})),
        heard("4", "usage.charged", json!({"hold_id": "h"})),
        heard("5", "usage.hold_expired", json!({"hold_id": "k"})),
    ]
}

fn all_is_well() -> History {
    let mut log = [orders_told(), usage_told()].concat();
    for (place, told) in log.iter_mut().enumerate() {
        told.after = place;
    }
    let money = json!({"out_trade_no": "p", "total_fee": 5, "currency": "CNY"});
    let standing = |status: &str, charged: i64, units: Option<i64>| json!({"status": status, "charged": charged, "units": units});
    let there = vec![
        thing(
            Kind::Order,
            "A",
            json!({"order_no": "1", "amount": 5}),
            json!({"status": "PARTIALLY_REFUNDED", "close_reason": null}),
        ),
        thing(Kind::Attempt, "p", json!({"pay_order_id": "p"}), json!({})),
        thing(Kind::Money, "t", money, json!({})),
        thing(Kind::Refund, "R-A", json!({"refund_no": "R-A", "amount": 2}), json!({"status": "SUCCEEDED"})),
        thing(
            Kind::Order,
            "B",
            json!({"order_no": "2", "amount": 7}),
            json!({"status": "CLOSED", "close_reason": "CANCELLED"}),
        ),
        thing(Kind::Hold, "H", json!({"hold_id": "h"}), standing("CONFIRMED", 30, Some(10))),
        thing(Kind::Hold, "K", json!({"hold_id": "k"}), standing("EXPIRED", 0, None)),
        thing(Kind::Hold, "L", json!({"hold_id": "l"}), standing("RELEASED", 0, None)),
    ];
    History { log, heard: all_heard(), there }
}

impl History {
    /// The last that was told under a key, or of a look at a path.
    fn told(&mut self, key_or_path: &str) -> &mut Told {
        let is_it = |told: &&mut Told| told.key == key_or_path || told.path == key_or_path;
        self.log.iter_mut().rev().find(is_it).expect("something told")
    }

    fn forget(&mut self, key: &str) {
        self.log.retain(|told| told.key != key);
    }

    fn thing(&mut self, name: &str) -> &mut Thing {
        self.there.iter_mut().find(|thing| thing.name == name).expect("a thing of that name")
    }

    fn lose(&mut self, name: &str) {
        self.there.retain(|thing| thing.name != name);
    }

    fn stands(&mut self, name: &str, field: &str, value: Value) {
        self.thing(name).standing[field] = value;
    }
}

type Seed = (Rule, fn(&mut History));

const SEEDS: &[Seed] = &[
    (Rule::ToldAlike, |h| h.log[1].answer.push(' ')),
    (Rule::ToldAlike, |h| h.log[1].status = 200),
    // A refusal that is kept is kept like everything else, and no other one comes after it.
    (Rule::ToldAlike, |h| h.told("L-B").answer.push(' ')),
    (Rule::ToldAlike, |h| h.told("L-B").status = 409),
    (Rule::DoneIsThere, |h| h.lose("p")),
    (Rule::DoneIsThere, |h| h.lose("R-A")),
    (Rule::DoneIsThere, |h| h.told("/orders/1").status = 404),
    (Rule::ReadsAsTold, |h| h.thing("R-A").fields["amount"] = json!(3)),
    (Rule::EndsStay, |h| h.stands("B", "status", json!("PAID"))),
    (Rule::EndsStay, |h| h.stands("B", "close_reason", json!("TIMEOUT"))),
    (Rule::EndsStay, |h| h.stands("H", "charged", json!(31))),
    (Rule::OrdersGoForward, |h| h.told("/orders/1").answer = json!({"status": "REFUNDED"}).to_string()),
    (Rule::OrdersGoForward, |h| {
        h.told("/orders/1?wait=2").answer = json!({"status": "PARTIALLY_REFUNDED"}).to_string();
    }),
    (Rule::PaidIsPaid, |h| {
        h.forget("");
        h.stands("A", "status", json!("PENDING"));
    }),
    (Rule::PaidIsPaid, |h| {
        h.forget("");
        h.stands("A", "status", json!("CLOSED"));
    }),
    (Rule::AcknowledgedMoneyIsKnown, |h| h.lose("t")),
    (Rule::AcknowledgedMoneyIsKnown, |h| h.thing("t").fields["total_fee"] = json!(4)),
    (Rule::CancelledIsTold, |h| h.forget("X-B")),
    (Rule::UsageIsHeard, |h| {
        // Nobody was told of its end.
        h.forget("H-3");
        h.thing("H").standing = json!({"status": "EXPIRED", "charged": 0, "units": 8});
    }),
    (Rule::UsageIsHeard, |h| {
        h.forget("H-3");
        h.thing("H").standing = json!({"status": "EXPIRED", "charged": 0, "units": null});
    }),
    (Rule::HoldsMoveAsTold, |h| {
        h.thing("K").standing = json!({"status": "CONFIRMED", "charged": 0, "units": null});
    }),
    (Rule::HoldsMoveAsTold, |h| h.stands("K", "charged", json!(3))),
    (Rule::HoldsMoveAsTold, |h| h.stands("K", "units", json!(1))),
    (Rule::HoldsMoveAsTold, |h| h.forget("L-1")),
    // Decided otherwise, decided twice, and made all the same.
    (Rule::DecisionsStay, |h| h.stands("R-A", "failure", json!("rejected: no"))),
    (Rule::DecisionsStay, |h| h.told("/admin/refunds/R-A/reject").status = 200),
    (Rule::DecisionsStay, |h| {
        h.told("/admin/refunds/R-A/approve").status = 409;
        h.told("/admin/refunds/R-A/reject").status = 200;
        h.stands("R-A", "failure", json!("rejected: no"));
    }),
    (Rule::RefusedIsAbsent, |h| {
        h.there.push(thing(Kind::Refund, "R-B", json!({"refund_no": "R-B"}), json!({})));
    }),
    (Rule::OneEffect, |h| {
        // Asked for again because nobody had answered, it was given another number.
        let mut second = h.thing("A").clone();
        second.fields["order_no"] = json!("3");
        h.there.push(second);
    }),
    (Rule::NothingUnasked, |h| h.there.push(thing(Kind::Withdrawal, "W", json!({}), json!({})))),
    // Told under another body, under another id, and to nobody who took it.
    (Rule::HeardAlike, |h| h.heard[0].body.push(' ')),
    (Rule::HeardAlike, |h| h.heard[0].id.push('0')),
    (Rule::EndsAreHeard, |h| h.heard[1].is_taken = false),
    (Rule::EndsAreHeard, |h| drop(h.heard.pop())),
    (Rule::EndsAreHeard, |h| h.heard[2].body = h.heard[2].body.replace("SUCCEEDED", "FAILED")),
];

/// The rules that do not hold, each once.
fn broken(history: &History) -> Vec<Rule> {
    let mut rules: Vec<_> = judge(&history.log, &history.heard, &history.there)
        .into_iter()
        .map(|violation| violation.rule)
        .collect();
    rules.sort_unstable();
    rules.dedup();
    rules
}

#[test]
fn a_history_in_which_all_is_well_breaks_no_rule() {
    assert_eq!(broken(&all_is_well()), Vec::new());
}

#[test]
fn what_is_not_so_breaks_its_rule_and_no_other() {
    for (place, (rule, change)) in SEEDS.iter().enumerate() {
        let mut history = all_is_well();
        change(&mut history);
        let mut broken = broken(&history);
        // What stands elsewhere than it did is also an end that nobody heard of.
        broken.retain(|broken| broken == rule || *broken != Rule::EndsAreHeard);
        assert_eq!(broken, [*rule], "seed {place}");
    }
}

#[test]
fn every_rule_is_seen_to_be_broken() {
    for rule in Rule::ALL {
        assert!(SEEDS.iter().any(|(seeded, _)| seeded == rule), "nothing breaks {rule:?}");
    }
}

/// Two who ask at once may be answered in any order, and one of them with a refusal.
#[test]
fn what_was_asked_at_the_same_time_may_differ() {
    let mut history = all_is_well();
    history.told("L-B").status = 409;
    history.told("L-B").after = 10;
    history.told("/orders/1").answer = json!({"status": "PENDING"}).to_string();
    history.told("/orders/1?wait=2").answer = json!({"status": "PAID"}).to_string();
    history.told("/orders/1").after = 3;
    let later = told("/settlements", "S-1", json!({"order_no": "1"}), 409, &json!({}));
    history.log.push(later.clone());
    history.log.push(Told {
        status: 201,
        answer: json!({"order_no": "1"}).to_string(),
        key: "S-2".to_owned(),
        ..later
    });
    history.there.push(thing(Kind::Settlement, "1", json!({"order_no": "1"}), json!({})));
    let settled = json!({"type": "order.settled", "data": {"order_no": "1"}}).to_string();
    history.heard.push(Heard { id: "6".to_owned(), body: settled, is_taken: true });
    assert_eq!(broken(&history), Vec::new());
}
