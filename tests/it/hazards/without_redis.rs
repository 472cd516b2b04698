//! Redis is down, hung, cut off, or takes no writes: nothing is refused, and what was lost is found again soon.

use std::time::{Duration, Instant};

use payonce::infra::lock::Scene;
use payonce::infra::redis::{Redis, RedisDown};
use serde_json::json;
use tokio::time::sleep;

use super::{millis, readiness};
use crate::support::stores::tell_redis;
use crate::support::{TestApp, TestOptions};

async fn ping(redis: &Redis) -> (Result<String, RedisDown>, Duration) {
    let asked = Instant::now();
    (redis.run(&redis::cmd("PING")).await, asked.elapsed())
}

/// Waits until Redis answers through the service's own client; gives how long that took.
async fn healthy_again(redis: &Redis) -> Duration {
    let since = Instant::now();
    while ping(redis).await.0.is_err() {
        assert!(since.elapsed() < Duration::from_secs(5), "Redis is back, and left alone for ever");
        sleep(millis(5)).await;
    }
    since.elapsed()
}

/// An order is made, paid for and closed while Redis is as it is.
pub(super) async fn main_job_works(app: &TestApp, prefix: &str) {
    let paid = format!("{prefix}-paid");
    let pay_order = app.order_to_pay(&paid).await;
    app.sandbox_pay(&pay_order, json!({})).await.expect(200);
    app.run_until_idle().await;
    let trade = app.sandbox_trade(&pay_order).await;
    assert_eq!(app.status_of(&paid).await, "PAID", "{}", trade["deliveries"]);
    let closed = format!("{prefix}-closed");
    app.order_to_pay(&closed).await;
    app.post(&format!("/orders/{closed}/close"), json!({})).await.expect(200);
}

/// What is measured so often, of which the least counts: a slow moment of the machine is none of the service's.
const ROUNDS: usize = 3;

fn least(times: &[Duration]) -> Duration {
    *times.iter().min().expect("some")
}

#[tokio::test]
async fn without_redis_calls_fail_at_once_and_no_request_does() {
    let mut app = TestApp::start().await;
    let redis = app.instance.app.redis.clone();
    assert_eq!(ping(&redis).await.0.expect("up"), "PONG");
    let (mut first, mut through_the_breaker, mut healthy) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        app.redis.as_mut().expect("its own").kill().await.expect("killed");
        let (down, took) = ping(&redis).await;
        assert!(down.is_err());
        first.push(took);
        for _ in 0..2 {
            assert!(ping(&redis).await.0.is_err());
        }
        let (down, took) = ping(&redis).await;
        assert!(matches!(down, Err(RedisDown::BreakerOpen)));
        through_the_breaker.push(took);
        if round == 0 {
            let state = readiness(&app).await.expect(200);
            let stands = (&state.body["status"], &state.body["redis"]);
            assert_eq!(stands, (&json!("degraded"), &json!("down")), "{}", state.text);
            main_job_works(&app, "down").await;
        }
        app.redis.as_mut().expect("its own").restart().await.expect("back");
        healthy.push(healthy_again(&redis).await);
    }
    println!(
        "first failure {first:?}, through the breaker {through_the_breaker:?}, healthy after {healthy:?}"
    );
    assert!(least(&first) < millis(300), "{first:?}");
    assert!(least(&through_the_breaker) < millis(20), "{through_the_breaker:?}");
    assert!(least(&healthy) < millis(1000), "{healthy:?}");
    assert_eq!(readiness(&app).await.expect(200).body["status"], "ready");
    main_job_works(&app, "back").await;
    app.end().await;
}

#[tokio::test]
async fn with_redis_hung_requests_are_a_little_slower_and_none_fails() {
    let mut app = TestApp::start_with(TestOptions::default().soon_without_redis()).await;
    let redis = app.instance.app.redis.clone();
    assert!(ping(&redis).await.0.is_ok());
    let (mut first, mut healthy) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        app.redis.as_mut().expect("its own").pause().await.expect("paused");
        let (hung, took) = ping(&redis).await;
        assert!(hung.is_err());
        first.push(took);
        if round == 0 {
            assert_eq!(readiness(&app).await.expect(200).body["status"], "degraded");
            let asked = Instant::now();
            main_job_works(&app, "hung").await;
            println!("the main job without Redis {:?}", asked.elapsed());
        }
        app.redis.as_mut().expect("its own").resume().await.expect("resumed");
        healthy.push(healthy_again(&redis).await);
    }
    println!("first failure {first:?}, healthy after {healthy:?}");
    assert!(least(&first) < millis(400), "{first:?}");
    assert!(least(&healthy) < millis(1500), "{healthy:?}");
    // The very orders whose locks Redis may have granted too late.
    app.pay_url("hung-closed").await.problem(409);
    main_job_works(&app, "awake").await;
    app.end().await;
}

#[tokio::test]
async fn a_cut_connection_to_redis_is_made_anew_and_no_request_fails() {
    let app = TestApp::start().await;
    for round in 0..4 {
        main_job_works(&app, &format!("cut{round}")).await;
        let _: i64 = tell_redis(&app.redis_url, &["CLIENT", "KILL", "TYPE", "normal"]).await;
    }
    let mut healthy = vec![healthy_again(&app.instance.app.redis).await];
    while healthy.len() < ROUNDS {
        let _: i64 = tell_redis(&app.redis_url, &["CLIENT", "KILL", "TYPE", "normal"]).await;
        healthy.push(healthy_again(&app.instance.app.redis).await);
    }
    assert!(least(&healthy) < millis(1000), "{healthy:?}");
    app.end().await;
}

#[tokio::test]
async fn a_redis_that_takes_no_writes_degrades_the_locks_and_no_request_fails() {
    let app = TestApp::start().await;
    let locks = app.instance.app.locks.clone();
    assert!(!locks.acquire(Scene::Settle, "lock:test").await.expect("free").is_degraded());
    let mut knows_after = Vec::new();
    for round in 0..ROUNDS {
        let _: String = tell_redis(&app.redis_url, &["REPLICAOF", "127.0.0.1", "1"]).await;
        let key = format!("lock:readonly:{round}");
        assert!(locks.acquire(Scene::Settle, &key).await.expect("the work goes on").is_degraded());
        if round == 0 {
            main_job_works(&app, "readonly").await;
        }
        let _: String = tell_redis(&app.redis_url, &["REPLICAOF", "NO", "ONE"]).await;
        let (since, key) = (Instant::now(), format!("lock:writable:{round}"));
        while locks.acquire(Scene::Settle, &key).await.expect("free").is_degraded() {
            assert!(
                since.elapsed() < Duration::from_secs(30),
                "Redis takes writes, and the locks never know"
            );
            sleep(millis(20)).await;
        }
        knows_after.push(since.elapsed());
    }
    assert!(least(&knows_after) < millis(1500), "{knows_after:?}");
    main_job_works(&app, "writable").await;
    app.end().await;
}
