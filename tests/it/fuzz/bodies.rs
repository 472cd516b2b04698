//! Bodies and pages of every route: a right one with something else in it, or anything at all. Nothing is answered by a
//! defect, and the books are sound in the end.

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
use reqwest::Method;
use serde_json::{Map, Value, json};

use crate::support::routes::{ROUTES, Route};
use crate::support::service::is_full;
use crate::support::{Chance, Reply, TestApp};

/// Requests of a story.
pub(super) fn requests() -> usize {
    if is_full() { 200_000 } else { 2_000 }
}

/// Routes that would change what the others meet: the sandbox's faults, lanes that rest, and keys.
const APART: [&str; 4] = ["/sandbox/faults", "/admin/lanes", "/keys", "/notify-"];

/// What may stand in a field.
fn leaf() -> BoxedStrategy<Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        (0..5_i64).prop_map(Value::from),
        "\\PC{0,80}".prop_map(Value::from),
        "[0-9A-Za-z_.-]{1,64}".prop_map(Value::from),
        "-?[0-9]{0,14}(\\.[0-9]{0,14})?".prop_map(Value::from),
        prop_oneof![Just("CNY"), Just("JPY"), Just("SALE"), Just("TOPUP"), Just("demo"), Just("2026-11-20")]
            .prop_map(Value::from),
        "[0-9]{1,5}-[0-9]{1,3}-[0-9]{1,3}T[0-9]{1,2}:[0-9]{1,3}:[0-9]{1,3}(Z|\\+99:99)".prop_map(Value::from),
        "(https?|ftp)://[.:@/]{0,10}".prop_map(Value::from),
    ]
    .boxed()
}

fn value() -> BoxedStrategy<Value> {
    let nested = leaf().prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec(("[a-z_]{1,12}", inner), 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect::<Map<_, _>>())),
        ]
    });
    prop_oneof![3 => leaf(), 1 => nested].boxed()
}

/// What is done to a right body.
#[derive(Clone, Debug)]
pub(super) enum Bend {
    /// A field says something else.
    Replace(prop::sample::Index, Value),
    /// A field that may be known is added.
    Add(String, Value),
    Remove(prop::sample::Index),
    /// A byte is another one.
    Flip(prop::sample::Index, u8),
    Cut(prop::sample::Index),
    Anything(Vec<u8>),
}

pub(super) fn bend() -> impl Strategy<Value = Bend> {
    let known = prop_oneof![
        Just("amount"),
        Just("currency"),
        Just("items"),
        Just("expires_in"),
        Just("kind"),
        Just("rebate"),
        Just("metadata"),
        Just("notify_url"),
        Just("subject"),
        Just("cycle"),
        Just("fx_version"),
        Just("reason"),
        Just("dry_run"),
        Just("starting_after"),
        Just("merchant_id"),
        Just("return_url"),
        Just("units"),
        Just("message_id"),
        Just("cycle_quota"),
        Just("key_scope"),
        Just("pricing"),
        Just("paid_before"),
    ];
    prop_oneof![
        8 => (any::<prop::sample::Index>(), value()).prop_map(|(at, value)| Bend::Replace(at, value)),
        4 => (known, value()).prop_map(|(name, value)| Bend::Add(name.to_owned(), value)),
        1 => any::<prop::sample::Index>().prop_map(Bend::Remove),
        2 => (any::<prop::sample::Index>(), any::<u8>()).prop_map(|(at, byte)| Bend::Flip(at, byte)),
        1 => any::<prop::sample::Index>().prop_map(Bend::Cut),
        1 => prop::collection::vec(any::<u8>(), 0..200).prop_map(Bend::Anything),
    ]
}

pub(super) fn bent(right: &str, bend: &Bend) -> Vec<u8> {
    let mut object: Map<String, Value> = serde_json::from_str(right).unwrap_or_default();
    let name = |at: &prop::sample::Index| object.keys().nth(at.index(object.len().max(1))).cloned();
    match bend {
        Bend::Replace(at, value) => {
            if let Some(name) = name(at) {
                object.insert(name, value.clone());
            }
        }
        Bend::Add(name, value) => drop(object.insert(name.clone(), value.clone())),
        Bend::Remove(at) => {
            if let Some(name) = name(at) {
                object.remove(&name);
            }
        }
        Bend::Flip(at, byte) => {
            let mut bytes = right.as_bytes().to_vec();
            let place = at.index(bytes.len());
            bytes[place] = *byte;
            return bytes;
        }
        Bend::Cut(at) => return right.as_bytes()[..at.index(right.len())].to_vec(),
        Bend::Anything(bytes) => return bytes.clone(),
    }
    Value::Object(object).to_string().into_bytes()
}

/// Draws, and says by which seed.
pub(super) fn runner() -> TestRunner {
    let mut chance = Chance::new();
    let seed: Vec<u8> = (0..8).flat_map(|_| chance.number().to_le_bytes()).collect();
    TestRunner::new_with_rng(super::cases(1), TestRng::from_seed(RngAlgorithm::ChaCha, &seed))
}

