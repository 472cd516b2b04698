//! How fast a large day is compared, and in how much memory: a million lines with `PAYONCE_FULL=1`, a tenth otherwise.

use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::json;

use super::command::{ROLES, file, yesterday};
use super::start;
use crate::commands::{environment, errors, json_of, payonce};
use crate::support::service::is_full;
use crate::support::statements::{Line, assert_explained, sandbox_csv};
use crate::support::usage::Usage;

/// What it may take of memory, in KiB.
const MEMORY: u64 = 200 * 1024;

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
    let (app, day) = (start("safe").await, yesterday());
    let count = if is_full() { 1_000_000 } else { 100_000 };
    app.sql(&seed(day, count)).await;
    app.sql("VACUUM ANALYZE pay_orders").await;
    app.sql("VACUUM ANALYZE trades").await;
    let lines: Vec<Line> = sqlx::query_as(
        "SELECT 'PAYMENT' AS kind, pay_order_id AS our_id, transaction_id AS channel_id, amount, currency, paid_at AS at
         FROM pay_orders",
    )
    // The service's own connections end what takes so long.
    .fetch_all(&mut app.direct_connection().await)
    .await
    .expect("lines");
    let path = file(&app, "large.csv", &sandbox_csv(day, &lines));
    drop(lines);

    // A process of its own: what it takes of memory is what the day takes.
    let (path_text, date) = (path.to_str().expect("text"), day.to_string());
    let words = ["-o", "json", "reconcile", "--channel", "sandbox", "--date", &date, "--file", path_text];
    let mut command =
        payonce(&[&words[..], &ROLES].concat(), &environment(&app.database_url, &app.redis_url));
    let started = Instant::now();
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
    let id = child.id().expect("it is there");
    let (mut ended, mut most) = (std::pin::pin!(child.wait_with_output()), 0);
    let output = loop {
        tokio::select! {
            output = &mut ended => break output.expect("it ends"),
            () = tokio::time::sleep(Duration::from_millis(20)) => most = Usage::most_of(id).unwrap_or(most),
        }
    };
    println!("{count} lines against {count} payments in {:?}, {most} KiB at most", started.elapsed());
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    let run = json_of(&output);
    assert_explained(&run);
    assert_eq!(
        (&run["status"], &run["lines"], &run["differences"]),
        (&json!("DONE"), &json!(count), &json!({}))
    );
    assert!((1..MEMORY).contains(&most), "{most} KiB");
    std::fs::remove_file(path).ok();
    // What was seeded has no orders: it ends here, without the invariants.
    app.sql("SET session_replication_role = replica; TRUNCATE pay_orders, trades CASCADE").await;
    app.end().await;
}
