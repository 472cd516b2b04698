//! A channel takes a refund back, and what it says of that comes in any order: the refund has failed, its money is where it
//! was, once, and nobody is told of a contradiction that is none.

use payonce::channels::sandbox::{FaultKind, FaultOp};
use payonce::compensation::Lane;
use payonce::drive;
use serde_json::json;

use crate::support::TestApp;

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
    app.sql(&format!(
        "BEGIN;
         -- Its task would ask soon by itself.
         UPDATE compensations SET due_at = due_at + interval '1 h' WHERE subject = '{refund_id}';
         UPDATE sandbox.refunds SET taken_back_at = refunded_at WHERE refund_id = '{refund_id}';
         UPDATE sandbox.payments SET refunded_amount = 0
         WHERE transaction_id = (SELECT transaction_id FROM sandbox.refunds WHERE refund_id = '{refund_id}');
         COMMIT"
    ))
    .await;
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
    app.sql("ALTER TABLE sandbox.refunds RENAME TO hidden").await;
    let success = json!({"event_id": "made", "kind": "REFUND", "refund_id": refund_id, "currency": "CNY",
                         "out_trade_no": attempt, "refund_fee": 990, "status": "SUCCEEDED"});
    let reply = app.webhook(&success).await;
    assert!(reply.status >= 500, "{}: {}", reply.status, reply.text);
    assert_eq!(app.verdict_of("made").await, None);
    // It may never come again.
    let shown = app.open_exception().await;
    assert_eq!((&shown["kind"], &shown["subject"]), (&json!("CONTRADICTION"), &json!(refund_id)));
    app.sql("ALTER TABLE sandbox.hidden RENAME TO refunds").await;
    app.deliver(&success).await;
    assert_eq!(app.verdict_of("made").await.as_deref(), Some("APPLIED"));
    // From then on it is no news, whether or not the channel can be asked.
    app.sql("ALTER TABLE sandbox.refunds RENAME TO hidden").await;
    app.tell_refund("once more", &refund_id, &attempt, 990, "SUCCEEDED").await;
    app.sql("ALTER TABLE sandbox.hidden RENAME TO refunds").await;
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

#[tokio::test]
async fn a_replay_of_a_success_keeps_what_the_channel_says_of_it_by_now() {
    let app = TestApp::start().await;
    let (refund_id, attempt) = taken_back(&app, "P").await;
    app.tell_refund("no", &refund_id, &attempt, 990, "FAILED").await;
    let body = json!({"event_id": "aside", "kind": "REFUND", "refund_id": refund_id, "currency": "CNY",
                      "out_trade_no": attempt, "refund_fee": 990, "status": "SUCCEEDED"});
    // As it is kept when it speaks for another account than the one that was configured then.
    app.sql(&format!(
        "INSERT INTO webhook_inbox (channel, event_id, subject, verdict, body, received_at, updated_at)
         VALUES ('sandbox', 'aside', '{refund_id}', 'WRONG_ACCOUNT', convert_to('{body}', 'UTF8'), now(), now())"
    ))
    .await;
    let kept = app.admin_get("/admin/webhooks?limit=100&verdict=WRONG_ACCOUNT").await.expect(200).body;
    let path = format!("/admin/webhooks/{}/replay", kept["data"][0]["webhook_id"].as_str().expect("an id"));
    let dry = app.admin_post(&path, json!({"dry_run": true})).await.expect(200).body;
    assert_eq!((&dry["verdict"], &dry["remedy"]), (&json!("RECORDED"), &json!("SHOW_TO_A_PERSON")));
    let done = app.admin_post(&path, json!({"reason": "the account is right now"})).await.expect(200).body;
    assert_eq!((&done["verdict"], &done["remedy"]), (&json!("APPLIED"), &json!("NOTHING")), "{done:#}");
    assert_eq!(app.verdict_of("aside").await.as_deref(), Some("APPLIED"));
    assert_is_back(&app, "P", &refund_id).await;
    app.end().await;
}
