//! What users owe is collected or written off by an operator's word, once for each number, and nobody is taken more from than
//! they owe and have.

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::commands::{environment, errors, json_of, run};
use crate::support::books::sides;
use crate::support::metering::hold;
use crate::support::{Reply, TestApp};

mod list;

const COLLECT: &str = "/admin/receivables/collect";
const WRITE_OFF: &str = "/admin/receivables/write-off";

/// Leaves a user with nothing and owing so many CNY for usage; gives the hold.
async fn owing(app: &TestApp, user_id: &str, owed: i64) -> String {
    app.top_up(&format!("T-{user_id}"), user_id, 100).await;
    app.tokens("1").await;
    let hold_id = app.held(&format!("k-{user_id}"), user_id, 100).await;
    app.confirm(&hold_id, Some(100 + owed)).await.expect(200);
    hold_id
}

/// What clears so much of a user's debt; all of it for nothing.
fn clearing(clearing_no: &str, user_id: &str, amount: Option<i64>) -> Value {
    let mut body = json!({"merchant_id": "demo", "user_id": user_id, "currency": "CNY", "clearing_no": clearing_no,
                          "reason": "the story wants it"});
    if let Some(amount) = amount {
        body["amount"] = json!(amount);
    }
    body
}

async fn collect(app: &TestApp, clearing_no: &str, user_id: &str, amount: Option<i64>) -> Reply {
    app.admin_post(COLLECT, clearing(clearing_no, user_id, amount)).await
}

async fn write_off(app: &TestApp, clearing_no: &str, user_id: &str, amount: Option<i64>) -> Reply {
    app.admin_post(WRITE_OFF, clearing(clearing_no, user_id, amount)).await
}

/// Available and owed CNY.
async fn has_and_owes(app: &TestApp, user_id: &str) -> (i64, i64) {
    let balances = app.balances_of(user_id).await;
    balances.first().map_or((0, 0), |(_, available, _, owed)| (*available, *owed))
}

#[tokio::test]
async fn a_debt_is_collected_from_what_its_user_has_by_then_and_once_for_each_number() {
    let app = TestApp::start().await;
    let hold_id = owing(&app, "u1", 250).await;
    assert_eq!(app.open_exception().await["subject"], json!(hold_id));
    assert_eq!(collect(&app, "C1", "u1", None).await.problem(422), "INSUFFICIENT_BALANCE");

    // All that is there, which is not all that is owed.
    app.top_up("T2", "u1", 100).await;
    let part = collect(&app, "C1", "u1", None).await.expect(201);
    assert_eq!((&part.body["kind"], &part.body["amount"]), (&json!("COLLECTION"), &json!(100)));
    assert_eq!(has_and_owes(&app, "u1").await, (0, 150));
    let moved = sides([("USER_AVAILABLE:demo:u1:CNY", 100), ("USER_RECEIVABLE:demo:u1:CNY", -100)]);
    assert_eq!(app.booking("COLLECTION:demo:C1").await.expect("a booking"), moved);
    assert_eq!(app.open_exception().await["subject"], json!(hold_id), "something is still owed");

    app.top_up("T3", "u1", 500).await;
    for amount in [None, Some(100)] {
        assert_eq!(collect(&app, "C1", "u1", amount).await.expect(200).body, part.body);
    }
    assert_eq!(has_and_owes(&app, "u1").await, (500, 150), "the same number takes nothing more");
    collect(&app, "C2", "u1", Some(150)).await.expect(201);
    assert_eq!(has_and_owes(&app, "u1").await, (350, 0));

    // Nothing is left to see to, and everybody knows why.
    let seen = app.exceptions("status=RESOLVED").await.remove(0);
    assert_eq!(
        (&seen["kind"], &seen["resolved_by"], &seen["reason"]),
        (&json!("USAGE_SHORTFALL"), &json!("operator"), &json!("the story wants it"))
    );
    assert!(app.exceptions("status=OPEN").await.is_empty());
    assert_eq!(app.told("receivable.collected").await, 2);
    let logged = "action = 'receivables.collect' AND reason = 'the story wants it'";
    assert_eq!(app.count_where("admin_log", logged).await, 2);
    let exactly = format!("{logged} AND target = 'demo/C1 of u1: 100 CNY'");
    assert_eq!(app.count_where("admin_log", &exactly).await, 1);
    let entries = app.get("/users/u1/entries").await.expect(200).body;
    assert_eq!(entries["data"][0]["kind"], "COLLECTION");
    assert_eq!(collect(&app, "C3", "u1", None).await.problem(422), "NOTHING_OWED");
    // The merchant had been credited in full from the start.
    assert_eq!(app.trial_balance().await["MERCHANT demo CNY"], -350);
    app.end().await;
}

