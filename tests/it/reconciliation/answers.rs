//! Money that we had not heard of, and that a statement has otherwise than it was asked for: what the channel itself says of it
//! is applied, and nothing that only the statement says.

use payonce::reconciliation;
use serde_json::{Value, json};
use sqlx::Executor;

use super::{Fate, start};
use crate::support::statements::{Line, assert_explained, sandbox_csv};
use crate::support::{Cluster, TestApp, TestOptions, until_at_the_gate, until_waiting};

/// An order whose customer pays that much, of which nobody is told.
async fn pays_otherwise(app: &TestApp, number: &str, minor: i64) {
    let order = json!({"order_no": number, "user_id": "u1", "currency": "CNY", "amount": 1990, "expires_in": 604_800});
    app.order_with(order).await;
    let id = app.pay_url(number).await.expect(200).text_of("pay_order_id").to_owned();
    app.sandbox_pay(&id, json!({"amount": minor, "notify": false})).await.expect(200);
}

/// The day's statement, a cent short in each line.
async fn short_of_a_cent(app: &TestApp, day: time::Date) -> String {
    let lines = app.book_lines(day).await.into_iter();
    sandbox_csv(day, &lines.map(|line| Line { amount: line.amount - 1, ..line }).collect::<Vec<_>>())
}

async fn only_difference(app: &TestApp, run: &Value) -> Value {
    let mut items = app.differences(run).await;
    assert_eq!(items.len(), 1, "{items:#?}");
    items.remove(0)
}

#[tokio::test]
async fn a_line_that_is_off_by_a_cent_pays_the_order_with_what_the_channel_says_and_the_right_file_ends_it() {
    let app = start("all").await;
    let day = app.wait_for_ten();
    Fate::LostCallback.befall(&app, "A").await;
    app.sleep_over();
    let run = app.reconcile_file("sandbox", day, short_of_a_cent(&app, day).await.as_bytes()).await;
    assert_explained(&run);
    assert_eq!(run["differences"], json!({"MISSING_HERE ESCALATED": 1}));
    let outcome = only_difference(&app, &run).await["outcome"].as_str().expect("text").to_owned();
    assert!(outcome.contains("its statement says otherwise"), "{outcome}");
    assert_eq!((app.status_of("A").await.as_str(), app.strays("").await.len()), ("PAID", 0));
    assert_eq!(app.balance_of("CHANNEL:sandbox:CNY").await, 1_990);
    assert_eq!(app.open_exception().await["kind"], "RECONCILIATION");

    let right = sandbox_csv(day, &app.book_lines(day).await);
    let run = app.reconcile_file("sandbox", day, right.as_bytes()).await;
    assert_explained(&run);
    assert_eq!(run["differences"], json!({"MISSING_HERE RESOLVED": 1}));
    assert!(app.exceptions("status=OPEN").await.is_empty(), "it says the same by now");
    app.run_until_idle().await;
    app.assert_books_agree_both_ways().await;
    app.end().await;
}

#[tokio::test]
async fn a_copy_in_another_currency_gives_nothing_back_whatever_the_cap_of_that_currency() {
    let vars = vec![("RECON_AUTO", "all".to_owned()), ("RECON_DAILY_CAP", "USD:1000000".to_owned())];
    let app = TestApp::start_with(TestOptions { vars, ..TestOptions::default() }).await;
    let day = app.wait_for_ten();
    for number in ["A", "B"] {
        Fate::LostCallback.befall(&app, number).await;
    }
    app.sleep_over();
    let file = sandbox_csv(day, &app.book_lines(day).await).replace(",CNY,", ",USD,");
    let run = app.reconcile_file("sandbox", day, file.as_bytes()).await;
    assert_explained(&run);
    assert_eq!(run["differences"], json!({"MISSING_HERE ESCALATED": 2}));
    for number in ["A", "B"] {
        assert_eq!(app.status_of(number).await, "PAID");
    }
    assert!(app.strays("").await.is_empty());
    app.run_until_idle().await;
    app.assert_books_agree_both_ways().await;
    app.end().await;
}

