//! What is true when a difference is found is looked at again when something is done about it, and when it is found again.

use std::time::Duration;

use serde_json::json;

use super::{Fate, paid, start, trade};
use crate::support::TestApp;
use crate::support::statements::{assert_explained, sandbox_csv};

#[tokio::test]
async fn of_two_lost_payments_of_one_order_one_pays_and_one_waits_for_a_person() {
    let app = start("safe").await;
    let day = app.wait_for_ten();
    let first = Fate::LostCallback.befall(&app, "TWICE").await;
    let attempt: String =
        sqlx::query_scalar("SELECT pay_order_id FROM sandbox.payments WHERE transaction_id = $1")
            .bind(&first)
            .fetch_one(app.instance.app.db.pool())
            .await
            .expect("it");
    trade(app.sandbox_pay(&attempt, json!({"force": true, "notify": false})).await.expect(200).body);
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
    lines.push(crate::support::statements::Line { channel_id: "zz_again".to_owned(), ..made });
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
        lines.push(crate::support::statements::Line { our_id, channel_id, amount, ..truth[0].clone() });
        sandbox_csv(day, &lines)
    };
    let compare = async |file: &str| {
        let run = app.reconcile_file("sandbox", day, file.as_bytes()).await;
        assert_explained(&run);
        let items = app.differences(&run).await;
        assert_eq!(items.len(), 1);
        (items[0]["status"].as_str().expect("a state").to_owned(), items[0].clone())
    };
    assert_eq!(compare(&with(500)).await.0, "WAITING");
    let (status, item) = compare(&with(700)).await;
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

/// Makes the database refuse a state of a day.
async fn forbid(app: &TestApp, status: &str) {
    app.sql(&format!(
        "CREATE FUNCTION forbid() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not now'; END $$;
         CREATE TRIGGER forbid BEFORE UPDATE ON reconciliations FOR EACH ROW WHEN (NEW.status = '{status}')
         EXECUTE FUNCTION forbid()"
    ))
    .await;
}

#[tokio::test]
async fn whoever_dies_behind_the_last_page_leaves_every_line_once() {
    let app = start("safe").await;
    let day = app.wait_for_ten();
    paid(&app, "A").await;
    paid(&app, "B").await;
    app.sleep_over();
    forbid(&app, "MATCHING").await;
    let body = json!({"channel": "sandbox", "day": day.to_string(), "reason": "the story wants it"});
    let begun = app.admin_post("/admin/reconciliations", body).await.expect(200);
    for _ in 0..3 {
        drop(payonce::reconciliation::run_due(&app.instance.app).await);
        app.clock.advance(Duration::from_secs(26));
    }
    assert_eq!(app.count_where("reconciliations", "status = 'FETCHING' AND lines = 2").await, 1);
    app.sql("DROP TRIGGER forbid ON reconciliations; DROP FUNCTION forbid()").await;
    let run = app.carry_out(begun.text_of("reconciliation_id")).await;
    assert_explained(&run);
    assert_eq!((&run["status"], &run["lines"], &run["differences"]), (&json!("DONE"), &json!(2), &json!({})));
    app.end().await;
}
