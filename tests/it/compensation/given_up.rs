//! What was given up is done once its thing has ended, and no sooner: whatever else is open about it, alive, or behind it.

use payonce::channels::sandbox::{FaultKind, FaultOp};
use payonce::infra::duty::Batch;
use payonce::operations;
use reqwest::Method;
use serde_json::json;

use crate::races::write_attempt;
use crate::support::{OPERATOR, TestApp, minutes};

/// What a person is shown of it.
const SHOWN: &str = "kind = 'DEAD_TASK' AND status = 'OPEN'";

/// Shows to a person what was given up, as whoever gives it up does.
async fn show(app: &TestApp) {
    app.sql(
        "INSERT INTO exceptions (exception_id, kind, merchant_id, order_no, subject, detail, created_at, updated_at)
         SELECT 'ex_' || id, 'DEAD_TASK', merchant_id, order_no, subject, 'silent', now(), now()
         FROM compensations WHERE status = 'DEAD'
         ON CONFLICT DO NOTHING",
    )
    .await;
}

/// A task for an order's attempt, which nobody takes up for an hour.
async fn task(app: &TestApp, action: &str, (order_no, attempt): (&str, &str), status: &str) {
    app.sql(&format!(
        "INSERT INTO compensations (kind, action, subject, merchant_id, order_no, status, attempts, due_at, created_at,
                                    updated_at)
         VALUES ('REDO_BUSINESS', '{action}', '{attempt}', 'demo', '{order_no}', '{status}', 13,
                 now() + interval '1 h', now(), now())"
    ))
    .await;
}

/// An attempt that has its link, and the call for that link, which was given up: it has ended all the same.
async fn ended(app: &TestApp, order_no: &str) -> String {
    let attempt = app.order_to_pay(order_no).await;
    task(app, "DRIVE_PAY_ORDER", (order_no, &attempt), "DEAD").await;
    show(app).await;
    attempt
}

/// One run of the duty; gives how much is given up still, and how much of that a person is shown.
async fn walk(app: &TestApp) -> (i64, i64) {
    let run = operations::settle_given_up(&app.instance.app).await;
    assert_eq!(run.expect("a run"), Batch::Done);
    (app.count_where("compensations", "status = 'DEAD'").await, app.count_where("exceptions", SHOWN).await)
}

#[tokio::test]
async fn what_else_is_open_about_a_thing_that_has_ended_waits_for_its_person() {
    let app = TestApp::start().await;
    let attempt = ended(&app, "G1").await;
    app.sql(&format!(
        "INSERT INTO exceptions (exception_id, kind, merchant_id, order_no, subject, detail, created_at, updated_at)
         VALUES ('ex_other', 'CONTRADICTION', 'demo', 'G1', '{attempt}', 'it cannot be', now(), now())"
    ))
    .await;
    assert_eq!(walk(&app).await, (0, 0));
    assert_eq!(app.open_exception().await["exception_id"], "ex_other");
    let resolved = app.exceptions("status=RESOLVED").await[0].clone();
    assert_eq!(
        (&resolved["kind"], &resolved["action"], &resolved["resolved_by"]),
        (&json!("DEAD_TASK"), &json!("NONE"), &json!("payonce"))
    );
    app.end().await;
}

#[tokio::test]
async fn what_was_given_up_stands_while_another_task_for_its_thing_is_alive() {
    let app = TestApp::start().await;
    for (order_no, status) in [("G2", "READY"), ("G3", "RUNNING")] {
        let attempt = ended(&app, order_no).await;
        task(&app, "CLOSE_PAY_ORDER", (order_no, &attempt), status).await;
    }
    assert_eq!(walk(&app).await, (2, 2));
    app.sql("UPDATE compensations SET status = 'DONE' WHERE action = 'CLOSE_PAY_ORDER'").await;
    assert_eq!(walk(&app).await, (0, 0));
    app.end().await;
}

