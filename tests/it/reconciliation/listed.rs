//! Money of a charge that a statement lists: who waits to be charged is not, who was charged is spoken of by each statement
//! that counts, and what is given back while no statement lists it is shown to a person.

use std::time::Duration;

use payonce::infra::duty::Batch;
use payonce::reconciliation;
use serde_json::{Value, json};
use time::Date;

use super::charges::{has_and_owes, invented_top_up, open_of, product, used};
use super::{paid, start, until_waiting};
use crate::support::TestApp;
use crate::support::statements::{Line, assert_explained, sandbox_csv};

/// A day on which user u1 spends a top-up whose money never comes; gives the day, and its trade as a statement of the day
/// behind it lists it.
async fn spent(app: &TestApp) -> (Date, Line) {
    let day = app.wait_for_ten();
    product(app, "tokens", true).await;
    paid(app, "FINE").await;
    let (our_id, channel_id) = invented_top_up(app, "T", "u1").await;
    used(app, "tokens", "u1", 990).await;
    let like = app.book_lines(day).await.remove(0);
    let at = like.at + Duration::from_secs(86_400);
    app.sleep_over();
    (day, Line { our_id, channel_id, amount: 1_990, at, ..like })
}

/// So much later that no line of any day is left.
async fn forget_lines(app: &TestApp) {
    for days in [32, 2] {
        app.clock.advance(Duration::from_secs(days * 86_400));
        reconciliation::forget_old(&app.instance.app).await.expect("forgotten");
    }
    assert_eq!(app.count("statement_lines").await, 0);
}

/// The only difference of a day.
async fn difference(app: &TestApp, run: &Value) -> Value {
    let mut items = app.differences(run).await;
    assert_eq!(items.len(), 1, "{items:#?}");
    items.remove(0)
}

/// The same on the day of that id.
async fn difference_of(app: &TestApp, run: &Value) -> Value {
    difference(app, &app.reconciliation(run["reconciliation_id"].as_str().expect("an id")).await).await
}

/// The day behind, and a file of it that has these lines, and one more, which makes it another file.
fn file_of_next(day: Date, lines: &[Line], mark: &str) -> (Date, String) {
    let next = day.next_day().expect("a day");
    let other = Line {
        kind: "OTHER".into(),
        our_id: String::new(),
        channel_id: format!("fee-{mark}"),
        amount: 1,
        currency: "CNY".into(),
        at: next.with_hms(12, 0, 0).expect("noon").assume_utc(),
    };
    let lines: Vec<Line> = lines.iter().cloned().chain([other]).collect();
    (next, sandbox_csv(next, &lines))
}

/// Compares the day behind with such a file.
async fn compare_next(app: &TestApp, day: Date, lines: &[Line], mark: &str) -> Value {
    let (next, file) = file_of_next(day, lines, mark);
    let run = app.reconcile_file("sandbox", next, file.as_bytes()).await;
    assert_explained(&run);
    assert_eq!(run["status"], "DONE", "{run:#}");
    run
}

/// The channel says both: a person is shown that, and nobody is charged.
async fn assert_nobody_is_charged(app: &TestApp, run: &Value) {
    let item = difference_of(app, run).await;
    assert_eq!((&item["action"], &item["status"]), (&json!("CHARGE"), &json!("ESCALATED")), "{item:#}");
    let shown = app.open_exception().await;
    assert_eq!((&shown["kind"], &shown["subject"]), (&json!("RECONCILIATION"), &item["item_id"]));
    assert_eq!(has_and_owes(app, "u1").await, (1_000, 0));
    assert_eq!(app.count_where("ledger_transactions", "kind = 'COMPENSATING_CHARGE'").await, 0);
}

