//! Who may do what: no credential, a bad one, one of another kind, one of another merchant.

use std::time::Duration;

use futures_util::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::routes::{ROUTES, Route, Who};
use crate::support::{OPERATOR, PUBLISHABLE_KEY, Reply, SECRET_KEY, TestApp, TestOptions};

const VIEWER: &str = "dev-viewer-token";

async fn start() -> TestApp {
    let tokens = format!("operator:{OPERATOR},viewer@vera:{VIEWER}");
    TestApp::start_with(TestOptions { vars: vec![("ADMIN_TOKENS", tokens)], ..TestOptions::default() }).await
}

/// Calls a route with a right body and the given value of `Authorization`.
async fn call(app: &TestApp, route: &Route, authorization: Option<&str>) -> Reply {
    let method: Method = route.method.parse().expect("a method");
    let request = app.http.request(method, format!("{}{}", app.url, route.url()));
    let request = match authorization {
        Some(value) => request.header("authorization", value),
        None => request,
    };
    let request = match route.body {
        Some(body) => request.header("content-type", "application/json").body(body),
        None => request,
    };
    Reply::of(request.send().await.expect("an answer")).await
}

fn guarded() -> impl Iterator<Item = &'static Route> {
    ROUTES.iter().filter(|route| !matches!(route.who, Who::Anyone | Who::Channel))
}

/// Everything that a refused call could have left behind.
async fn traces(app: &TestApp) -> [i64; 6] {
    let tables = ["orders", "pay_orders", "merchants", "api_keys", "skus", "admin_log"];
    let mut counts = [0; 6];
    for (count, table) in counts.iter_mut().zip(tables) {
        *count = app.count(table).await;
    }
    counts
}

#[tokio::test]
async fn without_a_valid_credential_every_guarded_route_says_401() {
    let app = start().await;
    let before = traces(&app).await;
    let bad = [
        None,
        Some("Bearer"),
        Some("Bearer "),
        Some("Bearer sk_unknown"),
        Some("Bearer sk_test_demo2"),
        Some("Bearer sk_00000000000000000000000000000000000000000000000000000"),
        Some("Bearer SK_TEST_DEMO"),
        Some("Basic c2tfdGVzdF9kZW1vOg=="),
        Some(SECRET_KEY),
        Some("Bearer \u{e4}\u{f6}"),
        Some("Bearer ' OR 1=1 --"),
    ];
    for route in guarded() {
        for authorization in bad {
            let what = format!("{} {} with {authorization:?}", route.method, route.path);
            let reply = call(&app, route, authorization).await;
            assert_eq!(reply.status, 401, "{what}: {}", reply.text);
            assert_eq!(reply.problem(401), "UNAUTHENTICATED", "{what}");
            assert!(reply.header("www-authenticate").is_some(), "{what}");
        }
    }
    assert_eq!(traces(&app).await, before);
    app.end().await;
}

