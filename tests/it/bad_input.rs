//! Whatever comes in, the answer says what was wrong, nothing is stored, nothing of the inside is told.

use std::collections::BTreeMap;

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::raw::say;
use crate::support::routes::{ROUTES, Route, Who};
use crate::support::{OPERATOR, Reply, SECRET_KEY, TestApp, TestOptions};

const VIEWER: &str = "dev-viewer-token";
const LIMIT: usize = 64 * 1024;

async fn start() -> TestApp {
    let tokens = format!("operator:{OPERATOR},viewer@vera:{VIEWER}");
    TestApp::start_with(TestOptions { vars: vec![("ADMIN_TOKENS", tokens)], ..TestOptions::default() }).await
}

/// How many rows every table has.
async fn row_counts(app: &TestApp) -> BTreeMap<String, i64> {
    let counts: Vec<(String, i64)> = sqlx::query_as(
        "SELECT table_schema || '.' || table_name,
                (xpath('//c/text()', query_to_xml(format('SELECT count(*) AS c FROM %I.%I', table_schema, table_name),
                       false, true, '')))[1]::text::bigint
         FROM information_schema.tables WHERE table_schema IN ('public', 'sandbox') AND table_type = 'BASE TABLE'",
    )
    .fetch_all(app.instance.app.db.pool())
    .await
    .expect("counts");
    counts.into_iter().collect()
}

/// No answer may show what is behind it, and none may be a 500.
#[track_caller]
fn assert_discreet(what: &str, reply: &Reply) {
    assert!(reply.status < 500, "{what}: {} {}", reply.status, reply.text);
    assert!(reply.header("x-request-id").is_some_and(|id| !id.is_empty()), "{what}: no X-Request-Id");
    for secret in
        ["SELECT", "INSERT", "panicked", ".rs", "sqlx", "postgres", "constraint", "/work", "_fkey", "_pkey"]
    {
        assert!(!reply.text.contains(secret), "{what} tells {secret}: {}", reply.text);
    }
}

async fn send(app: &TestApp, route: &Route, token: &str, content_type: Option<&str>, body: Vec<u8>) -> Reply {
    let method: Method = route.method.parse().expect("a method");
    let request = app.http.request(method, format!("{}{}", app.url, route.url())).body(body);
    let request = if token.is_empty() { request } else { request.bearer_auth(token) };
    let request = match content_type {
        Some(content_type) => request.header("content-type", content_type),
        None => request,
    };
    Reply::of(request.send().await.expect("an answer")).await
}

fn json_routes() -> impl Iterator<Item = &'static Route> {
    ROUTES.iter().filter(|route| route.takes_json())
}

const MALFORMED: (u16, &str) = (400, "MALFORMED_JSON");
const INVALID: (u16, &str) = (422, "VALIDATION_FAILED");
const TOO_LARGE: (u16, &str) = (413, "BODY_TOO_LARGE");

/// (what, body, status and code of the answer)
fn bad_bodies(right: &str) -> Vec<(&'static str, Vec<u8>, (u16, &'static str))> {
    let head = right.trim_end_matches('}');
    let comma = if head.len() > 1 { "," } else { "" };
    let with = |member: &str| format!("{head}{comma}{member}}}").into_bytes();
    vec![
        ("half an object", b"{\"a\":".to_vec(), MALFORMED),
        ("two objects", format!("{right}{{}}").into_bytes(), MALFORMED),
        ("no JSON", b"order_no=1".to_vec(), MALFORMED),
        ("a trailing comma", format!("{head}{comma}}}x").into_bytes(), MALFORMED),
        ("invalid UTF-8", b"{\"\xff\xfe\":1}".to_vec(), MALFORMED),
        ("a raw NUL", b"{\"a\0\":1}".to_vec(), MALFORMED),
        ("half a surrogate", b"{\"\\ud800\":1}".to_vec(), INVALID),
        ("a byte order mark", [b"\xef\xbb\xbf", right.as_bytes()].concat(), MALFORMED),
        ("an array", b"[]".to_vec(), INVALID),
        ("an array of values", b"[\"R9\",\"u1\",\"CNY\",1990]".to_vec(), INVALID),
        ("a string", b"\"x\"".to_vec(), INVALID),
        ("null", b"null".to_vec(), INVALID),
        ("an unknown field", with("\"surprise\":1"), INVALID),
        ("an escaped NUL", with("\"reason\":\"a\\u0000b\""), INVALID),
        ("a deep array", "[".repeat(20_000).into_bytes(), MALFORMED),
        ("a deep array that ends", ["[".repeat(20_000), "]".repeat(20_000)].concat().into_bytes(), INVALID),
        ("a deep object", with(&format!("\"metadata\":{}", "{\"a\":".repeat(9_000))), MALFORMED),
        (
            "a deep object that ends",
            with(&format!("\"metadata\":{}1{}", "[".repeat(9_000), "]".repeat(9_000))),
            INVALID,
        ),
        ("one byte too many", with(&format!("\"reason\":\"{}\"", "x".repeat(LIMIT))), TOO_LARGE),
        ("far too many bytes", vec![b' '; 16 * LIMIT], TOO_LARGE),
    ]
}

