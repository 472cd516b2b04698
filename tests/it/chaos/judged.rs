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

/// An order that was paid, its link, its settlement, a refund of it, and one that was refused; an order whose link was
/// refused, and that was closed; and a withdrawal.
fn orders_told() -> Vec<Told> {
    let paid = json!({"order_no": "1", "amount": 5, "status": "PENDING"});
    let asked = json!({"amount": 5, "metadata": {"mark": "A"}});
    let too_late = json!({"code": "ORDER_IS_ALREADY_PAID"});
    let link = json!({"pay_order_id": "p", "order_no": "1", "status": "PAYING"});
    let money = json!({"transaction_id": "t", "out_trade_no": "p", "total_fee": 5, "currency": "CNY"});
    let made = json!({"order_no": "2", "amount": 7});
    let wanted = json!({"order_no": "2", "payer_id": "u"});
    let no_link = json!({"code": "CHANNEL_REFUSED", "channel_code": "NO"});
    let closed = json!({"order_no": "2", "amount": 7, "status": "CLOSED", "close_reason": "CANCELLED"});
    let refund = json!({"refund_no": "R-A", "order_no": "1", "amount": 2});
    vec![
        told("/orders", "O-A", asked.clone(), 201, &paid),
        told("/orders", "O-A", asked, 201, &paid),
        told("/pay/url", "L-A", json!({"order_no": "1", "payer_id": "u"}), 200, &link),
        told("/orders/1?wait=2", "", Value::Null, 200, &json!({"status": "PENDING"})),
        told(CALLBACKS, "", money, 200, &json!("SUCCESS")),
        told("/orders/1", "", Value::Null, 200, &json!({"status": "PAID"})),
        told("/orders/1/close", "X-A", json!({}), 409, &too_late),
        told(
            "/settlements",
            "S-A",
            json!({"order_no": "1"}),
            201,
            &json!({"order_no": "1", "commission": 3}),
        ),
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
        told("/pay/url", "L-B", wanted.clone(), 402, &no_link),
        told("/pay/url", "L-B", wanted, 402, &no_link),
        told("/orders/2/close", "X-B", json!({}), 200, &closed),
        told(
            "/withdrawals",
            "W",
            json!({"withdrawal_no": "W"}),
            201,
            &json!({"withdrawal_no": "W", "amount": 4}),
        ),
    ]
}

/// A hold that is confirmed, one report of which was heard although it was refused; one of which a confirm was refused
/// before it ran out, and a report heard behind that; and one that was let go.
fn usage_told() -> Vec<Told> {
    let hold = |id: &str| json!({"hold_id": id, "status": "HELD", "charged": 0});
    let wanted = |key: &str| json!({"idempotency_key": key});
    let confirmed = json!({"hold_id": "h", "status": "CONFIRMED", "charged": 30, "units": 10, "late": false});
    let released = json!({"hold_id": "l", "status": "RELEASED", "charged": 0, "units": null, "late": false});
    let code = |code: &str| json!({"code": code});
    let (no_money, no_units, over) =
        (code("INSUFFICIENT_BALANCE"), code("UNITS_MISSING"), code("HOLD_CLOSED"));
    vec![
        told("/usage/holds", "H", wanted("H"), 201, &hold("h")),
        told("/usage/holds/h/progress", "H-1", json!({"cumulative_units": 8}), 200, &hold("h")),
        told("/usage/holds/h/progress", "H-2", json!({"cumulative_units": 9}), 422, &no_money),
        told("/usage/holds/h/confirm", "H-3", json!({"units": 10}), 200, &confirmed),
        told("/usage/holds", "K", wanted("K"), 201, &hold("k")),
        told("/usage/holds/k/confirm", "K-1", json!({}), 422, &no_units),
        told("/usage/holds/k/progress", "K-2", json!({"cumulative_units": 4}), 409, &over),
        told("/usage/holds", "L", wanted("L"), 201, &hold("l")),
        told("/usage/holds/l/release", "L-1", json!({}), 200, &released),
    ]
}