#[tokio::test]
async fn a_stranger_s_token_costs_no_look_up_and_what_could_be_a_key_a_place_of_merchants() {
    const PLACES: usize = 2;
    let vars = vec![("HTTP_REQUESTS_MAX", PLACES.to_string())];
    let app = TestApp::start_with(TestOptions { vars, ..TestOptions::default() }).await;
    let inside = &app.instance.app;
    let taken = join_all((0..inside.config.database.pool_size).map(|_| inside.db.conn())).await;
    assert!(taken.iter().all(Result::is_ok), "nobody else has a connection");
    for route in guarded() {
        for token in ["a-token-that-nobody-has-given-out", "sk_unknown"] {
            let what = format!("{} {} with {token}", route.method, route.path);
            let reply = call(&app, route, Some(&format!("Bearer {token}"))).await;
            assert_eq!(reply.status, 401, "{what}: {}", reply.text);
        }
    }

    let key = format!("sk_{}", "X".repeat(52));
    let overview = async |token: &str| app.call(Method::GET, "/admin/overview", token, None).await;
    // On a route of operators, and on a merchant's where a request has no place, or none yet.
    let large = json!({"order_no": "X", "subject": "x".repeat(9_000)});
    for (method, path, body) in [
        (Method::GET, "/admin/overview", None),
        (Method::GET, "/orders/X?wait=25", None),
        (Method::GET, "/orders/X?%77ait=25", None),
        (Method::POST, "/orders", Some(&large)),
    ] {
        let ask = async || app.call(method.clone(), path, &key, body).await;
        let answers = join_all((0..=PLACES).map(|_| ask())).await;
        let mut codes: Vec<&str> = answers.iter().map(|reply| reply.problem(503)).collect();
        codes.sort_unstable();
        assert_eq!(codes, ["DATABASE_UNAVAILABLE", "DATABASE_UNAVAILABLE", "OVERLOADED"], "{method} {path}");
    }
    drop(taken);
    assert_eq!(overview(&key).await.problem(401), "UNAUTHENTICATED", "the places are given back");
    assert_eq!(overview(SECRET_KEY).await.problem(403), "FORBIDDEN");
    app.end().await;
}

#[tokio::test]
async fn a_credential_of_another_kind_is_refused() {
    let app = start().await;
    let before = traces(&app).await;
    for route in guarded() {
        let wrong: &[&str] = match route.who {
            Who::Secret => &[PUBLISHABLE_KEY, OPERATOR, VIEWER],
            Who::AnyKey => &[OPERATOR, VIEWER],
            Who::Operator => &[SECRET_KEY, PUBLISHABLE_KEY, VIEWER],
            Who::Viewer => &[SECRET_KEY, PUBLISHABLE_KEY],
            Who::Anyone | Who::Channel => &[],
        };
        for token in wrong {
            let reply = call(&app, route, Some(&format!("Bearer {token}"))).await;
            let what = format!("{} {} with {token}", route.method, route.path);
            assert_eq!(reply.status, 403, "{what}: {}", reply.text);
            assert_eq!(reply.problem(403), "FORBIDDEN", "{what}");
        }
    }
    assert_eq!(traces(&app).await, before);
    app.end().await;
}

#[tokio::test]
async fn a_viewer_sees_everything_and_changes_nothing() {
    let app = start().await;
    let before = traces(&app).await;
    for route in ROUTES.iter().filter(|route| route.path.starts_with("/admin")) {
        let mut reply = call(&app, route, Some(&format!("bearer {VIEWER}"))).await;
        if reply.status == 422 && reply.text.contains("missing field `merchant_id`") {
            reply = app.call(Method::GET, &format!("{}?merchant_id=demo", route.path), VIEWER, None).await;
        }
        let expected = match route.who {
            Who::Operator => 403,
            // Of nothing that is there, but for the merchant.
            _ if route.path.contains('{') && !route.path.contains("{merchant_id}") => 404,
            _ => 200,
        };
        assert_eq!(reply.status, expected, "{} {}: {}", route.method, route.path, reply.text);
        if expected == 403 {
            assert_eq!(reply.problem(403), "FORBIDDEN", "{}", route.path);
        }
    }
    assert_eq!(traces(&app).await, before);
    app.end().await;
}

/// The same answer, apart from the id of the request.
fn assert_same(what: &str, one: &Reply, other: &Reply) {
    let plain = |reply: &Reply| {
        let mut body = reply.body.clone();
        if let Some(members) = body.as_object_mut() {
            members.remove("request_id");
        }
        let names: Vec<_> = reply.headers.keys().map(ToString::to_string).collect();
        (reply.status, body, names)
    };
    assert_eq!(plain(one), plain(other), "{what} differs");
}

