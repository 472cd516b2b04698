//! The edge itself: browsers, request ids, health, documents, and a stop that loses nothing.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use payonce::channels::sandbox::{FaultKind, FaultOp};
use payonce::infra::http_client;
use reqwest::Method;
use serde_json::json;

use crate::chaos::lost_answers::behind_a_wire;
use crate::support::routes::{ROUTES, Route};
use crate::support::{Reply, SECRET_KEY, TestApp, TestOptions, stores};

const SHOP: &str = "https://shop.example";

async fn with_shop() -> TestApp {
    let vars = vec![("CORS_ORIGINS", format!("{SHOP}, http://localhost:3000"))];
    TestApp::start_with(TestOptions { vars, ..TestOptions::default() }).await
}

fn is_for_browsers(route: &Route) -> bool {
    matches!(route.path, "/pay/url" | "/pay/{pay_order_id}")
}

async fn preflight(app: &TestApp, route: &Route, origin: &str) -> Reply {
    let request = app.http.request(Method::OPTIONS, format!("{}{}", app.url, route.url()));
    let request = request
        .header("origin", origin)
        .header("access-control-request-method", route.method)
        .header("access-control-request-headers", "authorization,content-type,idempotency-key");
    Reply::of(request.send().await.expect("an answer")).await
}

async fn simple(app: &TestApp, route: &Route, origin: &str) -> Reply {
    let request =
        app.http.request(route.method.parse().expect("a method"), format!("{}{}", app.url, route.url()));
    let request = request.header("origin", origin).bearer_auth(route.who.token());
    let request = request.header("content-type", "application/json").body(route.body.unwrap_or_default());
    Reply::of(request.send().await.expect("an answer")).await
}

#[tokio::test]
async fn browsers_may_call_two_routes_from_the_pages_of_the_shop_and_no_other() {
    let app = with_shop().await;
    for route in ROUTES {
        for origin in
            [SHOP, "http://localhost:3000", "https://evil.example", "https://shop.example.evil", "null"]
        {
            let what = format!("{} {} from {origin}", route.method, route.path);
            let is_welcome = is_for_browsers(route) && matches!(origin, SHOP | "http://localhost:3000");
            let expected = is_welcome.then_some(origin);
            let asked = preflight(&app, route, origin).await;
            assert_eq!(asked.header("access-control-allow-origin"), expected, "preflight {what}");
            assert!(asked.header("x-request-id").is_some(), "{what}");
            if is_welcome {
                let allowed = asked.header("access-control-allow-headers").unwrap_or_default().to_lowercase();
                assert!(
                    allowed.contains("authorization") && allowed.contains("content-type"),
                    "{what}: {allowed}"
                );
                assert!(
                    asked.header("access-control-allow-methods").is_some_and(|m| m.contains(route.method))
                );
            }
            let called = simple(&app, route, origin).await;
            assert_eq!(called.header("access-control-allow-origin"), expected, "{what}");
            assert_eq!(called.header("access-control-allow-credentials"), None, "{what}");
        }
    }
    app.end().await;
}

#[tokio::test]
async fn every_answer_has_a_request_id_the_callers_own_where_it_is_sane() {
    let app = TestApp::start().await;
    let ask = |id: Option<String>| {
        let request = app.http.get(format!("{}/orders/NONE", app.url)).bearer_auth(SECRET_KEY);
        let request = id.into_iter().fold(request, |request, id| request.header("x-request-id", id));
        async move { Reply::of(request.send().await.expect("an answer")).await }
    };
    for own in ["a", "0123-abc_DEF.xyz", &"x".repeat(128)] {
        let reply = ask(Some(own.to_owned())).await;
        assert_eq!((reply.header("x-request-id"), reply.text_of("request_id")), (Some(own), own));
    }
    let mut seen = BTreeSet::new();
    for other in [None, Some(String::new()), Some("a b".to_owned()), Some("x".repeat(129))] {
        let reply = ask(other.clone()).await;
        assert_ne!(reply.header("x-request-id"), other.as_deref());
        assert!(seen.insert(reply.text_of("request_id").to_owned()), "each its own");
    }
    for path in ["/livez", "/readyz", "/metrics", "/openapi.json", "/docs/", "/nothing"] {
        let reply = app.call(Method::GET, path, "", None).await;
        assert!(reply.header("x-request-id").is_some(), "{path}");
    }
    app.end().await;
}

