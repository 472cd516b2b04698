//! Beside refunds that wait for an approval: what was made although nobody has approved it, or is to be approved although another
//! one was made after all.

use payonce::channels::sandbox::{FaultKind, FaultOp};
use serde_json::json;
use sqlx::Executor;

use super::{approve, ask, assert_exceeds, assert_is_shown, may_be_made};
use crate::support::{TestApp, TestOptions, until_waiting};

#[tokio::test]
async fn what_waits_for_an_approval_is_not_let_go_where_another_refund_was_made_after_all() {
    let app = TestApp::start().await;
    app.sql("UPDATE merchants SET refund_approval_above = 1000 WHERE merchant_id = 'demo'").await;
    let attempt = app.paid("A").await;
    let refund_id = app.refused_refund("R1", "A", 1_000).await;
    for (refund_no, amount) in [("R2", 1_200), ("R3", 790)] {
        ask(&app, refund_no, "A", amount).await.expect(201);
    }
    assert_eq!(app.find_refund("R2").await["status"], "AWAITING_APPROVAL");
    app.run_until_idle().await;
    app.sandbox_makes_after_all(&refund_id, &attempt).await;
    app.tell_refund("made", &refund_id, &attempt, 1_000, "SUCCEEDED").await;

    let refused = approve(&app, "R2").await;
    assert_eq!(refused.problem(422), "REFUND_EXCEEDS_PAID");
    let left = "200 minor units are left of what was paid: refunds of 1000 that did not succeed were made after all, or may have been";
    assert_eq!(refused.text_of("detail"), format!("{left}; nothing was done"));
    assert_eq!(app.find_refund("R2").await["status"], "AWAITING_APPROVAL");
    assert_eq!(app.count_where("admin_log", "action = 'refunds.approve'").await, 0);
    assert_exceeds(
        &app,
        "A",
        1,
        "0 minor units are left of what was paid: refunds of 1000 that did not succeed were made after all, or may have been",
    )
    .await;
    app.assert_books_balance().await;

    app.take_refund_back("back", &refund_id, &attempt, 1_000).await;
    assert_eq!(approve(&app, "R2").await.expect(200).text_of("status"), "PENDING");
    app.run_until_idle().await;
    assert_eq!(app.refunded("A").await, ("REFUNDED".to_owned(), 1_990));
    app.assert_books_agree_both_ways().await;
    app.end().await;
}

#[tokio::test]
async fn what_waits_for_an_approval_is_not_let_go_beside_another_one_that_may_have_been_made() {
    let app = TestApp::start().await;
    app.sql("UPDATE merchants SET refund_approval_above = 700 WHERE merchant_id = 'demo'").await;
    let attempt = app.paid("A").await;
    let refused = app.refused_refund("R1", "A", 600).await;
    for (refund_no, amount) in [("R2", 1_000), ("R3", 990)] {
        ask(&app, refund_no, "A", amount).await.expect(201);
    }
    // Somebody had approved the second one, and the database was put back to where nobody had.
    let lost = app.refund_id("R2").await;
    for (refund_id, amount) in [(&refused, 600), (&lost, 1_000)] {
        app.sandbox_makes_after_all(refund_id, &attempt).await;
        may_be_made(&app, refund_id, &attempt, amount).await;
    }
    let left = "390 minor units are left of what was paid: refunds of 1600 that did not succeed were made after all, or may \
                have been";
    let too_much = approve(&app, "R3").await;
    assert_eq!(too_much.problem(422), "REFUND_EXCEEDS_PAID");
    assert_eq!(too_much.text_of("detail"), format!("{left}; nothing was done"));
    // The lost one itself goes back once, under its own number.
    assert_eq!(approve(&app, "R2").await.expect(200).text_of("status"), "PENDING");
    app.run_until_idle().await;
    assert_eq!(app.refunded("A").await, ("PARTIALLY_REFUNDED".to_owned(), 1_000));
    assert_eq!(approve(&app, "R3").await.problem(422), "REFUND_EXCEEDS_PAID");
    assert_eq!(app.gone_back(&attempt).await, 1_600);
    app.end().await;
}