#[tokio::test]
async fn what_belongs_to_another_merchant_is_not_there() {
    let app = start().await;
    let pay_order = app.order_to_pay("MINE").await;
    let second = app.admin_post("/admin/merchants", json!({"merchant_id": "second", "name": "Second"})).await;
    let second = second.expect(201);
    let before = app.find_order("MINE").await;
    for kind in ["secret_key", "publishable_key"] {
        let key = second.text_of(kind);
        let calls: [(Method, String, String, Option<Value>); 4] = [
            (Method::GET, "/orders/MINE".into(), "/orders/GONE".into(), None),
            (Method::POST, "/orders/MINE/close".into(), "/orders/GONE/close".into(), Some(json!({}))),
            (Method::GET, format!("/pay/{pay_order}"), "/pay/po_06GZV8Y00000000000000000".into(), None),
            (
                Method::POST,
                "/pay/url".into(),
                "/pay/url".into(),
                Some(json!({"payer_id": "u1", "channel": "sandbox"})),
            ),
        ];
        for (method, theirs, missing, body) in calls {
            let with = |order_no: &str| {
                let mut body = body.clone()?;
                if theirs == "/pay/url" {
                    body["order_no"] = json!(order_no);
                }
                Some(body)
            };
            let one = app.call(method.clone(), &theirs, key, with("MINE").as_ref()).await;
            let other = app.call(method, &missing, key, with("GONE").as_ref()).await;
            let is_for_it = kind == "secret_key" || theirs.starts_with("/pay/");
            assert_eq!(one.status, if is_for_it { 404 } else { 403 }, "{theirs}: {}", one.text);
            assert_same(&theirs, &one, &other);
        }
    }
    assert_eq!(app.find_order("MINE").await, before, "nothing of it moved");

    // The same number is free for the other merchant, and both orders keep to themselves.
    let body = json!({"order_no": "MINE", "user_id": "u2", "currency": "USD", "amount": 5});
    app.call(Method::POST, "/orders", second.text_of("secret_key"), Some(&body)).await.expect(201);
    assert_eq!(app.find_order("MINE").await, before);
    assert_eq!(app.admin_get("/admin/orders/MINE").await.problem(409), "AMBIGUOUS_NUMBER");
    app.admin_get("/admin/orders/MINE?merchant_id=second").await.expect(200);
    let refund = json!({"refund_no": "R1", "order_no": "MINE", "amount": 5, "reason": "story"});
    assert_eq!(app.admin_post("/admin/refunds", refund.clone()).await.problem(409), "AMBIGUOUS_NUMBER");
    // As the answer says.
    let named = app.admin_post("/admin/refunds?merchant_id=second", refund.clone()).await;
    assert_eq!(named.problem(409), "ORDER_NOT_PAID");
    let other =
        json!({"merchant_id": "demo", "refund_no": "R1", "order_no": "MINE", "amount": 5, "reason": "story"});
    let torn = app.admin_post("/admin/refunds?merchant_id=second", other).await;
    assert_eq!(torn.problem(422), "VALIDATION_FAILED");
    app.end().await;
}