#[tokio::test]
async fn a_charge_that_waits_is_not_made_once_another_statement_lists_its_money() {
    let app = start("safe").await;
    let (day, line) = spent(&app).await;
    let run = app.reconcile(day).await;
    let item = difference(&app, &run).await;
    assert_eq!((&item["action"], &item["status"]), (&json!("CHARGE"), &json!("WAITING")));
    app.sleep_over();
    compare_next(&app, day, &[line], "1").await;
    app.decide(&item, "approve").await.expect(200);
    app.carry_on().await;
    let item = difference_of(&app, &run).await;
    let outcome = item["outcome"].as_str().expect("text");
    let next = day.next_day().expect("a day").to_string();
    assert!(outcome.contains(&next), "{item:#}");
    assert_nobody_is_charged(&app, &run).await;
    // That statement was wrong, and the person who was shown it knows: who spent the money is charged for it.
    compare_next(&app, day, &[], "2").await;
    assert_nobody_is_charged(&app, &run).await;
    app.decide(&item, "approve").await.expect(200);
    app.carry_on().await;
    assert_eq!(difference_of(&app, &run).await["status"], "APPLIED");
    assert_eq!(has_and_owes(&app, "u1").await, (0, 990));
    app.end().await;
}

/// Until what is carried out of a day's only difference has come to something.
async fn carry_through(app: &TestApp, run: &Value) {
    while difference_of(app, run).await["status"] == "APPLYING" {
        app.carry_on().await;
    }
}

/// The charge is tried once more, and waits for the day behind.
async fn assert_waits(app: &TestApp, run: &Value) {
    app.clock.advance(Duration::from_secs(3_601));
    reconciliation::act_due(&app.instance.app).await.expect("taken up");
    let item = difference_of(app, run).await;
    let outcome = item["outcome"].as_str().expect("text");
    assert!(item["status"] == "APPLYING" && outcome.contains("still to come"), "{item:#}");
    assert_eq!(has_and_owes(app, "u1").await, (1_000, 0));
}

/// Begun anew, it has said nothing yet; and what its last statement listed may be right.
#[tokio::test]
async fn a_charge_waits_while_the_statement_that_listed_its_money_is_fetched_anew() {
    let app = start("safe").await;
    let (day, line) = spent(&app).await;
    let run = app.reconcile(day).await;
    let item = difference(&app, &run).await;
    app.sleep_over();
    compare_next(&app, day, std::slice::from_ref(&line), "1").await;
    let (next, file) = file_of_next(day, &[line], "2");
    let id = app.bring("sandbox", next, file.as_bytes()).await;
    app.decide(&item, "approve").await.expect(200);
    assert_waits(&app, &run).await;
    app.carry_until(&id, "FETCHING").await;
    assert_waits(&app, &run).await;
    let refused = app.reconcile_file("sandbox", next, &file.as_bytes()[..file.len() / 2]).await;
    assert_eq!((&refused["status"], &refused["round"]), (&json!("OPEN"), &json!(3)), "{refused:#}");
    assert_waits(&app, &run).await;
    assert_eq!(app.reconcile_file("sandbox", next, file.as_bytes()).await["status"], "DONE");
    carry_through(&app, &run).await;
    assert_nobody_is_charged(&app, &run).await;
    app.end().await;
}

#[tokio::test]
async fn a_charge_waits_for_a_first_statement_that_is_being_read_and_for_none_that_was_refused() {
    let app = start("safe").await;
    let (day, _) = spent(&app).await;
    let run = app.reconcile(day).await;
    let item = difference(&app, &run).await;
    app.sleep_over();
    let (next, file) = file_of_next(day, &[], "1");
    app.bring("sandbox", next, &file.as_bytes()[..file.len() / 2]).await;
    app.decide(&item, "approve").await.expect(200);
    assert_waits(&app, &run).await;
    carry_through(&app, &run).await;
    assert_eq!(app.count_where("reconciliations", "status = 'OPEN' AND fault IS NOT NULL").await, 1);
    assert_eq!(difference_of(&app, &run).await["status"], "APPLIED");
    assert_eq!(has_and_owes(&app, "u1").await, (0, 990));
    compare_next(&app, day, &[], "2").await;
    app.end().await;
}

