//! Days that are interrupted, held up, or carried on by two at once.

use std::time::Duration;

use payonce::infra::duty::Batch;
use payonce::reconciliation;
use serde_json::{Value, json};
use sqlx::{Connection, Executor};

use super::{Fate, paid, start};
use crate::support::TestApp;
use crate::support::statements::{Line, assert_explained, sandbox_csv};

/// Makes the database refuse a state of a day.
pub(super) async fn forbid(app: &TestApp, status: &str) {
    forbid_where(app, &format!("NEW.status = '{status}'")).await;
}

/// Makes the database refuse to note such a day.
async fn forbid_where(app: &TestApp, condition: &str) {
    app.sql(&format!(
        "CREATE FUNCTION forbid() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not now'; END $$;
         CREATE TRIGGER forbid BEFORE UPDATE ON reconciliations FOR EACH ROW WHEN ({condition})
         EXECUTE FUNCTION forbid()"
    ))
    .await;
}

pub(super) async fn allow(app: &TestApp) {
    app.sql("DROP TRIGGER forbid ON reconciliations; DROP FUNCTION forbid()").await;
}

/// Begins the day from the channel's own books; gives its id.
async fn begin(app: &TestApp, day: time::Date) -> String {
    let body = json!({"channel": "sandbox", "day": day.to_string(), "reason": "the story wants it"});
    let begun = app.admin_post("/admin/reconciliations", body).await.expect(200);
    begun.text_of("reconciliation_id").to_owned()
}

/// Nothing that a comparison left lies in silence.
async fn assert_somebody_knows(app: &TestApp) {
    let audit = app.admin_get("/admin/audit").await.expect(200).body;
    let checks = audit["checks"].as_array().expect("checks");
    for id in ["difference_unfinished", "reconciliation_unfinished"] {
        let check = checks.iter().find(|check| check["id"] == id).expect("a check");
        assert_eq!(check["violations"], 0, "{check:#}");
    }
}

fn standing(run: &Value) -> (&str, i64) {
    (run["status"].as_str().expect("a state"), run["lines"].as_i64().expect("a count"))
}

#[tokio::test]
async fn whoever_dies_behind_the_last_page_leaves_every_line_once() {
    let app = start("safe").await;
    let day = app.wait_for_ten();
    paid(&app, "A").await;
    paid(&app, "B").await;
    app.sleep_over();
    forbid(&app, "MATCHING").await;
    let id = begin(&app, day).await;
    for _ in 0..3 {
        drop(reconciliation::run_due(&app.instance.app).await);
        app.clock.advance(Duration::from_secs(26));
    }
    assert_eq!(app.count_where("reconciliations", "status = 'FETCHING' AND lines = 2").await, 1);
    allow(&app).await;
    let run = app.carry_out(&id).await;
    assert_explained(&run);
    assert_eq!((&run["status"], &run["lines"], &run["differences"]), (&json!("DONE"), &json!(2), &json!({})));
    app.end().await;
}