pub(super) fn draw<S: Strategy>(strategy: &S, runner: &mut TestRunner) -> S::Value {
    strategy.new_tree(runner).expect("something").current()
}

/// What a defect would be answered with; the sandbox's faults, its silence and the broker that is not there are none.
#[track_caller]
pub(super) fn assert_no_defect(what: &str, reply: &Reply) {
    let is_away = reply.status == 503 && reply.header("retry-after").is_some();
    assert!(reply.status < 500 || is_away, "{what}: {} {}", reply.status, reply.text);
    if reply.status >= 400 {
        assert!(reply.body["code"].is_string(), "{what}: {} {}", reply.status, reply.text);
    }
}

async fn send(app: &TestApp, route: &Route, query: &str, body: Option<Vec<u8>>) -> Reply {
    let method: Method = route.method.parse().expect("a method");
    let request = app.http.request(method, format!("{}{}{query}", app.url, route.url()));
    let request = if route.who.token().is_empty() { request } else { request.bearer_auth(route.who.token()) };
    let request = match body {
        Some(body) => request.header("content-type", "application/json").body(body),
        None => request,
    };
    Reply::of(request.send().await.expect("an answer")).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_body_of_any_route_meets_a_defect() {
    let app = TestApp::start().await;
    let mut runner = runner();
    let is_for_all = |route: &&Route| !APART.iter().any(|part| route.path.contains(part));
    let routes: Vec<_> = ROUTES.iter().filter(|route| route.takes_json()).filter(is_for_all).collect();
    let bend = bend();
    for number in 0..requests() {
        let route = routes[number % routes.len()];
        let right = route.body.expect("a body");
        let bend = draw(&bend, &mut runner);
        let reply = send(&app, route, "", Some(bent(right, &bend))).await;
        assert_no_defect(&format!("{} {} with {bend:?}", route.method, route.path), &reply);
    }
    app.run_until_idle().await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_callback_that_is_signed_meets_a_defect() {
    let app = TestApp::start().await;
    let mut runner = runner();
    let attempt = app.order_to_pay("F1").await;
    let (bend, kinds) = (
        bend(),
        [
            app.success("e", &attempt, "T-fuzz", 1990),
            json!({"event_id": "r", "kind": "REFUND", "refund_id": "rf_none", "out_trade_no": attempt, "refund_fee": 1,
               "currency": "CNY", "status": "SUCCEEDED"}),
        ],
    );
    for number in 0..requests() / 2 {
        let mut right = kinds[number % kinds.len()].clone();
        right["event_id"] = json!(format!("e{}", number % 50));
        let body = bent(&right.to_string(), &draw(&bend, &mut runner));
        let reply = app.webhook_bytes(&body, &app.sign(&body)).await;
        assert!(
            matches!(reply.status, 200 | 400),
            "{}: {} {}",
            String::from_utf8_lossy(&body),
            reply.status,
            reply.text
        );
    }
    app.run_until_idle().await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_page_of_any_list_meets_a_defect() {
    let app = TestApp::start().await;
    let mut runner = runner();
    let routes: Vec<_> = ROUTES.iter().filter(|route| route.method == "GET").collect();
    let names = prop_oneof![
        4 => Just("limit"), 6 => Just("starting_after"), 1 => Just("status"), 1 => Just("merchant_id"),
        1 => Just("wait"), 1 => Just("since"), 1 => Just("user_id"), 1 => Just("order_no"), 1 => Just("class"),
    ];
    let values = prop_oneof![
        "[0-9]{1,20}",
        "-?[0-9]{1,3}",
        "[a-z]{2,3}_[0-9A-Z]{0,26}",
        "[0-9A-Za-z_.~:%-]{0,40}",
        "(%[0-9a-f]{2}){0,8}",
        "[0-9]{4}-[0-9]{2}-[0-9]{2}(T[0-9]{2}:[0-9]{2}:[0-9]{2}Z)?[._:][0-9A-Za-z]{0,10}",
    ];
    let query = prop::collection::vec((names, values), 0..4);
    for number in 0..requests() {
        let route = routes[number % routes.len()];
        let parts = draw(&query, &mut runner);
        // One that waits for the next change would wait for long.
        let parts: Vec<_> = parts.iter().filter(|(name, value)| *name != "wait" || value.len() > 4).collect();
        let query: Vec<String> = parts.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let query = format!("?{}", query.join("&"));
        let reply = send(&app, route, &query, None).await;
        let is_page = reply.body["data"].is_array();
        assert!(reply.status < 500, "{}{query}: {} {}", route.path, reply.status, reply.text);
        assert!(
            !is_page || reply.body["data"].as_array().is_some_and(|data| data.len() <= 100),
            "{}{query}",
            route.path
        );
    }
    app.end().await;
}