#[tokio::test]
async fn what_a_statement_lists_is_known_when_its_lines_are_forgotten_unless_its_day_was_begun_anew() {
    let app = start("safe").await;
    let (day, line) = spent(&app).await;
    let run = app.reconcile(day).await;
    let item = difference(&app, &run).await;
    app.sleep_over();
    compare_next(&app, day, std::slice::from_ref(&line), "1").await;
    forget_lines(&app).await;
    app.decide(&item, "approve").await.expect(200);
    app.carry_on().await;
    assert_nobody_is_charged(&app, &run).await;

    // Its own day is compared anew, and behind that the other one: with a file that has nothing of it.
    let again = app.reconcile(day).await;
    assert_eq!(again["differences"], json!({"MISSING_THERE ESCALATED": 1}), "{again:#}");
    compare_next(&app, day, &[], "2").await;
    app.decide(&item, "approve").await.expect(200);
    app.carry_on().await;
    assert_eq!(difference_of(&app, &run).await["status"], "APPLIED");
    assert_eq!(has_and_owes(&app, "u1").await, (0, 990));
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_charge_that_is_being_made_while_a_statement_comes_to_list_its_money_is_not_made() {
    let app = start("safe").await;
    let (day, line) = spent(&app).await;
    let run = app.reconcile(day).await;
    let item = difference(&app, &run).await;
    app.sleep_over();
    // Somebody is at its order, so whoever charges has asked the channel, and waits.
    let mut other = app.direct_connection().await;
    sqlx::raw_sql("BEGIN; SELECT FROM orders WHERE order_no = 'T' FOR UPDATE")
        .execute(&mut other)
        .await
        .expect("held");
    app.decide(&item, "approve").await.expect(200);
    let service = app.instance.app.clone();
    let acting = tokio::spawn(async move { reconciliation::act_due(&service).await });
    until_waiting(&app, 1).await;
    compare_next(&app, day, &[line], "1").await;
    sqlx::raw_sql("COMMIT").execute(&mut other).await.expect("free");
    acting.await.expect("no panic").expect("taken up");
    carry_through(&app, &run).await;
    assert_nobody_is_charged(&app, &run).await;
    app.end().await;
}

#[tokio::test]
async fn what_a_statement_lists_before_anybody_asked_about_it_is_known_when_its_lines_are_forgotten() {
    let app = start("off").await;
    let (day, line) = spent(&app).await;
    let run = app.reconcile(day).await;
    let item = difference(&app, &run).await;
    assert_eq!((&item["action"], &item["status"]), (&json!("ASK"), &json!("WAITING")));
    app.sleep_over();
    compare_next(&app, day, &[line], "1").await;
    forget_lines(&app).await;
    // Asking shows that a charge is to be decided over.
    for _ in 0..2 {
        app.decide(&difference_of(&app, &run).await, "approve").await.expect(200);
        app.carry_on().await;
    }
    assert_nobody_is_charged(&app, &run).await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_day_that_is_begun_again_at_the_end_of_its_comparison_says_nothing_more_of_charges() {
    let app = start("all").await;
    let (day, line) = spent(&app).await;
    let run = app.reconcile(day).await;
    let item = difference(&app, &run).await;
    app.sleep_over();
    let (next, other) = (day.next_day().expect("a day"), app.book_lines(day).await.remove(0));
    let other =
        Line { kind: "OTHER".into(), our_id: String::new(), channel_id: "fee".into(), at: line.at, ..other };
    // Somebody is at the charge, so whoever compares waits at the end of that.
    let mut held = app.direct_connection().await;
    let id = item["item_id"].as_str().expect("an id");
    let hold = format!("BEGIN; SELECT FROM reconciliation_items WHERE item_id = '{id}' FOR UPDATE");
    sqlx::raw_sql(sqlx::AssertSqlSafe(hold)).execute(&mut held).await.expect("held");
    app.upload("sandbox", next, sandbox_csv(next, &[line]).as_bytes(), "").await.expect(200);
    let service = app.instance.app.clone();
    let comparing = tokio::spawn(async move {
        while reconciliation::run_due(&service).await.expect("carried on") == Batch::MoreWaiting {}
    });
    until_waiting(&app, 1).await;
    let right = sandbox_csv(next, &[other]);
    let (uploaded, ()) = tokio::join!(app.upload("sandbox", next, right.as_bytes(), ""), async {
        until_waiting(&app, 2).await;
        sqlx::raw_sql("COMMIT").execute(&mut held).await.expect("free");
    });
    uploaded.expect(200);
    let compared = tokio::time::timeout(Duration::from_secs(30), comparing).await;
    compared.expect("it comes to an end").expect("no panic");
    let again = uploaded_run(&app, next).await;
    assert_eq!((&again["round"], &again["status"]), (&json!(2), &json!("DONE")), "{again:#}");
    assert!(open_of(&app, "CONTRADICTION").await.is_empty(), "no statement that counts lists it");
    app.end().await;
}

/// The day, carried out to its end.
async fn uploaded_run(app: &TestApp, day: Date) -> Value {
    let days = app.admin_get("/admin/reconciliations?limit=100").await.expect(200).body;
    let days = days["data"].as_array().expect("days");
    let run = days.iter().find(|run| run["day"] == day.to_string()).expect("the day");
    app.carry_out(run["reconciliation_id"].as_str().expect("an id")).await
}

#[tokio::test]
async fn the_right_file_speaks_of_a_charge_also_where_a_wrong_one_did() {
    let app = start("all").await;
    let (day, line) = spent(&app).await;
    let run = app.reconcile(day).await;
    assert_eq!(run["differences"], json!({"MISSING_THERE APPLIED": 1}));
    app.sleep_over();
    compare_next(&app, day, std::slice::from_ref(&line), "wrong").await;
    let told = open_of(&app, "CONTRADICTION").await;
    assert_eq!((told.len(), &told[0]["order_no"]), (1, &json!("T")));
    // A person sees that the file is wrong; the right one says the same.
    app.resolve(&told[0], "NONE").await.expect(200);
    compare_next(&app, day, std::slice::from_ref(&line), "right").await;
    assert_eq!(open_of(&app, "CONTRADICTION").await.len(), 1, "each statement is told of");
    // The same file once more says it once more, and what the day before says of it is no news.
    compare_next(&app, day, std::slice::from_ref(&line), "right").await;
    app.resolve(&open_of(&app, "CONTRADICTION").await[0], "NONE").await.expect(200);
    let mut lines = app.book_lines(day).await;
    lines.push(Line { at: lines[0].at, ..line.clone() });
    let own = app.reconcile_file("sandbox", day, sandbox_csv(day, &lines).as_bytes()).await;
    let twice = json!({"MISSING_THERE APPLIED": 1, "DUPLICATE ESCALATED": 1});
    assert_eq!(own["differences"], twice, "both days list it");
    assert!(open_of(&app, "CONTRADICTION").await.is_empty(), "a statement that counts has told of it");
    app.end().await;
}

#[tokio::test]
async fn what_only_a_wrong_file_said_of_a_charge_is_taken_back_and_another_statement_speaks() {
    let app = start("all").await;
    let (day, line) = spent(&app).await;
    let run = app.reconcile(day).await;
    app.sleep_over();
    compare_next(&app, day, std::slice::from_ref(&line), "wrong").await;
    assert_eq!(open_of(&app, "CONTRADICTION").await.len(), 1);
    compare_next(&app, day, &[], "right").await;
    assert!(open_of(&app, "CONTRADICTION").await.is_empty(), "no statement that counts lists it");
    // Said once more and taken back once more; and the day behind has it.
    compare_next(&app, day, std::slice::from_ref(&line), "wrong again").await;
    app.resolve(&open_of(&app, "CONTRADICTION").await[0], "NONE").await.expect(200);
    let next = day.next_day().expect("a day");
    app.reconcile(next).await;
    app.sleep_over();
    let later = Line { at: line.at + Duration::from_secs(86_400), ..line };
    compare_next(&app, next, &[later], "behind").await;
    assert_eq!(open_of(&app, "CONTRADICTION").await.len(), 1);
    assert_eq!(difference_of(&app, &run).await["status"], "APPLIED");
    app.end().await;
}

#[tokio::test]
async fn where_two_statements_list_a_charge_the_other_speaks_when_one_lists_it_no_longer() {
    let app = start("all").await;
    let (day, line) = spent(&app).await;
    app.reconcile(day).await;
    app.sleep_over();
    compare_next(&app, day, std::slice::from_ref(&line), "1").await;
    app.sleep_over();
    let next = day.next_day().expect("a day");
    let later = Line { at: line.at + Duration::from_secs(86_400), ..line };
    compare_next(&app, next, &[later], "1").await;
    compare_next(&app, day, &[], "2").await;
    let told = open_of(&app, "CONTRADICTION").await;
    let behind = next.next_day().expect("a day").to_string();
    assert!(told.len() == 1 && told[0]["detail"].as_str().expect("text").contains(&behind), "{told:#?}");
    compare_next(&app, next, &[], "2").await;
    assert!(open_of(&app, "CONTRADICTION").await.is_empty(), "neither lists it");
    app.end().await;
}

#[tokio::test]
async fn what_a_statement_was_told_of_as_listing_before_it_was_noted_which_one_counts_as_listed() {
    let app = start("all").await;
    let (day, line) = spent(&app).await;
    let run = app.reconcile(day).await;
    app.sleep_over();
    compare_next(&app, day, &[line], "1").await;
    app.sql("UPDATE reconciliation_items SET listed_by = NULL, listed_round = NULL").await;
    forget_lines(&app).await;
    app.decide(&difference(&app, &run).await, "reverse-charge").await.expect(200);
    assert!(app.exceptions("status=OPEN").await.is_empty(), "its money is there");
    app.end().await;
}

#[tokio::test]
async fn what_is_given_back_while_no_statement_lists_it_is_shown_until_one_does() {
    let app = start("all").await;
    let (day, line) = spent(&app).await;
    let run = app.reconcile(day).await;
    let item = difference(&app, &run).await;
    let owed = open_of(&app, "USAGE_SHORTFALL").await;
    assert_eq!(owed.len(), 1);
    app.decide(&item, "reverse-charge").await.expect(200);
    // Whoever gave it back has closed what was open about it.
    let closed = app.exceptions("status=RESOLVED").await;
    let closed = closed.iter().find(|one| one["exception_id"] == owed[0]["exception_id"]).expect("it");
    assert_eq!(
        (&closed["resolved_by"], &closed["reason"]),
        (&json!("operator"), &json!("the story wants it")),
        "{closed:#}"
    );
    let shown = app.open_exception().await;
    assert_eq!(
        (&shown["kind"], &shown["subject"], &shown["order_no"]),
        (&json!("RECONCILIATION"), &item["item_id"], &json!("T"))
    );
    let risk = app.admin_get("/admin/audit").await.expect(200).body["money_at_risk"].clone();
    assert_eq!(risk, json!([{"currency": "CNY", "amount": 1_990}]));
    app.sleep_over();
    compare_next(&app, day, std::slice::from_ref(&line), "1").await;
    assert!(app.exceptions("status=OPEN").await.is_empty(), "it came after all");
    compare_next(&app, day, &[], "2").await;
    assert_eq!(app.open_exception().await["subject"], item["item_id"], "it did not");
    assert_eq!(has_and_owes(&app, "u1").await, (1_000, 0));
    app.end().await;
}