#[tokio::test]
async fn a_channel_that_falls_silent_behind_its_first_page_is_asked_for_the_next_one_later() {
    let app = start("safe").await;
    let day = app.wait_for_ten();
    paid(&app, "A").await;
    app.post("/refunds", json!({"refund_no": "R", "order_no": "A", "amount": 90})).await.expect(201);
    app.run_until_idle().await;
    app.sleep_over();
    // Payments can be had, refunds cannot.
    app.sql("ALTER TABLE sandbox.refunds RENAME TO hidden").await;
    let id = begin(&app, day).await;
    for _ in 0..6 {
        reconciliation::run_due(&app.instance.app).await.expect("carried on");
        app.clock.advance(Duration::from_secs(60));
    }
    let run = app.reconciliation(&id).await;
    assert_eq!((standing(&run), &run["fault"]), (("FETCHING", 1), &Value::Null), "what is here stays");
    app.sql("ALTER TABLE sandbox.hidden RENAME TO refunds").await;
    let run = app.carry_out(&id).await;
    assert_explained(&run);
    assert_eq!((standing(&run), &run["differences"]), (("DONE", 2), &json!({})));

    // Where the silence does not end, the day is refused and begins with its first page.
    app.sql("ALTER TABLE sandbox.refunds RENAME TO hidden").await;
    begin(&app, day).await;
    let mut tries = 0;
    while app.reconciliation(&id).await["fault"].is_null() {
        reconciliation::run_due(&app.instance.app).await.expect("carried on");
        app.clock.advance(Duration::from_secs(1_300));
        tries += 1;
        assert!(tries < 20, "{:#}", app.reconciliation(&id).await);
    }
    let run = app.reconciliation(&id).await;
    assert_eq!((standing(&run), &run["fault"]), (("OPEN", 0), &json!("LATE")));
    app.sql("ALTER TABLE sandbox.hidden RENAME TO refunds").await;
    // It is its first statement that is refused, however often it was asked for its second page.
    app.clock.advance(Duration::from_secs(601));
    for _ in 0..8 {
        app.carry_on().await;
    }
    let run = app.reconciliation(&id).await;
    assert_eq!((standing(&run), &run["differences"]), (("DONE", 2), &json!({})));
    app.end().await;
}

#[tokio::test]
async fn a_day_is_kept_while_the_known_lines_of_its_file_are_passed_over() {
    let app = start("safe").await;
    let day = app.wait_for_ten();
    paid(&app, "A").await;
    app.sleep_over();
    let like = app.book_lines(day).await.remove(0);
    let lines: Vec<Line> = (0..25_000)
        .map(|number| Line { kind: "OTHER".into(), channel_id: format!("fee_{number}"), ..like.clone() })
        .collect();
    forbid(&app, "MATCHING").await;
    let id = app.bring("sandbox", day, sandbox_csv(day, &lines).as_bytes()).await;
    for _ in 0..2 {
        drop(reconciliation::run_due(&app.instance.app).await);
        app.clock.advance(Duration::from_secs(26));
    }
    assert_eq!(standing(&app.reconciliation(&id).await), ("FETCHING", 25_000));
    // Whoever goes on reads all of them again: each time the place is noted the lease is, too.
    app.sql(
        "CREATE SEQUENCE kept MINVALUE 0 START 0;
         CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
             AS $$ BEGIN PERFORM nextval('public.kept'); RETURN NULL; END $$;
         CREATE TRIGGER keep AFTER UPDATE ON reconciliations FOR EACH ROW
             WHEN (NEW.status = 'FETCHING' AND NEW.version = OLD.version AND NEW.attempts = OLD.attempts) EXECUTE FUNCTION keep()",
    )
    .await;
    drop(reconciliation::run_due(&app.instance.app).await);
    let kept: i64 = sqlx::query_scalar("SELECT last_value + 1 FROM kept")
        .fetch_one(&mut app.direct_connection().await)
        .await
        .expect("a count");
    assert_eq!(kept, 3, "for each ten thousand lines, and behind the last");
    assert_eq!(app.count("statement_lines").await, 25_000);
    app.sql("DROP TRIGGER keep ON reconciliations; DROP FUNCTION keep(); DROP SEQUENCE kept").await;
    allow(&app).await;
    app.clock.advance(Duration::from_secs(60));
    reconciliation::run_due(&app.instance.app).await.expect("carried on");
    assert_eq!(standing(&app.reconciliation(&id).await), ("MATCHING", 25_000));
    let run = app.carry_out(&id).await;
    assert_eq!(run["differences"], json!({"MISSING_THERE RESOLVED": 1}));
    app.end().await;
}

