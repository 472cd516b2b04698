//! What a merchant reads again of what it was told.

use std::collections::HashMap;

use reqwest::Method;
use serde_json::{Value, json};

use super::telling;
use crate::support::receiver::Receiver;
use crate::support::{TestApp, minutes, seconds};

/// Pages through `/events` as a shop does that has lost what it knew; gives all of it, in the order of the pages.
async fn read_all(app: &TestApp, filter: &str) -> Vec<Value> {
    let (mut events, mut after) = (Vec::new(), String::new());
    loop {
        let page = app.get(&format!("/events?limit=3{filter}{after}")).await.expect(200).body;
        let of_page = page["data"].as_array().expect("a page");
        assert!(of_page.len() == 3 || page["has_more"] == false, "{page}");
        events.extend(of_page.iter().cloned());
        if page["has_more"] == false {
            return events;
        }
        after = format!("&starting_after={}", of_page[2]["event_id"].as_str().expect("an id"));
    }
}

fn ids(events: &[Value]) -> Vec<String> {
    events.iter().map(|event| event["event_id"].as_str().expect("an id").to_owned()).collect()
}

#[tokio::test]
async fn a_shop_that_lost_what_it_was_told_reads_all_of_it_again() {
    let receiver = Receiver::start().await;
    let app = telling(&receiver).await;
    for number in 1..=4 {
        app.paid(&format!("P{number}")).await;
        app.clock.advance(seconds(1));
        app.closed_order(&format!("P{number}-not")).await;
        app.clock.advance(seconds(1));
    }
    app.post("/refunds", json!({"refund_no": "R1", "order_no": "P1", "amount": 90})).await.expect(201);
    app.run_until_idle().await;

    let told: HashMap<String, Value> =
        receiver.calls().iter().map(|call| (call.id().to_owned(), call.json())).collect();
    assert!(told.len() >= 9, "{told:#?}");
    let events = read_all(&app, "").await;
    let again: HashMap<String, Value> = events
        .iter()
        .map(|event| {
            let mut told = event.clone();
            let id = told.as_object_mut().expect("an event").remove("event_id").expect("an id");
            (id.as_str().expect("a text").to_owned(), told)
        })
        .collect();
    assert_eq!(events.len(), again.len(), "each once: {events:#?}");
    assert_eq!(again, told, "under the same ids and with the same words");
    let when: Vec<&str> = events.iter().map(|event| event["timestamp"].as_str().expect("a moment")).collect();
    assert!(when.is_sorted_by(|newer, older| newer >= older), "newest first: {when:#?}");

    for (id, told) in &told {
        let event = app.get(&format!("/events/{id}")).await.expect(200).body;
        assert_eq!((&event["type"], &event["data"]), (&told["type"], &told["data"]));
    }
    app.end().await;
}

#[tokio::test]
async fn what_is_read_again_is_of_an_order_or_of_a_time() {
    // Nobody is told of anything: what happened is there all the same.
    let app = TestApp::start().await;
    let mut moments = Vec::new();
    for number in ["T1", "T2", "T3"] {
        moments.push(app.clock.now());
        app.closed_order(number).await;
        app.clock.advance(minutes(1));
    }
    let at = |place: usize| {
        moments[place].format(&time::format_description::well_known::Rfc3339).expect("a moment")
    };
    let of = async |filter: String| -> Vec<String> {
        let events = read_all(&app, &filter).await;
        events.iter().map(|event| event["data"]["order_no"].as_str().expect("an order").to_owned()).collect()
    };
    assert_eq!(of(String::new()).await, ["T3", "T2", "T1"]);
    assert_eq!(of("&order_no=T2".to_owned()).await, ["T2"]);
    assert_eq!(of(format!("&since={}", at(1))).await, ["T3", "T2"]);
    assert_eq!(of(format!("&until={}", at(1))).await, ["T1"]);
    assert_eq!(of(format!("&since={}&until={}", at(1), at(2))).await, ["T2"]);
    assert_eq!(of(format!("&order_no=T1&since={}", at(1))).await, [""; 0]);
    app.end().await;
}

