//! What is true when a difference is found is looked at again when something is done about it, and when it is found again.

use serde_json::json;

use super::{Fate, paid, start, trade};
use crate::support::statements::{Line, assert_explained, sandbox_csv};
use crate::support::{TestApp, TestOptions};

/// Has the customer pay a second time for what a trade paid, and nobody is told.
async fn pay_again(app: &TestApp, first: &str) {
    let attempt: String =
        sqlx::query_scalar("SELECT pay_order_id FROM sandbox.payments WHERE transaction_id = $1")
            .bind(first)
            .fetch_one(app.instance.app.db.pool())
            .await
            .expect("it");
    trade(app.sandbox_pay(&attempt, json!({"force": true, "notify": false})).await.expect(200).body);
}

#[tokio::test]
async fn of_two_lost_payments_of_one_order_one_pays_and_one_waits_for_a_person() {
    let app = start("safe").await;
    let day = app.wait_for_ten();
    let first = Fate::LostCallback.befall(&app, "TWICE").await;
    pay_again(&app, &first).await;
    app.sleep_over();
    let run = app.reconcile(day).await;
    assert_explained(&run);
    assert_eq!(run["differences"], json!({"MISSING_HERE APPLIED": 1, "MISSING_HERE WAITING": 1}));
    assert_eq!(app.status_of("TWICE").await, "PAID");
    assert!(app.strays("").await.is_empty(), "nothing goes back before a person says so");
    let items = app.differences(&run).await;
    let waiting = items.iter().find(|item| item["status"] == "WAITING").expect("one");
    assert_eq!(waiting["moves_money"], true);
    app.decide(waiting, "approve").await.expect(200);
    app.carry_on().await;
    app.run_until_idle().await;
    assert_eq!(app.strays("").await[0]["status"], "REFUNDED");
    app.end().await;
}

#[tokio::test]
async fn a_refund_that_was_made_twice_under_one_number_is_found() {
    let app = start("all").await;
    let day = app.wait_for_ten();
    paid(&app, "A").await;
    app.post("/refunds", json!({"refund_no": "R", "order_no": "A", "amount": 90})).await.expect(201);
    app.run_until_idle().await;
    app.sleep_over();
    let mut lines = app.book_lines(day).await;
    let made = lines.iter().find(|line| line.kind == "REFUND").expect("a refund").clone();
    lines.push(Line { channel_id: "zz_again".to_owned(), ..made });
    let run = app.reconcile_file("sandbox", day, sandbox_csv(day, &lines).as_bytes()).await;
    assert_explained(&run);
    assert_eq!(run["differences"], json!({"DUPLICATE ESCALATED": 1}), "{run:#}");
    let twice = &app.differences(&run).await[0];
    assert_eq!((&twice["channel_id"], &twice["theirs"]), (&json!("zz_again"), &json!(90)));
    app.end().await;
}

#[tokio::test]
async fn a_difference_follows_the_statement_that_is_read_last() {
    let app = start("safe").await;
    let day = app.wait_for_ten();
    paid(&app, "A").await;
    app.sleep_over();
    let truth = app.book_lines(day).await;
    let with = |amount: i64| {
        let mut lines = truth.clone();
        let (our_id, channel_id) = ("po_nobody".to_owned(), "txn_nobody".to_owned());
        lines.push(Line { our_id, channel_id, amount, ..truth[0].clone() });
        sandbox_csv(day, &lines)
    };
    let compare = async |file: &str| {
        let run = app.reconcile_file("sandbox", day, file.as_bytes()).await;
        assert_explained(&run);
        let items = app.differences(&run).await;
        assert_eq!(items.len(), 1);
        (items[0]["status"].as_str().expect("a state").to_owned(), items[0].clone())
    };
    let (status, looked_at) = compare(&with(500)).await;
    assert_eq!(status, "WAITING");
    let (status, item) = compare(&with(700)).await;
    assert_eq!(looked_at["item_id"], item["item_id"]);
    for verb in ["approve", "dismiss"] {
        assert_eq!(app.decide(&looked_at, verb).await.problem(409), "DIFFERENCE_CHANGED");
    }
    assert_eq!((status.as_str(), &item["theirs"]), ("WAITING", &json!(700)));
    let detail = app.open_exception().await["detail"].as_str().expect("text").to_owned();
    assert!(detail.contains("700"), "a person is shown the amount that counts: {detail}");
    assert_eq!(compare(&sandbox_csv(day, &truth)).await.0, "RESOLVED");
    let (status, item) = compare(&with(701)).await;
    assert_eq!((status.as_str(), &item["theirs"]), ("WAITING", &json!(701)), "found again");
    app.decide(&item, "dismiss").await.expect(200);
    assert_eq!(compare(&with(701).replace("#end", "\"#end\"")).await.0, "DISMISSED", "no news");
    assert_eq!(compare(&with(702)).await.0, "WAITING", "news");
    app.decide(&compare(&with(703)).await.1, "dismiss").await.expect(200);
    app.end().await;
}

