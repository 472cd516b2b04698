//! Tasks whose channel only other instances reach: they are left to those, and cost no try.

use payonce::app::App;
use payonce::channels::Channels;
use payonce::compensation::Lane;
use payonce::drive;
use serde_json::json;

use super::{tries, waiting_refund};
use crate::support::{TestApp, minutes, seconds};

/// A second instance on the same stores, which reaches no channel.
fn without_channels(app: &TestApp) -> App {
    let service = &app.instance.app;
    let (config, ids) = (service.config.clone(), service.ids.clone());
    App::new(config, ids, service.db.clone(), Channels::new(Vec::new())).expect("an instance")
}

/// As many sessions of its workers as a task is left to others in so long, and more.
async fn work(app: &TestApp, other: &App) {
    for _ in 0..4 {
        drive::run_due(other, Lane::Realtime).await.expect("a session");
        app.clock.advance(seconds(5));
    }
}

#[tokio::test]
async fn what_wants_a_channel_that_only_others_reach_is_left_to_them_for_an_hour() {
    let app = TestApp::start().await;
    let other = without_channels(&app);
    waiting_refund(&app, "E1").await;
    work(&app, &other).await;
    assert_eq!(tries(&app).await, 0, "it was left");
    let task = &app.admin_get("/admin/compensations?action=DRIVE_REFUND").await.expect(200).body["data"][0];
    assert!(task["last_error"].as_str().expect("a reason").contains("left to others"), "{task}");
    app.clock.advance(seconds(10));
    app.run_until_idle().await;
    assert_eq!(app.refunded("E1").await.0, "REFUNDED");

    waiting_refund(&app, "E2").await;
    app.clock.advance(minutes(61));
    drive::run_due(&other, Lane::Realtime).await.expect("a session");
    assert_eq!(tries(&app).await, 1, "nobody has tried it for an hour");
    // What costs a try may be left again.
    work(&app, &other).await;
    assert_eq!(tries(&app).await, 1);
    // Nor does one that has rested for hours, as its schedule wants it.
    app.sql(
        "UPDATE compensations SET attempts = 11, due_at = due_at + interval '3 h' WHERE status = 'READY'",
    )
    .await;
    app.clock.advance(minutes(181));
    work(&app, &other).await;
    assert_eq!(tries(&app).await, 11);
    app.clock.advance(minutes(1));
    app.run_until_idle().await;
    assert_eq!(app.refunded("E2").await.0, "REFUNDED");
    app.end().await;
}

#[tokio::test]
async fn whatever_a_task_wants_of_a_channel_of_others_is_left_to_them() {
    let app = TestApp::start().await;
    let other = without_channels(&app);
    app.top_up("T1", "u1", 1_000).await;
    let body = json!({"withdrawal_no": "W1", "user_id": "u1", "amount": 600, "currency": "CNY",
                      "channel": "sandbox", "account": "u@example.com"});
    app.post("/withdrawals", body).await.expect(201);
    let attempt = app.order_to_pay("E3").await;
    app.clock.advance(minutes(31));
    app.sql(&format!(
        "INSERT INTO compensations (kind, action, subject, merchant_id, order_no, due_at, created_at, updated_at)
         SELECT 'REDO_BUSINESS', action, subject, 'demo', 'E3', now() - interval '1 min', now(), now()
         FROM (VALUES ('CLOSE_PAY_ORDER', '{attempt}'), ('EXPIRE_ORDER', 'demo:E3')) AS task (action, subject)"
    ))
    .await;
    work(&app, &other).await;
    let left = "status = 'READY' AND attempts = 0 AND last_error LIKE '%left to others'";
    assert_eq!(app.count_where("compensations", left).await, 3);
    assert_eq!(app.attempt_statuses("E3").await, ["PAYING"]);
    app.clock.advance(minutes(15));
    app.run_until_idle().await;
    assert_eq!(app.find_order("E3").await["status"], "CLOSED");
    assert_eq!(app.count_where("withdrawals", "status = 'SUCCEEDED'").await, 1);
    app.end().await;
}
