//! A refund that failed here and that its channel made after all: it stands failed, a person is shown that, and the same money
//! goes back no second time, until the channel takes it back.

use payonce::channels::sandbox::{FaultKind, FaultOp};
use serde_json::{Value, json};

use crate::support::refunding::told_of_refund;
use crate::support::{Reply, TestApp, minutes, seconds};

mod booked;
mod unapproved;

/// A refund of so much of a new order of 1,990 that its channel refused and then made after all, as it tells us: its id, and
/// the pay order that it gives back.
async fn made_after_all(app: &TestApp, number: &str, amount: i64) -> (String, String) {
    let attempt = app.paid(number).await;
    let refund_id = app.refused_refund(number, number, amount).await;
    app.sandbox_makes_after_all(&refund_id, &attempt).await;
    let event = format!("made-{number}");
    app.tell_refund(&event, &refund_id, &attempt, amount, "SUCCEEDED").await;
    assert_eq!(app.verdict_of(&event).await.as_deref(), Some("RECORDED"));
    assert_is_shown(app, &refund_id).await;
    (refund_id, attempt)
}

/// It stands failed, and a person is shown that it was made.
async fn assert_is_shown(app: &TestApp, refund_id: &str) {
    let shown = app.open_exception().await;
    assert_eq!((&shown["kind"], &shown["subject"]), (&json!("CONTRADICTION"), &json!(refund_id)));
    let detail = shown["detail"].as_str().expect("text");
    assert!(detail.contains("made it after all: it has gone back"), "{detail}");
    let seen = seen_by_operators(app, refund_id).await;
    assert_eq!(seen["status"], "FAILED");
    assert!(seen["made_after_all_at"].is_string(), "{seen}");
}

async fn seen_by_operators(app: &TestApp, refund_id: &str) -> Value {
    let page = app.admin_get("/admin/refunds?limit=100").await.expect(200).body;
    let found = page["data"].as_array().expect("a page").iter().find(|one| one["refund_id"] == refund_id);
    found.expect("a refund").clone()
}

async fn ask(app: &TestApp, refund_no: &str, order_no: &str, amount: i64) -> Reply {
    app.post("/refunds", json!({"refund_no": refund_no, "order_no": order_no, "amount": amount})).await
}

async fn approve(app: &TestApp, refund_no: &str) -> Reply {
    let path = format!("/admin/refunds/{refund_no}/approve");
    app.admin_post(&path, json!({"reason": "the story wants it"})).await
}

/// So much more is refused, and the answer says what is left and why.
async fn assert_exceeds(app: &TestApp, order_no: &str, amount: i64, said: &str) {
    let refused = ask(app, "TOO-MUCH", order_no, amount).await;
    assert_eq!(refused.problem(422), "REFUND_EXCEEDS_PAID");
    assert_eq!(refused.text_of("detail"), format!("{said}; nothing was done"));
}