#[tokio::test]
async fn lines_are_taken_out_by_whoever_has_the_day_and_nobody_takes_it_meanwhile() {
    let app = start("safe").await;
    let day = app.wait_for_ten();
    paid(&app, "A").await;
    app.sleep_over();
    app.reconcile(day).await;
    let id = begin(&app, day).await;
    let mut conn = app.direct_connection().await;
    let mut holding = conn.begin().await.expect("a transaction");
    holding.execute("LOCK TABLE statement_lines IN ACCESS EXCLUSIVE MODE").await.expect("the lock");
    let first = {
        let service = app.instance.app.clone();
        tokio::spawn(async move { reconciliation::run_due(&service).await })
    };
    app.eventually("it waits for the lines", async || {
        let waiting = "NOT granted AND relation = 'statement_lines'::regclass
                       AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
        app.count_where("pg_locks", waiting).await > 0
    })
    .await;
    // By the clock its lease is over, and yet it is at it.
    app.clock.advance(Duration::from_secs(60));
    let second =
        tokio::time::timeout(Duration::from_secs(1), reconciliation::run_due(&app.instance.app)).await;
    assert_eq!(second.expect("it does not wait").expect("a look"), Batch::Done);
    holding.commit().await.expect("let go");
    // Either it has taken them out, or it goes on later.
    drop(first.await.expect("no panic"));
    let run = app.carry_out(&id).await;
    assert_explained(&run);
    assert_eq!((standing(&run), app.count("statement_lines").await), (("DONE", 1), 1));
    app.end().await;
}

#[tokio::test]
async fn a_day_that_cannot_be_compared_is_tried_on_and_shown_to_a_person_until_it_goes_on() {
    let app = start("safe").await;
    let day = app.wait_for_ten();
    Fate::LostCallback.befall(&app, "L").await;
    app.sleep_over();
    forbid(&app, "ACTING").await;
    let id = begin(&app, day).await;
    for tries in 0.. {
        drop(reconciliation::run_due(&app.instance.app).await);
        app.clock.advance(Duration::from_secs(1_300));
        if !app.exceptions("status=OPEN").await.is_empty() {
            assert!(tries >= 10, "not at once: {tries}");
            break;
        }
        assert!(tries < 20, "nobody is told");
    }
    let open = app.open_exception().await;
    assert_eq!((&open["kind"], &open["subject"]), (&json!("RECONCILIATION"), &json!(id)));
    assert!(open["detail"].as_str().is_some_and(|detail| detail.contains(&day.to_string())), "{open:#}");
    for _ in 0..2 {
        drop(reconciliation::run_due(&app.instance.app).await);
        app.clock.advance(Duration::from_secs(1_300));
    }
    assert_eq!(app.open_exception().await["exception_id"], open["exception_id"], "once");
    assert_eq!(app.reconciliation(&id).await["status"], "MATCHING");
    assert_somebody_knows(&app).await;
    allow(&app).await;
    let run = app.carry_out(&id).await;
    assert_eq!((&run["status"], &run["differences"]), (&json!("DONE"), &json!({"MISSING_HERE APPLIED": 1})));
    assert!(app.exceptions("status=OPEN").await.is_empty(), "it goes on");
    app.end().await;
}

#[tokio::test]
async fn differences_that_wait_for_a_statement_which_is_late_are_not_left_in_silence() {
    let app = start("safe").await;
    let day = app.wait_for_ten();
    Fate::LostCallback.befall(&app, "L").await;
    app.sleep_over();
    let id = begin(&app, day).await;
    app.carry_until(&id, "ACTING").await;
    // It is begun anew before anybody took the difference up, and the channel has nothing to say by now.
    begin(&app, day).await;
    app.sql("ALTER TABLE sandbox.payments RENAME TO hidden").await;
    while app.reconciliation(&id).await["fault"].is_null() {
        app.carry_on().await;
    }
    assert_eq!(app.count_where("reconciliation_items", "status = 'PROPOSED'").await, 1);
    assert_eq!(app.open_exception().await["kind"], "LATE_STATEMENT", "at once: something waits for it");
    app.clock.advance(Duration::from_secs(590));
    assert_somebody_knows(&app).await;
    app.sql("ALTER TABLE sandbox.hidden RENAME TO payments").await;
    app.clock.advance(Duration::from_secs(60));
    for _ in 0..10 {
        app.carry_on().await;
    }
    let run = app.reconciliation(&id).await;
    assert_eq!((&run["status"], &run["differences"]), (&json!("DONE"), &json!({"MISSING_HERE APPLIED": 1})));
    assert!(app.exceptions("status=OPEN").await.is_empty());
    app.end().await;
}

