//! Tasks without number, that are open and that are over.

use std::time::{Duration, Instant};

use payonce::compensation::Lane;
use payonce::drive;
use payonce::operations;
use serde_json::json;
use sqlx::Executor;

use super::stuck::stuck_orders;
use crate::support::service::is_full;
use crate::support::{TestApp, until_waiting};

#[tokio::test]
async fn a_sweep_is_done_in_slices_until_nothing_is_left_alone() {
    let app = TestApp::start().await;
    stuck_orders(&app, 1_700).await;
    app.sql("DELETE FROM compensations").await;
    let (mut slices, mut written) = (0, 0);
    loop {
        // No time at all: a batch of each of its parts.
        let swept = operations::sweep_slice(&app.instance.app, Duration::ZERO).await.expect("a slice");
        (slices, written) = (slices + 1, written + swept.written);
        if !swept.has_more {
            break;
        }
        assert!(slices < 20, "it comes to an end");
    }
    assert!(slices >= 3, "{slices} slices, {written} tasks written");
    let driven = "SELECT count(DISTINCT order_no) FROM compensations WHERE status = 'READY'";
    let driven: i64 =
        sqlx::query_scalar(driven).fetch_one(&mut app.direct_connection().await).await.expect("a count");
    assert_eq!(driven, 1_700, "each order has its task");
    let swept = app.admin_post("/admin/sweep", json!({"reason": "once more"})).await.expect(200).body;
    assert_eq!((&swept["written"], &swept["has_more"]), (&json!(0), &json!(false)));
    // They are no story of this test: what becomes of them is told elsewhere.
    app.sql(
        "DELETE FROM compensations; DELETE FROM order_history; DELETE FROM pay_orders; DELETE FROM orders",
    )
    .await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sweep_beside_another_one_says_that_there_is_more() {
    let app = TestApp::start().await;
    stuck_orders(&app, 1_200).await;
    // Links that were never made, of orders that have their time.
    app.sql(
        "SET session_replication_role = replica;
         UPDATE orders SET expires_at = now() + interval '1 h';
         UPDATE pay_orders SET status = 'INIT', pay_url = NULL, expires_at = now() + interval '1 h'",
    )
    .await;
    let mut other = app.direct_connection().await;
    other
        .execute(
            "BEGIN;
             INSERT INTO compensations (kind, action, subject, merchant_id, order_no, lane, due_at, created_at, updated_at)
             SELECT 'REDO_BUSINESS', 'DRIVE_PAY_ORDER', pay_order_id, merchant_id, order_no, 'SWEEP', now(), now(), now()
             FROM pay_orders ORDER BY pay_order_id LIMIT 500",
        )
        .await
        .expect("the first of them");
    let ours = app.instance.app.clone();
    let slice = async move || operations::sweep_slice(&ours, Duration::ZERO).await.expect("a slice");
    let sweeping = tokio::spawn({
        let slice = slice.clone();
        async move { slice().await }
    });
    until_waiting(&app, 1).await;
    other.execute("COMMIT").await.expect("written");
    let swept = sweeping.await.expect("no panic");
    assert_eq!((swept.written, swept.has_more), (0, true), "the other one had all of these");
    while slice().await.has_more {}
    assert_eq!(app.count_where("compensations", "action = 'DRIVE_PAY_ORDER'").await, 1_200);
    app.sql(
        "DELETE FROM compensations; DELETE FROM order_history; DELETE FROM pay_orders; DELETE FROM orders",
    )
    .await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_workers_take_meanwhile_ends_no_retry_of_many() {
    let app = TestApp::start().await;
    app.sql(
        "INSERT INTO compensations (kind, action, subject, attempts, last_error, due_at, created_at, updated_at)
         SELECT 'REDO_BUSINESS', 'DRIVE_PAY_ORDER', 'po_' || g, 1, 'silent', now() + interval '1 h', now(), now()
         FROM generate_series(1, 700) AS g",
    )
    .await;
    let mut worker = app.direct_connection().await;
    worker
        .execute(
            "BEGIN;
             UPDATE compensations SET status = 'RUNNING', attempts = 2, last_error = NULL
             WHERE id IN (SELECT id FROM compensations ORDER BY id LIMIT 500)",
        )
        .await
        .expect("a claim");
    let body = json!({"action": "DRIVE_PAY_ORDER", "reason": "the channel is well again"});
    let (retried, ()) = tokio::join!(app.admin_post("/admin/compensations/retry", body), async {
        until_waiting(&app, 1).await;
        worker.execute("COMMIT").await.expect("claimed");
    });
    assert_eq!(retried.expect(200).body["retried"], 200);
    assert_eq!(app.count_where("compensations", "status = 'READY' AND due_at <= now()").await, 200);
    app.sql("TRUNCATE compensations").await;
    app.end().await;
}

/// How long it takes to claim so many due tasks with nothing to do, and to end them.
async fn lap(app: &TestApp, name: &str) -> Duration {
    app.sql(&format!(
        "INSERT INTO compensations (kind, action, subject, attempts, due_at, created_at, updated_at)
         SELECT 'REDO_BUSINESS', 'DRIVE_PAY_ORDER', '{name}' || g, 1, now() - interval '1 s', now(), now()
         FROM generate_series(1, 1000) AS g"
    ))
    .await;
    let since = Instant::now();
    drive::run_due(&app.instance.app, Lane::Realtime).await.expect("a session");
    since.elapsed()
}

/// The least of a few, because others use the machine too.
async fn laps(app: &TestApp, name: &str) -> Duration {
    let mut least = Duration::MAX;
    for number in 0..5 {
        least = least.min(lap(app, &format!("{name}-{number}-")).await);
    }
    least
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_million_tasks_that_are_done_slow_no_claim() {
    let app = TestApp::start().await;
    let empty = laps(&app, "empty").await;
    let count = if is_full() { 10_000_000 } else { 1_000_000 };
    let filled = Instant::now();
    app.sql(&format!(
        "SET synchronous_commit = off;
         INSERT INTO compensations (kind, action, subject, merchant_id, order_no, status, attempts, due_at, created_at,
                                    updated_at)
         SELECT 'REDO_BUSINESS', 'DRIVE_REFUND', 'rf_' || g, 'demo', 'O' || g, 'DONE', 1, now(), now(), now()
         FROM generate_series(1, {count}) AS g;
         ANALYZE compensations"
    ))
    .await;
    println!("{count} tasks that are done were written in {:?}", filled.elapsed());
    let full = laps(&app, "full").await;
    for path in [
        "/admin/compensations?subject=rf_7",
        "/admin/compensations?merchant_id=demo&order_no=O7",
        "/admin/overview",
    ] {
        let since = Instant::now();
        app.admin_get(path).await.expect(200);
        println!("GET {path} took {:?}", since.elapsed());
    }
    app.sql("TRUNCATE compensations").await;
    // Once more, because what else the machine does may have changed meanwhile.
    let empty = empty.max(laps(&app, "none").await);
    println!("1000 tasks take {empty:?} beside none and {full:?} beside {count} that are done");
    assert!(full < 2 * empty + Duration::from_millis(50), "{empty:?} and {full:?}");
    app.sql("TRUNCATE compensations").await;
    app.end().await;
}
