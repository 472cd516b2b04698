//! A channel takes a refund back, and what it says of that comes in any order: the refund has failed, its money is where it
//! was, once, and nobody is told of a contradiction that is none. What stands is undone by nothing that is heard late, and
//! what may still be made is not free.

use payonce::channels::sandbox::{FaultKind, FaultOp};
use payonce::compensation::{Action, Drive, Lane};
use payonce::{drive, refunds};
use serde_json::json;

use crate::support::refunding::told_of_refund;
use crate::support::statements::{Line, sandbox_csv};
use crate::support::{TestApp, TestOptions, seconds};

mod questions;

/// A refund of 990 of a top-up of 1,990 that the channel made, without our having heard of it, and has taken back since:
/// its id, and the pay order that it gives back.
async fn taken_back(app: &TestApp, number: &str) -> (String, String) {
    let user_id = format!("u-{number}");
    app.top_up(number, &user_id, 1_990).await;
    // What the channel says the story says.
    app.fault(FaultOp::Webhook, FaultKind::Drop, 1, None).await;
    app.fault(FaultOp::Refund, FaultKind::TimeoutAfter, 1, Some(1)).await;
    app.post("/refunds", json!({"refund_no": number, "order_no": number, "amount": 990})).await.expect(201);
    for lane in [Lane::Realtime, Lane::Sweep] {
        drive::run_due(&app.instance.app, lane).await.expect("driven");
    }
    assert_eq!(app.find_refund(number).await["status"], "PROCESSING");
    assert_eq!(app.cny_of(&user_id).await, (1_000, 990));
    let refund_id = app.refund_id(number).await;
    // Its task would ask soon by itself.
    app.sql(&format!(
        "UPDATE compensations SET due_at = due_at + interval '1 h' WHERE subject = '{refund_id}'"
    ))
    .await;
    app.sandbox_takes_back(&refund_id).await;
    let attempt = app.find_order(number).await["paid_by"].as_str().expect("an attempt").to_owned();
    (refund_id, attempt)
}

/// It has failed, and its money was set aside once and freed once.
async fn assert_is_back(app: &TestApp, number: &str, refund_id: &str) {
    assert_eq!(app.find_refund(number).await["status"], "FAILED");
    assert_eq!(app.refunded(number).await, ("PAID".to_owned(), 0));
    assert_eq!(app.cny_of(&format!("u-{number}")).await, (1_990, 0));
    let freed = format!("transaction_id = 'REVERSAL:REFUND_HOLD:{refund_id}'");
    assert_eq!(app.count_where("ledger_transactions", &freed).await, 1);
    let open = app.exceptions("status=OPEN").await;
    assert!(open.is_empty(), "{open:#?}");
}

#[tokio::test]
async fn in_whatever_order_a_success_and_its_reversal_are_heard_the_refund_has_failed_and_is_back() {
    let app = TestApp::start().await;
    let stories: [(&str, &[&str]); 5] = [
        ("REORDERED", &["FAILED", "SUCCEEDED"]),
        ("ORDERED", &["SUCCEEDED", "FAILED"]),
        ("REPEATED", &["FAILED", "SUCCEEDED", "FAILED", "SUCCEEDED", "SUCCEEDED"]),
        ("LATE", &["SUCCEEDED", "FAILED", "SUCCEEDED"]),
        ("ALONE", &["FAILED"]),
    ];
    for (number, told) in stories {
        let (refund_id, attempt) = taken_back(&app, number).await;
        for (place, status) in told.iter().enumerate() {
            app.tell_refund(&format!("{number}-{place}"), &refund_id, &attempt, 990, status).await;
        }
        assert_is_back(&app, number, &refund_id).await;
    }
    // Whoever drives them asks, and finds what is there.
    app.clock.advance(std::time::Duration::from_secs(7_200));
    app.run_until_idle().await;
    for (number, _) in stories {
        assert_is_back(&app, number, &app.refund_id(number).await).await;
    }
    assert!(app.exceptions("").await.is_empty(), "nobody was told of a contradiction");
    app.end().await;
}