/// Two days in which the day is carried on every ten minutes.
async fn let_two_days_go_by(app: &TestApp) {
    for _ in 0..2 * 144 {
        while reconciliation::run_due(&app.instance.app).await.expect("a look") == Batch::MoreWaiting {}
        app.clock.advance(Duration::from_secs(600));
    }
}

/// How often a statement was refused.
async fn refused(app: &TestApp) -> i64 {
    app.count_where("reconciliation_history", "event = 'STATEMENT_REFUSED'").await
}

#[tokio::test]
async fn a_statement_that_never_comes_is_asked_for_less_and_less_often_and_told_of_once() {
    let app = start("safe").await;
    let day = app.wait_for_ten();
    paid(&app, "A").await;
    app.sleep_over();
    app.sql("ALTER TABLE sandbox.payments RENAME TO hidden").await;
    let run = app.reconcile(day).await;
    assert_eq!((&run["status"], &run["fault"]), (&json!("OPEN"), &json!("LATE")));
    let_two_days_go_by(&app).await;
    let told = app.open_exception().await;
    assert_eq!(told["kind"], "LATE_STATEMENT");
    app.resolve(&told, "NONE").await.expect(200);
    let_two_days_go_by(&app).await;
    assert!(app.exceptions("status=OPEN").await.is_empty(), "a person knows");
    let tries = refused(&app).await;
    assert!((30..60).contains(&tries), "{tries} tries in four days");

    // Whoever wants it once more hears once more that it is not there.
    app.reconcile(day).await;
    assert_eq!(app.open_exception().await["kind"], "LATE_STATEMENT");
    app.sql("ALTER TABLE sandbox.hidden RENAME TO payments").await;
    app.clock.advance(Duration::from_secs(601));
    for _ in 0..60 {
        app.carry_on().await;
    }
    let run = app.reconciliation(run["reconciliation_id"].as_str().expect("an id")).await;
    assert_eq!((standing(&run), app.exceptions("status=OPEN").await.len()), (("DONE", 1), 0));
    app.end().await;
}

#[tokio::test]
async fn a_statement_that_is_refused_behind_its_first_page_is_asked_for_less_and_less_often_too() {
    let app = start("safe").await;
    let day = app.wait_for_ten();
    Fate::Invented.befall(&app, "SHORT").await;
    app.sleep_over();
    // That nothing is in it is known behind the last page.
    let run = app.reconcile(day).await;
    assert_eq!((&run["status"], &run["fault"]), (&json!("OPEN"), &json!("EMPTY")));
    let id = run["reconciliation_id"].as_str().expect("an id");
    let_two_days_go_by(&app).await;
    let tries = refused(&app).await;
    assert!((25..45).contains(&tries), "{tries} tries in two days");

    // However often it was refused: what fails on its way is tried again within seconds, and not refused for that.
    app.sql("ALTER TABLE sandbox.refunds RENAME TO hidden").await;
    app.clock.advance(Duration::from_secs(6 * 3_600));
    for _ in 0..2 {
        reconciliation::run_due(&app.instance.app).await.expect("carried on");
    }
    let silent = app.reconciliation(id).await;
    assert_eq!((&silent["status"], &silent["fault"]), (&json!("FETCHING"), &Value::Null), "{silent:#}");
    app.sql("ALTER TABLE sandbox.hidden RENAME TO refunds").await;
    app.clock.advance(Duration::from_secs(6));
    reconciliation::run_due(&app.instance.app).await.expect("carried on");
    assert_eq!((refused(&app).await, &app.reconciliation(id).await["fault"]), (tries + 1, &json!("EMPTY")));

    // Whoever wants it once more has it asked for as often as at first.
    app.reconcile(day).await;
    let before = refused(&app).await;
    for _ in 0..4 {
        app.clock.advance(Duration::from_secs(601));
        while reconciliation::run_due(&app.instance.app).await.expect("a look") == Batch::MoreWaiting {}
    }
    assert_eq!(refused(&app).await, before + 4);
    let empty = sandbox_csv(day, &[]);
    app.upload("sandbox", day, empty.as_bytes(), "&accept_empty=true").await.expect(200);
    let run = app.carry_out(id).await;
    assert_eq!(
        (&run["status"], &run["differences"]),
        (&json!("DONE"), &json!({"MISSING_THERE ESCALATED": 1}))
    );
    app.end().await;
}