#[tokio::test]
async fn money_of_a_wrong_amount_is_stray_by_the_channels_own_word_once_somebody_lets_it() {
    let app = start("safe").await;
    let day = app.wait_for_ten();
    pays_otherwise(&app, "SHORT", 1_989).await;
    app.sleep_over();
    let run = app.reconcile(day).await;
    assert_explained(&run);
    let item = only_difference(&app, &run).await;
    assert_eq!((&item["status"], &item["moves_money"]), (&json!("WAITING"), &json!(true)), "{item:#}");
    let shown = app.open_exception().await["detail"].as_str().expect("text").to_owned();
    assert!(shown.contains("which its order does not take: waits for a decision"), "{shown}");
    assert!(app.strays("").await.is_empty(), "nothing goes back before a person says so");
    // The same is said of it once more: whoever lets it go lets it go.
    let file = sandbox_csv(day, &app.book_lines(day).await);
    let run = app.reconcile_file("sandbox", day, file.as_bytes()).await;
    assert_eq!(run["differences"], json!({"MISSING_HERE WAITING": 1}));
    app.decide(&item, "approve").await.expect(200);
    app.carry_on().await;
    let stray = app.stray().await;
    assert_eq!((&stray["reason"], &stray["amount"]), (&json!("AMOUNT_MISMATCH"), &json!(1_989)));
    assert_eq!(only_difference(&app, &run).await["status"], "APPLIED");
    app.run_until_idle().await;
    assert_eq!(
        (app.stray().await["status"].clone(), app.status_of("SHORT").await),
        (json!("REFUNDED"), "PENDING".into())
    );
    app.assert_books_agree_both_ways().await;
    app.end().await;
}

#[tokio::test]
async fn money_of_a_wrong_amount_goes_back_by_itself_up_to_the_days_cap() {
    let vars = vec![("RECON_AUTO", "all".to_owned()), ("RECON_DAILY_CAP", "CNY:4000".to_owned())];
    let app = TestApp::start_with(TestOptions { vars, ..TestOptions::default() }).await;
    let day = app.wait_for_ten();
    for number in ["A", "B", "C"] {
        pays_otherwise(&app, number, 1_991).await;
    }
    app.sleep_over();
    let run = app.reconcile(day).await;
    assert_explained(&run);
    assert_eq!(
        run["differences"],
        json!({"MISSING_HERE APPLIED": 2, "MISSING_HERE WAITING": 1}),
        "twice 1991 are below 4000"
    );
    assert_eq!(app.strays("").await.len(), 2);
    // Of the third one the channel itself tells whoever drives its order.
    app.run_until_idle().await;
    assert_eq!(app.strays("status=REFUNDED").await.len(), 3);
    app.end().await;
}

#[tokio::test]
async fn where_the_channel_says_otherwise_than_its_statement_nothing_goes_back_without_a_person() {
    let app = start("all").await;
    let day = app.wait_for_ten();
    Fate::LateAndLost.befall(&app, "LATE").await;
    app.sleep_over();
    let run = app.reconcile_file("sandbox", day, short_of_a_cent(&app, day).await.as_bytes()).await;
    assert_explained(&run);
    let item = only_difference(&app, &run).await;
    assert_eq!((&item["status"], &item["moves_money"]), (&json!("WAITING"), &json!(true)), "{item:#}");
    assert!(app.strays("").await.is_empty());
    app.decide(&item, "approve").await.expect(200);
    app.carry_on().await;
    // What goes back is what the channel says, and the statement is still to be put right.
    let stray = app.stray().await;
    assert_eq!((&stray["reason"], &stray["amount"]), (&json!("LATE_PAYMENT"), &json!(1_990)));
    assert_eq!(only_difference(&app, &run).await["status"], "ESCALATED");
    app.run_until_idle().await;
    assert_eq!(app.stray().await["status"], "REFUNDED");
    app.assert_books_agree_both_ways().await;
    app.end().await;
}

