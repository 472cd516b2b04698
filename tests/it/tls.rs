//! Redis, its sentinels and RabbitMQ over TLS, with a certificate by an authority of one's own: who trusts it reaches
//! them, and who does not goes on without them and sends them nothing.

use std::time::Duration;

use payonce::local::{RabbitServer, RedisOptions, RedisServer, SentinelServer};
use reqwest::Method;
use serde_json::json;

use crate::support::authority::{Authority, free_port};
use crate::support::service::{Service, Shop};
use crate::support::stores::{directory, fresh_name, tell_redis};

async fn readiness(service: &Service) -> String {
    let ready = service.ask(Method::GET, "/readyz", "", None).await.expect("an answer");
    ready.expect(200).text_of("status").to_owned()
}

async fn order(service: &Service, order_no: &str, expires_in: u32) {
    let body = json!({"order_no": order_no, "user_id": "u1", "currency": "CNY", "amount": 1990,
                      "expires_in": expires_in});
    service.post("/orders", &body).await.expect("an answer").expect(201);
}

/// A process with these variables, which trusts this authority and no other.
async fn trusting(authority: &Authority, vars: &[(&'static str, String)]) -> (Shop, Service) {
    let mut vars = vars.to_vec();
    vars.push(("SSL_CERT_FILE", authority.certificate()));
    let shop = Shop::open_with(vars).await;
    let service = shop.serve("").await;
    (shop, service)
}

/// A process that does not know who signed goes on without.
async fn assert_stranger_is_degraded(vars: &[(&'static str, String)]) {
    let stranger = Authority::make().await;
    let (shop, service) = trusting(&stranger, vars).await;
    order(&service, "T-stranger", 600).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(readiness(&service).await, "degraded");
    service.kill().await;
    shop.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_and_its_sentinels_are_reached_over_tls_by_whoever_trusts_their_authority() {
    let (authority, dir) = (Authority::make().await, directory().join("tls").join(fresh_name()));
    let (port, sentinel_port) = (free_port(), free_port());
    let options = RedisOptions { config: authority.redis_conf(port), ..RedisOptions::default() };
    let redis = RedisServer::start_with(&dir.join("redis"), &options).await.expect("a Redis");
    let config = authority.redis_conf(sentinel_port);
    let watched = (port, redis.password());
    let sentinel = SentinelServer::start(&dir.join("sentinel"), "shop", watched, 1, &config).await;
    let _sentinel = sentinel.expect("a sentinel");

    for url in [
        format!("rediss+sentinel://:{}@127.0.0.1:{sentinel_port}/shop", redis.password()),
        format!("rediss://:{}@127.0.0.1:{port}/", redis.password()),
    ] {
        // A handshake of a debug build takes a while.
        let vars = [("REDIS_URL", url), ("REDIS_ANSWER_MS", "500".to_owned())];
        let (shop, service) = trusting(&authority, &vars).await;
        let is_ready = service.until("it is there", async || readiness(&service).await == "ready");
        is_ready.await.expect("alive");
        order(&service, "T1", 600).await;
        let timer = ["ZSCORE", "delay:order_timeout", "demo:T1"];
        let has_timer = async || tell_redis::<Option<String>>(&redis.url(), &timer).await.is_some();
        service.until("it has the timer", has_timer).await.expect("alive");
        let _: i64 = tell_redis(&redis.url(), &["DEL", "delay:order_timeout"]).await;
        service.kill().await;
        shop.end().await;
        assert_stranger_is_degraded(&vars).await;
        let timers: i64 = tell_redis(&redis.url(), &["EXISTS", "delay:order_timeout"]).await;
        assert_eq!(timers, 0, "nothing was sent");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rabbitmq_is_reached_over_tls_by_whoever_trusts_its_authority() {
    let (authority, port) = (Authority::make().await, free_port());
    let dir = directory().join("rabbitmq").join(fresh_name());
    let server = RabbitServer::start_with(&dir, &authority.rabbitmq_conf(port)).await.expect("a RabbitMQ");
    let (before, _) =
        server.url().rsplit_once(':').map(|(url, rest)| (url.to_owned(), rest.to_owned())).expect("a port");
    let url = format!("{}:{port}/%2f", before.replacen("amqp://", "amqps://", 1));
    let vars =
        [("AMQP_URL", url), ("DELAY_QUEUE", "rabbitmq".to_owned()), ("ORDER_SWEEP_MS", "600000".to_owned())];
    let (shop, service) = trusting(&authority, &vars).await;
    service.until("it is there", async || readiness(&service).await == "ready").await.expect("alive");
    // The broker may be too slow to confirm a first timer, and no sweep runs here.
    let mut orders = 0;
    let another_order_and_one_closed = async || {
        orders += 1;
        order(&service, &format!("T2-{orders}"), 2).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        shop.app.count_where("orders", "status = 'CLOSED'").await > 0
    };
    service.until("a timer runs", another_order_and_one_closed).await.expect("alive");
    service.kill().await;
    shop.end().await;
    assert_stranger_is_degraded(&vars).await;
}
