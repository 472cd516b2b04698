//! A channel that answers nobody, with a backlog, and the tasks of the others.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use payonce::app::App;
use payonce::channels::Channels;
use payonce::channels::sandbox::{FaultKind, FaultOp};
use payonce::compensation::Lane;
use payonce::drive;
use serde_json::json;

use super::stuck::stuck_orders;
use crate::support::silent::Silent;
use crate::support::{TestApp, TestOptions};

/// A second instance on the same stores, to which there is the silent channel too.
fn with_silent(app: &TestApp) -> (App, Silent) {
    let service = &app.instance.app;
    let sandbox = service.channels.get("sandbox").expect("the sandbox").clone();
    let silent = Silent::beside(sandbox.clone(), Duration::from_millis(2_500));
    let channels = Channels::new(vec![sandbox, Arc::new(silent.clone())]);
    let (config, ids) = (service.config.clone(), service.ids.clone());
    let both = App::new(config, ids, service.db.clone(), channels).expect("an instance");
    (both, silent)
}

/// Has so many stuck orders closed by tasks that are due.
async fn expire(app: &TestApp, lane: Lane, count: i64) {
    app.sql(&format!(
        "INSERT INTO compensations (kind, action, subject, merchant_id, order_no, lane, due_at, created_at, updated_at)
         SELECT 'REDO_BUSINESS', 'EXPIRE_ORDER', 'demo:S' || g, 'demo', 'S' || g, '{lane}', now() - interval '1 min', now(), now()
         FROM generate_series(1, {count}) AS g"
    ))
    .await;
}

/// How long a fresh task of the sandbox takes in that lane, behind so many of the silent channel.
async fn fresh_behind(lane: Lane, count: i64) {
    let app = TestApp::start().await;
    let (both, silent) = with_silent(&app);
    app.paid("F1").await;
    app.run_until_idle().await;
    stuck_orders(&app, count).await;
    app.sql("UPDATE pay_orders SET channel = 'silent' WHERE order_no LIKE 'S%'").await;
    expire(&app, lane, count).await;
    let post = app.post("/refunds", json!({"refund_no": "F1", "order_no": "F1"}));
    post.await.expect(201);
    app.sql(&format!("UPDATE compensations SET lane = '{lane}' WHERE action = 'DRIVE_REFUND'")).await;

    let since = Instant::now();
    // As its duty does: a session ends whenever nothing is in the air.
    let worker = tokio::spawn(async move {
        loop {
            drive::run_due(&both, lane).await.expect("a session");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    });
    app.eventually("the fresh one is done", async || app.refunded("F1").await.0 == "REFUNDED").await;
    let fresh = since.elapsed();
    let asked = silent.asked.load(Ordering::SeqCst);
    println!(
        "{lane}: behind {count} tasks of a silent channel, asked {asked} times, a fresh one took {fresh:?}"
    );
    // Past one after the other it would take half a minute and more.
    assert!(fresh < Duration::from_secs(8), "{fresh:?}");
    assert!(asked > 0, "it is asked all the same");
    let untried = app.count_where("compensations", "action = 'EXPIRE_ORDER' AND attempts = 0").await;
    assert!(untried > count / 2, "{untried} have lost no try");

    // It answers again, and its tasks come back by themselves.
    silent.speaks.store(true, Ordering::SeqCst);
    let closed = async || app.count_where("orders", "order_no LIKE 'S%' AND status = 'CLOSED'").await;
    let wanted = if lane == Lane::Realtime { 500 } else { 40 };
    app.eventually("they are closed", async || closed().await >= wanted).await;
    worker.abort();
    drop(worker.await);
    // What becomes of the rest is told elsewhere.
    app.sql(
        "DELETE FROM compensations WHERE order_no LIKE 'S%'; DELETE FROM order_history WHERE order_no LIKE 'S%';
         DELETE FROM outbox WHERE order_no LIKE 'S%'; DELETE FROM pay_orders WHERE order_no LIKE 'S%';
         DELETE FROM orders WHERE order_no LIKE 'S%'",
    )
    .await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fresh_task_does_not_wait_behind_thousands_of_a_silent_channel() {
    fresh_behind(Lane::Realtime, 5_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nor_does_an_old_one_in_the_lane_of_the_sweep() {
    fresh_behind(Lane::Sweep, 2_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refunds_in_hand_at_a_channel_that_is_silent_hold_up_nobody_elses_task() {
    // What is silent is so for longer than anybody waits.
    let vars = vec![("CHANNEL_DEADLINE_MS", "10000".to_owned()), ("DATABASE_ACQUIRE_MS", "20000".to_owned())];
    let app = TestApp::start_with(TestOptions { vars, ..TestOptions::default() }).await;
    let paid = app.paid("F1").await;
    app.run_until_idle().await;
    app.fault(FaultOp::Webhook, FaultKind::Drop, 1_000, None).await;
    app.fault(FaultOp::Refund, FaultKind::TimeoutBefore, 1_000, None).await;
    let service = &app.instance.app;
    service.handover.open();
    let mut in_hand = 0;
    loop {
        let asked = json!({"refund_no": format!("R{in_hand}"), "order_no": "F1", "amount": 1});
        if app.post("/refunds", asked).await.expect(201).text_of("status") == "PENDING" {
            break;
        }
        in_hand += 1;
    }
    assert!(in_hand > 256, "{in_hand}");

    stuck_orders(&app, 1).await;
    expire(&app, Lane::Realtime, 1).await;
    let since = Instant::now();
    let worker = tokio::spawn({
        let service = service.clone();
        async move { drive::run_due(&service, Lane::Realtime).await }
    });
    app.eventually("it is closed", async || {
        app.count_where("orders", "order_no = 'S1' AND status = 'CLOSED'").await == 1
    })
    .await;
    println!("beside {in_hand} refunds of a silent channel another task took {:?}", since.elapsed());
    let in_the_air = "action = 'DRIVE_REFUND' AND status = 'RUNNING'";
    let in_the_air = app.count_where("compensations", in_the_air).await;
    assert!(in_the_air >= in_hand, "{in_the_air} of {in_hand} are still in the air");
    worker.await.expect("a worker").expect("a session");

    // It speaks again, and each is made once.
    app.gateway.clear_faults().await.expect("no faults");
    app.clock.advance(Duration::from_secs(60));
    app.run_until_idle().await;
    let all = in_hand + 1;
    assert_eq!((app.gone_back(&paid).await, app.count("sandbox.refunds").await), (all, all));
    app.assert_invariants().await;
    app.end().await;
}