#[tokio::test]
async fn what_is_written_off_is_the_merchants_loss_and_owed_no_more() {
    let app = TestApp::start().await;
    owing(&app, "u1", 250).await;
    let part = write_off(&app, "C1", "u1", Some(50)).await.expect(201).body;
    assert_eq!(
        (&part["kind"], &part["amount"], &part["recovered"]),
        (&json!("WRITE_OFF"), &json!(50), &json!(0))
    );
    assert_eq!(app.open_exception().await["kind"], "USAGE_SHORTFALL");
    write_off(&app, "C2", "u1", None).await.expect(201);
    assert_eq!(write_off(&app, "C1", "u1", Some(50)).await.expect(200).body, part);
    assert_eq!(has_and_owes(&app, "u1").await, (0, 0));
    let lost = sides([("MERCHANT:demo:CNY", 200), ("USER_RECEIVABLE:demo:u1:CNY", -200)]);
    assert_eq!(app.booking("WRITE_OFF:demo:C2").await.expect("a booking"), lost);
    // The usage of 350 less what nobody pays.
    assert_eq!((app.trial_balance().await["MERCHANT demo CNY"], app.borne().await), (-100, 250));
    assert!(app.exceptions("status=OPEN").await.is_empty());
    assert_eq!(app.told("receivable.written_off").await, 2);
    // What comes later is the user's.
    app.top_up("T2", "u1", 100).await;
    assert_eq!(collect(&app, "C3", "u1", None).await.problem(422), "NOTHING_OWED");
    assert_eq!(has_and_owes(&app, "u1").await, (100, 0));
    app.end().await;
}