#[tokio::test]
async fn bad_bodies_are_refused_on_every_route_and_leave_no_trace() {
    let app = start().await;
    let before = row_counts(&app).await;
    for route in json_routes() {
        for (what, body, expected) in bad_bodies(route.body.expect("a body")) {
            let what = format!("{what} to {} {}", route.method, route.path);
            let reply = send(&app, route, route.who.token(), Some("application/json"), body).await;
            assert_discreet(&what, &reply);
            let seen = (reply.status, reply.body["code"].as_str().unwrap_or_default());
            assert_eq!(seen, expected, "{what}: {}", reply.text);
            reply.problem(reply.status);
            if what.starts_with("an unknown field") {
                assert_eq!(reply.body["errors"][0]["field"], "surprise", "{what}: {}", reply.text);
            }
        }
        for content_type in
            [None, Some("text/plain"), Some("application/x-www-form-urlencoded"), Some("json")]
        {
            let body = route.body.expect("a body").as_bytes().to_vec();
            let reply = send(&app, route, route.who.token(), content_type, body).await;
            assert_discreet(route.path, &reply);
            assert_eq!(reply.problem(415), "UNSUPPORTED_MEDIA_TYPE");
        }
    }
    assert_eq!(row_counts(&app).await, before);
    app.end().await;
}

#[tokio::test]
async fn an_empty_body_is_no_order() {
    let app = start().await;
    for route in json_routes() {
        let reply = send(&app, route, route.who.token(), Some("application/json"), Vec::new()).await;
        assert_discreet(route.path, &reply);
        // The sandbox's buttons take none for `{}`; what they are pressed for does not exist here.
        let expected = match route.path {
            "/sandbox/faults" => 422,
            path if path.starts_with("/sandbox") => 404,
            _ => 400,
        };
        reply.problem(expected);
    }
    app.end().await;
}

#[tokio::test]
async fn a_chunked_body_that_is_too_long_is_refused_too() {
    let app = start().await;
    let before = row_counts(&app).await;
    for route in json_routes() {
        let Route { method, who, .. } = route;
        let mut request = format!(
            "{method} {} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\nconnection: close\r\n\
             content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n",
            route.url(),
            who.token(),
        );
        for _ in 0..66 {
            request.push_str(&format!("400\r\n{}\r\n", " ".repeat(1024)));
        }
        let closed = say(app.instance.addr, request.as_bytes()).await;
        assert_eq!(closed.status(), 413, "{}: {}", route.path, closed.text);
        assert!(
            closed.text.contains("BODY_TOO_LARGE") && closed.text.contains("x-request-id"),
            "{}",
            closed.text
        );
    }
    assert_eq!(row_counts(&app).await, before);
    app.end().await;
}

const ORDER: &str = r#"{"order_no":"F1","user_id":"u1","currency":"CNY","amount":1990}"#;
const ITEM: &str = r#"{"order_no":"F1","user_id":"u1","currency":"CNY"}"#;
const PAY: &str = r#"{"order_no":"F1","payer_id":"u1","channel":"sandbox","amount":1990,"currency":"CNY"}"#;
const MERCHANT: &str = r#"{"merchant_id":"f2","name":"Second"}"#;
const SKU: &str = r#"{"merchant_id":"demo","sku":"F1","stock":1}"#;

