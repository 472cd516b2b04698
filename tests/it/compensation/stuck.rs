//! Orders that got stuck by the thousands, and customers who buy meanwhile.

use std::time::{Duration, Instant};

use payonce::channels::sandbox::{FaultKind, FaultOp};

use crate::support::TestApp;
use crate::support::service::is_full;

/// Orders past their deadline, each with a link that must be closed at the channel first.
pub async fn stuck_orders(app: &TestApp, count: i64) {
    app.sql(&format!(
        "SET session_replication_role = replica;
         INSERT INTO orders (merchant_id, order_no, user_id, amount, currency, expires_at, attempts, created_at, updated_at)
         SELECT 'demo', 'S' || g, 'u1', 1990, 'CNY', now() - interval '90 s' + g * interval '1 us', 1,
                now() - interval '1 h', now() - interval '1 h' FROM generate_series(1, {count}) AS g;
         INSERT INTO order_history (merchant_id, order_no, seq, to_status, event, created_at)
         SELECT 'demo', 'S' || g, 1, 'PENDING', 'CREATED', now() - interval '1 h' FROM generate_series(1, {count}) AS g;
         INSERT INTO pay_orders (pay_order_id, merchant_id, order_no, payer_id, channel, status, amount, currency,
                                 pay_url, expires_at, created_at, updated_at, version)
         SELECT 'po_s' || g, 'demo', 'S' || g, 'u1', 'sandbox', 'PAYING', 1990, 'CNY', 'http://127.0.0.1/', now(),
                now() - interval '1 h', now() - interval '1 h', 2 FROM generate_series(1, {count}) AS g;
         INSERT INTO order_history (merchant_id, order_no, pay_order_id, seq, from_status, to_status, event, created_at)
         SELECT 'demo', 'S' || g, 'po_s' || g, seq, CASE seq WHEN 2 THEN 'INIT' END,
                CASE seq WHEN 1 THEN 'INIT' ELSE 'PAYING' END, CASE seq WHEN 1 THEN 'BEGUN' ELSE 'LINK_MADE' END,
                now() - interval '1 h'
         FROM generate_series(1, {count}) AS g, generate_series(1, 2) AS seq;
         SET session_replication_role = origin;
         ANALYZE orders; ANALYZE pay_orders"
    ))
    .await;
}

/// How long each of some new orders takes to get its link, the shortest first.
async fn latencies(app: &TestApp, prefix: &str, count: usize) -> Vec<Duration> {
    let mut all = Vec::new();
    for number in 0..count {
        let order_no = format!("{prefix}{number}");
        let since = Instant::now();
        app.order_to_pay(&order_no).await;
        all.push(since.elapsed());
    }
    all.sort();
    all
}

/// Their median and their 99th percentile, and what the calm ones are to them.
fn in_words(all: &[Duration], calm: &[Duration]) -> String {
    let at = |of: &[Duration], percent: usize| of[(of.len() - 1) * percent / 100];
    let ratio = |percent| 100 * at(all, percent).as_micros() / at(calm, percent).as_micros().max(1);
    format!(
        "{:?} (p50, {} % of the calm) and {:?} (p99, {} %)",
        at(all, 50),
        ratio(50),
        at(all, 99),
        ratio(99)
    )
}

async fn swept(app: &TestApp) -> i64 {
    app.count_where("orders", "status = 'CLOSED' AND order_no LIKE 'S%'").await
}

/// Customers buy until every stuck order has got its task; gives how long they took, one by one.
async fn buy_until_adopted(app: &TestApp, count: i64) -> Vec<Duration> {
    let adopted = "action = 'EXPIRE_ORDER' AND order_no LIKE 'S%'";
    let (since, mut all) = (Instant::now(), Vec::new());
    while app.count_where("compensations", adopted).await < count {
        all.extend(latencies(app, &format!("A{}-", all.len()), 20).await);
        // The grace that the invariants give.
        assert!(since.elapsed() < Duration::from_secs(60), "some are still left alone");
    }
    all.sort();
    println!("each of them had its task after {:?}", since.elapsed());
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_orders_without_number_delay_no_fresh_one() {
    let app = TestApp::start_working().await;
    let calm = latencies(&app, "C", 100).await;
    let count = if is_full() { 100_000 } else { 10_000 };
    stuck_orders(&app, count).await;
    let adopting = buy_until_adopted(&app, count).await;

    // What somebody waits for: a link whose first call met silence is made by its task.
    app.fault(FaultOp::Create, FaultKind::TimeoutBefore, 1, Some(1_200)).await;
    app.order("F0").await;
    app.pay_url("F0").await.expect(503);
    let since = Instant::now();
    app.eventually("the fresh task is done", async || app.attempt_statuses("F0").await == ["PAYING"]).await;
    let fresh = since.elapsed();

    let (before, since) = (swept(&app).await, Instant::now());
    let storm = latencies(&app, "D", 100).await;
    let (beside, busy) = (swept(&app).await - before, since.elapsed());
    // Whatever plan a claim is made by, it takes no more than it asked for.
    let in_hand = app.count_where("compensations", "lane = 'SWEEP' AND status = 'RUNNING'").await;
    assert!(in_hand <= 32, "{in_hand} old tasks are in the air");

    // As many again while nobody is there.
    let served = &app.instance.app.served;
    app.eventually("the last customer has gone", async || !served.is_anybody()).await;
    let (before, since) = (swept(&app).await, Instant::now());
    app.eventually("they are swept", async || swept(&app).await >= before + beside.max(20)).await;
    let (alone, quiet) = (swept(&app).await - before, since.elapsed());
    let per_minute = |count: i64, took: Duration| {
        60_000 * u128::try_from(count).expect("it grows") / took.as_millis().max(1)
    };
    let left = count - swept(&app).await;
    println!(
        "{count} stuck orders, {left} left: a fresh task was done after {fresh:?}; order and link take {}, while they \
         are given their tasks {}; {} a minute are swept beside customers and {} alone",
        in_words(&storm, &calm),
        in_words(&adopting, &calm),
        per_minute(beside, busy),
        per_minute(alone, quiet)
    );
    assert!(left > 0, "the sweep was over too soon to measure anything");
    assert!(fresh < Duration::from_secs(4), "a retry is due after a second: {fresh:?}");
    assert!(swept(&app).await > 0 && beside > 0, "the sweep goes on meanwhile");
    assert!(per_minute(beside, busy) < per_minute(alone, quiet), "old orders make way for customers");
    app.end().await;
}