#[tokio::test]
async fn a_success_behind_its_reversal_that_the_channel_cannot_be_asked_about_is_shown_and_must_come_again() {
    let app = TestApp::start().await;
    let (refund_id, attempt) = taken_back(&app, "S").await;
    app.tell_refund("back", &refund_id, &attempt, 990, "FAILED").await;
    // Heard once more, it may have been made once more.
    for event in ["made", "made once more"] {
        let success = told_of_refund(event, (&refund_id, &attempt), 990, "SUCCEEDED");
        app.tell_in_vain(&success).await;
        // It may never come again.
        let shown = app.open_exception().await;
        assert_eq!((&shown["kind"], &shown["subject"]), (&json!("CONTRADICTION"), &json!(refund_id)));
        app.deliver(&success).await;
        assert_eq!(app.verdict_of(event).await.as_deref(), Some("APPLIED"));
    }
    assert_is_back(&app, "S", &refund_id).await;
    app.end().await;
}

#[tokio::test]
async fn a_refund_that_was_refused_and_made_after_all_is_still_shown_to_a_person() {
    let app = TestApp::start().await;
    let (refund_id, attempt) = taken_back(&app, "M").await;
    app.tell_refund("no", &refund_id, &attempt, 990, "FAILED").await;
    // The channel's own books say that it stands.
    app.sql(
        "UPDATE sandbox.refunds SET taken_back_at = NULL;
         UPDATE sandbox.payments SET refunded_amount = 990",
    )
    .await;
    app.tell_refund("made", &refund_id, &attempt, 990, "SUCCEEDED").await;
    let shown = app.open_exception().await;
    assert_eq!((&shown["kind"], &shown["subject"]), (&json!("CONTRADICTION"), &json!(refund_id)));
    app.resolve(&shown, "NONE").await.expect(200);
    app.tell_refund("again", &refund_id, &attempt, 990, "SUCCEEDED").await;
    assert!(app.exceptions("status=OPEN").await.is_empty(), "what a person has seen is not told again");
    app.end().await;
}

/// A callback as it is kept when it speaks for another account than the one that was configured then: where it is replayed.
async fn left_aside(app: &TestApp, refund_id: &str, attempt: &str, status: &str) -> String {
    let body = told_of_refund("aside", (refund_id, attempt), 990, status);
    app.sql(&format!(
        "INSERT INTO webhook_inbox (channel, event_id, subject, verdict, body, received_at, updated_at)
         VALUES ('sandbox', 'aside', '{refund_id}', 'WRONG_ACCOUNT', convert_to('{body}', 'UTF8'), now(), now())"
    ))
    .await;
    let kept = app.admin_get("/admin/webhooks?limit=100&verdict=WRONG_ACCOUNT").await.expect(200).body;
    format!("/admin/webhooks/{}/replay", kept["data"][0]["webhook_id"].as_str().expect("an id"))
}

#[tokio::test]
async fn a_replay_of_a_success_keeps_what_the_channel_says_of_it_by_now() {
    let app = TestApp::start().await;
    let (refund_id, attempt) = taken_back(&app, "P").await;
    app.tell_refund("no", &refund_id, &attempt, 990, "FAILED").await;
    let path = left_aside(&app, &refund_id, &attempt, "SUCCEEDED").await;
    let dry = app.admin_post(&path, json!({"dry_run": true})).await.expect(200).body;
    assert_eq!((&dry["verdict"], &dry["remedy"]), (&json!("RECORDED"), &json!("SHOW_TO_A_PERSON")));
    let done = app.admin_post(&path, json!({"reason": "the account is right now"})).await.expect(200).body;
    assert_eq!((&done["verdict"], &done["remedy"]), (&json!("APPLIED"), &json!("NOTHING")), "{done:#}");
    assert_eq!(app.verdict_of("aside").await.as_deref(), Some("APPLIED"));
    assert_is_back(&app, "P", &refund_id).await;
    app.end().await;
}

/// A refund of 990 of an order of 1,990 that was made, and stands: its id, and the pay order that it gives back.
async fn made(app: &TestApp, number: &str) -> (String, String) {
    let attempt = app.paid(number).await;
    app.post("/refunds", json!({"refund_no": number, "order_no": number, "amount": 990})).await.expect(201);
    app.run_until_idle().await;
    assert_stands(app, number).await;
    (app.refund_id(number).await, attempt)
}

async fn assert_stands(app: &TestApp, number: &str) {
    assert_eq!(app.find_refund(number).await["status"], "SUCCEEDED");
    assert_eq!(app.refunded(number).await, ("PARTIALLY_REFUNDED".to_owned(), 990));
    app.assert_books_agree_both_ways().await;
}