/// (route, right body, field to set, values that are wrong, field that the answer names)
const BAD_FIELDS: &[(&str, &str, &str, &[&str], &str)] = &[
    (
        "/orders",
        ORDER,
        "amount",
        &["0", "-1", "1.5", "1990.0", "\"1990\"", "1e400", "-1e400", "1000000000001"],
        "amount",
    ),
    (
        "/orders",
        ORDER,
        "amount",
        &["9223372036854775807", "9223372036854775808", "1e999999", "true", "[]"],
        "amount",
    ),
    (
        "/orders",
        ORDER,
        "currency",
        &["\"cny\"", "\"ZZZ\"", "\"\"", "\"CNYX\"", "5", "null", "\"人民\""],
        "currency",
    ),
    ("/orders", ORDER, "order_no", &["\"\"", "\"a b\"", "\"a/b\"", "\"ä\"", "5", "{}", LONG_ID], "order_no"),
    ("/orders", ORDER, "user_id", &["\"\"", "\"a:b\"", "null", "5", LONG_ID], "user_id"),
    ("/orders", ORDER, "expires_in", &["0", "-1", "604801", "1.5", "\"60\"", "1e400"], "expires_in"),
    ("/orders", ORDER, "kind", &["\"sale\"", "\"GIFT\"", "1"], "kind"),
    ("/orders", ORDER, "subject", &["\"\"", "\"  \"", "5"], "subject"),
    (
        "/orders",
        ORDER,
        "notify_url",
        &["\"x\"", "\"ftp://x/\"", "\"javascript:alert(1)\"", "5"],
        "notify_url",
    ),
    ("/orders", ORDER, "metadata", &["5", "\"x\"", "[]"], "metadata"),
    (
        "/orders",
        ORDER,
        "rebate",
        &["{\"rate\":\"1.1\"}", "{\"rate\":\"-0.1\"}", "{\"rate\":\"0.123456789\"}"],
        "rebate.rate",
    ),
    (
        "/orders",
        ORDER,
        "rebate",
        &["{\"rate\":0.5}", "{\"rate\":\"abc\"}", "{\"rate\":\"NaN\"}"],
        "rebate.rate",
    ),
    ("/orders", ORDER, "rebate", &["{\"surprise\":1}"], "rebate.surprise"),
    ("/orders", ITEM, "items", &["[{\"sku\":\"T\",\"quantity\":0,\"unit_price\":1}]"], "items[0].quantity"),
    ("/orders", ITEM, "items", &["[{\"sku\":\"T\",\"quantity\":1.5,\"unit_price\":1}]"], "items[0].quantity"),
    (
        "/orders",
        ITEM,
        "items",
        &["[{\"sku\":\"T\",\"quantity\":1,\"unit_price\":-1}]"],
        "items[0].unit_price",
    ),
    ("/orders", ITEM, "items", &["[{\"sku\":\"\",\"quantity\":1,\"unit_price\":1}]"], "items[0].sku"),
    (
        "/orders",
        ITEM,
        "items",
        &["[{\"sku\":\"T\",\"quantity\":1000000,\"unit_price\":1000000000000}]"],
        "items",
    ),
    ("/orders", ITEM, "items", &["[{\"sku\":\"T\",\"quantity\":1,\"unit_price\":0}]", "{}", "5"], "items"),
    ("/orders", ITEM, "items", &["[]"], "amount"),
    ("/pay/url", PAY, "amount", &["0", "-1", "1.5", "1e400", "1000000000001", "\"5\""], "amount"),
    ("/pay/url", PAY, "currency", &["\"cny\"", "\"ZZZ\"", "5", "null"], "currency"),
    ("/pay/url", PAY, "order_no", &["\"\"", "\"a b\"", "null", LONG_ID], "order_no"),
    ("/pay/url", PAY, "payer_id", &["\"\"", "\"a b\"", "5"], "payer_id"),
    ("/pay/url", PAY, "channel", &["\"\"", "5", LONG_ID], "channel"),
    ("/pay/url", PAY, "channel", &["\"nowhere\"", "\"SANDBOX\"", "\"../x\""], "channel"),
    ("/pay/url", PAY, "return_url", &["\"x\"", "\"javascript:alert(1)\""], "return_url"),
    ("/admin/merchants", MERCHANT, "merchant_id", &["\"\"", "\"a:b\"", "5", LONG_ID], "merchant_id"),
    ("/admin/merchants", MERCHANT, "name", &["\"\"", "\" \"", "5", "null"], "name"),
    ("/admin/merchants", MERCHANT, "stray_money", &["\"HOLD\"", "5"], "stray_money"),
    (
        "/admin/merchants",
        MERCHANT,
        "refund_approval_above",
        &["-1", "1.5", "1000000000001"],
        "refund_approval_above",
    ),
    ("/admin/merchants", MERCHANT, "notify_url", &["\"x\"", "\"file:///etc/passwd\""], "notify_url"),
    ("/admin/merchants", MERCHANT, "reason", &["5"], "reason"),
    (
        "/admin/merchants/demo/keys",
        "{\"reason\":\"a story\"}",
        "overlap_seconds",
        &["-1", "2592001", "1.5", "1e400"],
        "overlap_seconds",
    ),
    ("/admin/merchants/demo/keys", "{}", "reason", &["\"\"", "\" \"", "5"], "reason"),
    ("/admin/merchants/demo/keys", "{\"reason\":\"a story\"}", "kind", &["\"secret\"", "5"], "kind"),
    ("/admin/webhooks/sandbox:none/replay", "{}", "reason", &["\"\"", "null"], "reason"),
    ("/admin/webhooks/sandbox:none/replay", "{}", "dry_run", &["\"yes\"", "1"], "dry_run"),
    ("/admin/skus", SKU, "stock", &["-1", "1.5", "1000000000001", "\"1\"", "1e400"], "stock"),
    ("/admin/skus", SKU, "expected_stock", &["-1", "1.5", "1000000000001", "\"1\""], "expected_stock"),
    ("/admin/skus", SKU, "sku", &["\"\"", "\"a b\"", "5"], "sku"),
    ("/admin/exceptions/ex_none/resolve", "{}", "action", &["\"refund\"", "\"\"", "5"], "action"),
    ("/sandbox/trades/po_none/pay", "{}", "amount", &["0", "-1", "1.5", "1e400", "1000000000001"], "amount"),
    ("/sandbox/trades/po_none/pay", "{}", "currency", &["\"cny\"", "5"], "currency"),
    ("/sandbox/trades/po_none/decline", "{}", "notify", &["1", "\"yes\""], "notify"),
];
const LONG_ID: &str = "\"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\"";

