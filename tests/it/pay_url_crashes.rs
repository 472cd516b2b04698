//! The pay URL after a crash: what was begun is driven on under its own number.

use std::time::Duration;

use payonce::channels::sandbox::{FaultKind, FaultOp};
use serde_json::json;

use crate::support::{Doomed, SECRET_KEY, TestApp, seconds};

/// Leaves what a process leaves that died between its first commit and the channel's answer.
async fn leave_begun(app: &TestApp, order_no: &str, pay_order_id: &str) {
    let now = "now()";
    app.execute(format!(
        "UPDATE orders SET attempts = attempts + 1 WHERE order_no = '{order_no}';
         INSERT INTO pay_orders (pay_order_id, merchant_id, order_no, payer_id, channel, amount, currency,
                                 expires_at, created_at, updated_at)
         SELECT '{pay_order_id}', merchant_id, order_no, user_id, 'sandbox', amount, currency, expires_at, {now}, {now}
         FROM orders WHERE order_no = '{order_no}';
         INSERT INTO order_history (merchant_id, order_no, pay_order_id, seq, to_status, event, created_at)
         VALUES ('demo', '{order_no}', '{pay_order_id}', 1, 'INIT', 'BEGUN', {now});
         INSERT INTO compensations (kind, action, subject, merchant_id, order_no, due_at, created_at, updated_at)
         VALUES ('REDO_BUSINESS', 'DRIVE_PAY_ORDER', '{pay_order_id}', 'demo', '{order_no}',
                 {now} + interval '2 s', {now}, {now})"
    ))
    .await;
}

#[tokio::test]
async fn what_a_crash_left_is_driven_on_by_the_next_request() {
    let app = TestApp::start().await;
    app.order("A1").await;
    leave_begun(&app, "A1", "po_LEFT").await;
    assert_eq!(app.pay_url("A1").await.expect(200).text_of("pay_order_id"), "po_LEFT");
    assert_eq!(app.attempt_statuses("A1").await, ["PAYING"]);
    app.sandbox_pay("po_LEFT", json!({})).await.expect(200);
    app.run_until_idle().await;
    assert_eq!(app.status_of("A1").await, "PAID");
    app.end().await;
}

#[tokio::test]
async fn what_a_crash_left_is_driven_on_by_its_task() {
    let app = TestApp::start().await;
    app.order("A1").await;
    leave_begun(&app, "A1", "po_LEFT").await;
    app.clock.advance(seconds(3));
    app.run_until_idle().await;
    assert_eq!(app.attempt_statuses("A1").await, ["PAYING"]);
    assert_eq!(app.pay_url("A1").await.expect(200).text_of("pay_order_id"), "po_LEFT");
    app.end().await;
}

#[tokio::test]
async fn another_payer_does_not_inherit_what_a_crash_left() {
    let app = TestApp::start().await;
    app.order("A1").await;
    leave_begun(&app, "A1", "po_LEFT").await;
    let link = app.pay_url_by("A1", "u2").await.expect(200);
    assert_ne!(link.text_of("pay_order_id"), "po_LEFT");
    assert_eq!(app.attempt_statuses("A1").await, ["CLOSED", "PAYING"]);
    app.clock.advance(seconds(5));
    app.run_until_idle().await;
    assert_eq!(app.attempt_statuses("A1").await, ["CLOSED", "PAYING"]);
    app.end().await;
}

#[tokio::test]
async fn a_task_whose_worker_died_is_in_nobodys_way() {
    let app = TestApp::start().await;
    app.order("A1").await;
    leave_begun(&app, "A1", "po_LEFT").await;
    app.execute(
        "UPDATE compensations SET status = 'RUNNING', attempts = 1, due_at = now() + interval '25 s'"
            .to_owned(),
    )
    .await;
    assert_eq!(app.pay_url("A1").await.expect(200).text_of("pay_order_id"), "po_LEFT");
    app.clock.advance(seconds(30));
    app.run_until_idle().await;
    assert_eq!(app.attempt_statuses("A1").await, ["PAYING"]);
    app.end().await;
}

/// Kills an instance while the channel is making the order's link; gives the attempt that it had begun.
async fn crash_in_the_middle(app: &TestApp, order_no: &str, lock_ttl_ms: u32) -> String {
    let doomed = Doomed::beside(app, lock_ttl_ms).await;
    app.watch_calls(FaultOp::Create, 600).await;
    let ask = json!({"order_no": order_no, "payer_id": "u1", "channel": "sandbox"});
    let url = format!("{}/pay/url", doomed.app.url);
    let request = app.http.post(url).bearer_auth(SECRET_KEY).json(&ask).send();
    let (answer, begun) = tokio::join!(request, async {
        let begun = app.begun_attempt_of(order_no).await;
        doomed.kill();
        begun
    });
    assert!(answer.is_err(), "nobody was left to answer");
    assert_eq!(app.attempt_statuses(order_no).await, ["INIT"]);
    begun
}

