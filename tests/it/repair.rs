//! Looking at an attempt repairs it: a payment whose callback was lost is found by whoever looks.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use payonce::app::App;
use payonce::channels::Channels;
use payonce::channels::sandbox::{FaultKind, FaultOp};
use payonce::pay::{self, PayStatus};
use serde_json::json;

use crate::support::silent::Silent;
use crate::support::{PUBLISHABLE_KEY, TestApp, seconds};

async fn look(app: &TestApp, id: &str) -> String {
    let seen = app.call(reqwest::Method::GET, &format!("/pay/{id}"), PUBLISHABLE_KEY, None).await;
    seen.expect(200).text_of("status").to_owned()
}

/// An attempt that was paid without our being told.
async fn paid_unheard(app: &TestApp, order_no: &str) -> String {
    let id = app.order_to_pay(order_no).await;
    app.sandbox_pay(&id, json!({"notify": false})).await.expect(200);
    id
}

#[tokio::test]
async fn a_lost_callback_is_found_by_a_look() {
    let app = TestApp::start().await;
    let id = paid_unheard(&app, "R1").await;
    assert_eq!(look(&app, &id).await, "PAYING", "a callback has its time");
    app.clock.advance(seconds(16));
    assert_eq!((look(&app, &id).await.as_str(), app.status_of("R1").await.as_str()), ("PAID", "PAID"));
    app.run_until_idle().await;
    assert_eq!(app.sandbox_books().await, (1990, 0));
    app.end().await;
}

#[tokio::test]
async fn a_look_asks_once_in_a_while_and_does_not_wait_for_a_silent_channel() {
    let app = TestApp::start().await;
    let id = paid_unheard(&app, "R1").await;
    app.clock.advance(seconds(16));
    app.fault(FaultOp::Query, FaultKind::TimeoutBefore, 1, Some(1_200)).await;
    for _ in 0..5 {
        let since = Instant::now();
        assert_eq!(look(&app, &id).await, "PAYING");
        assert!(since.elapsed() < Duration::from_millis(2_700), "{:?}", since.elapsed());
    }
    assert_eq!(app.gateway.list_faults().await.expect("faults").len(), 0, "the channel was asked");
    assert_eq!(look(&app, &id).await, "PAYING", "and is not asked again so soon");
    // The mark of Redis is over.
    let _: i64 = app.redis_command(&["DEL", &format!("pay:asked:demo:{id}")]).await;
    assert_eq!(look(&app, &id).await, "PAID");
    app.end().await;
}

#[tokio::test]
async fn a_link_that_was_never_learnt_is_there_when_somebody_looks() {
    let mut app = TestApp::start().await;
    app.order("R1").await;
    app.fault(FaultOp::Create, FaultKind::TimeoutAfter, 1, Some(1_200)).await;
    app.pay_url("R1").await.expect(503);
    let id = app.attempts_of("R1").await.remove(0)["pay_order_id"].as_str().expect("an id").to_owned();
    app.clock.advance(seconds(3));
    assert_eq!(look(&app, &id).await, "PAYING");
    // Without Redis nobody asks, and nobody fails.
    let lost = paid_unheard(&app, "R2").await;
    app.clock.advance(seconds(16));
    app.redis.as_mut().expect("its own").kill().await.expect("killed");
    assert_eq!(look(&app, &lost).await, "PAYING");
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_looks_at_what_a_silent_channel_has_ask_it_a_few_things_and_delay_nobody() {
    let app = TestApp::start().await;
    let lost = paid_unheard(&app, "R0").await;
    let mut ids = Vec::new();
    for number in 1..=40 {
        ids.push(app.order_to_pay(&format!("R{number}")).await);
    }
    app.sql("UPDATE pay_orders SET channel = 'silent' WHERE order_no <> 'R0'").await;
    app.clock.advance(seconds(16));

    let service = &app.instance.app;
    let sandbox = service.channels.get("sandbox").expect("the sandbox").clone();
    let silent = Silent::beside(sandbox.clone(), Duration::from_millis(3_000));
    let channels = Channels::new(vec![sandbox, Arc::new(silent.clone())]);
    let (config, ids_of) = (service.config.clone(), service.ids.clone());
    let both = App::new(config, ids_of, service.db.clone(), channels).expect("an instance");
    let demo = "demo".parse().expect("an id");
    let look = async |id: &str| pay::find_and_repair(&both, &demo, id).await.expect("a look").status;

    let since = Instant::now();
    let (looks, found) = tokio::join!(join_all(ids.iter().map(|id| look(id))), look(&lost));
    assert!(looks.iter().all(|status| *status == PayStatus::Paying));
    assert_eq!(found, PayStatus::Paid, "the other channel answers");
    assert!(since.elapsed() < Duration::from_millis(900), "{:?}", since.elapsed());
    assert_eq!(silent.asked.load(Ordering::SeqCst), 8);

    // What found no room is asked about later. Who was asked about before holds a room until its mark is seen, so that
    // the others may find none at the first look.
    tokio::time::sleep(Duration::from_millis(5_000)).await;
    for _ in 0..5 {
        join_all(ids.iter().map(|id| look(id))).await;
        if silent.asked.load(Ordering::SeqCst) >= 16 {
            break;
        }
    }
    assert_eq!(silent.asked.load(Ordering::SeqCst), 16);
    app.sql("UPDATE pay_orders SET channel = 'sandbox'").await;
    app.run_until_idle().await;
    app.end().await;
}