/// The body with one field set to a raw text, which need not be a value that serde_json can hold.
fn with_field(right: &str, field: &str, raw: &str) -> String {
    let mut members: serde_json::Map<String, Value> = serde_json::from_str(right).expect("an object");
    members.remove(field);
    let rest = serde_json::to_string(&members).expect("json");
    let comma = if members.is_empty() { "" } else { "," };
    format!("{{\"{field}\":{raw}{comma}{}", &rest[1..])
}

#[tokio::test]
async fn a_wrong_field_is_named_by_its_path() {
    let app = start().await;
    let before = row_counts(&app).await;
    for (path, right, field, values, named) in BAD_FIELDS {
        let who = if path.starts_with("/admin") { Who::Operator } else { Who::Secret };
        let route = Route { method: "POST", path, who, body: Some(right) };
        for raw in *values {
            let body = with_field(right, field, raw);
            let what = format!("{path} {field}={raw}");
            let reply = send(&app, &route, who.token(), Some("application/json"), body.into()).await;
            assert_discreet(&what, &reply);
            assert_eq!(reply.status, 422, "{what}: {}", reply.text);
            assert!(
                matches!(reply.problem(422), "VALIDATION_FAILED" | "UNKNOWN_CHANNEL"),
                "{what}: {}",
                reply.text
            );
            let fields: Vec<_> =
                reply.body["errors"].as_array().into_iter().flatten().map(|e| &e["field"]).collect();
            assert_eq!(fields, [&json!(named)], "{what}: {}", reply.text);
        }
        // A key that stands there twice is refused, whichever of both is right.
        let twice = with_field(right, field, "null").replacen('{', &format!("{{\"{field}\":null,"), 1);
        let reply = send(&app, &route, who.token(), Some("application/json"), twice.into()).await;
        assert_eq!(reply.problem(422), "VALIDATION_FAILED", "{path} {field} twice: {}", reply.text);
    }
    assert_eq!(row_counts(&app).await, before);
    app.end().await;
}