/// Another instance has the day, or nobody any more.
async fn hold(app: &TestApp, id: &str, until: &str) {
    app.sql(&format!("UPDATE reconciliations SET leased_until = {until} WHERE reconciliation_id = '{id}'"))
        .await;
}

#[tokio::test]
async fn who_takes_a_day_over_answers_for_no_edge_that_nobody_has_looked_at() {
    let app = start("safe").await;
    let day = app.wait_for_ten();
    let next = day.next_day().expect("a day");
    paid(&app, "NOON").await;
    // A minute before midnight, and the channel does not have it.
    app.clock.advance(Duration::from_secs(14 * 3_600 - 60));
    Fate::Invented.befall(&app, "LATE").await;
    app.clock.advance(Duration::from_secs(12 * 3_600));
    paid(&app, "NEXT").await;
    app.sleep_over();
    let (lines, next_lines) = (app.book_lines(day).await, app.book_lines(next).await);
    let one = app.reconcile_file("sandbox", day, sandbox_csv(day, &lines).as_bytes()).await;
    assert_eq!(one["differences"], json!({}), "it is the next day's to miss");
    let missed = json!({"MISSING_THERE ESCALATED": 1});
    let other = app.reconcile_file("sandbox", next, sandbox_csv(next, &next_lines).as_bytes()).await;
    assert_eq!(other["differences"], missed);

    // Both days come again. The later one begins while the lines of the earlier one are not there, and is interrupted.
    let again = |day, lines: &[Line]| sandbox_csv(day, lines).replace("#end", "\"#end\"");
    let one = app.bring("sandbox", day, again(day, &lines).as_bytes()).await;
    hold(&app, &one, "now() + interval '1 year'").await;
    let other = app.bring("sandbox", next, again(next, &next_lines).as_bytes()).await;
    forbid_where(&app, &format!("NEW.walked_until >= '{next}T12:00:00Z'::timestamptz")).await;
    while reconciliation::run_due(&app.instance.app).await.is_ok() {}
    let is_walked = format!("reconciliation_id = '{other}' AND walked_until > '{next}T00:00:00Z'");
    assert_eq!(app.count_where("reconciliations", &is_walked).await, 1, "its first half is walked");
    allow(&app).await;
    hold(&app, &other, "now() + interval '1 year'").await;

    // The earlier one is compared to its end meanwhile; then somebody goes on with the later one.
    hold(&app, &one, "'epoch'").await;
    assert_eq!(app.carry_out(&one).await["status"], "DONE");
    hold(&app, &other, "'epoch'").await;
    let run = app.carry_out(&other).await;
    assert_eq!((&run["status"], &run["differences"]), (&json!("DONE"), &missed), "{run:#}");
    assert_eq!(app.count_where("exceptions", "status = 'OPEN' AND kind = 'RECONCILIATION'").await, 1);
    assert_somebody_knows(&app).await;
    app.end().await;
}
