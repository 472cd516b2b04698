//! A channel that answers nobody, with a backlog, and the tasks of the others.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use payonce::app::App;
use payonce::channels::Channels;
use payonce::compensation::Lane;
use payonce::drive;

use super::stuck::stuck_orders;
use crate::support::TestApp;
use crate::support::silent::Silent;

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

/// How long a fresh task of the sandbox takes in that lane, behind so many of the silent channel.
async fn fresh_behind(lane: Lane, count: i64) {
    let app = TestApp::start().await;
    let (both, silent) = with_silent(&app);
    app.paid("F1").await;
    app.run_until_idle().await;
    stuck_orders(&app, count).await;
    app.sql(&format!(
        "UPDATE pay_orders SET channel = 'silent' WHERE order_no LIKE 'S%';
         INSERT INTO compensations (kind, action, subject, merchant_id, order_no, lane, due_at, created_at, updated_at)
         SELECT 'REDO_BUSINESS', 'EXPIRE_ORDER', 'demo:S' || g, 'demo', 'S' || g, '{lane}', now() - interval '1 min', now(), now()
         FROM generate_series(1, {count}) AS g"
    ))
    .await;
    let post = app.post("/refunds", serde_json::json!({"refund_no": "F1", "order_no": "F1"}));
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