#[tokio::test]
async fn a_failure_that_is_heard_behind_a_success_undoes_nothing_that_stands() {
    let app = TestApp::start().await;
    let (refund_id, attempt) = made(&app, "L").await;
    let reversed = "event = 'refund.reversed'";
    // As from before the channel was asked once more.
    for event in ["late", "late", "later"] {
        app.tell_refund(event, &refund_id, &attempt, 990, "FAILED").await;
        assert_eq!(app.verdict_of(event).await.as_deref(), Some("RECORDED"));
        assert_stands(&app, "L").await;
    }
    assert_eq!(app.count_where("outbox", reversed).await, 0);
    // Then it takes it back.
    for event in ["back", "again"] {
        app.take_refund_back(event, &refund_id, &attempt, 990).await;
        assert_eq!(app.verdict_of(event).await.as_deref(), Some("APPLIED"));
        assert_eq!(app.find_refund("L").await["status"], "FAILED");
        assert_eq!(app.refunded("L").await, ("PAID".to_owned(), 0));
    }
    assert_eq!(app.count_where("outbox", reversed).await, 1);
    assert_eq!(
        app.count_where("outbox", "payload ->> 'was' = 'SUCCEEDED' AND payload ->> 'failure' <> ''").await,
        1
    );
    assert!(app.exceptions("").await.is_empty(), "nobody was told of a contradiction");
    app.assert_books_agree_both_ways().await;
    app.end().await;
}

#[tokio::test]
async fn a_failure_behind_a_success_that_the_channel_cannot_be_asked_about_is_shown_and_must_come_again() {
    let app = TestApp::start().await;
    for (number, is_taken_back) in [("S", false), ("B", true)] {
        let (refund_id, attempt) = made(&app, number).await;
        let failure = told_of_refund(&format!("no-{number}"), (&refund_id, &attempt), 990, "FAILED");
        app.tell_in_vain(&failure).await;
        assert_stands(&app, number).await;
        let shown = app.open_exception().await;
        assert_eq!((&shown["kind"], &shown["subject"]), (&json!("CONTRADICTION"), &json!(refund_id)));
        let detail = shown["detail"].as_str().expect("text");
        assert!(detail.contains("may not have gone back"), "{detail}");

        if is_taken_back {
            app.sandbox_takes_back(&refund_id).await;
        }
        app.deliver(&failure).await;
        if is_taken_back {
            assert_eq!(app.find_refund(number).await["status"], "FAILED");
            assert_eq!(app.refunded(number).await, ("PAID".to_owned(), 0));
        } else {
            assert_stands(&app, number).await;
        }
        assert!(app.exceptions("status=OPEN").await.is_empty(), "it is answered");
    }
    app.assert_books_agree_both_ways().await;
    app.end().await;
}

#[tokio::test]
async fn a_replay_of_a_failure_undoes_nothing_that_stands() {
    let app = TestApp::start().await;
    let (refund_id, attempt) = made(&app, "K").await;
    let path = left_aside(&app, &refund_id, &attempt, "FAILED").await;
    let dry = app.admin_post(&path, json!({"dry_run": true})).await.expect(200).body;
    assert_eq!((&dry["verdict"], &dry["remedy"]), (&json!("APPLIED"), &json!("END_THE_REFUND")));
    let done = app.admin_post(&path, json!({"reason": "the account is right now"})).await.expect(200).body;
    assert_eq!((&done["verdict"], &done["remedy"]), (&json!("RECORDED"), &json!("NOTHING")), "{done:#}");
    assert_eq!(app.verdict_of("aside").await.as_deref(), Some("RECORDED"));
    assert_stands(&app, "K").await;
    app.end().await;
}

/// A refund of 990 of an order of 1,990 whose first call came to nothing as far as we know: its id, and the pay order that it
/// gives back.
async fn unanswered(app: &TestApp, number: &str, fault: FaultKind) -> (String, String) {
    let attempt = app.paid(number).await;
    // What the channel says the story says.
    app.fault(FaultOp::Webhook, FaultKind::Drop, 1, None).await;
    app.fault(FaultOp::Refund, fault, 1, Some(1)).await;
    app.post("/refunds", json!({"refund_no": number, "order_no": number, "amount": 990})).await.expect(201);
    let refund_id = app.refund_id(number).await;
    let driven = drive_by_hand(app, &refund_id).await;
    assert!(matches!(driven, Drive::Again(_)), "{driven:?}");
    assert_eq!(app.find_refund(number).await["status"], "PROCESSING");
    (refund_id, attempt)
}

