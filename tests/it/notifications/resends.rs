//! What is sent again, beside what is new.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::relays::append_many;
use super::telling;
use crate::support::receiver::{Call, Manner, Receiver};
use crate::support::{TestApp, TestOptions, UNTOLD, seconds};

#[tokio::test]
async fn a_new_event_does_not_wait_behind_a_thousand_that_are_sent_again() {
    let receiver = Receiver::start().await;
    // Two thousand tries at once are none that must end soon.
    let app = TestApp::start().await;
    app.tell_at(Some(&receiver.url)).await;
    append_many(&app, "demo", "old-", 1000, 2).await;
    app.run_until_idle().await;
    assert_eq!(receiver.calls().len(), 2000);
    let again =
        json!({"merchant_id": "demo", "since": "2026-01-01T00:00:00Z", "reason": "the shop lost them"});
    assert_eq!(app.admin_post("/admin/outbox/resend", again).await.expect(200).body["events"], 2000);

    // Looked at in the same turn, and in the next: the queue and the lane are full of old ones.
    for number in ["N1", "N2"] {
        app.closed_order(number).await;
        app.eventually("it is told", async || {
            app.instance.app.relay.run_once().await.expect("a turn");
            receiver.told_of(number).len() == 1
        })
        .await;
    }
    let left = app.count_where("outbox_queue", "is_again").await;
    assert!(left > 0, "{left} of the old ones wait to be looked at");
    app.run_until_idle().await;
    assert_eq!(receiver.calls().len(), 4002);
    assert_eq!(app.count_where("deliveries", "lane = 'demo again' AND status = 'DELIVERED'").await, 2000);
    // In order for each order, the second time too.
    let mut told: HashMap<String, Vec<u64>> = HashMap::new();
    for call in receiver.calls().iter().filter(|call| call.order_no().starts_with("old-")) {
        let seq = call.json()["data"]["seq"].as_u64().expect("a number");
        told.entry(call.order_no()).or_default().push(seq);
    }
    assert!(told.len() == 1000 && told.values().all(|seqs| *seqs == [1, 2, 1, 2]));
    app.end().await;
}

#[tokio::test]
async fn a_new_event_of_an_order_waits_for_its_earlier_one_that_is_sent_again() {
    let receiver = Receiver::start().await;
    let app = telling(&receiver).await;
    app.paid("A1").await;
    app.run_until_idle().await;
    let id = receiver.calls()[0].id().to_owned();
    receiver.behaves([Manner::Answer(503, "Retry-After: 30\r\n", String::new())]);
    app.admin_post(&format!("/admin/outbox/{id}/resend"), json!({"reason": "again"})).await.expect(200);
    app.append_events("A1", &["{\"order_no\": \"A1\"}"]).await;
    app.run_until_idle().await;
    // It rests for what is new too.
    app.closed_order("A2").await;
    app.run_until_idle().await;
    assert_eq!((receiver.calls().len(), receiver.told_of("A2").len()), (2, 0));
    app.clock.advance(seconds(35));
    app.run_until_idle().await;
    assert_eq!(receiver.told_of("A1"), ["order.paid", "order.paid", "order.paid", "story.told"]);
    assert_eq!(receiver.told_of("A2").len(), 1);
    app.end().await;
}

#[tokio::test]
async fn what_happened_since_then_is_sent_page_by_page_each_event_once() {
    let receiver = Receiver::start().await;
    let app = telling(&receiver).await;
    // Told before; the higher the number, the earlier it happened. And as many of another merchant.
    app.merchant("other", "hold").await;
    app.sql(
        "INSERT INTO outbox (merchant_id, order_no, event, event_version, payload, created_at)
         SELECT CASE g % 2 WHEN 0 THEN 'demo' ELSE 'other' END, 'G' || g, 'story.told', 1, '{}',
                now() - g / 200 * interval '1 s'
         FROM generate_series(1, 24000) AS g;
         DELETE FROM outbox_queue",
    )
    .await;
    let body = |after: Option<&str>| json!({"merchant_id": "demo", "since": "2020-01-01T00:00:00Z", "starting_after": after, "reason": "a story"});
    let first = app.admin_post("/admin/outbox/resend", body(None)).await.expect(200).body;
    assert_eq!((&first["events"], &first["has_more"]), (&json!(10_000), &json!(true)));
    let after = first["last_event_id"].as_str().expect("an event");
    let second = app.admin_post("/admin/outbox/resend", body(Some(after))).await.expect(200).body;
    assert_eq!((&second["events"], &second["has_more"]), (&json!(2_000), &json!(false)));
    assert_eq!(app.count_where("outbox_queue", "is_again AND merchant_id = 'demo'").await, 12_000);
    assert_eq!(app.count("outbox_queue").await, 12_000);
    app.sql("TRUNCATE outbox, outbox_queue").await;
    app.end().await;
}

