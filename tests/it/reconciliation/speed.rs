//! How fast a large day is compared, and in how much memory: a million lines with `PAYONCE_FULL=1`, a tenth otherwise.

use std::time::Instant;

use payonce::reconciliation;
use serde_json::json;

use super::start;
use crate::support::service::is_full;
use crate::support::statements::{Line, assert_explained, sandbox_csv};
use crate::support::usage::Usage;

/// Payments that are spread over a day, as the service would have written what is compared of them.
fn seed(day: time::Date, count: usize) -> String {
    format!(
        "BEGIN; SET LOCAL session_replication_role = replica;
         CREATE TEMPORARY TABLE seeded ON COMMIT DROP AS
         SELECT 'po_S' || g AS pay_order_id, 'S' || g AS order_no, 'txn_' || md5(g::text) AS trade,
                '{day} 00:00Z'::timestamptz + g * interval '24 h' / {count} - interval '1 ms' AS at
         FROM generate_series(1, {count}) AS g;
         INSERT INTO pay_orders (pay_order_id, merchant_id, order_no, payer_id, channel, status, amount, currency, pay_url,
                                 transaction_id, paid_at, expires_at, created_at, updated_at, version)
         SELECT pay_order_id, 'demo', order_no, 'u1', 'sandbox', 'PAID', 1990, 'CNY', 'https://pay', trade, at, at, at, at, 3
         FROM seeded;
         INSERT INTO trades (channel, transaction_id, pay_order_id, created_at)
         SELECT 'sandbox', trade, pay_order_id, at FROM seeded;
         COMMIT"
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_day_is_compared_quickly_and_in_little_memory() {
    let app = start("safe").await;
    let count = if is_full() { 1_000_000 } else { 100_000 };
    let day = app.wait_for_ten();
    app.sql(&seed(day, count)).await;
    app.sql("VACUUM ANALYZE pay_orders").await;
    app.sql("VACUUM ANALYZE trades").await;
    app.sleep_over();
    let lines: Vec<Line> = sqlx::query_as(
        "SELECT 'PAYMENT' AS kind, pay_order_id AS our_id, transaction_id AS channel_id, amount, currency, paid_at AS at
         FROM pay_orders",
    )
    .fetch_all(app.instance.app.db.pool())
    .await
    .expect("lines");
    let file = sandbox_csv(day, &lines);
    drop(lines);
    let (started, before) = (Instant::now(), Usage::of(std::process::id()));
    let id = app.bring("sandbox", day, file.as_bytes()).await;
    drop(file);
    println!("uploaded after {:?}", started.elapsed());
    let (mut most, mut status) = (0, json!("OPEN"));
    while status != "DONE" {
        reconciliation::run_due(&app.instance.app).await.expect("carried on");
        most = most.max(Usage::of(std::process::id()).grown_since(&before));
        let now = app.reconciliation(&id).await;
        if now["status"] != status {
            println!("{} after {:?}", now["status"], started.elapsed());
        }
        status = now["status"].clone();
        assert!(now["fault"].is_null(), "{now:#}");
    }
    let run = app.reconciliation(&id).await;
    assert_explained(&run);
    assert_eq!((&run["lines"], &run["differences"]), (&json!(count), &json!({})));
    println!("{count} lines against {count} payments in {:?}, {most} KiB more at most", started.elapsed());
    // The memory is the whole process's: told of by itself it is this day's, beside other stories it is theirs too.
    assert!(!is_full() || most < 200 * 1024, "{most} KiB");
    // What was seeded has no orders: it ends here, without the invariants.
    app.sql("SET session_replication_role = replica; TRUNCATE pay_orders, trades CASCADE").await;
    app.end().await;
}