#[tokio::test]
async fn what_was_made_although_nobody_had_approved_it_has_gone_also_where_it_is_rejected() {
    let app = TestApp::start().await;
    app.sql("UPDATE merchants SET refund_approval_above = 500 WHERE merchant_id = 'demo'").await;
    let left = "1000 minor units are left of what was paid: refunds of 990 that did not succeed were made after all, or may \
                have been";
    for number in ["A", "B"] {
        let attempt = app.paid(number).await;
        assert_eq!(ask(&app, number, number, 990).await.expect(201).text_of("status"), "AWAITING_APPROVAL");
        let refund_id = app.refund_id(number).await;
        // Somebody had approved it, and the database was put back to where nobody had.
        app.sandbox_makes_after_all(&refund_id, &attempt).await;
        app.tell_refund(&format!("made-{number}"), &refund_id, &attempt, 990, "SUCCEEDED").await;
        // Until that is decided, nothing goes back in its place.
        let told = app.open_exception().await;
        assert_eq!(app.resolve(&told, "NONE").await.problem(409), "REFUND_AWAITS_APPROVAL");
        if number == "B" {
            // A version before took a person's word for it.
            app.sql("UPDATE exceptions SET status = 'RESOLVED', action = 'NONE', resolved_by = 'anna', reason = 'seen'").await;
        }

        let path = format!("/admin/refunds/{number}/reject");
        app.admin_post(&path, json!({"reason": "the story wants it"})).await.expect(200);
        // Before its channel has answered, too.
        let shown = app.open_exception().await;
        let detail = format!(
            "refund {number} of 990 CNY (minor units) stands failed, and sandbox was said to have made it"
        );
        assert!(shown["detail"].as_str().expect("text").starts_with(&detail), "{shown}");
        assert_exceeds(&app, number, 1_990, left).await;
        app.run_until_idle().await;
        assert_is_shown(&app, &refund_id).await;
        assert_exceeds(&app, number, 1_990, left).await;
        app.resolve(&app.open_exception().await, "NONE").await.expect(200);
    }
    app.end().await;
}

#[tokio::test]
async fn what_was_told_to_be_made_before_its_approval_and_is_refused_behind_it_is_not_free() {
    let app = TestApp::start().await;
    app.sql("UPDATE merchants SET refund_approval_above = 500 WHERE merchant_id = 'demo'").await;
    let attempt = app.paid("A").await;
    assert_eq!(ask(&app, "R", "A", 990).await.expect(201).text_of("status"), "AWAITING_APPROVAL");
    let refund_id = app.refund_id("R").await;
    // Its channel's books do not know it by its number any more, and there is nothing left for another one.
    app.tell_refund("made", &refund_id, &attempt, 990, "SUCCEEDED").await;
    app.fault(FaultOp::Refund, FaultKind::Refuse, 1, None).await;
    approve(&app, "R").await.expect(200);
    app.run_until_idle().await;
    assert_eq!(app.find_refund("R").await["status"], "FAILED");
    let left = "1000 minor units are left of what was paid: refunds of 990 that did not succeed were made after all, or may \
                have been";
    assert_exceeds(&app, "A", 1_990, left).await;
    let shown = app.open_exception().await;
    assert_eq!((&shown["kind"], &shown["subject"]), (&json!("CONTRADICTION"), &json!(refund_id)));
    app.resolve(&shown, "NONE").await.expect(200);
    ask(&app, "R2", "A", 400).await.expect(201);
    app.end().await;
}

#[tokio::test]
async fn what_was_taken_back_is_not_made_although_somebody_approves_it_while_the_channel_is_asked() {
    let vars = vec![("CHANNEL_DEADLINE_MS", "10000".to_owned())];
    let app = TestApp::start_with(TestOptions { vars, ..TestOptions::default() }).await;
    app.sql("UPDATE merchants SET refund_approval_above = 500 WHERE merchant_id = 'demo'").await;
    let attempt = app.paid("A").await;
    assert_eq!(ask(&app, "R", "A", 990).await.expect(201).text_of("status"), "AWAITING_APPROVAL");
    let refund_id = app.refund_id("R").await;
    app.sandbox_makes_after_all(&refund_id, &attempt).await;
    app.sandbox_takes_back(&refund_id).await;

    let mut holding = app.direct_connection().await;
    holding.execute("BEGIN; LOCK TABLE sandbox.refunds").await.expect("the channel's books are held");
    let meanwhile = async {
        until_waiting(&app, 1).await;
        app.admin_post("/admin/refunds/R/approve", json!({"reason": "the story wants it"})).await.expect(200);
        holding.execute("COMMIT").await.expect("the channel answers");
    };
    tokio::join!(app.tell_refund("made", &refund_id, &attempt, 990, "SUCCEEDED"), meanwhile);
    assert_eq!(app.find_refund("R").await["status"], "FAILED");
    app.run_until_idle().await;
    assert_eq!(app.refunded("A").await, ("PAID".to_owned(), 0));
    assert!(app.exceptions("status=OPEN").await.is_empty());
    app.assert_books_agree_both_ways().await;
    app.end().await;
}