/// Of one instant, as after a batch, each is there once on whatever page.
#[tokio::test]
async fn what_happened_at_once_is_read_once_across_pages() {
    let app = TestApp::start().await;
    for number in 0..10 {
        app.closed_order(&format!("S{number}")).await;
    }
    app.sql("UPDATE outbox SET created_at = '2026-11-21T10:00:00Z'").await;
    let events = read_all(&app, "").await;
    assert!(events.iter().all(|event| event["timestamp"] == events[0]["timestamp"]), "{events:#?}");
    let numbers: Vec<i64> = ids(&events).iter().map(|id| id[4..].parse().expect("a number")).collect();
    assert!(numbers.is_sorted_by(|newer, older| newer > older), "{numbers:?}");
    assert_eq!(numbers.len(), 10);
    app.end().await;
}

/// What waited for its order is dated from before it did.
#[tokio::test]
async fn an_orders_events_stand_in_the_order_in_which_they_are_told() {
    let app = TestApp::start().await;
    app.append_events("O1", &["{}"; 5]).await;
    app.sql("UPDATE outbox SET created_at = created_at - id * interval '1 second'").await;
    let numbers = |events: &[Value]| -> Vec<String> {
        let mut of = ids(events);
        of.iter_mut().for_each(|id| *id = id.split_off(4));
        of
    };
    assert_eq!(numbers(&read_all(&app, "&order_no=O1").await), ["5", "4", "3", "2", "1"]);
    assert_eq!(numbers(&read_all(&app, "").await), ["1", "2", "3", "4", "5"], "by when they happened");
    app.end().await;
}

#[tokio::test]
async fn what_is_asked_for_wrongly_is_said_and_what_is_anothers_is_not_there() {
    let app = TestApp::start().await;
    app.closed_order("M1").await;
    let other = app.admin_post("/admin/merchants", json!({"merchant_id": "other", "name": "Other"})).await;
    let other = other.expect(201).text_of("secret_key").to_owned();
    let mine = ids(&read_all(&app, "").await).remove(0);

    let theirs = async |path: String| app.call(Method::GET, &path, &other, None).await;
    assert_eq!(theirs("/events".to_owned()).await.expect(200).body, json!({"data": [], "has_more": false}));
    assert_eq!(theirs("/events?order_no=M1".to_owned()).await.expect(200).body["data"], json!([]));
    assert_eq!(theirs(format!("/events/{mine}")).await.problem(404), "NOT_FOUND");
    // Not even whether there is one.
    let strange = theirs(format!("/events?starting_after={mine}")).await;
    let unknown = theirs("/events?starting_after=evt_999999".to_owned()).await;
    assert_eq!(strange.body["errors"], unknown.body["errors"]);
    for (query, word) in [
        (format!("starting_after={mine}"), "of yours"),
        ("starting_after=last".to_owned(), "the id of an event"),
        ("limit=0".to_owned(), "from 1 to 100"),
        ("limit=101".to_owned(), "from 1 to 100"),
        ("since=yesterday".to_owned(), "since"),
        ("until=2026-13-01T00:00:00Z".to_owned(), "until"),
        ("order_no=".to_owned(), "order_no"),
        ("kind=order.paid".to_owned(), "kind"),
    ] {
        let reply = theirs(format!("/events?{query}")).await;
        assert_eq!(reply.problem(422), "VALIDATION_FAILED", "{query}");
        assert!(reply.text.contains(word), "{query}: {}", reply.text);
    }
    for id in ["evt_0", "evt_-1", "evt_99999999999999999999", "x"] {
        assert_eq!(app.get(&format!("/events/{id}")).await.problem(404), "NOT_FOUND", "{id}");
    }
    app.end().await;
}