/// Has what did not arrive sent again until a call says that there is no more: how many events each of them found.
async fn send_undelivered(app: &TestApp, is_dry_run: bool) -> Vec<i64> {
    let (mut found, mut after) = (Vec::new(), Value::Null);
    for _ in 0..5 {
        let wish = json!({"merchant_id": "demo", "since": "2020-01-01T00:00:00Z", "only_undelivered": true,
                          "starting_after": after, "dry_run": is_dry_run, "reason": "it is back"});
        let page = app.admin_post("/admin/outbox/resend", wish).await.expect(200).body;
        found.push(page["events"].as_i64().expect("a number"));
        if page["has_more"] == false {
            break;
        }
        after = page["last_event_id"].clone();
    }
    found
}

#[tokio::test]
async fn the_few_that_did_not_arrive_are_found_behind_any_number_that_did() {
    let receiver = Receiver::start().await;
    let app = telling(&receiver).await;
    // The higher the number, the earlier it happened. Of those whose endpoint was gone one is the last of the second look,
    // one the first of the third, and one the last of all.
    app.sql(
        "SET session_replication_role = replica;
         INSERT INTO outbox (merchant_id, order_no, event, event_version, payload, created_at)
         SELECT 'demo', 'F' || g, 'story.told', 1, jsonb_build_object('order_no', 'F' || g), now() - g * interval '1 ms'
         FROM generate_series(1, 45000) AS g;
         INSERT INTO deliveries (event_id, kind, event, merchant_id, order_no, lane, body, status, due_at, created_at,
                                 updated_at)
         SELECT id, 'REPLAY_CALLBACK', event, merchant_id, order_no, 'demo', jsonb_build_object('data', payload),
                CASE WHEN order_no IN ('F5001', 'F5000', 'F1') THEN 'DROPPED' ELSE 'DELIVERED' END, now(), now(), now()
         FROM outbox",
    )
    .await;
    assert_eq!(send_undelivered(&app, true).await, [0, 1, 2]);
    assert_eq!(app.count("outbox_queue").await, 0, "that only counted");
    assert_eq!(send_undelivered(&app, false).await, [0, 1, 2]);
    app.run_until_idle().await;
    let mut told: Vec<String> = receiver.calls().iter().map(Call::order_no).collect();
    told.sort_unstable();
    assert_eq!(told, ["F1", "F5000", "F5001"]);
    assert_eq!(send_undelivered(&app, false).await, [0, 0, 0], "they have arrived");
    app.sql("TRUNCATE outbox, outbox_queue, deliveries").await;
    app.end().await;
}

/// The event of this order went to its endpoint and to a broker, and came to these ends.
async fn ended(app: &TestApp, order_no: &str, (callback, message): (&str, &str), body_of_message: &str) {
    app.sql(&format!(
        "UPDATE deliveries SET status = '{callback}' WHERE order_no = '{order_no}' AND kind = 'REPLAY_CALLBACK';
         DELETE FROM deliveries WHERE order_no = '{order_no}' AND kind = 'RESEND_EVENT';
         INSERT INTO deliveries (event_id, kind, event, merchant_id, order_no, lane, body, status, due_at, created_at,
                                 updated_at)
         SELECT event_id, 'RESEND_EVENT', event, merchant_id, order_no, '*', {body_of_message}, '{message}', due_at,
                created_at, updated_at
         FROM deliveries WHERE order_no = '{order_no}'"
    ))
    .await;
}

