//! A day is begun anew: what only a statement said that is taken back is done by nobody, whoever approved it and whenever; and
//! none is taken back for nothing.

use std::time::Duration;

use payonce::reconciliation;
use serde_json::{Value, json};
use sqlx::{Connection, Executor};
use time::Date;

use super::days::let_weeks_go_by;
use super::{Fate, paid, rfc3339, start, until_waiting};
use crate::support::TestApp;
use crate::support::statements::{Line, assert_explained, sandbox_csv};

/// A day with one payment; gives it with its statement, and with one that has money of somebody whom nobody knows, too.
async fn two_statements(app: &TestApp) -> (Date, String, Box<dyn Fn(i64) -> String>) {
    let day = app.wait_for_ten();
    paid(app, "A").await;
    app.sleep_over();
    let lines = app.book_lines(day).await;
    let right = sandbox_csv(day, &lines);
    let wrong = move |amount| {
        let (our_id, channel_id) = ("po_nobody".to_owned(), "txn_nobody".to_owned());
        let foreign = Line { our_id, channel_id, amount, ..lines[0].clone() };
        sandbox_csv(day, &[lines.clone(), vec![foreign]].concat())
    };
    (day, right, Box::new(wrong))
}

/// Compares the day with a file; gives its only difference.
async fn compare(app: &TestApp, day: Date, file: &str) -> Value {
    let run = app.reconcile_file("sandbox", day, file.as_bytes()).await;
    assert_explained(&run);
    assert_eq!(run["status"], "DONE", "{run:#}");
    let mut items = app.differences(&run).await;
    assert_eq!(items.len(), 1, "{items:#?}");
    items.remove(0)
}

/// The only difference of a day as it stands.
async fn difference(app: &TestApp, id: &str) -> Value {
    app.differences(&json!({"reconciliation_id": id})).await.remove(0)
}

#[tokio::test]
async fn while_a_day_is_compared_anew_nobody_approves_what_its_last_statement_said() {
    let app = start("safe").await;
    let (day, right, wrong) = two_statements(&app).await;
    let item = compare(&app, day, &wrong(500)).await;
    assert_eq!((&item["status"], &item["moves_money"]), (&json!("WAITING"), &json!(true)), "{item:#}");

    let id = app.bring("sandbox", day, right.as_bytes()).await;
    for status in ["OPEN", "FETCHING", "MATCHING"] {
        app.carry_until(&id, status).await;
        assert_eq!(app.decide(&item, "approve").await.problem(409), "DIFFERENCE_CHANGED", "{status}");
    }
    app.carry_out(&id).await;
    assert_eq!(app.decide(&item, "approve").await.problem(409), "DIFFERENCE_NOT_WAITING");
    assert_eq!(difference(&app, &id).await["status"], "RESOLVED");
    assert_eq!((app.count("trades").await, app.exceptions("status=OPEN").await.len()), (1, 0));

    // A statement that counts says it once more, and now it may be let in.
    let item = compare(&app, day, &wrong(500)).await;
    app.decide(&item, "approve").await.expect(200);
    app.carry_on().await;
    assert_eq!(difference(&app, &id).await["status"], "APPLIED");
    assert_eq!(app.stray().await["amount"], 500);
    app.run_until_idle().await;
    app.end().await;
}

#[tokio::test]
async fn what_was_approved_waits_while_its_day_is_compared_anew_and_goes_by_what_that_says() {
    let app = start("safe").await;
    let (day, right, wrong) = two_statements(&app).await;
    let item = compare(&app, day, &wrong(500)).await;
    app.decide(&item, "approve").await.expect(200);
    // By a clock that is ahead.
    app.sql("UPDATE reconciliation_items SET updated_at = updated_at + interval '1 hour'").await;
    // Nobody came to it before.
    let id = app.bring("sandbox", day, right.as_bytes()).await;
    for status in ["OPEN", "FETCHING", "MATCHING"] {
        app.carry_until(&id, status).await;
        reconciliation::act_due(&app.instance.app).await.expect("a look");
        assert_eq!(difference(&app, &id).await["status"], "APPLYING", "{status}");
    }
    app.carry_out(&id).await;
    assert_eq!(difference(&app, &id).await["status"], "RESOLVED", "its line is there no more");
    assert_eq!(app.count("trades").await, 1);

    // Of another amount it is another one, over which nobody has decided.
    let item = compare(&app, day, &wrong(500)).await;
    app.decide(&item, "approve").await.expect(200);
    let item = compare(&app, day, &wrong(700)).await;
    let undecided = (&json!("WAITING"), &json!(700), &Value::Null);
    assert_eq!((&item["status"], &item["theirs"], &item["decided_by"]), undecided, "{item:#}");

    // Said once more as it was, it is carried out.
    app.decide(&item, "approve").await.expect(200);
    let item = compare(&app, day, &wrong(700)).await;
    assert!(item["status"] == "APPLIED" && item["decided_by"].is_string(), "{item:#}");
    assert_eq!(app.stray().await["amount"], 700);
    app.run_until_idle().await;
    app.end().await;
}

