//! What ends although its tasks are given up, or about to be.

use payonce::channels::sandbox::{FaultKind, FaultOp};
use payonce::compensation::Lane;
use payonce::{drive, withdrawals};
use reqwest::Method;
use serde_json::json;

use super::{patient, waiting_refund};
use crate::support::{OPERATOR, TestApp, minutes};

/// What the channel has made.
struct Made {
    refund_id: String,
    withdrawal_id: String,
}

/// A refund and a withdrawal that wait for their workers after so many tries. The channel will make both, and answer
/// neither.
async fn waiting(app: &TestApp, tries: u32, silence_ms: u32) -> Made {
    app.top_up("T1", "u1", 1_000).await;
    waiting_refund(app, "E1").await;
    let body = json!({"withdrawal_no": "W1", "user_id": "u1", "amount": 600, "currency": "CNY",
                      "channel": "sandbox", "account": "u@example.com"});
    app.post("/withdrawals", body).await.expect(201);
    // What the channel says the story says.
    app.fault(FaultOp::Webhook, FaultKind::Drop, 1, None).await;
    for op in [FaultOp::Refund, FaultOp::Payout] {
        app.fault(op, FaultKind::TimeoutAfter, 1, Some(silence_ms)).await;
    }
    app.sql(&format!("UPDATE compensations SET attempts = {tries} WHERE status = 'READY'")).await;
    let id = sqlx::query_scalar("SELECT withdrawal_id FROM withdrawals");
    let withdrawal_id = id.fetch_one(&mut app.direct_connection().await).await.expect("its id");
    Made { refund_id: app.refund_id("E1").await, withdrawal_id }
}

/// What became of both is heard from somebody else than their workers, and written down.
async fn hear(app: &TestApp, made: &Made) {
    app.deliver(&app.refund_notice("made", &made.refund_id, "SUCCEEDED")).await;
    let number = format!("so_{}", made.withdrawal_id);
    let seen = withdrawals::ask_about(&app.instance.app, &made.withdrawal_id).await.expect("a look");
    let noted = withdrawals::note_made(&app.instance.app, &seen.expect("it is there").0, number).await;
    assert!(noted.expect("it is written"), "it is under way");
    assert_eq!(app.refunded("E1").await, ("REFUNDED".to_owned(), 1990));
    assert_eq!(app.cny_of("u1").await, (400, 0));
}

async fn tasks(app: &TestApp, status: &str) -> i64 {
    let of_both = format!("action IN ('DRIVE_REFUND', 'DRIVE_WITHDRAWAL') AND status = '{status}'");
    app.count_where("compensations", &of_both).await
}

/// Both were made once, and nobody is asked to see to anything.
async fn assert_is_over(app: &TestApp) {
    let open = app.exceptions("status=OPEN").await;
    assert!(open.is_empty(), "{open:#?}");
    assert_eq!((tasks(app, "DEAD").await, tasks(app, "DONE").await), (0, 2));
    assert_eq!((app.count("sandbox.refunds").await, app.count("sandbox.payouts").await), (1, 1));
    app.assert_books_agree_both_ways().await;
}

#[tokio::test]
async fn what_ends_during_the_last_try_of_its_task_is_not_given_up() {
    let app = patient().await;
    let made = waiting(&app, 12, 3_000).await;
    let told = async {
        app.eventually("the channel has made both", async || {
            app.count("sandbox.refunds").await + app.count("sandbox.payouts").await == 2
        })
        .await;
        hear(&app, &made).await;
    };
    let (driven, ()) = tokio::join!(drive::run_due(&app.instance.app, Lane::Realtime), told);
    driven.expect("a session");
    assert_is_over(&app).await;
    assert_eq!(app.exceptions("").await.len(), 0, "nobody was told");
    app.end().await;
}

#[tokio::test]
async fn what_has_ended_is_not_given_up_because_its_workers_died() {
    let app = TestApp::start().await;
    let made = waiting(&app, 0, 1).await;
    drive::run_due(&app.instance.app, Lane::Realtime).await.expect("a session");
    assert_eq!(tasks(&app, "READY").await, 2, "they are to be asked about");
    hear(&app, &made).await;
    // As if worker after worker had taken them and died.
    app.sql(
        "UPDATE compensations SET status = 'RUNNING', attempts = 15, due_at = now() - interval '1 s'
         WHERE status = 'READY'",
    )
    .await;
    app.run_until_idle().await;
    let lost = "action IN ('DRIVE_REFUND', 'DRIVE_WITHDRAWAL') AND attempts = 16";
    assert_eq!(app.count_where("compensations", lost).await, 2, "more often than can be");
    assert_is_over(&app).await;
    assert_eq!(app.exceptions("").await.len(), 0, "nobody was told");
    app.end().await;
}

