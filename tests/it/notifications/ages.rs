//! How long the outside has not heard, as it is measured.

use payonce::outbox;
use serde_json::json;

use super::telling;
use crate::support::app::metric;
use crate::support::receiver::{Manner, Receiver};
use crate::support::{TestApp, seconds};

/// Waits until it is measured that somebody has not heard for so long. Stories beside this one set the same gauge of the
/// process.
async fn until_measured(app: &TestApp, what: &str, secs: std::ops::Range<f64>) {
    app.eventually(what, async || {
        outbox::publish_age(&app.instance.app.db, app.clock.now()).await.expect("measured");
        secs.contains(&metric(app, "payonce_outbox_oldest_seconds", &[]).await)
    })
    .await;
}

#[tokio::test]
async fn the_oldest_that_waits_is_found_behind_any_number_of_others() {
    let app = TestApp::start().await;
    // Those of the first lanes are young, and more than are counted.
    app.sql(
        "SET session_replication_role = replica;
         INSERT INTO outbox (id, event, event_version, payload, created_at) OVERRIDING SYSTEM VALUE
         SELECT g, 'story.told', 1, '{}',
                now() - CASE g WHEN 7 THEN interval '9000000 s' ELSE interval '1 s' END
         FROM generate_series(1, 100010) AS g;
         INSERT INTO deliveries (event_id, kind, event, lane, body, status, due_at, created_at, updated_at)
         SELECT id, 'REPLAY_CALLBACK', 'story.told', CASE id WHEN 7 THEN 'z' ELSE 'a' END, '{}', 'PENDING',
                now() + interval '1 h', created_at, now()
         FROM outbox",
    )
    .await;
    until_measured(&app, "it is as old as that", 9_000_000.0..9_001_000.0).await;
    app.sql("DELETE FROM deliveries; DELETE FROM outbox").await;
    app.end().await;
}

#[tokio::test]
async fn what_is_sent_again_is_as_old_as_the_wish() {
    let receiver = Receiver::start().await;
    let app = telling(&receiver).await;
    app.closed_order("A1").await;
    app.run_until_idle().await;
    app.closed_order("A2").await;
    app.sql(
        "UPDATE outbox SET created_at = created_at - interval '7000000 s';
         UPDATE outbox_queue SET queued_at = queued_at - interval '7000000 s';
         UPDATE deliveries SET created_at = created_at - interval '7000000 s'",
    )
    .await;
    until_measured(&app, "nobody was told of the second", 7_000_000.0..7_001_000.0).await;
    app.run_until_idle().await;

    // Nobody has looked at it yet; then it is on its way; then it has ended on the way and is sent once more.
    let again =
        json!({"merchant_id": "demo", "since": "2020-01-01T00:00:00Z", "reason": "the shop lost them"});
    assert_eq!(app.admin_post("/admin/outbox/resend", again.clone()).await.expect(200).body["events"], 2);
    app.clock.advance(seconds(300));
    until_measured(&app, "it waits for a turn", 300.0..400.0).await;
    receiver.behaves([Manner::status(503), Manner::status(503)]);
    app.run_until_idle().await;
    app.clock.advance(seconds(1_000));
    until_measured(&app, "it waits for its endpoint", 1_000.0..1_400.0).await;
    app.end().await;
}

#[tokio::test]
async fn what_was_delivered_can_be_looked_at_for_ninety_days() {
    let receiver = Receiver::start().await;
    let app = telling(&receiver).await;
    app.closed_order("A1").await;
    app.run_until_idle().await;
    assert_eq!(app.count_where("deliveries", "status = 'DELIVERED'").await, 1);
    for (days, kept) in [(89, 1), (2, 0)] {
        app.clock.advance(seconds(86_400 * days));
        outbox::forget_old(&app.instance.app.db, app.clock.now()).await.expect("forgotten");
        assert_eq!(app.count("deliveries").await, kept);
    }
    app.end().await;
}