async fn drive_by_hand(app: &TestApp, refund_id: &str) -> Drive {
    let drive = async |task: &_| refunds::drive(&app.instance.app, task).await.expect("a worker");
    app.drive_by_hand(Action::DriveRefund, refund_id, drive).await
}

#[tokio::test]
async fn a_failure_that_is_told_while_a_refund_is_made_anew_frees_nothing() {
    let vars = vec![("CHANNEL_DEADLINE_MS", "10000".to_owned())];
    let app = TestApp::start_with(TestOptions { vars, ..TestOptions::default() }).await;
    let (refund_id, attempt) = unanswered(&app, "D", FaultKind::TimeoutBefore).await;
    app.fault(FaultOp::Refund, FaultKind::Delay, 1, Some(5_000)).await;
    let of_the_first_call = async {
        app.eventually("the second call is under way", async || {
            let faults = app.gateway.list_faults().await.expect("faults");
            faults.iter().all(|fault| fault.op != FaultOp::Refund)
        })
        .await;
        app.tell_refund("first", &refund_id, &attempt, 990, "FAILED").await;
        assert_eq!(app.verdict_of("first").await.as_deref(), Some("RECORDED"));
        // So much is left only where nothing goes back any more.
        let anew = json!({"refund_no": "D2", "order_no": "D", "amount": 1_001});
        assert_eq!(app.post("/refunds", anew).await.problem(422), "REFUND_EXCEEDS_PAID");
        assert_eq!(app.find_refund("D").await["status"], "PROCESSING");
    };
    let (driven, ()) = tokio::join!(drive_by_hand(&app, &refund_id), of_the_first_call);
    assert_eq!(driven, Drive::Done);
    app.run_until_idle().await;
    assert_stands(&app, "D").await;
    assert!(app.exceptions("").await.is_empty(), "it went back once");
    app.end().await;
}

#[tokio::test]
async fn a_failure_that_is_told_before_the_end_counts_only_as_the_channel_says_when_it_is_asked() {
    let app = TestApp::start().await;
    for (number, fault, then) in
        [("U", FaultKind::TimeoutBefore, "PROCESSING"), ("Y", FaultKind::TimeoutAfter, "SUCCEEDED")]
    {
        let (refund_id, attempt) = unanswered(&app, number, fault).await;
        let event = format!("no-{number}");
        let failure = told_of_refund(&event, (&refund_id, &attempt), 990, "FAILED");
        app.tell_in_vain(&failure).await;
        assert_eq!(app.find_refund(number).await["status"], "PROCESSING", "there was no answer");

        app.webhook(&failure).await.expect(200);
        let verdict = app.verdict_of(&event).await;
        assert_eq!(verdict.as_deref(), Some(if then == "SUCCEEDED" { "APPLIED" } else { "RECORDED" }));
        assert_eq!(app.find_refund(number).await["status"], then, "what the channel says");
        // Whoever drives it brings it to its end.
        app.clock.advance(seconds(60));
        app.run_until_idle().await;
        assert_stands(&app, number).await;
    }
    assert!(app.exceptions("").await.is_empty(), "nobody was told of a contradiction");
    app.end().await;
}

/// How many tasks that ask about a refund stand so.
async fn questions(app: &TestApp, status: &str) -> i64 {
    app.count_where("compensations", &format!("action = 'QUERY_REFUND' AND status = '{status}'")).await
}

#[tokio::test]
async fn what_is_told_of_a_refund_while_its_channel_cannot_be_asked_is_asked_about_until_it_answers() {
    let app = TestApp::start().await;
    for (asked, number, is_taken_back) in [(1, "A", true), (2, "N", false)] {
        let (refund_id, attempt) = made(&app, number).await;
        let failure = told_of_refund(&format!("no-{number}"), (&refund_id, &attempt), 990, "FAILED");
        for _ in 0..2 {
            app.tell_in_vain(&failure).await;
            assert_stands(&app, number).await;
            assert_eq!((questions(&app, "READY").await, app.exceptions("status=OPEN").await.len()), (1, 1));
        }
        if is_taken_back {
            app.sandbox_takes_back(&refund_id).await;
        }
        // It never comes again.
        app.run_until_idle().await;
        assert_eq!((questions(&app, "READY").await, questions(&app, "DONE").await), (0, asked));
        if is_taken_back {
            assert_eq!(app.find_refund(number).await["status"], "FAILED");
            assert_eq!(app.refunded(number).await, ("PAID".to_owned(), 0));
        } else {
            assert_stands(&app, number).await;
        }
        assert!(app.exceptions("status=OPEN").await.is_empty(), "it is answered");
        let answered = app.exceptions("status=RESOLVED").await[0].clone();
        let said = if is_taken_back { "came to nothing" } else { "was made" };
        assert_eq!((&answered["subject"], &answered["resolved_by"]), (&json!(refund_id), &json!("payonce")));
        assert_eq!(answered["reason"], format!("its channel says that it {said}"));
    }
    assert_eq!(app.count_where("outbox", "event = 'refund.reversed'").await, 1);
    app.assert_books_agree_both_ways().await;
    app.end().await;
}