#[tokio::test]
async fn the_same_money_goes_back_no_second_time_until_the_channel_takes_it_back() {
    let app = TestApp::start().await;
    let (refund_id, attempt) = made_after_all(&app, "A", 1_200).await;
    assert_eq!(app.refunded("A").await, ("PAID".to_owned(), 0), "the order does not move");
    let left = "790 minor units are left of what was paid: refunds of 1200 that did not succeed were made after all, or may have been";
    assert_exceeds(&app, "A", 1_200, left).await;
    // Whether or not a person has seen it; and what was told before it was made is heard late.
    app.resolve(&app.open_exception().await, "NONE").await.expect(200);
    app.tell_refund("late", &refund_id, &attempt, 1_200, "FAILED").await;
    assert_eq!(app.verdict_of("late").await.as_deref(), Some("RECORDED"));
    assert_exceeds(&app, "A", 791, left).await;

    let rest = app.post("/refunds", json!({"refund_no": "R2", "order_no": "A"})).await.expect(201);
    assert_eq!(rest.body["amount"], 790);
    app.run_until_idle().await;
    assert_eq!(app.refunded("A").await, ("PARTIALLY_REFUNDED".to_owned(), 790));
    assert_eq!(app.gone_back(&attempt).await, 1_990);
    app.assert_books_balance().await;

    for event in ["back", "back once more"] {
        app.take_refund_back(event, &refund_id, &attempt, 1_200).await;
        assert_eq!(app.verdict_of(event).await.as_deref(), Some("APPLIED"));
    }
    assert_eq!(seen_by_operators(&app, &refund_id).await["made_after_all_at"], Value::Null);
    assert!(app.exceptions("status=OPEN").await.is_empty());
    // The merchant was told once that it was made after all, and once that it was taken back.
    for event in ["refund.made_after_all", "refund.reversed"] {
        assert_eq!(app.count_where("outbox", &format!("event = '{event}'")).await, 1, "{event}");
    }
    let undone = format!(
        "event = 'refund.reversed' AND payload ->> 'was' = 'MADE_AFTER_ALL' AND payload ->> 'refund_id' = '{refund_id}'"
    );
    assert_eq!(app.count_where("outbox", &undone).await, 1);
    ask(&app, "R3", "A", 1_200).await.expect(201);
    app.run_until_idle().await;
    assert_eq!(app.refunded("A").await, ("REFUNDED".to_owned(), 1_990));
    assert_eq!(app.gone_back(&attempt).await, 1_990);
    app.assert_books_agree_both_ways().await;
    app.end().await;
}

#[tokio::test]
async fn a_failure_that_is_told_of_it_while_its_channel_cannot_be_asked_is_asked_about_by_a_task() {
    let app = TestApp::start().await;
    for (number, is_taken_back) in [("T", true), ("W", false)] {
        let (refund_id, attempt) = made_after_all(&app, number, 990).await;
        let failure = told_of_refund(&format!("no-{number}"), (&refund_id, &attempt), 990, "FAILED");
        app.tell_in_vain(&failure).await;
        let waiting = "action = 'QUERY_REFUND' AND status = 'READY'";
        assert_eq!(app.count_where("compensations", waiting).await, 1);
        assert_is_shown(&app, &refund_id).await;
        if is_taken_back {
            app.sandbox_takes_back(&refund_id).await;
        }
        // It never comes again.
        app.run_until_idle().await;
        assert_eq!(app.count_where("compensations", waiting).await, 0);
        if is_taken_back {
            let seen = seen_by_operators(&app, &refund_id).await;
            assert_eq!(
                (&seen["status"], &seen["made_after_all_at"]),
                (&json!("FAILED"), &Value::Null),
                "{number}"
            );
            assert!(app.exceptions("status=OPEN").await.is_empty(), "it is answered");
            ask(&app, "R", number, 1_990).await.expect(201);
            app.run_until_idle().await;
            assert_eq!(app.refunded(number).await, ("REFUNDED".to_owned(), 1_990));
        } else {
            assert_is_shown(&app, &refund_id).await;
            let left = "1000 minor units are left of what was paid: refunds of 990 that did not succeed were made after all, or may have been";
            assert_exceeds(&app, number, 1_001, left).await;
        }
    }
    app.end().await;
}

#[tokio::test]
async fn whoever_has_seen_to_it_has_the_channel_asked_once_more() {
    let app = TestApp::start().await;
    for (number, is_taken_back) in [("T", true), ("W", false)] {
        let (refund_id, _) = made_after_all(&app, number, 990).await;
        if is_taken_back {
            app.sandbox_takes_back(&refund_id).await;
        }
        app.resolve(&app.open_exception().await, "NONE").await.expect(200);
        app.run_until_idle().await;
        let seen = seen_by_operators(&app, &refund_id).await;
        assert_eq!(seen["made_after_all_at"].is_null(), is_taken_back, "{seen}");
        assert!(app.exceptions("status=OPEN").await.is_empty(), "what a person has seen is not told again");
    }
    ask(&app, "R", "T", 1_990).await.expect(201);
    app.run_until_idle().await;
    assert_eq!(app.refunded("T").await, ("REFUNDED".to_owned(), 1_990));
    app.assert_books_balance().await;
    app.end().await;
}

