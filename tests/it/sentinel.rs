//! Redis behind sentinels: whoever is the master, the service goes on, and a lock that is granted twice does no harm.

use std::time::{Duration, Instant};

use crate::support::servers::Watched;
use crate::support::stores::tell_redis;
use crate::support::{Cluster, TestApp, TestOptions, double_grant, seconds};

const TIMERS: &str = "delay:order_timeout";

async fn readiness(app: &TestApp) -> serde_json::Value {
    app.get("/readyz").await.expect(200).body
}

async fn is_ready(app: &TestApp) -> bool {
    readiness(app).await["status"] == "ready"
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_service_goes_on_at_once_while_the_master_is_replaced() {
    let mut redis = Watched::start().await;
    let options = TestOptions { redis_url: Some(redis.url()), ..TestOptions::default() };
    let app = TestApp::start_with(options).await;
    app.eventually("the sentinels named the master", async || is_ready(&app).await).await;
    let node = readiness(&app).await["redis_nodes"][0]["node"].clone();
    assert_eq!(node, format!("shop at 127.0.0.1:{}", redis.master.port()));
    app.run_until_idle().await;
    app.order_to_pay("S1").await;

    redis.master.kill().await.expect("killed");
    let killed_at = Instant::now();
    for index in 0..10 {
        let asked = Instant::now();
        app.order_to_pay(&format!("S2-{index}")).await;
        assert!(asked.elapsed() < Duration::from_secs(2), "{:?}", asked.elapsed());
    }
    app.eventually("the new master is known", async || is_ready(&app).await).await;
    println!("degraded for {:?}", killed_at.elapsed());
    let node = readiness(&app).await["redis_nodes"][0]["node"].clone();
    assert_eq!(node, format!("shop at 127.0.0.1:{}", redis.replica.port()));

    app.order("S3").await;
    let new = redis.replica.url();
    app.eventually("timers go to the new master", async || {
        tell_redis::<Option<String>>(&new, &["ZSCORE", TIMERS, "demo:S3"]).await.is_some()
    })
    .await;
    app.clock.advance(seconds(1801));
    app.run_until_idle().await;
    assert_eq!(app.count_where("orders", "status = 'CLOSED'").await, 12);
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_that_grants_the_lock_twice_has_one_effect() {
    let mut redis = Watched::start().await;
    let options =
        TestOptions { redis_url: Some(redis.url()), vars: double_grant::vars(), ..TestOptions::default() };
    let cluster = Cluster::start(2, options).await;
    for app in &cluster.instances {
        app.eventually("the sentinels named the master", async || is_ready(app).await).await;
    }
    redis.cut_the_replica_off().await;
    let mut has_failed_over = false;
    double_grant::has_one_effect(cluster.first(), cluster.turn(1), async || {
        if has_failed_over {
            // What the next failover would do to a lock that it had not heard of.
            let _: () = tell_redis(&redis.replica.url(), &["FLUSHALL"]).await;
        } else {
            redis.master.kill().await.expect("killed");
            has_failed_over = true;
        }
    })
    .await;
    cluster.end().await;
}

#[tokio::test]
async fn sentinels_that_are_away_degrade_and_refuse_nothing() {
    let redis_url = Some("redis+sentinel://127.0.0.1:1,127.0.0.1:2/shop".to_owned());
    let app = TestApp::start_with(TestOptions { redis_url, ..TestOptions::default() }).await;
    let asked = Instant::now();
    app.order_to_pay("S4").await;
    assert!(asked.elapsed() < Duration::from_secs(2), "{:?}", asked.elapsed());
    let readiness = readiness(&app).await;
    assert_eq!(
        (&readiness["status"], &readiness["redis_nodes"][0]["node"]),
        (&"degraded".into(), &"shop".into())
    );
    app.end().await;
}