#[tokio::test]
async fn a_reversal_that_somebody_else_hears_of_first_leaves_nothing_to_be_asked() {
    let app = TestApp::start().await;
    let day = app.wait_for_ten();
    for heard_from in ["a callback", "the channel's statement"] {
        let number = heard_from.replace([' ', '\''], "-");
        let (refund_id, attempt) = made(&app, &number).await;
        let failure = told_of_refund(&format!("no-{number}"), (&refund_id, &attempt), 990, "FAILED");
        app.tell_in_vain(&failure).await;
        app.sandbox_takes_back(&refund_id).await;
        // A worker has the task, and has not asked yet.
        let task = app.take_task(Action::QueryRefund, &refund_id).await;
        if heard_from == "a callback" {
            app.tell_refund(&format!("again-{number}"), &refund_id, &attempt, 990, "FAILED").await;
        } else {
            app.sleep_over();
            let mut lines = app.book_lines(day).await;
            let made = lines.iter().find(|line| line.our_id == refund_id).expect("its line").clone();
            lines.push(Line { kind: "REFUND_REVERSAL".to_owned(), channel_id: "back".to_owned(), ..made });
            let run = app.reconcile_file("sandbox", day, sandbox_csv(day, &lines).as_bytes()).await;
            assert_eq!(run["differences"], json!({"STATUS_DIFFERS APPLIED": 1}), "{run:#}");
        }
        let open = "action = 'QUERY_REFUND' AND status <> 'DONE'";
        assert_eq!(app.count_where("compensations", open).await, 0, "{heard_from}");
        let driven = refunds::resolve_contradiction(&app.instance.app, &task).await;
        assert_eq!(driven.expect("an answer"), Drive::Done);
        assert_eq!(app.find_refund(&number).await["status"], "FAILED");
        assert_eq!(app.refunded(&number).await, ("PAID".to_owned(), 0));
        let reversed = format!("event = 'refund.reversed' AND order_no = '{number}'");
        assert_eq!(app.count_where("outbox", &reversed).await, 1, "{heard_from}");
        assert!(app.exceptions("status=OPEN").await.is_empty(), "{heard_from}");
    }
    app.assert_books_agree_both_ways().await;
    app.end().await;
}

#[tokio::test]
async fn a_channel_that_stays_silent_about_a_refund_is_given_up_and_asked_when_it_is_heard_again() {
    let app = TestApp::start().await;
    let (refund_id, attempt) = made(&app, "G").await;
    let failure = told_of_refund("no", (&refund_id, &attempt), 990, "FAILED");
    app.tell_in_vain(&failure).await;
    // As after many silent tries.
    app.sql("UPDATE compensations SET attempts = 12 WHERE action = 'QUERY_REFUND'").await;
    app.sql("ALTER TABLE sandbox.refunds RENAME TO hidden").await;
    drive::run_due(&app.instance.app, Lane::Realtime).await.expect("driven");
    app.sql("ALTER TABLE sandbox.hidden RENAME TO refunds").await;
    assert_stands(&app, "G").await;
    let shown = async || {
        let open = app.exceptions("status=OPEN").await.into_iter();
        let mut kinds: Vec<_> = open.map(|one| one["kind"].as_str().expect("a kind").to_owned()).collect();
        kinds.sort();
        kinds
    };
    assert_eq!(
        (questions(&app, "DEAD").await, shown().await),
        (1, vec!["CONTRADICTION".into(), "DEAD_TASK".into()])
    );

    // Told of once more it is asked once more, and whatever was open about it ends with the answer.
    app.tell_in_vain(&failure).await;
    assert_eq!((questions(&app, "DEAD").await, questions(&app, "READY").await), (1, 1));
    app.sandbox_takes_back(&refund_id).await;
    app.run_until_idle().await;
    assert_eq!(app.find_refund("G").await["status"], "FAILED");
    assert_eq!((questions(&app, "DONE").await, shown().await), (2, Vec::<String>::new()));
    app.assert_books_agree_both_ways().await;
    app.end().await;
}

