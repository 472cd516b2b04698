//! Endpoints that ask to be left alone, for a while or for good.

use std::time::Duration;

use serde_json::json;

use super::telling;
use crate::support::receiver::{Manner, Receiver};
use crate::support::{TestApp, seconds};

fn too_many() -> Manner {
    Manner::Answer(429, "Retry-After: 120\r\n", String::new())
}

#[tokio::test]
async fn an_endpoint_that_asks_for_a_pause_is_left_alone_by_every_event() {
    let (receiver, own) = (Receiver::start().await, Receiver::start().await);
    let app = telling(&receiver).await;
    receiver.behaves([Manner::status(500), too_many()]);
    app.closed_order("P0").await;
    app.run_until_idle().await;
    app.closed_order("P1").await;
    app.run_until_idle().await;
    assert_eq!(receiver.calls().len(), 2);

    // One that is new, one whose second try is due, and one that goes elsewhere.
    app.closed_order("P2").await;
    app.order_with(
        json!({"order_no": "P3", "user_id": "u1", "currency": "CNY", "amount": 5, "notify_url": own.url}),
    )
    .await;
    app.post("/orders/P3/close", json!({})).await.expect(200);
    app.clock.advance(seconds(90));
    app.run_until_idle().await;
    app.assert_books_balance().await;
    assert_eq!((receiver.calls().len(), own.told_of("P3").len()), (2, 1), "it asked for 120 s");
    app.clock.advance(seconds(43));
    app.run_until_idle().await;
    let told: Vec<usize> = ["P0", "P1", "P2"].iter().map(|order| receiver.told_of(order).len()).collect();
    assert_eq!(told, [2, 2, 1]);
    app.end().await;
}

#[tokio::test]
async fn a_pause_ends_when_the_endpoint_is_saved_anew_or_a_person_wants_the_event_told() {
    let receiver = Receiver::start().await;
    let app = telling(&receiver).await;
    receiver.behaves([too_many(), too_many()]);
    app.closed_order("P4").await;
    app.run_until_idle().await;
    app.closed_order("P5").await;
    app.run_until_idle().await;
    assert_eq!(receiver.calls().len(), 1);
    app.tell_at(Some(&receiver.url)).await;
    app.run_until_idle().await;
    assert_eq!(receiver.told_of("P5").len(), 1, "the second pause begins with this one");

    let id = app.event_of("P4").await["event_id"].as_str().expect("an id").to_owned();
    app.admin_post(&format!("/admin/outbox/{id}/resend"), json!({"reason": "it is there again"}))
        .await
        .expect(200);
    app.run_until_idle().await;
    assert_eq!(receiver.told_of("P4").len(), 2);
    app.clock.advance(seconds(140));
    app.run_until_idle().await;
    assert_eq!(
        (receiver.told_of("P5").len(), app.count_where("deliveries", "status = 'PENDING'").await),
        (2, 0)
    );
    app.assert_books_balance().await;
    app.clock.advance(seconds(1));
    app.end().await;
}

#[tokio::test]
async fn what_an_endpoint_says_late_is_not_held_against_the_one_that_was_saved_meanwhile() {
    for (status, wish) in [(410, ""), (429, "Retry-After: 86400\r\n")] {
        let (old, new) = (Receiver::start().await, Receiver::start().await);
        let app = TestApp::start().await;
        app.tell_at(Some(&old.url)).await;
        old.behaves([Manner::Late(Duration::from_millis(700), status, wish)]);
        app.closed_order("L1").await;
        app.instance.app.relay.run_once().await.expect("a turn");
        app.eventually("the old one is told", async || old.calls().len() == 1).await;
        app.tell_at(Some(&new.url)).await;
        let is_written = async || app.count_where("deliveries", "attempts = 1").await == 1;
        app.eventually("its answer is written down", is_written).await;
        assert_eq!(app.count("resting_lanes").await, 0, "{status}");

        app.closed_order("L2").await;
        app.run_until_idle().await;
        assert_eq!(new.told_of("L2").len(), 1, "{status}");
        app.clock.advance(seconds(10));
        app.run_until_idle().await;
        assert_eq!((old.calls().len(), new.told_of("L1").len()), (1, 1), "{status}: by the schedule");
        app.assert_books_balance().await;
        app.end().await;
    }
}

#[tokio::test]
async fn an_order_s_own_endpoint_that_was_gone_is_told_again_when_a_person_has_seen_to_it() {
    let (receiver, own) = (Receiver::start().await, Receiver::start().await);
    let app = telling(&receiver).await;
    own.behaves([Manner::status(410), Manner::status(410)]);
    app.order_with(
        json!({"order_no": "G1", "user_id": "u1", "currency": "CNY", "amount": 5, "notify_url": own.url}),
    )
    .await;
    app.post("/orders/G1/close", json!({})).await.expect(200);
    let again = json!({"merchant_id": "demo", "since": "2026-01-01T00:00:00Z", "only_undelivered": true,
                       "reason": "it is back"});
    let mut tries = 1;
    for told in [410, 200] {
        app.run_until_idle().await;
        app.admin_post("/admin/outbox/resend", again.clone()).await.expect(200);
        app.run_until_idle().await;
        assert_eq!(own.calls().len(), tries, "it wants nothing more");
        let gone = app.open_exception().await;
        assert_eq!(
            (&gone["kind"], gone["detail"].to_string().contains("resolved")),
            (&json!("ENDPOINT_DISABLED"), true)
        );
        assert_eq!(app.resolve(&gone, "REFUND").await.problem(409), "NO_MONEY_HELD");
        app.resolve(&gone, "NONE").await.expect(200);
        app.admin_post("/admin/outbox/resend", again.clone()).await.expect(200);
        app.run_until_idle().await;
        tries += 1;
        assert_eq!(own.calls().len(), tries, "told {told}");
    }
    assert_eq!(app.count_where("deliveries", "status = 'DELIVERED'").await, 1);
    assert_eq!(
        (app.count("disabled_endpoints").await, app.count_where("exceptions", "status = 'OPEN'").await),
        (0, 0)
    );
    app.end().await;
}