#[tokio::test]
async fn ids_and_queries_that_cannot_be_name_nothing() {
    let app = start().await;
    let ids = ["%00", "%FF", "a%2Fb", "%20", "..", "a%00b", "%E4%BA%BA", &"x".repeat(65), "'%20OR%201=1--"];
    for id in ids {
        for (method, path, token) in [
            ("GET", format!("/orders/{id}"), SECRET_KEY),
            ("POST", format!("/orders/{id}/close"), SECRET_KEY),
            ("GET", format!("/pay/{id}"), SECRET_KEY),
            ("GET", format!("/admin/orders/{id}"), OPERATOR),
            ("GET", format!("/admin/orders/{id}/timeline"), OPERATOR),
            ("POST", format!("/admin/merchants/{id}/keys"), OPERATOR),
            ("POST", format!("/admin/webhooks/{id}/replay"), OPERATOR),
            ("POST", format!("/sandbox/trades/{id}/pay"), ""),
            ("GET", format!("/sandbox/trades/{id}"), ""),
            ("POST", format!("/webhooks/{id}"), ""),
        ] {
            let reply = app.call(method.parse().expect("a method"), &path, token, Some(&json!({}))).await;
            assert_discreet(&path, &reply);
            // `..` is taken out of a URL by whoever sends it, so another route may be meant.
            assert!(matches!(reply.status, 404 | 405), "{path}: {} {}", reply.status, reply.text);
            reply.problem(reply.status);
        }
    }
    for query in
        ["/orders/NONE?wait=31", "/orders/NONE?wait=-1", "/orders/NONE?wait=x", "/orders/NONE?surprise=1"]
    {
        let reply = app.get(query).await;
        assert_discreet(query, &reply);
        assert_eq!(reply.problem(422), "VALIDATION_FAILED", "{query}");
    }
    for query in [
        "/admin/orders?limit=0",
        "/admin/orders?limit=101",
        "/admin/orders?limit=x",
        "/admin/orders?status=paid",
        "/admin/orders?starting_after=x",
        "/admin/orders?merchant_id=a%20b",
        "/admin/merchants?starting_after=%00",
        "/admin/skus",
        "/admin/skus?merchant_id=demo&starting_after=%00",
        "/admin/exceptions?starting_after=a%00b",
        "/admin/exceptions?status=x",
        "/admin/stray-payments?starting_after=%00",
        "/admin/stray-payments?limit=256",
        "/admin/receivables?starting_after=x",
        "/admin/receivables?starting_after=demo:u1:%00",
    ] {
        let reply = app.admin_get(query).await;
        assert_discreet(query, &reply);
        assert_eq!(reply.problem(422), "VALIDATION_FAILED", "{query}");
    }
    app.end().await;
}

#[tokio::test]
async fn wrong_methods_and_unknown_paths_are_problems_too() {
    let app = start().await;
    for path in
        ["/", "/order", "/orders/", "/orders/A/B/C", "/admin", "/admin/nothing", "/sandbox", "/%FF", "/pay"]
    {
        let reply = app.call(Method::POST, path, OPERATOR, Some(&json!({}))).await;
        assert_discreet(path, &reply);
        assert_eq!(reply.problem(404), "NOT_FOUND", "{path}");
    }
    for route in ROUTES {
        let known = |method: &str| ROUTES.iter().any(|r| r.path == route.path && r.method == method);
        for method in ["GET", "POST", "PUT", "DELETE", "PATCH"] {
            let is_post_path = |r: &&Route| r.path == "/pay/url" || r.path == "/pay/{pay_order_id}";
            if known(method) || (is_post_path(&route) && matches!(method, "GET")) {
                continue;
            }
            let what = format!("{method} {}", route.path);
            let method = method.parse().expect("a method");
            let reply = app.call(method, &route.url(), route.who.token(), Some(&json!({}))).await;
            assert_discreet(&what, &reply);
            assert_eq!(reply.problem(405), "METHOD_NOT_ALLOWED", "{what}");
            assert!(reply.header("allow").is_some_and(|allow| !allow.is_empty()), "{what} names no method");
        }
    }
    app.end().await;
}