#[tokio::test]
async fn what_a_person_is_shown_of_two_tasks_for_one_thing_stands_until_both_are_tried_again() {
    let app = TestApp::start().await;
    for order_no in ["G5", "G6"] {
        let attempt = ended(&app, order_no).await;
        task(&app, "CLOSE_PAY_ORDER", (order_no, &attempt), "DEAD").await;
    }
    let open = async || app.count_where("exceptions", SHOWN).await;
    let body = json!({"reason": "the channel is well again"});
    for (action, left) in [("DRIVE_PAY_ORDER", 2), ("CLOSE_PAY_ORDER", 1)] {
        let dead = app
            .admin_get("/admin/compensations?status=DEAD&order_no=G5&merchant_id=demo")
            .await
            .expect(200)
            .body;
        let tasks = dead["data"].as_array().expect("a page");
        let task = tasks.iter().find(|task| task["action"] == action).expect(action);
        let path = format!("/admin/compensations/{}/retry", task["task_id"]);
        app.admin_post(&path, body.clone()).await.expect(200);
        assert_eq!(open().await, left, "{action}");
    }
    for (action, left) in [("CLOSE_PAY_ORDER", 1), ("DRIVE_PAY_ORDER", 0)] {
        let many = json!({"status": "DEAD", "action": action, "reason": "the channel is well again"});
        app.admin_post("/admin/compensations/retry", many).await.expect(200);
        assert_eq!(open().await, left, "{action}");
    }
    let resolved = app.exceptions("status=RESOLVED").await;
    assert_eq!(resolved.len(), 2);
    assert!(resolved.iter().all(|shown| shown["reason"] == "it is tried again"), "{resolved:?}");
    app.run_until_idle().await;
    app.end().await;
}

#[tokio::test]
async fn what_is_given_up_again_and_again_is_given_up_once() {
    let app = TestApp::start().await;
    for _ in 0..3 {
        // As by a sweep, which finds it without a living task.
        app.sql(
            "INSERT INTO compensations (kind, action, subject, payload, due_at, created_at, updated_at)
             VALUES ('REPLAY_UPDATE', 'APPLY_UPDATE', 'unreadable', '\"nonsense\"', now() - interval '1 h', now(), now())",
        )
        .await;
        app.run_until_idle().await;
        assert_eq!(app.count_where("compensations", "status = 'DEAD'").await, 1);
    }
    assert_eq!(app.count_where("compensations", "status = 'DONE'").await, 2);
    assert_eq!(app.count_where("exceptions", SHOWN).await, 1);
    app.end().await;
}

#[tokio::test]
async fn one_run_walks_all_that_was_given_up_and_no_page_ends_within_a_thing() {
    let app = TestApp::start().await;
    app.order_to_pay("G4").await;
    app.close("G4").await.expect(200);
    app.run_until_idle().await;
    // A callback that is forgotten has ended. The two tasks for the attempt are the 500th of all and the next.
    app.sql(
        "INSERT INTO compensations (kind, action, subject, status, attempts, due_at, created_at, updated_at)
         SELECT 'REDO_BUSINESS', 'REMATCH_CALLBACK',
                CASE WHEN g < 500 THEN 'a/' ELSE 'z/' END || lpad(g::text, 4, '0'), 'DEAD', 13, now(), now(), now()
         FROM generate_series(1, 1200) AS g;
         INSERT INTO compensations (kind, action, subject, merchant_id, order_no, status, attempts, due_at, created_at,
                                    updated_at)
         SELECT 'REDO_BUSINESS', action, pay_order_id, merchant_id, order_no, 'DEAD', 13, now(),
                updated_at - interval '1 s', now()
         FROM pay_orders, (VALUES ('DRIVE_PAY_ORDER'), ('CLOSE_PAY_ORDER')) AS task (action)",
    )
    .await;
    show(&app).await;
    assert_eq!(app.count_where("exceptions", SHOWN).await, 1_201);
    assert_eq!(walk(&app).await, (0, 0));
    assert_eq!(app.count_where("compensations", "status = 'DONE' AND attempts = 13").await, 1_202);
    app.end().await;
}