/// Late money whose refund its channel refused, and its pay order: the refund's id, and that of the pay order.
async fn refused_stray(app: &TestApp, order_no: &str) -> (String, String) {
    app.fault(FaultOp::Refund, FaultKind::Refuse, 1, None).await;
    let attempt = app.late_money(order_no).await;
    app.run_until_idle().await;
    let order = app.find_order(order_no).await;
    assert_eq!(order["stray_payments"][0]["status"], "HELD");
    (order["refunds"][0]["refund_no"].as_str().expect("a number").to_owned(), attempt)
}

/// The open exception of that kind.
async fn open_of(app: &TestApp, kind: &str) -> Value {
    let open = app.exceptions("status=OPEN").await;
    open.iter().find(|one| one["kind"] == kind).unwrap_or_else(|| panic!("{kind}: {open:#?}")).clone()
}

/// Whoever decides over it is told that it is gone.
async fn assert_undecidable(app: &TestApp) {
    let open = open_of(app, "STRAY_MONEY").await;
    for action in ["REFUND", "KEEP"] {
        assert_eq!(app.resolve(&open, action).await.problem(409), "MONEY_WENT_BACK", "{action}");
    }
    assert_eq!(app.stray().await["status"], "HELD");
}

#[tokio::test]
async fn stray_money_that_went_back_after_all_is_neither_refunded_nor_kept_until_the_channel_takes_it_back() {
    let app = TestApp::start().await;
    let (refund_id, attempt) = refused_stray(&app, "S1").await;
    app.sandbox_makes_after_all(&refund_id, &attempt).await;
    app.tell_refund("made", &refund_id, &attempt, 1_990, "SUCCEEDED").await;
    assert_undecidable(&app).await;
    assert_eq!(app.count("refunds").await, 1, "no other goes out");
    for kind in ["STRAY_MONEY", "CONTRADICTION"] {
        app.resolve(&open_of(&app, kind).await, "NONE").await.expect(200);
    }
    // Nobody need be shown it any more.
    app.clock.advance(minutes(60));
    app.run_until_idle().await;
    assert_eq!(app.stray().await["status"], "HELD");
    let risk = app.admin_get("/admin/audit").await.expect(200).body["money_at_risk"].clone();
    assert_eq!(risk, json!([{"currency": "CNY", "amount": 0}]), "it has come to rest");
    app.assert_books_balance().await;

    app.take_refund_back("back", &refund_id, &attempt, 1_990).await;
    let again = app.open_exception().await;
    assert_eq!((&again["kind"], &again["order_no"]), (&json!("STRAY_MONEY"), &json!("S1")));
    app.resolve(&again, "REFUND").await.expect(200);
    app.run_until_idle().await;
    assert_eq!(app.stray().await["status"], "REFUNDED");
    assert_eq!(app.sandbox_books().await, (1_990, 1_990));
    app.assert_books_agree_both_ways().await;
    app.end().await;
}

/// An answer that it may have been made after all, of a refund whose channel cannot be asked just now.
async fn may_be_made(app: &TestApp, refund_id: &str, attempt: &str, amount: i64) {
    let event = format!("perhaps-{refund_id}");
    app.tell_in_vain(&told_of_refund(&event, (refund_id, attempt), amount, "SUCCEEDED")).await;
}

#[tokio::test]
async fn what_a_channel_tells_of_and_knows_nothing_of_has_gone() {
    let app = TestApp::start().await;
    let attempt = app.paid("A").await;
    let refund_id = app.refused_refund("R", "A", 1_200).await;
    app.tell_refund("told", &refund_id, &attempt, 1_200, "SUCCEEDED").await;
    assert_is_shown(&app, &refund_id).await;
    app.resolve(&app.open_exception().await, "NONE").await.expect(200);
    let left = "790 minor units are left of what was paid: refunds of 1200 that did not succeed were made after all, or may \
                have been";
    assert_exceeds(&app, "A", 1_200, left).await;
    app.end().await;
}

