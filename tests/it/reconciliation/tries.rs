//! What cannot be done now is tried again, not for ever, and stops nothing else.

use std::time::Duration;

use payonce::channels::sandbox::{FaultKind, FaultOp};
use payonce::reconciliation;
use serde_json::json;

use super::{Fate, paid, start};
use crate::support::statements::{assert_explained, sandbox_csv};
use crate::support::{TestApp, TestOptions};

#[tokio::test]
async fn a_difference_that_fails_each_time_is_shown_to_a_person_in_the_end() {
    let app = start("safe").await;
    let day = app.wait_for_ten();
    Fate::LostCallback.befall(&app, "L").await;
    app.sleep_over();
    app.sql(
        "CREATE FUNCTION forbid() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not now'; END $$;
         CREATE TRIGGER forbid BEFORE INSERT ON trades FOR EACH ROW EXECUTE FUNCTION forbid()",
    )
    .await;
    let body = json!({"channel": "sandbox", "day": day.to_string(), "reason": "the story wants it"});
    let begun = app.admin_post("/admin/reconciliations", body).await.expect(200);
    let id = begun.text_of("reconciliation_id").to_owned();
    app.carry_until(&id, "ACTING").await;
    let mut tries = 0;
    while app.exceptions("status=OPEN").await.is_empty() {
        reconciliation::act_due(&app.instance.app).await.expect("taken up");
        app.clock.advance(Duration::from_secs(3_601));
        tries += 1;
        assert!(tries <= 12, "nobody is told");
    }
    assert_eq!(tries, 12, "not at once");
    let run = app.carry_out(&id).await;
    assert_eq!(run["differences"], json!({"MISSING_HERE ESCALATED": 1}), "{run:#}");
    let item = app.differences(&run).await.remove(0);
    let shown = app.open_exception().await;
    assert_eq!((&shown["kind"], &shown["subject"]), (&json!("RECONCILIATION"), &item["item_id"]));
    app.sql("DROP TRIGGER forbid ON trades; DROP FUNCTION forbid()").await;
    app.decide(&item, "approve").await.expect(200);
    app.carry_on().await;
    assert_eq!((app.status_of("L").await.as_str(), app.exceptions("status=OPEN").await.len()), ("PAID", 0));
    app.end().await;
}

#[tokio::test]
async fn what_waits_for_a_person_only_does_not_wait_for_a_channel_that_hangs() {
    let app = start("safe").await;
    let day = app.wait_for_ten();
    let twice = Fate::ListedTwice.befall(&app, "TWICE").await;
    // More than are taken up together.
    for number in 0..12 {
        Fate::Invented.befall(&app, &format!("SHORT{number}")).await;
    }
    app.sleep_over();
    let mut lines = app.book_lines(day).await;
    Fate::ListedTwice.bend("TWICE", &twice, &mut lines);
    let id = app.bring("sandbox", day, sandbox_csv(day, &lines).as_bytes()).await;
    app.carry_until(&id, "ACTING").await;
    app.fault(FaultOp::Query, FaultKind::TimeoutBefore, 100, Some(1)).await;
    reconciliation::act_due(&app.instance.app).await.expect("taken up");
    let shown = app.open_exception().await["detail"].as_str().expect("text").to_owned();
    assert!(shown.starts_with("DUPLICATE"), "{shown}");
    app.end().await;
}

#[tokio::test]
async fn a_day_is_compared_on_one_connection_where_no_second_is_to_be_had() {
    const CONNECTIONS: usize = 8;
    let vars = [("DATABASE_POOL_SIZE", CONNECTIONS.to_string()), ("DATABASE_ACQUIRE_MS", "2000".to_owned())];
    let app = TestApp::start_with(TestOptions { vars: vars.into(), ..TestOptions::default() }).await;
    let day = app.wait_for_ten();
    paid(&app, "A").await;
    Fate::Invented.befall(&app, "SHORT").await;
    app.sleep_over();
    let body = json!({"channel": "sandbox", "day": day.to_string(), "reason": "the story wants it"});
    let begun = app.admin_post("/admin/reconciliations", body).await.expect(200);
    let id = begun.text_of("reconciliation_id").to_owned();
    app.carry_until(&id, "MATCHING").await;
    let mut taken = Vec::new();
    while taken.len() < CONNECTIONS - 1 {
        // The lanes of the service let theirs go soon.
        taken.extend(app.instance.app.db.conn().await.ok());
    }
    let mut looking = app.direct_connection().await;
    let still = "SELECT count(*) FROM reconciliations WHERE status = 'MATCHING'";
    while sqlx::query_scalar::<_, i64>(still).fetch_one(&mut looking).await.expect("a count") > 0 {
        reconciliation::run_due(&app.instance.app).await.expect("it needs no second connection");
    }
    drop(taken);
    let run = app.carry_out(&id).await;
    assert_explained(&run);
    assert_eq!(run["differences"], json!({"MISSING_THERE ESCALATED": 1}));
    app.end().await;
}

#[tokio::test]
async fn a_connection_that_is_closed_because_it_waits_for_the_other_stops_no_day() {
    let app = start("safe").await;
    let day = app.wait_for_ten();
    paid(&app, "A").await;
    // One of them is in the first of two ranges that are compared at once.
    Fate::Invented.befall(&app, "ONE").await;
    app.clock.advance(Duration::from_secs(600));
    Fate::Invented.befall(&app, "OTHER").await;
    app.sleep_over();
    // Whoever waits in a transaction is closed, as the database does by itself after ten seconds.
    app.sql(
        "CREATE SEQUENCE closed;
         CREATE FUNCTION close_others() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
             PERFORM pg_sleep(0.5);
             PERFORM nextval('public.closed') FROM (
                 SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                 WHERE state = 'idle in transaction' AND datname = current_database() AND pid <> pg_backend_pid()) AS ended;
             RETURN NULL; END $$;
         CREATE TRIGGER close_others AFTER INSERT ON reconciliation_items FOR EACH ROW EXECUTE FUNCTION close_others()",
    )
    .await;
    // Each step must succeed.
    let run = app.reconcile(day).await;
    assert_explained(&run);
    assert_eq!(run["differences"], json!({"MISSING_THERE ESCALATED": 2}));
    let is_called = sqlx::query_scalar::<_, bool>("SELECT is_called FROM closed");
    let has_closed = is_called.fetch_one(&mut app.direct_connection().await).await.expect("a word");
    assert!(has_closed, "the story needs one that waits");
    app.sql("DROP TRIGGER close_others ON reconciliation_items; DROP FUNCTION close_others(); DROP SEQUENCE closed").await;
    app.end().await;
}