#[tokio::test]
async fn a_success_that_is_told_of_a_refused_refund_is_asked_about_too() {
    let app = TestApp::start().await;
    for (number, is_taken_back) in [("T", true), ("W", false)] {
        let (refund_id, attempt) = taken_back(&app, number).await;
        app.tell_refund(&format!("no-{number}"), &refund_id, &attempt, 990, "FAILED").await;
        let success = told_of_refund(&format!("made-{number}"), (&refund_id, &attempt), 990, "SUCCEEDED");
        app.tell_in_vain(&success).await;
        assert_eq!(questions(&app, "READY").await, 1);
        if !is_taken_back {
            // The channel's own books say that it stands.
            app.sql(&format!(
                "UPDATE sandbox.refunds SET taken_back_at = NULL WHERE refund_id = '{refund_id}';
                 UPDATE sandbox.payments SET refunded_amount = 990 WHERE pay_order_id = '{attempt}'"
            ))
            .await;
        }
        app.run_until_idle().await;
        assert_eq!(questions(&app, "READY").await, 0);
        if is_taken_back {
            assert_is_back(&app, number, &refund_id).await;
        } else {
            let shown = app.open_exception().await;
            assert_eq!((&shown["kind"], &shown["subject"]), (&json!("CONTRADICTION"), &json!(refund_id)));
            let detail = shown["detail"].as_str().expect("text");
            assert!(detail.contains("made it after all: it has gone back"), "{detail}");
        }
    }
    app.end().await;
}

#[tokio::test]
async fn an_answer_from_before_a_refund_was_let_go_frees_nothing() {
    let app = TestApp::start().await;
    let (refund_id, _) = taken_back(&app, "L").await;
    // As by a worker who asked while nobody had approved it: by now somebody may be making it.
    app.sql(&format!(
        "INSERT INTO compensations (kind, action, subject, due_at, created_at, updated_at)
         VALUES ('REDO_BUSINESS', 'QUERY_REFUND', '{refund_id}', now(), now(), now())"
    ))
    .await;
    let task = app.take_task(Action::QueryRefund, &refund_id).await;
    let driven = refunds::resolve_contradiction(&app.instance.app, &task).await;
    assert_eq!(driven.expect("an answer"), Drive::Done);
    assert_eq!(app.find_refund("L").await["status"], "PROCESSING");
    assert_eq!(app.cny_of("u-L").await, (1_000, 990));
    // Whoever makes it asks, too.
    app.clock.advance(seconds(7_200));
    app.run_until_idle().await;
    assert_is_back(&app, "L", &refund_id).await;
    app.end().await;
}

#[tokio::test]
async fn a_callback_that_was_judged_is_answered_so_again_and_opens_nothing_anew() {
    let app = TestApp::start().await;
    let (refund_id, attempt) = made(&app, "J").await;
    let nobodys = format!("{}Z", &refund_id[..refund_id.len() - 1]);
    let told = [
        (told_of_refund("late", (&refund_id, &attempt), 990, "FAILED"), 200),
        (told_of_refund("nobodys", (&nobodys, &attempt), 990, "SUCCEEDED"), 200),
        (told_of_refund("wrong", (&refund_id, &attempt), 991, "SUCCEEDED"), 400),
    ];
    let tell = async || {
        for (body, status) in &told {
            assert_eq!(app.webhook(body).await.status, *status, "{body}");
        }
    };
    tell().await;
    let open = app.exceptions("status=OPEN").await;
    assert_eq!(open.len(), 2, "{open:#?}");
    for shown in open {
        app.resolve(&shown, "NONE").await.expect(200);
    }
    // The channel cannot be asked any more, and need not.
    app.sql("ALTER TABLE sandbox.refunds RENAME TO hidden").await;
    tell().await;
    app.sql("ALTER TABLE sandbox.hidden RENAME TO refunds").await;
    assert!(app.exceptions("status=OPEN").await.is_empty(), "what a person has seen is not shown again");
    assert_stands(&app, "J").await;
    app.end().await;
}