#[tokio::test]
async fn what_a_person_dismissed_and_is_found_otherwise_goes_by_itself_within_the_days_cap_only() {
    let vars = vec![("RECON_AUTO", "all".to_owned()), ("RECON_DAILY_CAP", "CNY:4000".to_owned())];
    let app = TestApp::start_with(TestOptions { vars, ..TestOptions::default() }).await;
    let day = app.wait_for_ten();
    paid(&app, "A").await;
    app.sleep_over();
    let truth = app.book_lines(day).await;
    let mut lines = truth.clone();
    lines.extend((0..5).map(|number| Line {
        our_id: format!("po_nobody{number}"),
        channel_id: format!("txn_nobody{number}"),
        ..truth[0].clone()
    }));
    let run = app.reconcile_file("sandbox", day, sandbox_csv(day, &lines).as_bytes()).await;
    assert_eq!(run["differences"], json!({"MISSING_HERE APPLIED": 2, "MISSING_HERE WAITING": 3}));
    for item in app.differences(&run).await.iter().filter(|item| item["status"] == "WAITING") {
        app.decide(item, "dismiss").await.expect(200);
        let line =
            lines.iter_mut().find(|line| item["channel_id"] == json!(line.channel_id)).expect("its line");
        line.amount += 1;
    }
    app.sleep_over();
    let run = app.reconcile_file("sandbox", day, sandbox_csv(day, &lines).as_bytes()).await;
    assert_explained(&run);
    assert_eq!(run["differences"], json!({"MISSING_HERE APPLIED": 4, "MISSING_HERE WAITING": 1}));
    for item in app.differences(&run).await {
        assert_eq!(item["decided_by"], json!(null), "nobody decided it as it is said now: {item:#}");
    }
    app.run_until_idle().await;
    assert_eq!(app.strays("").await.len(), 4);
    app.end().await;
}

#[tokio::test]
async fn what_a_person_approved_comes_back_to_them_where_it_would_give_money_back_by_now() {
    let app = start("off").await;
    let day = app.wait_for_ten();
    let first = Fate::LostCallback.befall(&app, "TWICE").await;
    pay_again(&app, &first).await;
    app.sleep_over();
    let run = app.reconcile(day).await;
    let items = app.differences(&run).await;
    assert_eq!(items.len(), 2);
    for item in &items {
        // Each of them alone would pay the order.
        assert_eq!((&item["status"], &item["moves_money"]), (&json!("WAITING"), &json!(false)), "{item:#}");
        assert_eq!(app.decide(item, "approve").await.expect(200).body["status"], "APPLYING");
    }
    app.carry_on().await;
    assert_eq!(app.status_of("TWICE").await, "PAID");
    let items = app.differences(&run).await;
    let back = items.iter().find(|item| item["status"] == "WAITING").expect("one of them");
    assert_eq!((&back["moves_money"], &back["decided_by"]), (&json!(true), &serde_json::Value::Null));
    assert!(app.strays("").await.is_empty(), "nobody said that it goes back");
    assert_eq!(app.open_exception().await["subject"], back["item_id"]);
    app.decide(back, "approve").await.expect(200);
    app.carry_on().await;
    app.run_until_idle().await;
    assert_eq!(app.stray().await["status"], "REFUNDED");
    app.end().await;
}
