//! `Idempotency-Key`: one effect for one key, and the first answer again, byte for byte.

use futures_util::future::join_all;
use payonce::channels::sandbox::{FaultKind, FaultOp};
use payonce::infra::duty::Batch;
use payonce::workers;
use reqwest::header::HeaderMap;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

use crate::support::{
    Chance, Cluster, Doomed, OPERATOR, PUBLISHABLE_KEY, Reply, SECRET_KEY, TestApp, TestOptions, seconds,
};

mod every_post;

fn order(order_no: &str) -> Value {
    json!({"order_no": order_no, "user_id": "u1", "currency": "CNY", "amount": 1990})
}

/// An order of one thing, to which the server gives its number.
fn one_of(sku: &str) -> Value {
    json!({"user_id": "u1", "currency": "CNY", "items": [{"sku": sku, "quantity": 1, "unit_price": 1990}]})
}

#[track_caller]
fn assert_replayed(first: &Reply, again: &Reply) {
    assert!(again.is_replayed(), "{}", again.text);
    assert_eq!(again.said(), first.said());
}

async fn kept(app: &TestApp) -> i64 {
    app.count("idempotency_keys").await
}

#[tokio::test]
async fn the_same_request_gets_the_first_answer_byte_for_byte() {
    let app = TestApp::start().await;
    let first = app.post_keyed("/orders", "k-1", &order("A1")).await.expect(201);
    assert!(!first.is_replayed());
    app.close("A1").await.expect(200);

    for key in ["k-1", "\"k-1\"", " k-1 "] {
        let again = app.post_keyed("/orders", key, &order("A1")).await;
        assert_replayed(&first, &again);
        assert_ne!(again.header("x-request-id"), first.header("x-request-id"));
    }
    assert_eq!(
        app.post("/orders", order("A1")).await.expect(200).body["status"],
        "CLOSED",
        "without a key: as it stands"
    );
    assert_eq!((kept(&app).await, app.count("orders").await), (1, 1));
    app.end().await;
}

#[tokio::test]
async fn a_repeat_by_number_and_a_close_are_kept_too() {
    let app = TestApp::start().await;
    app.order("A1").await;
    let found = app.post_keyed("/orders", "k-1", &order("A1")).await.expect(200);
    let closed = app.post_keyed("/orders/A1/close", "k-2", &json!({})).await.expect(200);
    assert_eq!(closed.body["close_reason"], "CANCELLED");
    let closed_before = app.post_keyed("/orders/A1/close", "k-3", &json!({})).await.expect(200);

    assert_replayed(&found, &app.post_keyed("/orders", "k-1", &order("A1")).await);
    assert_replayed(&closed, &app.post_keyed("/orders/A1/close", "k-2", &json!({})).await);
    assert_replayed(&closed_before, &app.post_keyed("/orders/A1/close", "k-3", &json!({})).await);
    app.end().await;
}

#[tokio::test]
async fn another_request_with_the_key_is_refused() {
    let app = TestApp::start().await;
    let stranger = app.merchant("second", "hold").await;
    app.post_keyed("/orders", "k", &order("A1")).await.expect(201);
    for (path, body) in [
        ("/orders", order("A2")),
        // The same order, in other bytes.
        (
            "/orders",
            json!({"order_no": "A1", "user_id": "u1", "currency": "CNY", "amount": 1990, "kind": "SALE"}),
        ),
        ("/orders/A1/close", json!({})),
    ] {
        let refused = app.post_keyed(path, "k", &body).await;
        assert_eq!(refused.problem(422), "IDEMPOTENCY_KEY_REUSED", "{path} {body}");
    }
    assert_eq!((app.status_of("A1").await.as_str(), app.count("orders").await), ("PENDING", 1));

    app.post_keyed_as(&stranger, "/orders", "k", &order("A1")).await.expect(201);
    assert_eq!(kept(&app).await, 2, "merchants do not meet");
    app.end().await;
}