#[tokio::test]
async fn money_that_only_the_statement_has_is_nobodys() {
    let app = start("all").await;
    let day = app.wait_for_ten();
    // One that was never paid, and one that was paid by another trade than the statement has.
    let unpaid = app.order_to_pay("UNPAID").await;
    Fate::LostCallback.befall(&app, "PAID").await;
    let truth = app.book_lines(day).await;
    let like = |our_id: &str, channel_id: &str| Line {
        our_id: our_id.to_owned(),
        channel_id: channel_id.to_owned(),
        amount: 1_989,
        ..truth[0].clone()
    };
    let lines = [like(&unpaid, "txn_none"), like(&truth[0].our_id, "txn_other")];
    app.sleep_over();
    let run = app.reconcile_file("sandbox", day, sandbox_csv(day, &lines).as_bytes()).await;
    assert_explained(&run);
    assert_eq!(run["differences"], json!({"MISSING_HERE ESCALATED": 2}));
    assert_eq!((app.strays("").await.len(), app.count("trades").await), (0, 0));
    let outcomes: Vec<_> =
        app.differences(&run).await.iter().map(|item| item["outcome"].to_string()).collect();
    let says = |what: &str| outcomes.iter().filter(|outcome| outcome.contains(what)).count();
    assert_eq!((says("the channel says of it"), says(&truth[0].channel_id)), (2, 1), "{outcomes:?}");
    app.run_until_idle().await;
    app.end().await;
}

/// Has the day compared, and nothing decided.
async fn compared(app: &TestApp, day: time::Date) -> String {
    let body = json!({"channel": "sandbox", "day": day.to_string(), "reason": "the story wants it"});
    let id = app.admin_post("/admin/reconciliations", body).await.expect(200);
    app.carry_until(id.text_of("reconciliation_id"), "ACTING").await;
    id.text_of("reconciliation_id").to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_instances_that_decide_over_two_days_find_room_under_the_cap_once() {
    let vars = vec![("RECON_AUTO", "all".to_owned()), ("RECON_DAILY_CAP", "CNY:2000".to_owned())];
    let cluster = Cluster::start(2, TestOptions { vars, ..TestOptions::default() }).await;
    let app = cluster.first();
    let mut days = Vec::new();
    for number in ["A", "B"] {
        days.push(app.wait_for_ten());
        pays_otherwise(app, number, 1_991).await;
    }
    app.sleep_over();
    let (_, other) = (compared(app, days[0]).await, compared(app, days[1]).await);
    let of_other = format!("WHERE reconciliation_id = '{other}'");
    app.sql(&format!("UPDATE reconciliation_items SET due_at = due_at + interval '1 h' {of_other}")).await;
    // Whoever lets money go has it in hand for as long as the gate is shut.
    app.sql(
        "CREATE FUNCTION gate() RETURNS trigger LANGUAGE plpgsql AS
         'BEGIN WHILE NOT pg_try_advisory_xact_lock(1) LOOP PERFORM pg_sleep(0.005); END LOOP; RETURN NEW; END';
         CREATE TRIGGER gate BEFORE UPDATE ON reconciliation_items FOR EACH ROW
         WHEN (NEW.status = 'APPLYING' AND NEW.moves_money AND NOT OLD.moves_money) EXECUTE FUNCTION gate()",
    )
    .await;
    let mut gate = app.direct_connection().await;
    gate.execute("SELECT pg_advisory_lock(1)").await.expect("shut");
    let act = |index| {
        let app = cluster.turn(index).instance.app.clone();
        tokio::spawn(async move { reconciliation::act_due(&app).await.expect("acted") })
    };
    let first = act(0);
    until_at_the_gate(app).await;
    app.sql(&format!("UPDATE reconciliation_items SET due_at = due_at - interval '1 h' {of_other}")).await;
    let second = act(1);
    // It waits for what is left of the cap.
    until_waiting(app, 1).await;
    gate.execute("SELECT pg_advisory_unlock(1)").await.expect("open");
    first.await.expect("no panic");
    second.await.expect("no panic");
    let ends =
        async |status: &str| app.count_where("reconciliation_items", &format!("status = '{status}'")).await;
    assert_eq!((ends("APPLIED").await, ends("WAITING").await), (1, 1), "for two there is no room");
    assert_eq!(app.count("stray_payments").await, 1);
    app.sql("DROP TRIGGER gate ON reconciliation_items").await;
    app.run_until_idle().await;
    cluster.end().await;
}