#[tokio::test]
async fn after_a_kill_in_the_middle_of_the_call_the_next_request_gets_the_link() {
    let app = TestApp::start().await;
    app.order("A1").await;
    let begun = crash_in_the_middle(&app, "A1", 10_000).await;
    // The dead instance's lock still stands in Redis.
    assert_eq!(app.pay_url("A1").await.expect(200).text_of("pay_order_id"), begun);
    assert_eq!(app.count("sandbox.trades").await, 1);
    app.run_until_idle().await;
    app.end().await;
}

#[tokio::test]
async fn after_a_kill_in_the_middle_of_the_call_the_task_makes_the_link() {
    let app = TestApp::start().await;
    app.order("A1").await;
    let begun = crash_in_the_middle(&app, "A1", 300).await;
    tokio::time::sleep(Duration::from_millis(400)).await;
    for _ in 0..4 {
        app.clock.advance(seconds(12));
        app.run_until_idle().await;
    }
    assert_eq!(app.attempt_statuses("A1").await, ["PAYING"]);
    assert_eq!(app.pay_url("A1").await.expect(200).text_of("pay_order_id"), begun);
    app.end().await;
}

/// The channel gets the call of an instance that is dead by now.
async fn late_call(app: &TestApp, pay_order_id: &str) {
    app.execute(format!(
        "INSERT INTO sandbox.trades (pay_order_id, amount, currency, subject, payer_id, notify_url, status, expires_at,
                                     created_at, updated_at)
         SELECT pay_order_id, amount, currency, 'Order ' || order_no, payer_id, 'http://127.0.0.1:9/', 'OPEN', expires_at,
                now(), now()
         FROM pay_orders WHERE pay_order_id = '{pay_order_id}'"
    ))
    .await;
}

/// Its close found nothing to close at the channel, and whoever had asked for the link died before it could.
#[tokio::test]
async fn a_trade_that_a_dead_instance_opened_behind_the_close_is_closed() {
    let app = TestApp::start().await;
    for order_no in ["A1", "A2"] {
        app.order(order_no).await;
    }
    leave_begun(&app, "A1", "po_CANCELLED").await;
    leave_begun(&app, "A2", "po_REPLACED").await;
    app.close("A1").await.expect(200);
    app.pay_url_by("A2", "u2").await.expect(200);
    assert_eq!(app.attempt_statuses("A1").await, ["CLOSED"]);
    assert_eq!(app.attempt_statuses("A2").await, ["CLOSED", "PAYING"]);
    for attempt in ["po_CANCELLED", "po_REPLACED"] {
        late_call(&app, attempt).await;
    }
    app.run_until_idle().await;
    // By now whoever asked has given up, or lives no more.
    app.clock.advance(seconds(60));
    app.run_until_idle().await;
    let left_open = "status = 'OPEN' AND pay_order_id IN ('po_CANCELLED', 'po_REPLACED')";
    assert_eq!(app.count_where("sandbox.trades", left_open).await, 0);
    assert_eq!(app.count_where("compensations", "status NOT IN ('DONE', 'DEAD')").await, 0);
    app.end().await;
}

/// Whoever goes on with what a dead instance began is refused, and what that one had sent comes behind it.
#[tokio::test]
async fn a_trade_that_a_dead_instance_opened_behind_a_refusal_is_closed() {
    let app = TestApp::start().await;
    for order_no in ["A1", "A2", "A3"] {
        app.order(order_no).await;
    }
    leave_begun(&app, "A1", "po_ASKED").await;
    leave_begun(&app, "A2", "po_DRIVEN").await;
    app.fault(FaultOp::Create, FaultKind::Refuse, 3, None).await;
    app.pay_url("A1").await.expect(402);
    app.pay_url("A3").await.expect(402);
    app.clock.advance(seconds(3));
    app.run_until_idle().await;
    for order_no in ["A1", "A2", "A3"] {
        assert_eq!(app.attempt_statuses(order_no).await, ["FAILED"], "{order_no}");
    }
    // Nobody but its own request can have asked for the link of the third.
    let late = "action = 'CLOSE_PAY_ORDER' AND status NOT IN ('DONE', 'DEAD')";
    assert_eq!(app.count_where("compensations", late).await, 2);
    for attempt in ["po_ASKED", "po_DRIVEN"] {
        late_call(&app, attempt).await;
    }
    app.clock.advance(seconds(60));
    app.run_until_idle().await;
    assert_eq!(app.count_where("sandbox.trades", "status = 'OPEN'").await, 0);
    assert_eq!(app.count_where("compensations", "status NOT IN ('DONE', 'DEAD')").await, 0);
    app.end().await;
}