#[tokio::test]
async fn what_cannot_be_cleared_is_refused_and_moves_nothing() {
    let app = TestApp::start().await;
    owing(&app, "u1", 250).await;
    owing(&app, "u2", 250).await;
    app.top_up("T2", "u1", 100).await;
    let first = collect(&app, "C1", "u1", Some(40)).await.expect(201).body;
    let before = app.row_counts().await;

    let of = |field: &str, value: Value| {
        let mut body = clearing("C2", "u1", None);
        body[field] = value;
        body
    };
    for (path, body, code) in [
        (COLLECT, of("user_id", json!("nobody")), "NOTHING_OWED"),
        (COLLECT, of("currency", json!("USD")), "NOTHING_OWED"),
        (WRITE_OFF, of("merchant_id", json!("nobody")), "NOTHING_OWED"),
        (COLLECT, of("amount", json!(61)), "INSUFFICIENT_BALANCE"),
        (COLLECT, of("amount", json!(211)), "AMOUNT_EXCEEDS_OWED"),
        (WRITE_OFF, of("amount", json!(211)), "AMOUNT_EXCEEDS_OWED"),
        (WRITE_OFF, of("amount", json!(0)), "VALIDATION_FAILED"),
        (WRITE_OFF, of("reason", json!(" ")), "VALIDATION_FAILED"),
        (WRITE_OFF, of("clearing_no", json!("a b")), "VALIDATION_FAILED"),
    ] {
        assert_eq!(app.admin_post(path, body.clone()).await.problem(422), code, "{path} {body}");
    }
    // A number is of one clearing.
    let again = |field: &str, value: Value| {
        let mut body = clearing("C1", "u1", Some(40));
        body[field] = value;
        body
    };
    for (path, body, field) in [
        (COLLECT, again("amount", json!(41)), "amount"),
        (COLLECT, again("user_id", json!("u2")), "user_id"),
        (COLLECT, again("currency", json!("USD")), "currency"),
        (WRITE_OFF, clearing("C1", "u1", Some(40)), "kind"),
    ] {
        let refused = app.admin_post(path, body).await;
        assert_eq!(refused.problem(422), "CLEARING_PARAMS_MISMATCH");
        let fields: Vec<&Value> =
            refused.body["errors"].as_array().expect("errors").iter().map(|error| &error["field"]).collect();
        assert_eq!(fields, [field]);
    }
    assert_eq!(app.row_counts().await, before);
    assert_eq!(collect(&app, "C1", "u1", None).await.expect(200).body, first);
    assert_eq!((has_and_owes(&app, "u1").await, has_and_owes(&app, "u2").await), ((60, 210), (0, 250)));
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_operators_at_once_each_number_is_cleared_once_and_no_more_than_is_owed() {
    let app = TestApp::start().await;
    owing(&app, "u1", 250).await;
    app.top_up("T2", "u1", 1_000).await;
    // The same number: one deed, and one answer.
    let equal = join_all((0..10).map(|_| collect(&app, "EQUAL", "u1", Some(10)))).await;
    assert_eq!(equal.iter().filter(|reply| reply.status == 201).count(), 1);
    assert!(equal.iter().all(|reply| matches!(reply.status, 200 | 201) && reply.body == equal[0].body));
    assert_eq!(has_and_owes(&app, "u1").await, (990, 240));

    // Ten numbers, of which four find something: some collect, some write off.
    let numbers: Vec<String> = (0..10).map(|number| format!("C{number}")).collect();
    let ten = join_all(numbers.iter().enumerate().map(|(place, number)| {
        let path = if place % 2 == 0 { COLLECT } else { WRITE_OFF };
        app.admin_post(path, clearing(number, "u1", Some(60)))
    }));
    let ten = ten.await;
    let made = ten.iter().filter(|reply| reply.status == 201).count();
    assert_eq!(made, 4);
    for refused in ten.iter().filter(|reply| reply.status != 201) {
        assert!(matches!(refused.problem(422), "NOTHING_OWED" | "AMOUNT_EXCEEDS_OWED"), "{}", refused.text);
    }
    assert_eq!(has_and_owes(&app, "u1").await.1, 0);
    assert!(app.exceptions("status=OPEN").await.is_empty());
    app.end_without_deadlocks().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_number_for_two_users_at_once_is_one_users() {
    let app = TestApp::start().await;
    owing(&app, "u1", 250).await;
    owing(&app, "u2", 250).await;
    for round in 0..8 {
        let number = format!("C{round}");
        let (one, other) =
            tokio::join!(write_off(&app, &number, "u1", Some(10)), write_off(&app, &number, "u2", Some(10)));
        let (made, refused) = if one.status == 201 { (one, other) } else { (other, one) };
        made.expect(201);
        assert_eq!(refused.problem(422), "CLEARING_PARAMS_MISMATCH");
        assert_eq!(refused.body["errors"][0]["field"], "user_id");
    }
    assert_eq!(has_and_owes(&app, "u1").await.1 + has_and_owes(&app, "u2").await.1, 500 - 8 * 10);
    app.end_without_deadlocks().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_user_has_is_collected_withdrawn_or_held_and_never_twice() {
    let app = TestApp::start().await;
    for round in 0..6 {
        let user_id = format!("u{round}");
        owing(&app, &user_id, 250).await;
        app.top_up(&format!("B-{user_id}"), &user_id, 100).await;
        let withdrawal = json!({"withdrawal_no": user_id, "user_id": user_id, "amount": 60, "currency": "CNY",
                                "channel": "sandbox", "account": "a"});
        let number = format!("C{round}");
        let at_once = tokio::join!(
            collect(&app, &number, &user_id, Some(60)),
            app.post("/withdrawals", withdrawal),
            app.post("/usage/holds", hold(&number, &user_id, 60))
        );
        let replies = [at_once.0, at_once.1, at_once.2];
        let made = replies.iter().filter(|reply| reply.status == 201).count();
        assert_eq!(made, 1, "{replies:#?}");
        for refused in replies.iter().filter(|reply| reply.status != 201) {
            assert_eq!(refused.problem(422), "INSUFFICIENT_BALANCE");
        }
        assert_eq!(has_and_owes(&app, &user_id).await.0, 40);
    }
    app.run_until_idle().await;
    app.end_without_deadlocks().await;
}

#[tokio::test]
async fn a_commission_that_comes_later_is_the_users_until_it_is_collected() {
    let app = TestApp::start().await;
    owing(&app, "u1", 50).await;
    app.rebate_rule(None, "0.05").await;
    app.plain_paid_order("A1").await;
    app.settle("A1").await.expect(201);
    assert_eq!(has_and_owes(&app, "u1").await, (99, 50));
    assert_eq!(collect(&app, "C1", "u1", None).await.expect(201).body["amount"], 50);
    assert_eq!(has_and_owes(&app, "u1").await, (49, 0));
    app.end().await;
}

#[tokio::test]
async fn commands_list_collect_and_write_off() {
    let app = TestApp::start().await;
    owing(&app, "u1", 250).await;
    app.top_up("T2", "u1", 100).await;
    let environment = environment(&app.database_url, &app.redis_url);
    let of_u1 = ["--merchant-id", "demo", "--user-id", "u1", "--currency", "CNY", "--reason", "ticket 4711"];

    let listed = run(&["admin", "receivables", "-o", "json"], &environment).await;
    assert_eq!(
        json_of(&listed)["data"],
        json!([{"merchant_id": "demo", "user_id": "u1", "currency": "CNY", "amount": 250, "available": 100}])
    );
    let collect_as = |number| {
        [&["admin", "collect-receivable", "--clearing-no", number, "-o", "json"], &of_u1[..]].concat()
    };
    let collected = run(&collect_as("C1"), &environment).await;
    assert_eq!(collected.status.code(), Some(0), "{}", errors(&collected));
    assert_eq!(json_of(&collected)["amount"], 100);
    let rest = ["admin", "write-off-receivable", "--clearing-no", "C2", "--amount", "150", "--as", "anna"];
    let table = run(&[&rest, &of_u1[..]].concat(), &environment).await;
    let text = String::from_utf8_lossy(&table.stdout).into_owned();
    assert!(text.contains("WRITE_OFF") && text.contains("150"), "{text}{}", errors(&table));
    assert_eq!(app.count_where("admin_log", "actor = 'anna' AND action = 'receivables.write_off'").await, 1);
    let refused = run(&collect_as("C3"), &environment).await;
    assert_eq!(refused.status.code(), Some(1));
    assert!(errors(&refused).contains("NOTHING_OWED"), "{}", errors(&refused));
    app.end().await;
}