#[tokio::test]
async fn health_says_how_things_stand() {
    let mut app = TestApp::start().await;
    assert_eq!(app.call(Method::GET, "/livez", "", None).await.expect(200).text, "ok");
    let ready = app.call(Method::GET, "/readyz", "", None).await.expect(200);
    let node = ready.body["redis_nodes"][0]["node"].clone();
    assert!(node.as_str().is_some_and(|node| node.starts_with("127.0.0.1:")), "no password: {node}");
    let expected = |status: &str, redis: &str| {
        json!({"status": status, "database": "up", "redis": redis, "stopping": false,
               "redis_nodes": [{"node": node, "state": redis}]})
    };
    assert_eq!(ready.body, expected("ready", "up"));
    let figures = app.call(Method::GET, "/metrics", "", None).await.expect(200);
    assert!(figures.header("content-type").is_some_and(|kind| kind.starts_with("text/plain")));
    assert!(figures.text.contains("payonce_http_requests_total{"), "{}", figures.text);
    assert!(!figures.text.contains("po_none"), "no ids in labels");

    app.redis.as_mut().expect("its own").stop().await.expect("stopped");
    let degraded = app.call(Method::GET, "/readyz", "", None).await.expect(200);
    assert_eq!(degraded.body, expected("degraded", "down"));
    app.end().await;
}

#[tokio::test]
async fn an_instance_whose_database_lacks_a_migration_is_not_ready_until_it_has_it() {
    let app = TestApp::start().await;
    let ready = async || app.call(Method::GET, "/readyz", "", None).await;
    app.sql("UPDATE _sqlx_migrations SET success = false WHERE version = 1").await;
    let not_yet = ready().await.expect(503).body;
    assert_eq!((&not_yet["status"], &not_yet["database"]), (&json!("unavailable"), &json!("unmigrated")));
    app.sql("UPDATE _sqlx_migrations SET success = true WHERE version = 1").await;
    assert_eq!(ready().await.expect(200).body["database"], "up");
    app.end().await;
}

#[tokio::test]
async fn the_document_lists_every_route_and_its_reader_needs_nothing_from_outside() {
    let app = TestApp::start().await;
    let document = app.call(Method::GET, "/openapi.json", "", None).await.expect(200).body;
    assert!(
        document["openapi"].as_str().is_some_and(|version| version.starts_with("3.1")),
        "{}",
        document["openapi"]
    );
    let mut documented = BTreeSet::new();
    for (path, item) in document["paths"].as_object().expect("paths") {
        for method in item.as_object().expect("methods").keys() {
            documented.insert((method.to_uppercase(), path.clone()));
        }
    }
    let existing = ROUTES.iter().map(|route| (route.method.to_owned(), route.path.to_owned())).collect();
    assert_eq!(documented, existing, "document and routes of the service");
    for route in ROUTES {
        let reply = simple(&app, route, SHOP).await;
        assert!(
            reply.status != 405 && !reply.text.is_empty(),
            "{} {}: {}",
            route.method,
            route.path,
            reply.status
        );
    }

    let page = app.call(Method::GET, "/docs/", "", None).await.expect(200).text;
    let initializer = app.call(Method::GET, "/docs/swagger-initializer.js", "", None).await.expect(200).text;
    assert!(!page.contains("http://") && !page.contains("https://") && !page.contains("src=\"//"), "{page}");
    assert!(initializer.contains("/openapi.json") && !initializer.contains("http"), "{initializer}");
    assert!(initializer.contains("\"validatorUrl\": \"none\""), "its badge asks a stranger: {initializer}");
    let references = page.split(['"', '\'']).filter(|text| text.ends_with(".js") || text.ends_with(".css"));
    for reference in references {
        let path = format!("/docs/{}", reference.trim_start_matches("./"));
        app.call(Method::GET, &path, "", None).await.expect(200);
    }
    app.end().await;
}

