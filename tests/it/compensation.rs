//! Tasks: two lanes, leases that are renewed, poison, and what operators do with many of them.

use std::time::{Duration, Instant};

use payonce::channels::sandbox::{FaultKind, FaultOp};
use payonce::compensation::Lane;
use payonce::drive;
use payonce::infra::duty::Batch;
use serde_json::{Value, json};

use crate::support::app::metric;
use crate::support::{TestApp, TestOptions, seconds};

mod elsewhere;
mod ended;
mod given_up;
mod leases;
mod many;
mod poison;
mod refused;
mod silence;
mod stuck;

/// An instance whose channel may take ten seconds, and a statement longer, and whose workers count as dead after so many
/// milliseconds.
async fn leasing_for(millis: u32) -> TestApp {
    let vars = vec![
        ("CHANNEL_DEADLINE_MS", "10000".to_owned()),
        ("DATABASE_STATEMENT_MS", "15000".to_owned()),
        ("TASK_LEASE_MS", millis.to_string()),
    ];
    TestApp::start_with(TestOptions { vars, ..TestOptions::default() }).await
}

/// The same with leases that outlive what a busy machine keeps a renewal waiting.
async fn patient() -> TestApp {
    leasing_for(2_500).await
}

/// A refund of a paid order that waits for its worker.
async fn waiting_refund(app: &TestApp, number: &str) {
    app.paid(number).await;
    app.run_until_idle().await;
    app.post("/refunds", json!({"refund_no": number, "order_no": number})).await.expect(201);
}

async fn tries(app: &TestApp) -> i64 {
    let tries = "SELECT max(attempts)::bigint FROM compensations WHERE action = 'DRIVE_REFUND'";
    sqlx::query_scalar(tries).fetch_one(&mut app.direct_connection().await).await.expect("tries")
}

