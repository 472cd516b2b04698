//! Callbacks that are believed and speak of another account, or of another channel's payments.

use payonce::channels::sandbox::{FaultKind, FaultOp};
use payonce::webhooks::{self, Taken};
use serde_json::json;

use crate::support::twin::Twin;
use crate::support::{TestApp, minutes};

#[tokio::test]
async fn money_for_another_account_pays_nothing_and_neither_does_its_replay() {
    let app = TestApp::start().await;
    let id = app.order_to_pay("W40").await;
    let other = Twin::of_another_account(&app);
    for _ in 0..2 {
        assert_eq!(other.told(&app, &app.success("e1", &id, "t1", 1990)).await, Taken::Rejected);
    }
    for _ in 0..2 {
        let replayed = other.replay(&app, "e1").await;
        assert_eq!((&replayed["verdict"], &replayed["changes"]), (&json!("WRONG_ACCOUNT"), &json!(false)));
    }
    assert_eq!(app.verdict_of("e1").await.as_deref(), Some("WRONG_ACCOUNT"));
    assert_eq!((app.status_of("W40").await.as_str(), app.count("stray_payments").await), ("PENDING", 0));
    let shown = app.open_exception().await;
    assert_eq!((&shown["kind"], &shown["subject"]), (&json!("WRONG_ACCOUNT"), &json!(id)));

    // Nothing else is kept of it: it stays for as long as nobody has decided.
    app.close("W40").await.expect(200);
    app.clock.advance(minutes(60 * 24 * 91));
    webhooks::forget_old(&app.instance.app).await.expect("forgotten");
    assert_eq!(app.count("webhook_inbox").await, 1);
    app.resolve(&shown, "NONE").await.expect(200);
    webhooks::forget_old(&app.instance.app).await.expect("forgotten");
    assert_eq!(app.count("webhook_inbox").await, 0);
    app.end().await;
}

#[tokio::test]
async fn a_channel_moves_nothing_of_another_channels() {
    let app = TestApp::start().await;
    let twin = Twin::named(&app, "twin");
    let id = app.order_to_pay("W41").await;
    assert_eq!(twin.told(&app, &app.success("e1", &id, "t1", 1990)).await, Taken::Accepted);
    assert_eq!(app.verdict_of("e1").await.as_deref(), Some("UNMATCHED"));
    for status in ["CLOSED", "FAILED"] {
        twin.told(&app, &app.ended(status, &id, status)).await;
    }
    assert_eq!(
        (app.status_of("W41").await.as_str(), app.attempt_statuses("W41").await.len()),
        ("PENDING", 1)
    );
    assert_eq!(app.attempt_statuses("W41").await, ["PAYING"]);

    app.paid("W42").await;
    app.fault(FaultOp::Refund, FaultKind::TimeoutBefore, 9, Some(1_500)).await;
    app.post("/refunds", json!({"refund_no": "R1", "order_no": "W42"})).await.expect(201);
    app.run_until_idle().await;
    let number: String = sqlx::query_scalar("SELECT refund_id FROM refunds")
        .fetch_one(&mut app.direct_connection().await)
        .await
        .expect("its id");
    assert_eq!(twin.told(&app, &app.refund_notice("e2", &number, "SUCCEEDED")).await, Taken::Rejected);
    assert_eq!(app.find_refund("R1").await["status"], "PROCESSING");
    app.sql(
        "DELETE FROM webhook_inbox WHERE channel = 'twin'; DELETE FROM compensations WHERE subject LIKE 'twin/%'",
    )
    .await;
    app.end().await;
}