#[tokio::test]
async fn a_callback_whose_search_was_given_up_waits_for_a_person_until_it_has_its_pay_order() {
    let app = TestApp::start().await;
    app.order("G5").await;
    // A name that is not cut at the wrong place.
    app.deliver(&app.success("e/1", "po_early", "t1", 1990)).await;
    app.sql("UPDATE compensations SET status = 'DEAD', attempts = 13 WHERE action = 'REMATCH_CALLBACK'")
        .await;
    show(&app).await;
    assert_eq!(walk(&app).await, (1, 1));
    assert_eq!(app.verdict_of("e/1").await.as_deref(), Some("UNMATCHED"));
    assert_eq!(app.open_exception().await["subject"], "sandbox/e/1");

    write_attempt(&mut app.direct_connection().await, "G5", "po_early").await;
    let kept = app.admin_get("/admin/webhooks?verdict=UNMATCHED").await.expect(200).body["data"][0].clone();
    let path = format!("/admin/webhooks/{}/replay", kept["webhook_id"].as_str().expect("an id"));
    app.admin_post(&path, json!({"reason": "its pay order is here"})).await.expect(200);
    assert_eq!(app.verdict_of("e/1").await.as_deref(), Some("APPLIED"));
    assert_eq!(app.status_of("G5").await, "PAID");
    assert_eq!(walk(&app).await, (0, 0));
    app.end().await;
}

/// Answers of channels that were put aside, and whose tasks were given up: (subject, payload) of each.
async fn give_up_updates(app: &TestApp, updates: &str) {
    app.sql(&format!(
        "INSERT INTO compensations (kind, action, subject, payload, status, attempts, due_at, created_at, updated_at)
         SELECT 'REPLAY_UPDATE', 'APPLY_UPDATE', subject, payload, 'DEAD', 13, now(), now(), now()
         FROM ({updates}) AS given (subject, payload)"
    ))
    .await;
    show(app).await;
}

#[tokio::test]
async fn an_update_that_was_given_up_waits_until_what_it_says_is_known() {
    let app = TestApp::start().await;
    app.top_up("T1", "u1", 1_000).await;
    let paid = app.paid("G6").await;
    app.order("G7").await;
    for op in [FaultOp::Create, FaultOp::Refund, FaultOp::Payout] {
        app.fault(op, FaultKind::TimeoutBefore, 100, Some(1_200)).await;
    }
    app.pay_url("G7").await.expect(503);
    app.post("/refunds", json!({"refund_no": "R1", "order_no": "G6", "amount": 700})).await.expect(201);
    let withdrawal = json!({"withdrawal_no": "W1", "user_id": "u1", "amount": 600, "currency": "CNY",
                            "channel": "sandbox", "account": "u@example.com"});
    app.post("/withdrawals", withdrawal).await.expect(201);
    give_up_updates(
        &app,
        r#"SELECT 'update/' || pay_order_id, jsonb_build_object('what', 'LINK_MADE', 'pay_order_id', pay_order_id)
           FROM pay_orders WHERE order_no = 'G7'
           UNION ALL
           SELECT 'update/' || refund_id,
                  jsonb_build_object('what', 'REFUND_MADE', 'refund_id', refund_id, 'channel_refund_id', 'n')
           FROM refunds
           UNION ALL
           SELECT 'update/' || withdrawal_id,
                  jsonb_build_object('what', 'PAYOUT_MADE', 'withdrawal_id', withdrawal_id, 'channel_payout_id', 'n')
           FROM withdrawals
           UNION ALL
           SELECT 'spill:updates/1-0', '"nonsense"'"#,
    )
    .await;
    assert_eq!(walk(&app).await, (4, 4), "nothing of it has happened");

    app.call(Method::DELETE, "/sandbox/faults", OPERATOR, None).await.expect(200);
    app.clock.advance(minutes(1));
    app.run_until_idle().await;
    assert_eq!(app.attempt_statuses("G7").await, ["PAYING"]);
    assert_eq!((app.refunded("G6").await.1, app.cny_of("u1").await), (700, (400, 0)));
    assert_eq!(walk(&app).await, (1, 1));
    assert_eq!(app.open_exception().await["subject"], "spill:updates/1-0", "nobody knows what it says");

    // It is known of a refund that it was made, also once the channel has taken it back.
    app.take_refund_back("back", &app.refund_id("R1").await, &paid, 700).await;
    give_up_updates(
        &app,
        "SELECT 'update/' || refund_id, jsonb_build_object('what', 'REFUND_MADE', 'refund_id', refund_id,
                                                           'channel_refund_id', channel_refund_id)
         FROM refunds",
    )
    .await;
    assert_eq!(walk(&app).await, (1, 1));
    app.end().await;
}