#[tokio::test]
async fn whoever_is_held_up_while_a_day_is_begun_anew_decides_nothing_that_its_last_statement_said() {
    let app = start("safe").await;
    let day = app.wait_for_ten();
    Fate::LostCallback.befall(&app, "L").await;
    app.sleep_over();
    let right = sandbox_csv(day, &app.book_lines(day).await);
    let id = app.bring("sandbox", day, right.as_bytes()).await;
    app.carry_until(&id, "ACTING").await;
    // Its day still stood when a worker took it up, who then waits for what is known of the payment.
    let mut conn = app.direct_connection().await;
    let mut holding = conn.begin().await.expect("a transaction");
    holding.execute("LOCK TABLE webhook_inbox IN ACCESS EXCLUSIVE MODE").await.expect("the lock");
    let worker = {
        let service = app.instance.app.clone();
        tokio::spawn(async move { reconciliation::act_due(&service).await })
    };
    until_waiting(&app, 1).await;
    app.bring("sandbox", day, sandbox_csv(day, &[]).as_bytes()).await;
    app.carry_until(&id, "MATCHING").await;
    app.clock.advance(Duration::from_secs(1));
    holding.rollback().await.expect("let go");
    worker.await.expect("no panic").expect("taken up");
    assert_eq!(difference(&app, &id).await["status"], "PROPOSED", "what comes of the day is known first");

    let run = app.carry_out(&id).await;
    assert_explained(&run);
    assert_eq!(run["differences"], json!({"MISSING_HERE RESOLVED": 1}));
    assert_eq!((app.status_of("L").await.as_str(), app.count("trades").await), ("PENDING", 0));
    let run = app.reconcile_file("sandbox", day, right.as_bytes()).await;
    assert_eq!(run["differences"], json!({"MISSING_HERE APPLIED": 1}));
    assert_eq!(app.status_of("L").await, "PAID");
    app.run_until_idle().await;
    app.end().await;
}

/// The clock of the database goes back between both: a standby that took over is behind.
#[tokio::test]
async fn what_only_a_replaced_statement_said_is_gone_whatever_the_clock_said_then() {
    for policy in ["safe", "off"] {
        let app = start(policy).await;
        let day = app.wait_for_ten();
        Fate::LostCallback.befall(&app, "L").await;
        app.sleep_over();
        let right = sandbox_csv(day, &app.book_lines(day).await);
        let id = app.bring("sandbox", day, right.as_bytes()).await;
        app.carry_until(&id, "ACTING").await;
        if policy == "off" {
            app.carry_on().await;
        }
        let stood = difference(&app, &id).await;
        assert_eq!(stood["status"], if policy == "off" { "WAITING" } else { "PROPOSED" }, "{stood:#}");
        app.sql("UPDATE reconciliation_items SET updated_at = updated_at + interval '1 hour'").await;
        app.bring("sandbox", day, sandbox_csv(day, &[]).as_bytes()).await;
        let run = app.carry_out(&id).await;
        assert_explained(&run);
        assert_eq!(run["differences"], json!({"MISSING_HERE RESOLVED": 1}), "{run:#}");
        assert_eq!((app.status_of("L").await.as_str(), app.count("trades").await), ("PENDING", 0));
        let run = app.reconcile_file("sandbox", day, right.as_bytes()).await;
        assert_eq!(run["status"], "DONE", "{run:#}");
        app.run_until_idle().await;
        app.end().await;
    }
}