/// Of every end, of one twice.
fn all_heard() -> Vec<Heard> {
    let heard = |(place, (news, data)): (usize, (&str, Value))| Heard {
        id: place.to_string(),
        body: json!({"type": news, "data": data}).to_string(),
        is_taken: true,
    };
    let news = [
        ("order.paid", json!({"order_no": "1", "amount": 5, "pay_order_id": "p", "transaction_id": "t"})),
        (
            "refund.finished",
            json!({"order_no": "1", "refund_no": "R-A", "status": "SUCCEEDED", "amount": 2, "refund_id": "rf", "pay_order_id": "p"}),
        ),
        ("order.closed", json!({"order_no": "2", "close_reason": "CANCELLED"})),
        ("usage.charged", json!({"hold_id": "h", "charged": 30, "units": 10, "late": false})),
        ("usage.hold_expired", json!({"hold_id": "k"})),
        ("order.settled", json!({"order_no": "1", "commission": 3})),
        (
            "settlement.clawed_back",
            json!({"order_no": "1", "commission": 3, "amount": 2, "clawed_back": 2, "reference": "rf"}),
        ),
        (
            "stray_payment.received",
            json!({"order_no": "1", "stray_id": "s", "amount": 6, "transaction_id": "u"}),
        ),
        (
            "refund.finished",
            json!({"order_no": "1", "refund_no": "back", "status": "FAILED", "amount": 6, "failure": "no", "stray_id": "s"}),
        ),
        (
            "withdrawal.finished",
            json!({"withdrawal_no": "W", "status": "REVERSED", "amount": 4, "failure": "no"}),
        ),
    ];
    let mut heard: Vec<_> = news.into_iter().enumerate().map(heard).collect();
    heard.insert(0, Heard { is_taken: false, ..heard[0].clone() });
    heard
}

/// What became of the orders, and of the money that one of them does not accept.
fn orders_there() -> Vec<Thing> {
    let order = |number: &str, amount: i64| json!({"order_no": number, "amount": amount});
    let attempt = |id: &str, order_no: &str| json!({"pay_order_id": id, "order_no": order_no});
    let money = |total_fee: i64| json!({"out_trade_no": "p", "total_fee": total_fee, "currency": "CNY"});
    let refund = |number: &str, amount: i64| json!({"refund_no": number, "order_no": "1", "amount": amount});
    let stands = |status: &str, more: Value| {
        let mut standing = json!({"status": status});
        standing.as_object_mut().expect("fields").extend(more.as_object().cloned().unwrap_or_default());
        standing
    };
    let paid = json!({"close_reason": null, "paid_by": "p"});
    let closed = json!({"close_reason": "CANCELLED", "paid_by": null});
    let refused = json!({"payer_id": "u", "channel_code": "NO", "trade": null});
    vec![
        thing(Kind::Order, "A", order("1", 5), stands("PARTIALLY_REFUNDED", paid)),
        thing(
            Kind::Attempt,
            "p",
            attempt("p", "1"),
            stands("PAID", json!({"payer_id": "u", "trade": "PAID"})),
        ),
        thing(Kind::Money, "t", money(5), json!({})),
        thing(
            Kind::Settlement,
            "1",
            json!({"order_no": "1", "commission": 3}),
            stands("SETTLED", json!({"clawed_back": 2})),
        ),
        thing(
            Kind::Refund,
            "R-A",
            refund("R-A", 2),
            stands("SUCCEEDED", json!({"refund_id": "rf", "pay_order_id": "p"})),
        ),
        thing(Kind::Order, "B", order("2", 7), stands("CLOSED", closed)),
        thing(Kind::Attempt, "q", attempt("q", "2"), stands("FAILED", refused)),
        thing(Kind::Money, "u", money(6), json!({})),
        thing(
            Kind::Stray,
            "s",
            json!({"stray_id": "s", "order_no": "1", "amount": 6}),
            stands("HELD", json!({"transaction_id": "u"})),
        ),
        thing(
            Kind::WayBack,
            "back",
            refund("back", 6),
            stands("FAILED", json!({"failure": "no", "stray_id": "s"})),
        ),
    ]
}