#[tokio::test]
async fn while_the_first_runs_a_repeat_elsewhere_is_told_so() {
    let cluster = Cluster::start(2, TestOptions::default()).await;
    let (here, there) = (cluster.turn(0), cluster.turn(1));
    here.stock("TEA", 10).await;
    let body = one_of("TEA");
    let mut hold = here.direct_connection().await;
    sqlx::raw_sql("BEGIN; SELECT 1 FROM skus WHERE sku = 'TEA' FOR UPDATE")
        .execute(&mut hold)
        .await
        .expect("held");

    let (first, refused) = tokio::join!(here.post_keyed("/orders", "k", &body), async {
        here.eventually("its key is locked", async || {
            here.redis_command::<i64>(&["EXISTS", "lock:REQUEST:demo:k"]).await == 1
        })
        .await;
        let refused = there.post_keyed("/orders", "k", &body).await;
        sqlx::raw_sql("COMMIT").execute(&mut hold).await.expect("released");
        refused
    });
    assert_eq!(refused.problem(409), "REQUEST_IN_PROGRESS");
    assert!(refused.header("retry-after").is_some());
    let first = first.expect(201);
    assert_replayed(&first, &there.post_keyed_patiently("/orders", "k", &body).await);
    cluster.end().await;
}

/// Fifty equal requests at once over two instances: one order, and one answer for all.
async fn storm_of_one_key(cluster: &Cluster) {
    cluster.first().stock("TEA", 10).await;
    let body = one_of("TEA");
    let calls = (0..50).map(|n| cluster.turn(n).post_keyed_patiently("/orders", "k", &body));
    let replies = join_all(calls).await;
    assert_eq!(replies[0].status, 201, "{}", replies[0].text);
    for reply in &replies {
        assert_eq!(reply.said(), replies[0].said());
    }
    assert_eq!(replies.iter().filter(|reply| !reply.is_replayed()).count(), 1, "one of them did it");
    assert_eq!((cluster.first().count("orders").await, cluster.first().stock_of("TEA").await), (1, (10, 1)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_equal_requests_without_a_number_make_one_order() {
    let cluster = Cluster::start(2, TestOptions::default()).await;
    storm_of_one_key(&cluster).await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_equal_requests_without_a_number_make_one_order_also_without_redis() {
    let mut cluster = Cluster::start(2, TestOptions::default()).await;
    cluster.instances[0].redis.as_mut().expect("its own").kill().await.expect("killed");
    storm_of_one_key(&cluster).await;
    cluster.end().await;
}

/// What the key's row refuses takes its whole effect with it, the stock included.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_requests_that_race_for_a_key_one_has_an_effect_also_without_redis() {
    let mut chance = Chance::new();
    let mut cluster = Cluster::start(2, TestOptions::default()).await;
    cluster.first().stock("TEA", 100).await;
    cluster.first().stock("CUP", 100).await;
    cluster.instances[0].redis.as_mut().expect("its own").kill().await.expect("killed");
    for round in 0..15 {
        let key = format!("k-{round}");
        let (pause, a_tea, a_cup) = (chance.pause(3000), one_of("TEA"), one_of("CUP"));
        let (tea, cup) = tokio::join!(cluster.turn(0).post_keyed("/orders", &key, &a_tea), async {
            tokio::time::sleep(pause).await;
            cluster.turn(1).post_keyed("/orders", &key, &a_cup).await
        });
        let (won, lost) = if tea.status == 201 { (tea, cup) } else { (cup, tea) };
        assert_eq!((won.status, lost.problem(422)), (201, "IDEMPOTENCY_KEY_REUSED"));
    }
    let app = cluster.first();
    assert_eq!((app.count("orders").await, kept(app).await), (15, 15));
    assert_eq!(app.stock_of("TEA").await.1 + app.stock_of("CUP").await.1, 15);
    cluster.end().await;
}

#[tokio::test]
async fn what_may_become_another_answer_is_not_kept() {
    let app = TestApp::start().await;
    app.stock("TEA", 0).await;
    app.order("A1").await;
    let keyed = |path: &'static str, body: Value| {
        let app = &app;
        async move { app.post_keyed(path, "k", &body).await }
    };
    assert_eq!(keyed("/orders", json!({"user_id": "u1"})).await.problem(422), "VALIDATION_FAILED");
    assert_eq!(keyed("/orders", one_of("MILK")).await.problem(422), "UNKNOWN_SKU");
    assert_eq!(keyed("/orders", one_of("TEA")).await.problem(409), "OUT_OF_STOCK");
    assert_eq!(keyed("/orders/NONE/close", json!({})).await.problem(404), "ORDER_NOT_FOUND");
    let other = json!({"order_no": "A1", "user_id": "u2", "currency": "CNY", "amount": 1990});
    assert_eq!(keyed("/orders", other).await.problem(422), "ORDER_PARAMS_MISMATCH");
    assert_eq!(kept(&app).await, 0);

    app.stock("TEA", 1).await;
    let first = keyed("/orders", one_of("TEA")).await.expect(201);
    assert_replayed(&first, &keyed("/orders", one_of("TEA")).await);
    app.end().await;
}

#[tokio::test]
async fn after_a_503_the_same_request_runs_again() {
    let app = TestApp::start().await;
    app.order_to_pay("A1").await;
    app.fault(FaultOp::Close, FaultKind::TimeoutBefore, 1, None).await;
    let silent = app.post_keyed("/orders/A1/close", "k", &json!({})).await;
    assert_eq!(silent.problem(503), "CHANNEL_UNAVAILABLE");
    assert_eq!((kept(&app).await, app.status_of("A1").await.as_str()), (0, "PENDING"));

    let closed = app.post_keyed("/orders/A1/close", "k", &json!({})).await.expect(200);
    assert!(!closed.is_replayed());
    assert_replayed(&closed, &app.post_keyed("/orders/A1/close", "k", &json!({})).await);
    app.end().await;
}

#[tokio::test]
async fn a_client_that_hung_up_finds_its_answer() {
    let app = TestApp::start().await;
    let body = one_of("TEA");
    app.stock("TEA", 10).await;
    let text = body.to_string();
    let mut stream = tokio::net::TcpStream::connect(app.instance.addr).await.expect("a connection");
    let head = format!(
        "POST /orders HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {SECRET_KEY}\r\nIdempotency-Key: k\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{text}",
        text.len()
    );
    stream.write_all(head.as_bytes()).await.expect("said");
    app.eventually("the request runs", || async {
        kept(&app).await == 1 || app.redis_command::<i64>(&["EXISTS", "lock:REQUEST:demo:k"]).await == 1
    })
    .await;
    drop(stream);
    let answer = app.post_keyed_patiently("/orders", "k", &body).await.expect(201);
    assert!(answer.is_replayed());
    assert_eq!(app.count("orders").await, 1);
    app.end().await;
}

#[test]
fn an_answer_that_a_crash_swallowed_is_given_by_the_next_instance() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let (app, doomed) = runtime.block_on(async {
        let app = TestApp::start().await;
        app.stock("TEA", 10).await;
        let doomed = Doomed::beside(&app, 500).await;
        (app, doomed)
    });
    runtime.block_on(async {
        let body = one_of("TEA");
        let first = doomed.app.post_keyed("/orders", "k", &body);
        tokio::select! {
            biased;
            () = async { while kept(&app).await == 0 { tokio::task::yield_now().await } } => {}
            _ = first => {}
        }
    });
    doomed.kill();
    runtime.block_on(async {
        let answer = app.post_keyed_patiently("/orders", "k", &one_of("TEA")).await.expect(201);
        assert!(answer.is_replayed());
        assert_eq!((app.count("orders").await, app.stock_of("TEA").await), (1, (10, 1)));
        app.end().await;
    });
}

#[tokio::test]
async fn a_malformed_key_is_refused_and_leaves_no_trace() {
    let app = TestApp::start().await;
    let before = app.row_counts().await;
    let too_long = "k".repeat(256);
    let bad = ["", " ", "\"\"", "\"k", "k\"", "\"k\"x", "\"k\";a=1", "a b", "\"\\k\"", "\"k\\\"", &too_long];
    for key in bad {
        let refused = app.post_keyed("/orders", key, &order("A1")).await;
        assert_eq!(refused.problem(422), "VALIDATION_FAILED", "{key}");
        assert_eq!(refused.body["errors"][0]["field"], "Idempotency-Key");
    }
    let mut latin = HeaderMap::new();
    latin.insert("idempotency-key", reqwest::header::HeaderValue::from_bytes(b"k\xe4").expect("bytes"));
    let mut twice = HeaderMap::new();
    twice.append("idempotency-key", "k".parse().expect("a header"));
    twice.append("idempotency-key", "k".parse().expect("a header"));
    for headers in [latin, twice] {
        let refused = app.post_with(SECRET_KEY, "/orders", headers, &order("A1")).await;
        assert_eq!(refused.problem(422), "VALIDATION_FAILED");
    }
    assert_eq!(app.row_counts().await, before);

    let first = app.post_keyed("/orders", &"k".repeat(255), &order("A1")).await.expect(201);
    let quoted = format!("\"{}\"", "k".repeat(255));
    assert_replayed(&first, &app.post_keyed("/orders", &quoted, &order("A1")).await);
    let escaped = app.post_keyed("/orders", r#""a\"\\b""#, &order("A1")).await.expect(200);
    assert_replayed(&escaped, &app.post_keyed("/orders", r#""a\"\\b""#, &order("A1")).await);
    let spaced = app.post_keyed("/orders", "\" a b \"", &order("A1")).await.expect(200);
    assert_replayed(&spaced, &app.post_keyed("/orders", "\" a b \"", &order("A1")).await);
    app.post_keyed("/orders", "\" a b\"", &order("A2")).await.expect(201);
    app.end().await;
}

#[tokio::test]
async fn a_space_makes_no_key_of_the_backend_one_of_a_browser() {
    let app = TestApp::start().await;
    app.post("/orders", order("B1")).await.expect(201);
    let body = json!({"order_no": "B1", "payer_id": "u1", "channel": "sandbox"});
    let by_browser = app.post_keyed_as(PUBLISHABLE_KEY, "/pay/url", "k", &body).await.expect(200);
    for key in ["k", "\"pk k\"", "\"sk k\"", "\"sk pk k\""] {
        let first = app.post_keyed("/pay/url", key, &body).await.expect(200);
        assert!(!first.is_replayed(), "{key} is a key of its own");
        assert_replayed(&first, &app.post_keyed("/pay/url", key, &body).await);
    }
    assert_replayed(&by_browser, &app.post_keyed_as(PUBLISHABLE_KEY, "/pay/url", "k", &body).await);
    assert_eq!(kept(&app).await, 5);
    app.end().await;
}

#[tokio::test]
async fn answers_are_forgotten_after_seventy_two_hours_in_bounded_batches() {
    let app = TestApp::start().await;
    app.post_keyed("/orders", "k", &order("A1")).await.expect(201);
    app.execute(
        "INSERT INTO idempotency_keys (merchant_id, key, request_hash, status, body, created_at)
         SELECT 'demo', 'old-' || n, sha256(''), 200, '{}', now() - interval '1 hour' FROM generate_series(1, 1500) n"
            .to_owned(),
    )
    .await;
    let forget = || async {
        let duties = workers::duties(&app.instance.app);
        let duty = duties.into_iter().find(|duty| duty.name() == "idempotency.forget").expect("a duty");
        duty.run_once().await.expect("a batch")
    };
    app.clock.advance(seconds(72 * 3600 - 60));
    assert_eq!(forget().await, Batch::MoreWaiting);
    assert_eq!(kept(&app).await, 501);
    assert_eq!(forget().await, Batch::Done);
    assert!(app.post_keyed("/orders", "k", &order("A1")).await.expect(201).is_replayed(), "kept to the end");

    app.clock.advance(seconds(61));
    forget().await;
    assert_eq!(kept(&app).await, 0);
    app.run_until_idle().await;
    app.post_keyed("/orders", "k", &order("A2")).await.expect(201);
    app.end().await;
}

#[tokio::test]
async fn operators_have_no_use_for_a_key() {
    let app = TestApp::start().await;
    let body = json!({"merchant_id": "demo", "sku": "TEA", "stock": 1});
    app.post_keyed_as(OPERATOR, "/admin/skus", "k", &body).await.expect(200);
    assert_eq!(kept(&app).await, 0);
    app.end().await;
}
