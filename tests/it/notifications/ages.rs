//! How long the outside has not heard, as it is measured.

use payonce::outbox;

use crate::support::TestApp;
use crate::support::app::metric;

#[tokio::test]
async fn the_oldest_that_waits_is_found_behind_any_number_of_others() {
    let app = TestApp::start().await;
    // Those of the first lanes are young, and more than are counted.
    app.sql(
        "SET session_replication_role = replica;
         INSERT INTO outbox (id, event, event_version, payload, created_at, open_deliveries) OVERRIDING SYSTEM VALUE
         SELECT g, 'story.told', 1, '{}',
                now() - CASE g WHEN 7 THEN interval '9000000 s' ELSE interval '1 s' END, 1
         FROM generate_series(1, 100010) AS g;
         INSERT INTO deliveries (event_id, kind, event, lane, body, status, due_at, created_at, updated_at)
         SELECT id, 'REPLAY_CALLBACK', 'story.told', CASE id WHEN 7 THEN 'z' ELSE 'a' END, '{}', 'PENDING',
                now() + interval '1 h', created_at, now()
         FROM outbox",
    )
    .await;
    // Stories beside this one set the same gauge of the process.
    app.eventually("it is as old as that", async || {
        outbox::publish_age(&app.instance.app.db, app.clock.now()).await.expect("measured");
        metric(&app, "payonce_outbox_oldest_seconds", &[]).await >= 9_000_000.0
    })
    .await;
    app.sql("DELETE FROM deliveries; DELETE FROM outbox").await;
    app.end().await;
}
