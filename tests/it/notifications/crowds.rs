//! More endpoints than anybody has room for.

use super::telling;
use crate::support::TestApp;
use crate::support::receiver::Receiver;

/// Closed orders of a merchant, each with an endpoint of its own on this machine, and an event of each.
async fn endpoints_without_number(app: &TestApp, merchant: &str, count: usize) {
    app.merchant(merchant, "hold").await;
    let now = app.clock.now();
    app.sql(&format!(
        "SET session_replication_role = replica;
         INSERT INTO orders (merchant_id, order_no, user_id, status, close_reason, amount, currency, expires_at, notify_url,
                             created_at, updated_at)
         SELECT '{merchant}', 'H' || g, 'u1', 'CLOSED', 'CANCELLED', 1, 'CNY', '{now}',
                'http://127.1.' || g / 250 || '.' || g % 250 + 1 || ':9/', '{now}', '{now}'
         FROM generate_series(1, {count}) AS g;
         SET session_replication_role = origin;
         INSERT INTO outbox (merchant_id, order_no, event, event_version, payload, created_at)
         SELECT '{merchant}', 'H' || g, 'story.told', 1, '{{}}', '{now}' FROM generate_series(1, {count}) AS g"
    ))
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_merchant_with_thousands_of_endpoints_takes_a_few_lanes_and_nobody_s_turn() {
    let receiver = Receiver::start().await;
    let app = telling(&receiver).await;
    endpoints_without_number(&app, "crowd", 3_000).await;
    let relay = &app.instance.app.relay;
    relay.run_once().await.expect("a turn");
    app.closed_order("C1").await;
    // One turn for each 512 new events.
    for _ in 0..8 {
        relay.run_once().await.expect("a turn");
    }
    app.eventually("the others hear", async || {
        relay.run_once().await.expect("a turn");
        receiver.told_of("C1").len() == 1
    })
    .await;
    let lanes = "SELECT count(DISTINCT lane) FROM deliveries WHERE merchant_id = 'crowd'";
    let lanes: i64 =
        sqlx::query_scalar(lanes).fetch_one(&mut app.direct_connection().await).await.expect("a count");
    assert_eq!(lanes, 16);
    app.sql(
        "DELETE FROM deliveries WHERE merchant_id = 'crowd'; DELETE FROM outbox WHERE merchant_id = 'crowd';
             DELETE FROM exceptions; DELETE FROM orders WHERE merchant_id = 'crowd'",
    )
    .await;
    app.end().await;
}
