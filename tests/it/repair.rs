//! Looking at an attempt repairs it: a payment whose callback was lost is found by whoever looks.

use std::time::{Duration, Instant};

use payonce::channels::sandbox::{FaultKind, FaultOp};
use serde_json::json;

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
        assert!(since.elapsed() < Duration::from_millis(900), "{:?}", since.elapsed());
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