#[tokio::test]
async fn a_slow_worker_keeps_its_task_and_a_dead_one_loses_it() {
    let app = patient().await;
    waiting_refund(&app, "L1").await;
    app.fault(FaultOp::Refund, FaultKind::Delay, 1, Some(6_500)).await;
    let slow = tokio::spawn({
        let app = app.instance.app.clone();
        async move { drive::run_due(&app, Lane::Realtime).await }
    });
    app.eventually("the slow one has it", async || tries(&app).await == 1).await;
    let since = Instant::now();
    while !slow.is_finished() {
        // More than two leases long another worker looks, and finds nothing due.
        assert_eq!(drive::run_due(&app.instance.app, Lane::Realtime).await.expect("a look"), Batch::Empty);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(since.elapsed() > Duration::from_millis(5_000), "it was slow");
    slow.await.expect("no panic").expect("a session");
    assert_eq!((tries(&app).await, app.refunded("L1").await.0), (1, "REFUNDED".to_owned()));

    waiting_refund(&app, "L2").await;
    app.fault(FaultOp::Refund, FaultKind::Delay, 1, Some(6_500)).await;
    let doomed = tokio::spawn({
        let app = app.instance.app.clone();
        async move { drive::run_due(&app, Lane::Realtime).await }
    });
    let held = "action = 'DRIVE_REFUND' AND status = 'RUNNING'";
    app.eventually("the doomed one has it", async || app.count_where("compensations", held).await == 1).await;
    tokio::time::sleep(Duration::from_millis(1_750)).await;
    doomed.abort();
    let died = Instant::now();
    while tries(&app).await < 2 {
        drive::run_due(&app.instance.app, Lane::Realtime).await.expect("a session");
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(died.elapsed() < Duration::from_secs(5), "nobody took it over");
    }
    println!("taken over {:?} after the death, with a lease of 2.5 s", died.elapsed());
    app.run_until_idle().await;
    assert_eq!(app.refunded("L2").await.0, "REFUNDED");
    assert_eq!(app.sandbox_books().await, (2 * 1990, 2 * 1990), "each was made once");
    app.end().await;
}

#[tokio::test]
async fn what_waits_for_room_loses_no_try() {
    let app = patient().await;
    for number in 0..10 {
        app.paid(&format!("R{number}")).await;
    }
    app.run_until_idle().await;
    for number in 0..10 {
        let no = format!("R{number}");
        app.post("/refunds", json!({"refund_no": no, "order_no": no})).await.expect(201);
    }
    app.sql("UPDATE compensations SET lane = 'SWEEP' WHERE action = 'DRIVE_REFUND'").await;
    // Longer than a lease, and than anybody waits for one of the four rooms.
    app.fault(FaultOp::Refund, FaultKind::Delay, 10, Some(3_000)).await;
    app.eventually("each is done at its first try", async || {
        drive::run_due(&app.instance.app, Lane::Sweep).await.expect("a session");
        let tried = "action = 'DRIVE_REFUND' AND status = 'DONE' AND attempts = 1";
        app.count_where("compensations", tried).await == 10
    })
    .await;
    assert!(metric(&app, "payonce_compensations_total", &[("outcome", "untried")]).await >= 1.0);
    assert_eq!(app.count_where("refunds", "status = 'SUCCEEDED'").await, 10);
    assert_eq!(app.sandbox_books().await, (10 * 1990, 10 * 1990));
    app.end().await;
}

#[tokio::test]
async fn a_poison_task_ends_dead_with_its_reason_and_blocks_nothing() {
    let app = TestApp::start().await;
    waiting_refund(&app, "P1").await;
    let huge = "x".repeat(1_000_000);
    for (kind, action, subject, payload, attempts) in [
        ("REPLAY_UPDATE", "APPLY_UPDATE", "malformed", r#"'{"what": "ELSE"}'"#, 0),
        ("REPLAY_UPDATE", "APPLY_UPDATE", "a text", r#"'"nonsense"'"#, 0),
        ("REPLAY_UPDATE", "APPLY_UPDATE", "deep", "repeat('[', 400)::text || repeat(']', 400)", 0),
        ("REDO_BUSINESS", "OF_ANOTHER_VERSION", "unknown", "NULL", 12),
        // Of nothing, and larger than anything: it is over at once.
        ("REDO_BUSINESS", "DRIVE_REFUND", huge.get(..2_000).expect("long"), "NULL", 0),
        ("REDO_BUSINESS", "EXPIRE_ORDER", "no order", "NULL", 0),
    ] {
        app.sql(&format!(
            "INSERT INTO compensations (kind, action, subject, payload, attempts, due_at, created_at, updated_at)
             VALUES ('{kind}', '{action}', '{subject}', ({payload})::jsonb, {attempts}, now() - interval '1 h', now(), now())"
        ))
        .await;
    }
    app.run_until_idle().await;
    assert_eq!(app.refunded("P1").await.0, "REFUNDED", "its neighbour was driven");
    let dead = app.admin_get("/admin/compensations?status=DEAD").await.expect(200).body;
    let mut reasons: Vec<(String, String)> = dead["data"]
        .as_array()
        .expect("a page")
        .iter()
        .map(|task| {
            let text = |name: &str| task[name].as_str().expect("a text").to_owned();
            (text("subject"), text("last_error"))
        })
        .collect();
    reasons.sort();
    let subjects: Vec<&str> = reasons.iter().map(|(subject, _)| subject.as_str()).collect();
    assert_eq!(subjects, ["a text", "deep", "malformed", "unknown"], "{reasons:#?}");
    assert!(reasons[3].1.contains("OF_ANOTHER_VERSION"), "{reasons:?}");
    assert!(reasons[0].1.contains("cannot be read"), "{reasons:?}");
    assert_eq!(app.count_where("exceptions", "kind = 'DEAD_TASK' AND status = 'OPEN'").await, 4);
    assert!(metric(&app, "payonce_compensations_total", &[("outcome", "dead")]).await >= 4.0);
    app.end().await;
}

/// Withdrawals whose tasks were given up while the channel was silent.
async fn given_up(app: &TestApp, count: usize) {
    for number in 0..count {
        let no = format!("W{number}");
        app.top_up(&format!("T-{no}"), &no, 1_000).await;
        let body = json!({"withdrawal_no": no, "user_id": no, "amount": 600, "currency": "CNY",
                          "channel": "sandbox", "account": "u@example.com"});
        app.post("/withdrawals", body).await.expect(201);
        app.give_up_task_of_withdrawal(&no).await;
    }
}

async fn retry(app: &TestApp, body: Value) -> Value {
    app.admin_post("/admin/compensations/retry", body).await.expect(200).body
}

#[tokio::test]
async fn many_tasks_are_counted_and_then_tried_again() {
    let app = TestApp::start().await;
    given_up(&app, 3).await;
    let path = "/admin/compensations/retry";
    let dead = |dry_run: bool| json!({"status": "DEAD", "action": "DRIVE_WITHDRAWAL", "dry_run": dry_run});
    assert_eq!(app.admin_post(path, dead(false)).await.problem(422), "VALIDATION_FAILED", "a reason");
    let counted = retry(&app, dead(true)).await;
    assert_eq!(counted, json!({"dry_run": true, "matched": 3, "retried": 0, "has_more": false}));
    assert_eq!(retry(&app, json!({"merchant_id": "other", "dry_run": true})).await["matched"], 0);
    assert_eq!(app.count("admin_log").await, 0, "a count is no deed");

    let body = json!({"status": "DEAD", "reason": "the channel is well again"});
    let retried = retry(&app, body.clone()).await;
    assert_eq!(retried, json!({"dry_run": false, "matched": 3, "retried": 3, "has_more": false}));
    assert_eq!(app.count_where("compensations", "status = 'READY' AND lane = 'SWEEP'").await, 3);
    assert_eq!(app.count_where("exceptions", "status = 'OPEN'").await, 0);
    app.run_until_idle().await;
    assert_eq!(app.count_where("withdrawals", "status = 'SUCCEEDED'").await, 3);
    assert_eq!(app.count("sandbox.payouts").await, 3);
    assert_eq!(retry(&app, body).await["retried"], 0, "nothing is left to retry");
    let logged = "action = 'compensations.retry_many' AND target = 'status=DEAD'";
    assert_eq!(app.count_where("admin_log", logged).await, 2);
    app.end().await;
}

#[tokio::test]
async fn everything_about_an_order_is_tried_at_once() {
    let app = TestApp::start().await;
    app.order("O1").await;
    app.fault(FaultOp::Create, FaultKind::TimeoutAfter, 1, Some(1_200)).await;
    app.pay_url("O1").await.expect(503);
    app.sql(
        "UPDATE compensations SET due_at = due_at + interval '6 h', attempts = 11, last_error = 'silent'",
    )
    .await;
    let done = app.admin_post("/admin/orders/O1/compensate", json!({"reason": "the buyer waits"})).await;
    assert_eq!(done.expect(200).body, json!({"retried": 1, "written": 0}));
    app.run_until_idle().await;
    assert_eq!(app.attempt_statuses("O1").await, ["PAYING"]);

    // A refund whose task somebody took away by hand.
    waiting_refund(&app, "O2").await;
    app.sql("DELETE FROM compensations WHERE action = 'DRIVE_REFUND'").await;
    let done = app.admin_post("/admin/orders/O2/compensate", json!({"reason": "the buyer waits"})).await;
    assert_eq!(done.expect(200).body, json!({"retried": 0, "written": 1}));
    app.run_until_idle().await;
    assert_eq!(app.refunded("O2").await.0, "REFUNDED");
    for of_nobody in
        ["NONE/compensate", "NONE/compensate?merchant_id=demo", "O2/compensate?merchant_id=other"]
    {
        let path = format!("/admin/orders/{of_nobody}");
        assert_eq!(app.admin_post(&path, json!({"reason": "r"})).await.problem(404), "ORDER_NOT_FOUND");
    }
    assert_eq!(app.count_where("admin_log", "action = 'orders.compensate'").await, 2, "of what was done");
    let timeline = app.admin_get("/admin/orders/O2/timeline").await.expect(200).text;
    assert!(timeline.contains("orders.compensate"), "{timeline}");
    app.end().await;
}

/// A caller took it over from its tries, by which their failure was forgotten, and died.
#[tokio::test]
async fn what_waits_behind_a_dead_caller_is_tried_again_with_its_order_and_among_many() {
    let app = TestApp::start().await;
    for no in ["O1", "O2"] {
        app.order(no).await;
        app.fault(FaultOp::Create, FaultKind::TimeoutAfter, 1, Some(1_200)).await;
        app.pay_url(no).await.expect(503);
    }
    let taken_over = async |ago: &str| {
        app.sql(&format!(
            "UPDATE compensations SET due_at = now() + interval '6 h', attempts = 11, last_error = NULL,
                                      updated_at = now() - interval '{ago}'"
        ))
        .await;
    };
    let matching = async || retry(&app, json!({"status": "READY", "dry_run": true})).await["matched"].clone();
    let compensate =
        async || app.admin_post("/admin/orders/O1/compensate", json!({"reason": "the buyer waits"})).await;
    // Who may be at it still is let go on.
    taken_over("10 s").await;
    assert_eq!(compensate().await.expect(200).body, json!({"retried": 0, "written": 0}));
    assert_eq!(matching().await, 0);
    taken_over("2 min").await;
    assert_eq!(matching().await, 2);
    assert_eq!(compensate().await.expect(200).body, json!({"retried": 1, "written": 0}));
    let many = json!({"status": "READY", "reason": "the channel is well again"});
    assert_eq!(retry(&app, many).await["retried"], 1, "the other one is due already");
    app.run_until_idle().await;
    assert_eq!(
        (app.attempt_statuses("O1").await, app.attempt_statuses("O2").await),
        (vec!["PAYING".to_owned()], vec!["PAYING".to_owned()])
    );
    app.end().await;
}

#[tokio::test]
async fn a_sweep_finds_what_was_left_alone() {
    let app = TestApp::start().await;
    waiting_refund(&app, "S1").await;
    app.sql("DELETE FROM compensations").await;
    let dry = json!({"dry_run": true});
    assert_eq!(app.admin_post("/admin/sweep", dry.clone()).await.expect(200).body["left_alone"], json!([]));
    app.clock.advance(seconds(61));
    let found = app.admin_post("/admin/sweep", dry).await.expect(200).body;
    assert_eq!(
        found,
        json!({"left_alone": [{"action": "DRIVE_REFUND", "count": 1}], "written": 0, "has_more": false})
    );
    let swept = app.admin_post("/admin/sweep", json!({"reason": "after the outage"})).await.expect(200).body;
    assert_eq!(swept["written"], 1);
    assert_eq!(app.count_where("compensations", "lane = 'SWEEP' AND status = 'READY'").await, 1);
    app.run_until_idle().await;
    assert_eq!(app.refunded("S1").await.0, "REFUNDED");
    app.end().await;
}

#[tokio::test]
async fn what_cannot_be_looked_for_in_time_hides_nothing_else_that_was_left_alone() {
    // With the settings that everybody has.
    let app = TestApp::start().await;
    app.top_up("T1", "u1", 1_000).await;
    waiting_refund(&app, "S2").await;
    let body = json!({"withdrawal_no": "W1", "user_id": "u1", "amount": 600, "currency": "CNY",
                      "channel": "sandbox", "account": "u@example.com"});
    app.post("/withdrawals", body).await.expect(201);
    app.sql("DELETE FROM compensations").await;
    app.clock.advance(seconds(61));
    let mut backlog = app.direct_connection().await;
    sqlx::raw_sql("BEGIN; LOCK TABLE refunds IN ACCESS EXCLUSIVE MODE")
        .execute(&mut backlog)
        .await
        .expect("a table in which everything takes long");
    let found = app.admin_post("/admin/sweep", json!({"dry_run": true})).await.expect(200).body;
    assert_eq!(
        found,
        json!({"left_alone": [{"action": "DRIVE_WITHDRAWAL", "count": 1}], "written": 0, "has_more": false,
               "not_seen": ["DRIVE_REFUND"]})
    );
    let swept = app.admin_post("/admin/sweep", json!({"reason": "after the outage"})).await.expect(200).body;
    assert_eq!(
        (&swept["written"], &swept["has_more"], &swept["not_seen"]),
        (&json!(1), &json!(false), &json!(["DRIVE_REFUND"]))
    );
    sqlx::raw_sql("ROLLBACK").execute(&mut backlog).await.expect("it is over");
    let swept = app.admin_post("/admin/sweep", json!({"reason": "and again"})).await.expect(200).body;
    assert_eq!((&swept["written"], &swept["not_seen"]), (&json!(1), &Value::Null));
    app.run_until_idle().await;
    assert_eq!(app.refunded("S2").await.0, "REFUNDED");
    assert_eq!(app.count_where("withdrawals", "status = 'SUCCEEDED'").await, 1);
    app.end().await;
}

#[tokio::test]
async fn a_paused_lane_rests_everywhere_until_it_is_told_to_go_on() {
    let app = TestApp::start().await;
    let other = TestApp::start_with(TestOptions { workers: true, ..TestOptions::over(&app) }).await;
    let paused = app.admin_post("/admin/lanes/REALTIME/pause", json!({"reason": "the channel moves"})).await;
    assert_eq!(paused.expect(200).body["data"][0]["paused_by"], "operator");
    app.paid("P1").await;
    app.run_until_idle().await;
    // Nor does it take in hand what is asked of it.
    other.post("/refunds", json!({"refund_no": "P1", "order_no": "P1"})).await.expect(201);
    // Many looks of the other instance.
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    let lane = app.admin_get("/admin/overview").await.expect(200).body["lanes"][0].clone();
    assert_eq!(
        (&lane["lane"], &lane["due"], &lane["reason"]),
        (&json!("REALTIME"), &json!(1), &json!("the channel moves"))
    );
    // Stories beside this one set the same gauges of the process.
    app.eventually("the gauge says so", async || {
        payonce::operations::publish(&app.instance.app).await.expect("figures");
        metric(&app, "payonce_lane_paused_seconds", &[("lane", "REALTIME")]).await > 1.0
    })
    .await;
    assert_eq!(app.find_refund("P1").await["status"], "PENDING");

    let path = "/admin/lanes/NONE/pause";
    assert_eq!(app.admin_post(path, json!({"reason": "r"})).await.problem(404), "NOT_FOUND");
    app.admin_post("/admin/lanes/REALTIME/resume", json!({"reason": "it has moved"})).await.expect(200);
    app.eventually("it goes on", async || app.find_refund("P1").await["status"] == "SUCCEEDED").await;
    assert_eq!(app.count_where("admin_log", "action IN ('lanes.pause', 'lanes.resume')").await, 2);
    other.instance.stop().await;
    app.end().await;
}

#[tokio::test]
async fn the_command_sweeps_and_says_how_much_is_left() {
    let app = TestApp::start().await;
    waiting_refund(&app, "C1").await;
    app.sql("DELETE FROM compensations; UPDATE refunds SET updated_at = now() - interval '2 min'").await;
    let sweep = async |args: &[&str]| {
        let environment = [
            ("DATABASE_URL", app.database_url.as_str()),
            ("REDIS_URL", app.redis_url.as_str()),
            ("ADMIN_TOKENS", "operator:an-operator-token-of-30-bytes!"),
            ("ENCRYPTION_KEY", "a-secret-of-more-than-24-bytes"),
            ("SANDBOX_SECRET", "a-secret-of-more-than-24-bytes"),
        ];
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_payonce"));
        command.env_clear().envs(environment).args(["-o", "json", "sweep"]).args(args);
        let output = command.output().await.expect("a process");
        let shown = serde_json::from_slice::<Value>(&output.stdout);
        (output.status.code(), shown.unwrap_or_else(|_| panic!("no JSON: {output:?}")))
    };
    let found = json!([{"action": "DRIVE_REFUND", "count": 1}]);
    let counted = sweep(&["--dry-run"]).await;
    assert_eq!(counted, (Some(0), json!({"left_alone": found, "written": 0, "waiting": 0, "left": 0})));
    let written = sweep(&["--reason", "after the outage", "--no-wait"]).await;
    assert_eq!(written, (Some(0), json!({"left_alone": found, "written": 1, "waiting": 1, "left": 1})));
    let counted = sweep(&["--dry-run"]).await;
    assert_eq!(counted, (Some(0), json!({"left_alone": [], "written": 0, "waiting": 1, "left": 1})));
    let stuck = sweep(&["--reason", "nobody works", "--patience", "1"]).await;
    assert_eq!(stuck, (Some(3), json!({"left_alone": [], "written": 0, "waiting": 1, "left": 1})));
    let looked_on = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        app.run_until_idle().await;
    };
    let ((code, swept), ()) = tokio::join!(sweep(&["--reason", "and again"]), looked_on);
    assert_eq!((code, &swept["written"], &swept["left"]), (Some(0), &json!(0), &json!(0)));
    assert_eq!(app.refunded("C1").await.0, "REFUNDED");
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_whose_things_have_ended_cost_a_share_of_a_statement_each() {
    let app = TestApp::start().await;
    app.paid("D1").await;
    // Attempts of one order that came to their ends long ago, each with its task: only the tasks matter here.
    const COUNT: i64 = 5_000;
    app.sql(&format!(
        "INSERT INTO compensations (kind, action, subject, attempts, due_at, created_at, updated_at)
         SELECT 'REDO_BUSINESS', 'DRIVE_PAY_ORDER', 'po_' || g, 1, now() - interval '1 s', now(), now()
         FROM generate_series(1, {COUNT}) AS g"
    ))
    .await;
    let since = Instant::now();
    drive::run_due(&app.instance.app, Lane::Realtime).await.expect("a session");
    let took = since.elapsed();
    println!("{COUNT} tasks done in {took:?}: {:.0} a second", COUNT as f64 / took.as_secs_f64());
    assert_eq!(app.count_where("compensations", "status = 'DONE'").await, COUNT);
    assert!(took < Duration::from_secs(15), "{took:?}");
    app.end().await;
}

#[tokio::test]
async fn a_channel_that_acts_and_then_times_out_has_acted_once() {
    let app = TestApp::start().await;
    let silence = async |op| app.fault(op, FaultKind::TimeoutAfter, 1, Some(1_200)).await;
    let later = async || {
        // The try that meets silence, and the one after it.
        for _ in 0..2 {
            app.clock.advance(seconds(20));
            app.run_until_idle().await;
        }
    };

    app.order("A1").await;
    silence(FaultOp::Create).await;
    app.pay_url("A1").await.expect(503);
    later().await;
    assert_eq!(
        (app.attempt_statuses("A1").await, app.count("sandbox.trades").await),
        (vec!["PAYING".into()], 1)
    );

    let id = app.attempts_of("A1").await.remove(0)["pay_order_id"].as_str().expect("an id").to_owned();
    app.sandbox_pay(&id, json!({"notify": false})).await.expect(200);
    silence(FaultOp::Query).await;
    let look = format!("/pay/{id}");
    assert_eq!(app.get(&look).await.expect(200).body["status"], "PAYING", "no answer says nothing");
    silence(FaultOp::Close).await;
    assert_eq!(app.post("/orders/A1/close", json!({})).await.problem(503), "CHANNEL_UNAVAILABLE");
    later().await;
    assert_eq!(app.status_of("A1").await, "PAID", "the close had met the money");

    app.order_to_pay("A2").await;
    silence(FaultOp::Close).await;
    app.post("/orders/A2/close", json!({})).await.expect(503);
    later().await;
    assert_eq!(app.attempt_statuses("A2").await, ["CLOSED"]);

    silence(FaultOp::Refund).await;
    app.post("/refunds", json!({"refund_no": "A1", "order_no": "A1"})).await.expect(201);
    later().await;
    assert_eq!(app.refunded("A1").await, ("REFUNDED".to_owned(), 1990));

    app.top_up("T1", "u1", 1_000).await;
    silence(FaultOp::Payout).await;
    let body = json!({"withdrawal_no": "W1", "user_id": "u1", "amount": 600, "currency": "CNY",
                      "channel": "sandbox", "account": "u@example.com"});
    app.post("/withdrawals", body).await.expect(201);
    later().await;
    assert_eq!(app.get("/withdrawals/W1").await.expect(200).body["status"], "SUCCEEDED");
    assert_eq!((app.count("sandbox.payouts").await, app.count("sandbox.refunds").await), (1, 1));
    assert_eq!(app.sandbox_books().await, (1990 + 1000, 1990));
    app.end().await;
}