fn all_is_well() -> History {
    let mut log = [orders_told(), usage_told()].concat();
    for (place, told) in log.iter_mut().enumerate() {
        told.after = place;
    }
    let standing = |status: &str, charged: i64, units: Option<i64>| json!({"status": status, "charged": charged, "units": units, "late": false});
    let mut there = orders_there();
    there.extend([
        thing(
            Kind::Withdrawal,
            "W",
            json!({"withdrawal_no": "W", "amount": 4}),
            json!({"status": "REVERSED", "failure": "no"}),
        ),
        thing(Kind::Hold, "H", json!({"hold_id": "h"}), standing("CONFIRMED", 30, Some(10))),
        thing(Kind::Hold, "K", json!({"hold_id": "k"}), standing("EXPIRED", 0, Some(4))),
        thing(Kind::Hold, "L", json!({"hold_id": "l"}), standing("RELEASED", 0, None)),
    ]);
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

    /// A second thing, which is like the first but for its name.
    fn one_like(&mut self, first: &str, name: &str) -> &mut Thing {
        let second = Thing { name: name.to_owned(), ..self.thing(first).clone() };
        self.there.push(second);
        self.thing(name)
    }

    fn lose(&mut self, name: &str) {
        self.there.retain(|thing| thing.name != name);
    }

    fn stands(&mut self, name: &str, field: &str, value: Value) {
        self.thing(name).standing[field] = value;
    }

    /// The first news of that kind says something else, however often it came.
    fn says(&mut self, news: &str, field: &str, value: &Value) {
        let is_it = |one: &&Heard| one.told()["type"] == news;
        let id = self.heard.iter().find(is_it).expect("such news").id.clone();
        for one in self.heard.iter_mut().filter(|one| one.id == id) {
            let mut told = one.told();
            told["data"][field] = value.clone();
            one.body = told.to_string();
        }
    }

    /// News come besides.
    fn hears(&mut self, news: &str, data: &Value) {
        let body = json!({"type": news, "data": data}).to_string();
        self.heard.push(Heard { id: "more".to_owned(), body, is_taken: true });
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
    (Rule::UsageIsHeard, |h| h.stands("K", "units", json!(3))),
    (Rule::HoldsMoveAsTold, |h| {
        h.thing("K").standing = json!({"status": "CONFIRMED", "charged": 0, "units": 4});
    }),
    (Rule::HoldsMoveAsTold, |h| h.stands("K", "charged", json!(3))),
    (Rule::HoldsMoveAsTold, |h| h.stands("K", "units", json!(5))),
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
    (Rule::NothingUnasked, |h| h.there.push(thing(Kind::Withdrawal, "X", json!({}), json!({})))),
    // Nobody who pays so ever asked for a link.
    (Rule::NothingUnasked, |h| h.one_like("q", "r").standing["payer_id"] = json!("another")),
    // Told under another body, under another id, and to nobody who took it.
    (Rule::HeardAlike, |h| h.heard[0].body.push(' ')),
    (Rule::HeardAlike, |h| h.heard[0].id.push('0')),
    (Rule::EndsAreHeard, |h| h.heard[1].is_taken = false),
    (Rule::EndsAreHeard, |h| drop(h.heard.pop())),
    (Rule::EndsAreHeard, |h| h.heard.retain(|one| !one.body.contains("stray_id"))),
    // Of what is there, otherwise than it stands.
    (Rule::HeardIsTrue, |h| h.hears("order.closed", &json!({"order_no": "1", "close_reason": null}))),
    (Rule::HeardIsTrue, |h| {
        h.hears(
            "order.paid",
            &json!({"order_no": "2", "amount": 7, "pay_order_id": null, "transaction_id": "t"}),
        );
    }),
    (Rule::HeardIsTrue, |h| h.hears("usage.charged", &json!({"hold_id": "l", "charged": 0, "late": false}))),
    (Rule::HeardIsTrue, |h| h.hears("usage.hold_expired", &json!({"hold_id": "h", "units": 8}))),
    (Rule::HeardIsTrue, |h| h.hears("usage.hold_exhausted", &json!({"hold_id": "h", "units": 11}))),
    (Rule::HeardIsTrue, |h| h.says("refund.finished", "status", &json!("FAILED"))),
    (Rule::HeardIsTrue, |h| h.says("withdrawal.finished", "status", &json!("SUCCEEDED"))),
    (Rule::HeardIsTrue, |h| h.says("order.closed", "close_reason", &json!("TIMEOUT"))),
    // Of more or less, or of other money.
    (Rule::HeardIsTrue, |h| h.says("order.paid", "amount", &json!(6))),
    (Rule::HeardIsTrue, |h| h.says("order.paid", "currency", &json!("USD"))),
    (Rule::HeardIsTrue, |h| h.says("order.paid", "pay_order_id", &json!("q"))),
    (Rule::HeardIsTrue, |h| h.says("order.paid", "transaction_id", &json!("v"))),
    (Rule::HeardIsTrue, |h| {
        h.thing("u").fields["out_trade_no"] = json!("q");
        h.says("order.paid", "transaction_id", &json!("u"));
    }),
    (Rule::HeardIsTrue, |h| h.says("order.settled", "commission", &json!(4))),
    (Rule::HeardIsTrue, |h| h.says("stray_payment.received", "amount", &json!(5))),
    (Rule::HeardIsTrue, |h| h.says("stray_payment.received", "transaction_id", &json!("t"))),
    (Rule::HeardIsTrue, |h| h.says("refund.finished", "pay_order_id", &json!("q"))),
    (Rule::HeardIsTrue, |h| h.says("refund.finished", "stray_id", &json!("another"))),
    (Rule::HeardIsTrue, |h| h.says("usage.charged", "units", &json!(9))),
    (Rule::HeardIsTrue, |h| h.says("usage.hold_expired", "units", &json!(5))),
    // Of a claw-back that no refund explains, of another one, and of a part of it.
    (Rule::HeardIsTrue, |h| h.says("settlement.clawed_back", "reference", &json!("another"))),
    (Rule::HeardIsTrue, |h| h.stands("R-A", "refund_id", json!("another"))),
    (Rule::HeardIsTrue, |h| h.says("settlement.clawed_back", "amount", &json!(1))),
    (Rule::HeardIsTrue, |h| h.stands("1", "clawed_back", json!(3))),
    // Of nothing that is there, or that there can be.
    (Rule::HeardIsTrue, |h| h.says("order.closed", "order_no", &json!("3"))),
    (Rule::HeardIsTrue, |h| h.hears("refund.finished", &json!({"refund_no": "R-B", "status": "FAILED"}))),
    (Rule::HeardIsTrue, |h| h.lose("s")),
    (Rule::HeardIsTrue, |h| h.lose("back")),
    (Rule::HeardIsTrue, |h| {
        h.hears("refund.reversed", &json!({"order_no": "1", "refund_no": "R-A", "amount": 2}));
    }),
    // Live, or to be paid by still, or paid by nothing.
    (Rule::AttemptsEnd, |h| h.stands("p", "status", json!("PAYING"))),
    (Rule::AttemptsEnd, |h| h.one_like("q", "r").standing["status"] = json!("INIT")),
    (Rule::AttemptsEnd, |h| h.stands("q", "trade", json!("OPEN"))),
    (Rule::AttemptsEnd, |h| h.stands("q", "status", json!("PAID"))),
    // Ended otherwise, for another reason, for somebody else, or given away after all.
    (Rule::RefusedForGood, |h| h.lose("q")),
    (Rule::RefusedForGood, |h| h.stands("q", "status", json!("CLOSED"))),
    (Rule::RefusedForGood, |h| h.stands("q", "channel_code", json!("BUSY"))),
    (Rule::RefusedForGood, |h| h.told("L-B").body["payer_id"] = json!("another")),
    (Rule::RefusedForGood, |h| {
        let link = json!({"pay_order_id": "q", "order_no": "2"});
        h.log.push(told("/pay/url", "L-C", json!({"order_no": "2", "payer_id": "u"}), 200, &link));
    }),
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
        // What stands elsewhere than it did is also an end that nobody heard of, and what was heard is not so.
        broken.retain(|broken| broken == rule || !matches!(broken, Rule::EndsAreHeard | Rule::HeardIsTrue));
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
    history.log.push(told("/settlements", "S-1", json!({"order_no": "1"}), 409, &json!({})));
    assert_eq!(broken(&history), Vec::new());
}
