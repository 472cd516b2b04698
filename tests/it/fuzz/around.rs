//! What is around a body: paths of all routes, an upload's query and headers, and the signed calls of the sandbox. Nothing
//! is answered by a defect.

use payonce::channels::sandbox::signature;
use proptest::prelude::*;
use reqwest::Method;

use super::bodies::{assert_no_defect, bend, bent, draw, requests, runner};
use crate::support::routes::{ROUTES, Route};
use crate::support::{OPERATOR, Reply, TestApp};

/// The operations of the sandbox's gateway, with a right call each.
const CALLS: [(&str, &str); 8] = [
    (
        "create",
        r#"{"pay_order_id":"po_fuzz","amount":1990,"currency":"CNY","subject":"tea","payer_id":"u1","return_url":null,
            "notify_url":"http://127.0.0.1:9/none","expires_at":"2030-01-01T00:00:00Z"}"#,
    ),
    ("query", r#"{"pay_order_id":"po_fuzz"}"#),
    ("close", r#"{"pay_order_id":"po_fuzz"}"#),
    (
        "refund",
        r#"{"refund_id":"rf_fuzz","pay_order_id":"po_fuzz","transaction_id":"txn_1","amount":1,"currency":"CNY","reason":"R"}"#,
    ),
    ("query_refund", r#"{"refund_id":"rf_fuzz"}"#),
    ("payout", r#"{"payout_id":"wd_fuzz","amount":1,"currency":"CNY","account":"a"}"#),
    ("query_payout", r#"{"payout_id":"wd_fuzz"}"#),
    ("statement", r#"{"day":"2026-11-20","after":null}"#),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_signed_call_of_the_sandbox_meets_a_defect() {
    let app = TestApp::start().await;
    let (mut runner, bend) = (runner(), bend());
    let mut understood = 0;
    for number in 0..requests() {
        let (operation, right) = CALLS[number % CALLS.len()];
        let call = bent(right, &draw(&bend, &mut runner));
        // Some were signed as another operation's.
        let signed_as = if number % 9 == 0 { CALLS[(number + 1) % CALLS.len()].0 } else { operation };
        let head = format!(r#"{{"operation":"{signed_as}","call":"#);
        let body = [head.as_bytes(), &call, b"}"].concat();
        let request = app.http.post(format!("{}/sandbox/gateway/{operation}", app.url));
        let request = request.header(signature::HEADER, app.sign(&body)).body(body);
        let reply = Reply::of(request.send().await.expect("an answer")).await;
        let what = format!("{operation} with {}", String::from_utf8_lossy(&call));
        assert_no_defect(&what, &reply);
        if reply.status == 200 {
            assert!(
                matches!(reply.body["outcome"].as_str(), Some("done" | "refused")),
                "{what}: {}",
                reply.text
            );
            assert_eq!(signed_as, operation, "{what}: {}", reply.text);
            understood += 1;
        }
    }
    assert!(understood > requests() / 20, "{understood} calls were understood");
    // What it paid out nobody of ours had asked for.
    app.sql("DELETE FROM sandbox.payouts").await;
    app.end().await;
}

/// What may stand between two slashes, as bytes: ids, something like them, and anything.
fn segment() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        3 => "[0-9A-Za-z_.:~-]{1,70}".prop_map(String::into_bytes),
        2 => "(evt|po|rf|sr|ri|rc|ex|uh|wd)_-?[0-9A-Z]{1,26}".prop_map(String::into_bytes),
        1 => "(evt_)?[0-9]{1,22}".prop_map(String::into_bytes),
        1 => "[A-Z_]{3,19}:[0-9A-Za-z_:.-]{0,220}".prop_map(String::into_bytes),
        1 => "sandbox[:~][~0-9a-fA-Z]{0,60}".prop_map(String::into_bytes),
        1 => "\\PC{1,40}".prop_map(String::into_bytes),
        1 => prop::collection::vec(any::<u8>(), 1..40),
    ]
}

/// As it travels: what is not plain by its number.
fn encoded(segment: &[u8]) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-~:".contains(&byte);
    let one =
        |byte: &u8| if is_plain(*byte) { char::from(*byte).to_string() } else { format!("%{byte:02X}") };
    segment.iter().map(one).collect()
}

/// A route's path, with that in the place of every name.
fn filled(path: &str, mut segment: impl FnMut() -> String) -> String {
    let fill = |part: &str| if part.starts_with('{') { segment() } else { part.to_owned() };
    path.split('/').map(fill).collect::<Vec<_>>().join("/")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_name_in_a_path_meets_a_defect() {
    let app = TestApp::start().await;
    let (mut runner, segment) = (runner(), segment());
    let routes: Vec<&Route> = ROUTES.iter().filter(|route| route.path.contains('{')).collect();
    let mut looked_for = 0;
    for number in 0..requests() {
        let route = routes[number % routes.len()];
        let path = filled(route.path, || encoded(&draw(&segment, &mut runner)));
        let method: Method = route.method.parse().expect("a method");
        let mut request =
            app.http.request(method, format!("{}{path}", app.url)).bearer_auth(route.who.token());
        if let Some(body) = route.body {
            request = request.header("content-type", "application/json").body(body);
        }
        let reply = Reply::of(request.send().await.expect("an answer")).await;
        assert_no_defect(&format!("{} {path}", route.method), &reply);
        looked_for += usize::from(!matches!(reply.status, 401 | 403 | 503));
    }
    assert!(looked_for > requests() / 2, "{looked_for} names were looked for");
    app.end().await;
}

/// What an upload says of itself, and what may stand there instead.
fn told_of_upload() -> impl Strategy<Value = (prop::sample::Index, String, bool)> {
    let values = prop_oneof![
        "(sandbox|alipay|wechat|stripe)",
        "[0-9]{1,5}-[0-9]{1,3}-[0-9]{1,3}",
        "[0-9a-fA-F]{0,70}",
        "[0-9A-Za-z+._~-]{0,40}",
        "(%[0-9a-f]{2}){0,8}",
        "a{490,510}",
    ];
    (any::<prop::sample::Index>(), values, any::<bool>())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_upload_meets_a_defect_whatever_it_says_of_itself() {
    const FILE: &str =
        "#statement,sandbox,2026-11-20\nkind,our_id,channel_id,amount,currency,at,fee\n#end,0,0\n";
    const RIGHT: [(&str, &str); 4] =
        [("channel", "sandbox"), ("day", "2026-11-20"), ("reason", "a+story"), ("format", "sandbox")];
    const NAMES: [&str; 7] = ["channel", "day", "reason", "format", "checksum", "accept_empty", "more"];
    let app = TestApp::start().await;
    let mut runner = runner();
    let header = prop::option::of(
        "(text/csv|application/(zip|json|octet-stream)|[a-z/;=]{0,20})(; charset=[a-z0-9-]{0,8})?",
    );
    let mut taken = 0;
    for number in 0..requests() / 4 {
        let (place, value, is_more) = draw(&told_of_upload(), &mut runner);
        let name = NAMES[place.index(NAMES.len())];
        let mut query: Vec<(&str, &str)> = RIGHT.to_vec();
        // One that is right now and then, one that says something twice, and one that says something else.
        if number % 8 != 0 {
            query.retain(|(other, _)| is_more || *other != name);
            query.push((name, &value));
        }
        let query: Vec<String> = query.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let query = query.join("&");
        let mut request = app.http.post(format!("{}/admin/reconciliations/upload?{query}", app.url));
        if let Some(header) = draw(&header, &mut runner) {
            request = request.header("content-type", header);
        }
        let reply =
            Reply::of(request.bearer_auth(OPERATOR).body(FILE).send().await.expect("an answer")).await;
        assert_no_defect(&query, &reply);
        assert!(reply.status != 200 || !query.contains("more="), "{query}: {}", reply.text);
        taken += usize::from(reply.status == 200);
    }
    assert!(taken >= requests() / 32, "{taken} were taken");
    app.end().await;
}