#[tokio::test]
async fn a_publishable_key_pays_the_orders_of_its_own_user_and_nothing_else() {
    let app = start().await;
    app.order("PK1").await;
    let pay = |body: Value| {
        let app = &app;
        async move { app.call(Method::POST, "/pay/url", PUBLISHABLE_KEY, Some(&body)).await }
    };
    let stranger = pay(json!({"order_no": "PK1", "payer_id": "u2", "channel": "sandbox"})).await;
    let missing = pay(json!({"order_no": "PK2", "payer_id": "u2", "channel": "sandbox"})).await;
    assert_eq!(stranger.problem(404), "ORDER_NOT_FOUND");
    assert_same("somebody else's order", &stranger, &missing);

    let priced =
        json!({"order_no": "PK1", "payer_id": "u1", "channel": "sandbox", "amount": 1, "currency": "CNY"});
    assert_eq!(pay(priced).await.problem(422), "VALIDATION_FAILED");
    let priced =
        json!({"order_no": "NEW", "payer_id": "u1", "channel": "sandbox", "amount": 1, "currency": "CNY"});
    assert_eq!(pay(priced).await.problem(422), "VALIDATION_FAILED");
    assert_eq!(app.count("orders").await, 1, "a browser makes no orders");

    let link = pay(json!({"order_no": "PK1", "payer_id": "u1", "channel": "sandbox"})).await.expect(200);
    let path = format!("/pay/{}", link.text_of("pay_order_id"));
    app.call(Method::GET, &path, PUBLISHABLE_KEY, None).await.expect(200);
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_rotations_at_once_the_last_one_alone_leaves_keys_that_live_on() {
    let app = start().await;
    let body = json!({"overlap_seconds": 0, "reason": "a story"});
    let before = app.count_where("api_keys", "merchant_id = 'demo'").await;
    let rotate = || app.admin_post("/admin/merchants/demo/keys", body.clone());
    for round in 1..=5 {
        let made = join_all((0..8).map(|_| rotate())).await;
        assert!(made.iter().all(|reply| reply.status == 201), "{made:?}");
        for kind in ["SECRET", "PUBLISHABLE"] {
            let living = format!("merchant_id = 'demo' AND kind = '{kind}' AND expires_at IS NULL");
            assert_eq!(app.count_where("api_keys", &living).await, 1, "{kind} after {round} rounds");
        }
    }
    assert_eq!(app.count_where("api_keys", "merchant_id = 'demo'").await, before + 2 * 5 * 8);
    app.end().await;
}

#[tokio::test]
async fn old_keys_work_through_the_overlap_and_no_longer() {
    let app = start().await;
    app.order("K1").await;
    let rotate = |overlap: i64| {
        let app = &app;
        async move {
            let body = json!({"overlap_seconds": overlap, "reason": "a story"});
            app.admin_post("/admin/merchants/demo/keys", body).await.expect(201)
        }
    };
    let status = |key: String| {
        let app = &app;
        async move { app.call(Method::GET, "/orders/K1", &key, None).await.status }
    };
    let second = rotate(600).await.text_of("secret_key").to_owned();
    assert_eq!((status(SECRET_KEY.into()).await, status(second.clone()).await), (200, 200), "both work");
    app.clock.advance(std::time::Duration::from_secs(601));
    let third = rotate(0).await.text_of("secret_key").to_owned();
    // An answer may be remembered for five seconds, by the machine's own clock.
    tokio::time::sleep(std::time::Duration::from_millis(5050)).await;
    assert_eq!(status(SECRET_KEY.into()).await, 401, "its overlap is over");
    assert_eq!(status(second).await, 401, "revoked at once");
    assert_eq!(status(third).await, 200);
    assert_eq!(
        app.call(Method::GET, "/orders/K1", PUBLISHABLE_KEY, None).await.problem(401),
        "UNAUTHENTICATED"
    );
    app.end().await;
}

#[tokio::test]
async fn changes_of_faults_stand_in_the_admin_log() {
    let app = start().await;
    let fault = json!({"op": "create", "fault": "delay", "times": 2, "ms": 1});
    for (method, body) in [(Method::PUT, Some(&fault)), (Method::GET, None), (Method::DELETE, None)] {
        app.call(method, "/sandbox/faults", OPERATOR, body).await.expect(200);
    }
    let page = app.admin_get("/admin/admin-log").await.expect(200);
    let entries = page.body["data"].as_array().expect("a page").iter();
    let told: Vec<_> = entries.map(|entry| [&entry["actor"], &entry["action"], &entry["target"]]).collect();
    let told = json!(told);
    let expected = json!([
        ["operator", "sandbox.clear_faults", "all"],
        ["operator", "sandbox.set_fault", "create delay, 2 times"]
    ]);
    assert_eq!(told, expected);
    app.end().await;
}

#[tokio::test]
async fn a_refunds_number_of_two_merchants_is_nobodys_and_each_is_decided_over_by_itself() {
    let app = TestApp::start().await;
    let key = app.merchant("second", "hold").await;
    app.sql("UPDATE merchants SET refund_approval_above = 500").await;
    app.paid("A").await;
    let id = app.order_to_pay_as(&key, "B").await;
    app.sandbox_pay(&id, json!({})).await.expect(200);
    app.run_until_idle().await;
    let body = |order_no| json!({"refund_no": "R1", "order_no": order_no, "amount": 600});
    for (key, order_no) in [(SECRET_KEY, "A"), (key.as_str(), "B")] {
        let asked = app.call(Method::POST, "/refunds", key, Some(&body(order_no))).await.expect(201);
        assert_eq!(asked.text_of("status"), "AWAITING_APPROVAL");
    }
    let decide =
        async |path: &str| app.admin_post(&format!("/admin/refunds/R1/{path}"), json!({"reason": "r"})).await;
    for verb in ["approve", "reject", "not-made"] {
        assert_eq!(decide(verb).await.problem(409), "AMBIGUOUS_NUMBER", "{verb}");
        assert_eq!(decide(&format!("{verb}?merchant_id=nobody")).await.problem(404), "NOT_FOUND", "{verb}");
    }
    let approved = decide("approve?merchant_id=second").await.expect(200);
    assert_eq!((approved.text_of("merchant_id"), approved.text_of("order_no")), ("second", "B"));
    app.run_until_idle().await;
    for (key, status) in [(SECRET_KEY, "AWAITING_APPROVAL"), (key.as_str(), "SUCCEEDED")] {
        let refund = app.call(Method::GET, "/refunds/R1", key, None).await.expect(200);
        assert_eq!(refund.text_of("status"), status);
    }
    assert_eq!(decide("reject?merchant_id=demo").await.expect(200).text_of("status"), "FAILED");
    app.end().await;
}

#[tokio::test]
async fn which_keys_of_a_merchant_work_can_be_seen_and_the_keys_cannot() {
    let app = TestApp::start().await;
    let key = app.merchant("second", "hold").await;
    let keys = async |query: &str| {
        let page = app.admin_get(&format!("/admin/merchants/second/keys{query}")).await.expect(200);
        assert!(!page.text.contains(&key), "a key: {}", page.text);
        page.body
    };
    let first = keys("").await;
    assert_eq!((first["data"].as_array().map(Vec::len), &first["has_more"]), (Some(2), &json!(false)));
    let rotation = json!({"kind": "SECRET", "overlap_seconds": 600, "reason": "the yearly rotation"});
    let rotated = app.admin_post("/admin/merchants/second/keys", rotation).await.expect(201);
    let new = rotated.text_of("secret_key");
    let newest = keys("?limit=1").await;
    assert_eq!(newest["has_more"], true);
    let newest = &newest["data"][0];
    assert!(new.starts_with(newest["hint"].as_str().expect("text")) && !newest.to_string().contains(new));
    assert_eq!((&newest["kind"], &newest["works"]), (&json!("SECRET"), &json!(true)));
    let older = keys(&format!("?starting_after={}", newest["key_id"])).await["data"].clone();
    assert_eq!(older, keys("").await["data"].as_array().map(|all| json!(all[1..])).expect("a list"));
    let of_kind = |of: &str| older.as_array().expect("a list").iter().find(|key| key["kind"] == of).cloned();
    let old = of_kind("SECRET").expect("the old one");
    assert_eq!((&old["works"], &old["expires_at"]), (&json!(true), &rotated.body["old_keys_end_at"]));
    assert!(of_kind("PUBLISHABLE").is_some_and(|other| other["expires_at"].is_null()));
    app.clock.advance(Duration::from_secs(600));
    let works: Vec<_> =
        keys("").await["data"].as_array().expect("a list").iter().map(|key| key["works"].clone()).collect();
    assert_eq!(works.iter().filter(|works| **works == true).count(), 2, "{works:?}");
    assert_eq!(app.admin_get("/admin/merchants/nobody/keys").await.problem(404), "NOT_FOUND");
    app.end().await;
}