#[tokio::test]
async fn an_order_that_was_paid_is_not_given_up_because_the_workers_of_its_end_died() {
    let app = TestApp::start().await;
    app.paid("E2").await;
    app.sql(
        "INSERT INTO compensations (kind, action, subject, merchant_id, order_no, attempts, due_at, created_at, updated_at)
         VALUES ('REDO_BUSINESS', 'EXPIRE_ORDER', 'demo:E2', 'demo', 'E2', 15, now() - interval '1 s', now(), now())",
    )
    .await;
    app.run_until_idle().await;
    let done = "action = 'EXPIRE_ORDER' AND status = 'DONE' AND attempts = 16";
    assert_eq!(app.count_where("compensations", done).await, 1);
    assert_eq!(app.exceptions("").await.len(), 0, "nobody was told");
    app.end().await;
}

#[tokio::test]
async fn what_was_given_up_and_ends_all_the_same_is_left_to_nobody() {
    let app = TestApp::start().await;
    let made = waiting(&app, 12, 1).await;
    drive::run_due(&app.instance.app, Lane::Realtime).await.expect("a session");
    assert_eq!((tasks(&app, "DEAD").await, app.exceptions("status=OPEN").await.len()), (2, 2));
    hear(&app, &made).await;
    assert_is_over(&app).await;
    app.end().await;
}

async fn dead(app: &TestApp, action: &str) -> i64 {
    app.count_where("compensations", &format!("action = '{action}' AND status = 'DEAD'")).await
}

#[tokio::test]
async fn what_was_given_up_about_an_order_ends_with_it_when_its_channel_is_back() {
    let app = TestApp::start().await;
    app.order_to_pay("E3").await;
    let paid = app.order_to_pay("E4").await;
    let payment = app.sandbox_pay(&paid, json!({"notify": false})).await.expect(200);
    app.fault(FaultOp::Close, FaultKind::TimeoutBefore, 1_000, Some(1_200)).await;
    app.clock.advance(minutes(40));
    app.run_until_idle().await;
    // As after many silent tries.
    app.sql("UPDATE compensations SET attempts = 12, due_at = now() - interval '1 h' WHERE status = 'READY'")
        .await;
    app.run_until_idle().await;
    assert_eq!((dead(&app, "EXPIRE_ORDER").await, dead(&app, "CLOSE_PAY_ORDER").await), (2, 2));
    assert_eq!(app.exceptions("status=OPEN").await.len(), 4, "each was shown to a person");
    assert_eq!((app.status_of("E3").await, app.status_of("E4").await), ("PENDING".into(), "PENDING".into()));

    // One is told to be paid, and the other is closed by the tasks that the sweep has written.
    app.deliver(&app.success("e4", &paid, payment.text_of("transaction_id"), 1990)).await;
    app.call(Method::DELETE, "/sandbox/faults", OPERATOR, None).await.expect(200);
    app.clock.advance(minutes(5));
    app.run_until_idle().await;
    assert_eq!((app.status_of("E3").await, app.status_of("E4").await), ("CLOSED".into(), "PAID".into()));
    assert_eq!(app.count_where("compensations", "status <> 'DONE'").await, 0);
    let open = app.exceptions("status=OPEN").await;
    assert!(open.is_empty(), "{open:#?}");
    app.end().await;
}

#[tokio::test]
async fn what_was_given_up_and_has_not_ended_waits_for_a_person() {
    let app = TestApp::start().await;
    for order_no in ["E5", "E6"] {
        app.order_to_pay(order_no).await;
    }
    app.close("E5").await.expect(200);
    // Both have their links. A call for another one came to the channel when E5 was closed, and its trade stands there.
    app.sql(
        "INSERT INTO compensations (kind, action, subject, merchant_id, order_no, status, attempts, due_at, created_at,
                                    updated_at)
         SELECT 'REDO_BUSINESS', action, pay_order_id, merchant_id, order_no, 'DEAD', 13, now(),
                updated_at + interval '1 ms', now()
         FROM pay_orders, (VALUES ('DRIVE_PAY_ORDER'), ('CLOSE_PAY_ORDER')) AS task (action)
         WHERE action = 'DRIVE_PAY_ORDER' OR order_no = 'E5';
         INSERT INTO exceptions (exception_id, kind, merchant_id, order_no, subject, detail, created_at, updated_at)
         SELECT 'ex_' || order_no, 'DEAD_TASK', merchant_id, order_no, pay_order_id, 'silent', now(), now()
         FROM pay_orders",
    )
    .await;
    app.run_until_idle().await;
    assert_eq!(app.count_where("compensations", "status = 'DEAD' AND order_no = 'E5'").await, 2);
    assert_eq!(app.count_where("compensations", "status = 'DEAD' AND order_no = 'E6'").await, 0);
    assert_eq!(app.open_exception().await["order_no"], "E5");
    app.end().await;
}