#[tokio::test]
async fn a_stop_fails_readiness_first_answers_what_is_under_way_and_then_refuses() {
    let vars = vec![("CHANNEL_DEADLINE_MS", "5000".to_owned())];
    let app = TestApp::start_with(TestOptions { vars, ..TestOptions::default() }).await;
    app.order("S1").await;
    app.fault(FaultOp::Create, FaultKind::Delay, 1, Some(900)).await;
    let TestApp { instance, http, url, database_url, redis, .. } = app;
    let post = |path: &str, body: serde_json::Value| {
        let request = http.post(format!("{url}{path}")).bearer_auth(SECRET_KEY).json(&body);
        tokio::spawn(async move { Reply::of(request.send().await.expect("an answer")).await })
    };
    let slow = post("/pay/url", json!({"order_no": "S1", "payer_id": "u1", "channel": "sandbox"}));
    let waiting = {
        let request = http.get(format!("{url}/orders/S1?wait=25")).bearer_auth(SECRET_KEY);
        tokio::spawn(async move { Reply::of(request.send().await.expect("an answer")).await })
    };
    tokio::time::sleep(Duration::from_millis(200)).await;

    let asked = Instant::now();
    let stopping = tokio::spawn(instance.stop());
    // Connections are refused half a second later, so nothing is slept away.
    let readiness =
        async || Reply::of(http.get(format!("{url}/readyz")).send().await.expect("still served")).await;
    let mut state = readiness().await;
    while state.status == 200 {
        state = readiness().await;
    }
    let state = state.expect(503);
    assert_eq!((&state.body["status"], &state.body["stopping"]), (&json!("unavailable"), &json!(true)));
    post("/orders", json!({"order_no": "S2", "user_id": "u1", "currency": "CNY", "amount": 1}))
        .await
        .expect("no panic")
        .expect(201);

    assert!(slow.await.expect("answered").expect(200).text_of("pay_url").starts_with("http"));
    assert_eq!(waiting.await.expect("answered").expect(200).body["order_no"], "S1");
    stopping.await.expect("stopped");
    println!("the stop took {:?}", asked.elapsed());
    assert!(asked.elapsed() < Duration::from_secs(10), "{:?}", asked.elapsed());
    let refused = http_client::builder()
        .build()
        .expect("a client")
        .get(format!("{url}/livez"))
        .send()
        .await
        .expect_err("nobody listens");
    assert!(refused.is_connect(), "{refused:?}");
    drop(redis);
    stores::drop_database(&database_url).await;
}

#[tokio::test]
async fn a_waiting_request_is_answered_at_once_when_the_service_stops() {
    let app = TestApp::start().await;
    app.order("W1").await;
    let TestApp { instance, http, url, database_url, redis, .. } = app;
    let request = http.get(format!("{url}/orders/W1?wait=25")).bearer_auth(SECRET_KEY);
    let waiting =
        tokio::spawn(async move { request.send().await.map(|response| response.status().as_u16()) });
    tokio::time::sleep(Duration::from_millis(200)).await;
    let asked = Instant::now();
    instance.stop().await;
    println!("the stop with a waiting request took {:?}", asked.elapsed());
    assert_eq!(waiting.await.expect("no panic").expect("an answer"), 200);
    assert!(asked.elapsed() < Duration::from_secs(3), "{:?}", asked.elapsed());
    drop(redis);
    stores::drop_database(&database_url).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_that_asks_how_things_stand_costs_one_look_at_a_time() {
    let (app, wire, url) = behind_a_wire().await;
    app.get("/readyz").await.expect(200);
    // A look takes a while, and connections that have yet to be opened take longer than anybody waits for it.
    wire.delay(Duration::from_millis(100));
    let crowd = join_all((0..200).map(|_| app.get("/readyz"))).await;
    assert!(crowd.iter().all(|ready| ready.status == 200), "they wait for one another");
    wire.heal();
    app.end().await;
    stores::drop_database(&url).await;
}