#[tokio::test]
async fn headers_without_end_are_refused_and_the_service_lives_on() {
    let app = start().await;
    let many: String = (0..10_000).map(|index| format!("x-{index}: y\r\n")).collect();
    let huge = format!("x-huge: {}\r\n", "y".repeat(1 << 20));
    let long_path = "x".repeat(1 << 17);
    for (what, path, headers) in [
        ("10,000 headers", "/livez", many.as_str()),
        ("a huge header", "/livez", &huge),
        ("a long path", &long_path, ""),
    ] {
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\n{headers}\r\n");
        let closed = say(app.instance.addr, request.as_bytes()).await;
        // Where the connection is reset while we still talk, the answer may not reach us.
        assert!(matches!(closed.status(), 0 | 400 | 414 | 431), "{what}: {}", closed.text);
    }
    for garbage in
        ["\0\0\0\0\r\n\r\n", "GET\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", "\u{16}\u{3}\u{1}\u{2}\r\n\r\n"]
    {
        let closed = say(app.instance.addr, garbage.as_bytes()).await;
        assert!(matches!(closed.status(), 0 | 400 | 505), "{garbage:?}: {}", closed.text);
    }
    app.call(Method::GET, "/livez", "", None).await.expect(200);
    app.end().await;
}

#[tokio::test]
async fn methods_that_callers_invent_are_refused_and_leave_no_figures_behind() {
    let app = start().await;
    let figures = async || app.call(Method::GET, "/metrics", "", None).await.expect(200).text;
    let addr = app.instance.addr;
    let ask = async |method: &str, path: &str| {
        let request = format!("{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        say(addr, request.as_bytes()).await.status()
    };
    for index in 0..40 {
        for path in ["/livez", "/nothing"] {
            let status = ask(&format!("INVENTED{index}"), path).await;
            assert!(matches!(status, 404 | 405), "{path}: {status}");
        }
    }
    let after = figures().await;
    assert!(after.contains("method=\"other\"") && !after.contains("INVENTED"), "{after}");
    app.end().await;
}

#[tokio::test]
async fn a_query_with_an_unknown_name_is_refused_wherever_there_is_a_query() {
    let app = start().await;
    let document = app.call(Method::GET, "/openapi.json", "", None).await.expect(200).body;
    let mut asked = 0;
    for route in ROUTES.iter().filter(|route| route.method == "GET") {
        let parameters = &document["paths"][route.path]["get"]["parameters"];
        if !parameters.as_array().is_some_and(|all| all.iter().any(|one| one["in"] == "query")) {
            continue;
        }
        let url = format!("{}?merchant_id=demo&surprise=1", route.url());
        let reply = app.call(Method::GET, &url, route.who.token(), None).await;
        assert_eq!(reply.problem(422), "VALIDATION_FAILED", "{url}: {}", reply.text);
        asked += 1;
    }
    assert!(asked >= 10, "{asked} routes");
    for url in ["/admin/orders?stauts=PAID", "/admin/exceptions?statsu=OPEN"] {
        assert_eq!(app.admin_get(url).await.problem(422), "VALIDATION_FAILED", "{url}");
    }
    app.end().await;
}

#[tokio::test]
async fn a_moment_that_utc_does_not_have_is_refused() {
    let app = TestApp::start().await;
    let at = "9999-12-31T23:59:59-01:00";
    for (path, field, body) in [
        ("/admin/outbox/resend", "since", json!({"merchant_id": "demo", "since": at, "reason": "never"})),
        ("/admin/compensations/retry", "created_before", json!({"created_before": at, "dry_run": true})),
    ] {
        let refused = app.admin_post(path, body).await;
        assert_eq!(refused.problem(422), "VALIDATION_FAILED", "{path}: {}", refused.text);
        assert_eq!(refused.body["errors"][0]["field"], field, "{}", refused.text);
    }
    app.end().await;
}
