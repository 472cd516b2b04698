//! Endpoints that ask to be left alone.

use serde_json::json;

use super::telling;
use crate::support::receiver::{Manner, Receiver};
use crate::support::seconds;

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
    app.clock.advance(seconds(119));
    app.run_until_idle().await;
    app.assert_books_balance().await;
    assert_eq!((receiver.calls().len(), own.told_of("P3").len()), (2, 1), "it asked for 120 s");
    app.clock.advance(seconds(14));
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
    app.admin_post(&format!("/admin/outbox/{id}/resend"), json!({"reason": "it is there again"})).await.expect(200);
    app.run_until_idle().await;
    assert_eq!(receiver.told_of("P4").len(), 2);
    app.clock.advance(seconds(140));
    app.run_until_idle().await;
    assert_eq!((receiver.told_of("P5").len(), app.count_where("deliveries", "status = 'PENDING'").await), (2, 0));
    app.assert_books_balance().await;
    app.clock.advance(seconds(1));
    app.end().await;
}