#[tokio::test]
async fn what_arrived_in_one_place_is_sent_again_only_to_the_other() {
    let receiver = Receiver::start().await;
    let app = telling(&receiver).await;
    app.closed_order("W1").await;
    app.run_until_idle().await;
    // How often the endpoint has heard it, and how its two ways stand.
    let stand = async || {
        let ways = "SELECT kind || ' ' || status FROM deliveries WHERE order_no = 'W1' ORDER BY kind";
        let ways: Vec<String> =
            sqlx::query_scalar(ways).fetch_all(app.instance.app.db.pool()).await.expect("both");
        (receiver.told_of("W1").len(), ways.join(", "))
    };
    let as_told = |told: usize, ways: &str| (told, ways.to_owned());

    // There is no broker here, so what ended on its way to one stays there. One that has a broker sends it again.
    let vars = vec![("AMQP_URL", "amqp://127.0.0.1:1".to_owned())];
    let beside = TestApp::start_with(TestOptions { vars, ..TestOptions::over(&app) }).await;
    ended(&app, "W1", ("DELIVERED", "DEAD"), "body").await;
    assert_eq!(send_undelivered(&app, false).await, [0]);
    app.run_until_idle().await;
    assert_eq!(stand().await, as_told(1, "REPLAY_CALLBACK DELIVERED, RESEND_EVENT DEAD"));
    assert_eq!(send_undelivered(&beside, false).await, [1]);
    assert_eq!(app.count("outbox_queue").await, 0, "nothing of it is handed out anew");
    app.run_until_idle().await;
    assert_eq!(stand().await, as_told(1, "REPLAY_CALLBACK DELIVERED, RESEND_EVENT PENDING"));
    assert_eq!(send_undelivered(&beside, false).await, [0]);

    ended(&app, "W1", ("DROPPED", "DELIVERED"), "body").await;
    assert_eq!(send_undelivered(&app, false).await, [1]);
    app.run_until_idle().await;
    assert_eq!(stand().await, as_told(2, "REPLAY_CALLBACK DELIVERED, RESEND_EVENT DELIVERED"));

    // Where it arrived nowhere, and where it has to be put into words anew, it goes wherever it goes now.
    ended(&app, "W1", ("DEAD", "DROPPED"), "body").await;
    assert_eq!(send_undelivered(&app, false).await, [1]);
    app.run_until_idle().await;
    assert_eq!(stand().await, as_told(3, "REPLAY_CALLBACK DELIVERED, RESEND_EVENT DROPPED"));
    ended(&app, "W1", ("DELIVERED", "DEAD"), "''").await;
    assert_eq!(send_undelivered(&app, false).await, [0]);
    assert_eq!(send_undelivered(&beside, false).await, [1]);
    assert_eq!(app.count("outbox_queue").await, 1);
    app.run_until_idle().await;
    assert_eq!(stand().await, as_told(4, "REPLAY_CALLBACK DELIVERED, RESEND_EVENT DEAD"));

    // Sent again by itself while it waits for its next try at its endpoint, it does not begin to wait for a broker either.
    ended(&app, "W1", ("PENDING", "DEAD"), "body").await;
    app.sql("UPDATE deliveries SET due_at = now() + interval '1 h' WHERE status = 'PENDING'").await;
    let id = receiver.calls()[0].id().to_owned();
    app.admin_post(&format!("/admin/outbox/{id}/resend"), json!({"reason": "again"})).await.expect(200);
    app.run_until_idle().await;
    assert_eq!(stand().await, as_told(5, "REPLAY_CALLBACK DELIVERED, RESEND_EVENT DEAD"));

    app.sql("DELETE FROM deliveries WHERE kind = 'RESEND_EVENT'").await;
    beside.instance.stop().await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_sent_again_while_it_is_told_is_told_and_nobody_is_in_the_way() {
    let receiver = Receiver::start().await;
    let options = TestOptions { workers: true, ..TestOptions::default() };
    let app = TestApp::start_with(options).await;
    app.tell_at(Some(&receiver.url)).await;
    receiver.behaves((0..60).map(|number| Manner::status(if number % 2 == 0 { 500 } else { 204 })));
    append_many(&app, "demo", "raced-", 60, 3).await;
    for round in 0..20 {
        let wish = json!({"merchant_id": "demo", "since": "2026-01-01T00:00:00Z", "only_undelivered": round % 2 == 0,
                          "reason": "the shop is impatient"});
        app.admin_post("/admin/outbox/resend", wish).await.expect(200);
    }
    app.eventually("all of it is told", async || {
        // Towards the ends of the pauses between two tries.
        app.clock.advance(seconds(10));
        app.count_where("outbox", UNTOLD).await == 0
    })
    .await;
    assert!((1..=60).all(|number| receiver.told_of(&format!("raced-{number}")).len() >= 3));
    app.end().await;
}