#[tokio::test]
async fn what_was_told_to_have_failed_and_stands_made_at_its_channel_goes_back_no_second_time() {
    let app = TestApp::start().await;
    for (number, is_asked) in [("Q", true), ("C", false)] {
        let attempt = app.paid(number).await;
        ask(&app, number, number, 1_200).await.expect(201);
        app.run_until_idle().await;
        let refund_id = app.refund_id(number).await;
        // Its channel has no books of it for a while, and says that it failed.
        app.sql(&format!(
            "DELETE FROM sandbox.refunds WHERE refund_id = '{refund_id}';
             UPDATE sandbox.payments SET refunded_amount = 0 WHERE pay_order_id = '{attempt}'"
        ))
        .await;
        app.tell_refund(&format!("no-{number}"), &refund_id, &attempt, 1_200, "FAILED").await;
        assert_eq!(app.find_refund(number).await["status"], "FAILED");
        assert_eq!(app.refunded(number).await, ("PAID".to_owned(), 0));

        if is_asked {
            app.sandbox_makes_after_all(&refund_id, &attempt).await;
        }
        app.tell_refund(&format!("yes-{number}"), &refund_id, &attempt, 1_200, "SUCCEEDED").await;
        assert_is_shown(&app, &refund_id).await;
        let left = "790 minor units are left of what was paid: refunds of 1200 that did not succeed were made after all, or may \
                    have been";
        assert_exceeds(&app, number, 1_200, left).await;
        app.resolve(&app.open_exception().await, "NONE").await.expect(200);
    }
    app.assert_books_balance().await;
    app.end().await;
}

/// CNY at risk.
async fn at_risk(app: &TestApp) -> i64 {
    let overview = app.admin_get("/admin/overview").await.expect(200).body;
    overview["money_at_risk"][0]["amount"].as_i64().expect("an amount")
}

#[tokio::test]
async fn what_may_have_been_made_after_all_goes_back_no_second_time_until_its_channel_or_a_person_answers() {
    let app = TestApp::start().await;
    let left = "790 minor units are left of what was paid: refunds of 1200 that did not succeed were made after all, or may \
                have been";
    for (number, is_made) in [("P", true), ("Q", false)] {
        let attempt = app.paid(number).await;
        let refund_id = app.refused_refund(number, number, 1_200).await;
        if is_made {
            app.sandbox_makes_after_all(&refund_id, &attempt).await;
        }
        may_be_made(&app, &refund_id, &attempt, 1_200).await;
        assert_exceeds(&app, number, 1_200, left).await;
        assert_eq!(at_risk(&app).await, 1_200);
        app.run_until_idle().await;
        if is_made {
            assert_is_shown(&app, &refund_id).await;
            assert_exceeds(&app, number, 1_200, left).await;
            app.resolve(&app.open_exception().await, "NONE").await.expect(200);
            assert_exceeds(&app, number, 1_200, left).await;
        } else {
            // The channel knows of none, which is no answer.
            assert_exceeds(&app, number, 1_200, left).await;
            app.resolve(&app.open_exception().await, "NONE").await.expect(200);
            ask(&app, "AGAIN", number, 1_200).await.expect(201);
            app.run_until_idle().await;
            assert_eq!(app.refunded(number).await, ("PARTIALLY_REFUNDED".to_owned(), 1_200));
        }
        assert_eq!(at_risk(&app).await, 0);
    }
    app.end().await;
}

/// Settles all that is paid, and says how many orders that were, and how many were left out.
async fn settled_by_a_run(app: &TestApp) -> (u64, u64) {
    app.clock.advance(seconds(1));
    let run_id = app.begin_settling(0).await;
    app.run_until_idle().await;
    let run = app.settlement_run(&run_id).await;
    (run["settled"].as_u64().expect("a number"), run["skipped"].as_u64().expect("a number"))
}

