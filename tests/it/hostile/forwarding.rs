//! Headers that claim to come from a proxy. The service believes none: no answer, link, redirect, log line or row
//! holds a word of theirs, and no route is reached by another's name.

use reqwest::Method;
use serde_json::{Value, json};

use super::headers::serve_with_log;
use crate::support::routes::ROUTES;
use crate::support::service::{OPERATOR_OF_PROCESS, Service, Shop};
use crate::support::{Reply, SECRET_KEY, TestApp};

/// A word that stands nowhere else.
const EVIL: &str = "evil-example";

/// (header, what it claims)
const CLAIMS: [(&str, &str); 22] = [
    ("host", "evil-example.net"),
    ("forwarded", "for=evil-example;host=evil-example.net;proto=evil-example;by=127.0.0.1"),
    ("x-forwarded-for", "evil-example, 127.0.0.1"),
    ("x-forwarded-host", "evil-example.net"),
    ("x-forwarded-server", "evil-example.net"),
    ("x-forwarded-proto", "evil-example"),
    ("x-forwarded-port", "666"),
    ("x-forwarded-prefix", "/evil-example"),
    ("x-forwarded-user", "evil-example"),
    ("x-real-ip", "127.0.0.1"),
    ("x-client-ip", "127.0.0.1"),
    ("true-client-ip", "127.0.0.1"),
    ("x-host", "evil-example.net"),
    ("x-original-host", "evil-example.net"),
    ("x-original-url", "/admin/merchants?evil-example"),
    ("x-rewrite-url", "/admin/merchants?evil-example"),
    ("x-http-method-override", "DELETE"),
    ("x-http-method", "DELETE"),
    ("x-method-override", "DELETE"),
    ("x-remote-user", "evil-example"),
    ("referer", "http://evil-example.net/"),
    ("user-agent", "evil-example"),
];

async fn spoofed(http: &reqwest::Client, method: Method, url: &str, token: &str, body: &Value) -> Reply {
    let mut request = http.request(method, url).bearer_auth(token).json(body);
    for (name, claim) in CLAIMS {
        request = request.header(name, claim);
    }
    let reply = Reply::of(request.send().await.expect("an answer")).await;
    let headers = format!("{:?}", reply.headers);
    assert!(!reply.text.contains(EVIL) && !headers.contains(EVIL), "{url}: {headers} {}", reply.text);
    reply
}

impl Shop {
    async fn spoofed(&self, service: &Service, path: &str, body: Value) -> Reply {
        let url = format!("{}{path}", service.url);
        let token = if path.starts_with("/admin") { OPERATOR_OF_PROCESS } else { SECRET_KEY };
        spoofed(&self.app.http, Method::POST, &url, token, &body).await
    }
}

/// Tables with a row that holds the word.
async fn tables_that_believed(app: &TestApp) -> Vec<String> {
    sqlx::query_scalar(
        "SELECT table_name::text FROM information_schema.tables
         WHERE table_schema IN ('public', 'sandbox') AND table_type = 'BASE TABLE'
           AND query_to_xml(format('SELECT 1 FROM %I.%I AS r WHERE r::text LIKE ''%%%s%%''',
                                   table_schema, table_name, $1), false, true, '')::text LIKE '%<row%'",
    )
    .bind(EVIL)
    .fetch_all(app.instance.app.db.pool())
    .await
    .expect("a look")
}

#[tokio::test]
async fn no_link_row_or_log_line_takes_anything_from_a_forwarding_header() {
    let shop = Shop::open().await;
    let (service, log) = serve_with_log(&shop, "debug").await;
    let order = json!({"order_no": "F1", "user_id": "u1", "currency": "CNY", "amount": 1990});
    shop.spoofed(&service, "/orders", order).await.expect(201);
    let asked = json!({"order_no": "F1", "payer_id": "u1", "channel": "sandbox"});
    let link = shop.spoofed(&service, "/pay/url", asked).await.expect(200);
    // The sandbox that made the link is the story's own instance.
    assert!(link.text_of("pay_url").starts_with(&format!("{}/", shop.app.url)), "{}", link.text);

    let merchant = json!({"merchant_id": "m2", "name": "Second", "reason": "a story"});
    shop.spoofed(&service, "/admin/merchants", merchant).await.expect(201);
    shop.spoofed(&service, "/admin/merchants/m2/keys", json!({"reason": "a story"})).await.expect(201);
    shop.spoofed(&service, "/webhooks/sandbox", json!({})).await.expect(400);
    shop.spoofed(&service, "/orders/F1/close", json!({})).await.expect(200);

    assert!(shop.app.count("admin_log").await >= 2);
    assert_eq!(tables_that_believed(&shop.app).await, [""; 0]);
    let logged = std::fs::read_to_string(&log).expect("its log");
    assert!(logged.contains("/admin/merchants") && !logged.contains(EVIL), "{logged}");
    std::fs::remove_file(log).expect("removed");
    service.kill().await;
    shop.end().await;
}

#[tokio::test]
async fn no_page_or_redirect_goes_where_a_header_says() {
    let app = TestApp::start().await;
    let id = app.order_to_pay("F2").await;
    let get = async |path: &str| {
        let url = format!("{}{path}", app.url);
        let mut request = app.http.get(&url);
        for (name, claim) in CLAIMS {
            request = request.header(name, claim);
        }
        Reply::of(request.send().await.expect("an answer")).await
    };
    let page = get(&format!("/sandbox/cashier/{id}")).await.expect(200);
    assert!(!page.text.contains(EVIL), "{}", page.text);
    for path in ["/docs", "/docs/", "/docs/swagger-initializer.js", "/openapi.json", "/readyz", "/metrics"] {
        let reply = get(path).await;
        assert!(!reply.text.contains(EVIL), "{path}");
        // A redirect stays on this host, whichever name it was called by.
        assert!(reply.header("location").is_none_or(|to| to.starts_with("/docs")), "{:?}", reply.headers);
    }
    let button = format!("{}/sandbox/cashier/{id}/pay", app.url);
    let pressed = spoofed(&app.http, Method::POST, &button, "", &json!({})).await.expect(303);
    assert_eq!(pressed.header("location"), Some(format!("../{id}").as_str()));
    app.run_until_idle().await;
    assert_eq!(app.status_of("F2").await, "PAID");
    assert_eq!(tables_that_believed(&app).await, [""; 0]);
    app.end().await;
}

#[tokio::test]
async fn no_header_opens_a_route_or_turns_one_into_another() {
    let app = TestApp::start().await;
    app.order("F3").await;
    let before = app.row_counts().await;
    for route in ROUTES {
        let url = format!("{}{}", app.url, route.url());
        let method: Method = route.method.parse().expect("a method");
        let body = route.body.map_or(Value::Null, |body| serde_json::from_str(body).expect("json"));
        // Whoever comes from 127.0.0.1, by what they say, is nobody all the same.
        let plain = app.call(method.clone(), &route.url(), "", Some(&body)).await;
        let dressed = spoofed(&app.http, method, &url, "", &body).await;
        assert_eq!(dressed.status, plain.status, "{} {}", route.method, route.path);
        assert_eq!(dressed.body["code"], plain.body["code"], "{} {}", route.method, route.path);
    }
    for (path, expected) in [("/orders/F3", "\"status\":\"PENDING\""), ("/livez", "ok")] {
        let url = format!("{}{path}", app.url);
        let reply = spoofed(&app.http, Method::GET, &url, SECRET_KEY, &Value::Null).await.expect(200);
        assert!(reply.text.contains(expected), "{}", reply.text);
    }
    assert_eq!(app.row_counts().await, before);
    app.end().await;
}