#[tokio::test]
async fn the_same_file_once_more_is_compared_with_what_came_here_since_and_harms_nothing() {
    let app = start("off").await;
    let day = app.wait_for_ten();
    let trade = Fate::LostCallback.befall(&app, "A").await;
    app.sleep_over();
    let file = sandbox_csv(day, &app.book_lines(day).await);
    let item = compare(&app, day, &file).await;
    assert_eq!((&item["class"], &item["status"]), (&json!("MISSING_HERE"), &json!("WAITING")), "{item:#}");

    let attempt = item["our_id"].as_str().expect("an id");
    let mut callback = app.success("e-A", attempt, &trade, 1_990);
    callback["paid_at"] = json!(rfc3339(app.clock.now() - Duration::from_secs(86_400)));
    app.deliver(&callback).await;
    app.clock.advance(Duration::from_secs(60));
    // Whoever did not hear the answer sends it again.
    app.bring("sandbox", day, file.as_bytes()).await;
    let run = app.reconcile_file("sandbox", day, file.as_bytes()).await;
    assert_explained(&run);
    assert_eq!((&run["round"], &run["status"]), (&json!(3), &json!("DONE")));
    assert_eq!(run["differences"], json!({"MISSING_HERE RESOLVED": 1}));
    assert_eq!(app.count("trades").await, 1);
    app.end().await;
}

#[tokio::test]
async fn a_statement_is_kept_until_the_channel_gives_another() {
    let app = start("safe").await;
    let (day, right, _) = two_statements(&app).await;
    let run = app.reconcile_file("sandbox", day, right.as_bytes()).await;
    let id = run["reconciliation_id"].as_str().expect("an id");
    let begin = async || {
        let body = json!({"channel": "sandbox", "day": day.to_string(), "reason": "once more"});
        app.admin_post("/admin/reconciliations", body).await
    };
    app.sql("ALTER TABLE sandbox.payments RENAME TO hidden").await;
    assert_eq!(begin().await.problem(503), "CHANNEL_UNAVAILABLE");
    // By then it has nothing of the day, on which something was paid here; first it does not say so to the end.
    app.sql(
        "ALTER TABLE sandbox.hidden RENAME TO payments;
         UPDATE sandbox.payments SET paid_at = paid_at - interval '9 days';
         ALTER TABLE sandbox.refunds RENAME TO hidden",
    )
    .await;
    assert_eq!(begin().await.problem(503), "CHANNEL_UNAVAILABLE");
    app.sql("ALTER TABLE sandbox.hidden RENAME TO refunds").await;
    assert_eq!(begin().await.problem(422), "STATEMENT_REFUSED");
    let kept = app.reconciliation(id).await;
    assert_eq!((&kept["status"], &kept["round"]), (&json!("DONE"), &json!(1)), "{kept:#}");
    assert_eq!(app.count("statement_lines").await, 1);
    let logged = "action = 'reconciliations.begin'";
    assert_eq!(app.count_where("admin_log", logged).await, 0, "nothing was begun");

    app.sql("UPDATE sandbox.payments SET paid_at = paid_at + interval '9 days'").await;
    begin().await.expect(200);
    let again = app.carry_out(id).await;
    assert_eq!((&again["round"], &again["source"]), (&json!(2), &json!("CHANNEL")), "{again:#}");
    assert_eq!(again["differences"], json!({}));
    app.end().await;
}

#[tokio::test]
async fn money_that_was_brought_in_from_a_statement_of_weeks_ago_is_missed_by_no_later_day() {
    let app = start("safe").await;
    let (day, _, wrong) = two_statements(&app).await;
    let item = compare(&app, day, &wrong(500)).await;
    let_weeks_go_by(&app).await;
    assert_eq!(app.count_where("reconciliations", "forgotten_at IS NOT NULL").await, 1);
    app.decide(&item, "approve").await.expect(200);
    app.carry_on().await;
    assert_eq!(app.stray().await["amount"], 500);

    let today = app.clock.now().date();
    app.sleep_over();
    let run = app.reconcile_file("sandbox", today, sandbox_csv(today, &[]).as_bytes()).await;
    assert_explained(&run);
    assert_eq!((&run["status"], &run["differences"]), (&json!("DONE"), &json!({})), "{run:#}");
    app.run_until_idle().await;
    app.end().await;
}