#[tokio::test]
async fn what_went_back_after_all_earns_nobody_a_commission_until_the_channel_takes_it_back() {
    let app = TestApp::start().await;
    app.rebate_rule(None, "0.05").await;
    let (refund_id, attempt) = made_after_all(&app, "A", 1_200).await;
    let perhaps = app.paid("B").await;
    let in_doubt = app.refused_refund("B", "B", 1_200).await;
    may_be_made(&app, &in_doubt, &perhaps, 1_200).await;
    for order_no in ["A", "B"] {
        let refused = app.settle(order_no).await;
        assert_eq!(refused.problem(409), "ORDER_NOT_SETTLEABLE");
        let detail =
            "a refund of it that did not succeed was made after all, or may have been; nothing was moved";
        assert_eq!(refused.text_of("detail"), detail);
    }
    assert_eq!(settled_by_a_run(&app).await, (0, 2), "nor does a run, which says so");

    app.take_refund_back("back", &refund_id, &attempt, 1_200).await;
    // The channel knows of none; a person has looked.
    app.run_until_idle().await;
    app.resolve(&app.open_exception().await, "NONE").await.expect(200);
    assert_eq!(app.settle("A").await.expect(201).body["commission"], 99);
    assert_eq!(settled_by_a_run(&app).await, (1, 0));
    app.assert_books_balance().await;
    app.end().await;
}

#[tokio::test]
async fn stray_money_that_may_have_gone_back_is_decided_over_when_its_channel_has_answered() {
    let app = TestApp::start().await;
    let (refund_id, attempt) = refused_stray(&app, "S3").await;
    app.sandbox_makes_after_all(&refund_id, &attempt).await;
    may_be_made(&app, &refund_id, &attempt, 1_990).await;
    let open = open_of(&app, "STRAY_MONEY").await;
    for action in ["REFUND", "KEEP", "NONE"] {
        assert_eq!(app.resolve(&open, action).await.problem(409), "MONEY_MAY_HAVE_GONE", "{action}");
    }
    app.run_until_idle().await;
    assert_undecidable(&app).await;
    assert_eq!(
        (app.count("refunds").await, app.sandbox_books().await),
        (1, (1_990, 1_990)),
        "it went back once"
    );
    app.end().await;
}

#[tokio::test]
async fn stray_money_that_had_gone_back_before_a_person_had_it_refunded_again_is_theirs_to_decide_over_no_more()
 {
    let app = TestApp::start().await;
    let (refund_id, attempt) = refused_stray(&app, "S2").await;
    app.sandbox_makes_after_all(&refund_id, &attempt).await;
    // Nobody has told us yet; the channel has nothing left to give back.
    app.resolve(&app.open_exception().await, "REFUND").await.expect(200);
    app.run_until_idle().await;
    assert_eq!(app.stray().await["status"], "HELD");
    app.tell_refund("made", &refund_id, &attempt, 1_990, "SUCCEEDED").await;
    assert_undecidable(&app).await;
    assert_eq!(app.sandbox_books().await, (1_990, 1_990), "it went back once");
    app.end().await;
}

#[tokio::test]
async fn stray_money_that_is_back_and_may_have_come_to_nothing_is_at_risk() {
    let app = TestApp::start().await;
    let attempt = app.late_money("S5").await;
    app.run_until_idle().await;
    assert_eq!(app.stray().await["status"], "REFUNDED");
    let order = app.find_order("S5").await;
    let refund_id = order["refunds"][0]["refund_no"].as_str().expect("a number").to_owned();
    let failed = told_of_refund("failed", (&refund_id, &attempt), 1_990, "FAILED");
    app.tell_in_vain(&failed).await;
    assert_eq!(at_risk(&app).await, 1_990);
    app.deliver(&failed).await;
    let overview = app.admin_get("/admin/overview").await.expect(200).body;
    assert_eq!(overview["money_at_risk"], json!([{"currency": "CNY", "amount": 0}]), "it stands");
    app.assert_books_agree_both_ways().await;
    app.end().await;
}
