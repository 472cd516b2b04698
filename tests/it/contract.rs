//! The contract: the document tells of every route with its answers and examples, and no merchant sees another's.
//!
//! Everything here goes through the document's own list, and the list is compared with the router itself: a route
//! cannot be added past these stories.

use std::collections::BTreeSet;
use std::sync::Arc;

use payonce::channels::sandbox;
use payonce::http::{self, Edge, Readiness};
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::metering::hold_with;
use crate::support::{OPERATOR, PUBLISHABLE_KEY, Reply, SECRET_KEY, TestApp};

/// Routes that are no part of the contract.
const UNDOCUMENTED: [&str; 17] = [
    // Whatever has no route.
    "/",
    "/{*__private__axum_fallback}",
    // The document itself, and its reader.
    "/docs",
    "/docs/",
    "/docs/{*rest}",
    "/openapi.json",
    // The cashier's pages, for people.
    "/sandbox/cashier/{pay_order_id}",
    "/sandbox/cashier/{pay_order_id}/decline",
    "/sandbox/cashier/{pay_order_id}/pay",
    // What only our own adapter speaks, signed.
    "/sandbox/gateway/close",
    "/sandbox/gateway/create",
    "/sandbox/gateway/payout",
    "/sandbox/gateway/query",
    "/sandbox/gateway/query_payout",
    "/sandbox/gateway/query_refund",
    "/sandbox/gateway/refund",
    "/sandbox/gateway/statement",
];

/// Routes that make what they name, where another merchant's number is as good as any.
/// With what the stranger gets: a balance is theirs too, and has nothing in it.
const CREATING: [(&str, &str, u16); 3] =
    [("POST", "/orders", 201), ("POST", "/withdrawals", 422), ("POST", "/usage/holds", 422)];
/// Routes that list what belongs to something, where another merchant's has nothing.
const LISTING: [&str; 5] = [
    "/users/{user_id}/balances",
    "/users/{user_id}/entries",
    "/users/{user_id}/usage",
    "/events",
    "/withdrawals",
];

/// A documented route.
#[derive(Debug)]
struct Operation {
    method: String,
    path: String,
    told: Value,
}

impl Operation {
    fn name(&self) -> String {
        format!("{} {}", self.method, self.path)
    }

    /// Whether it gives a page of what its caller has, which may be nothing.
    fn is_a_list(&self) -> bool {
        self.method == "GET" && LISTING.contains(&self.path.as_str())
    }

    /// Whether this kind of credential opens it.
    fn takes(&self, scheme: &str) -> bool {
        self.told["security"].as_array().is_some_and(|all| all.iter().any(|one| one.get(scheme).is_some()))
    }

    fn token(&self) -> &'static str {
        match (self.takes("secret_key"), self.takes("admin_token")) {
            (true, _) => SECRET_KEY,
            (_, true) => OPERATOR,
            _ => "",
        }
    }

    fn parameters(&self) -> impl Iterator<Item = &Value> {
        self.told["parameters"].as_array().into_iter().flatten()
    }

    fn has_parameter_in(&self, place: &str) -> bool {
        self.parameters().any(|parameter| parameter["in"] == place)
    }

    fn statuses(&self) -> BTreeSet<u16> {
        let answers = self.told["responses"].as_object().expect("answers");
        answers.keys().map(|status| status.parse().expect("a status")).collect()
    }

    /// The example of its JSON body, where it takes one.
    fn body(&self) -> Option<Value> {
        self.told.pointer("/requestBody/content/application~1json/example").cloned()
    }
}

async fn document(app: &TestApp) -> Value {
    app.call(Method::GET, "/openapi.json", "", None).await.expect(200).body
}

async fn operations(app: &TestApp) -> Vec<Operation> {
    let document = document(app).await;
    let mut operations = Vec::new();
    for (path, item) in document["paths"].as_object().expect("paths") {
        for (method, told) in item.as_object().expect("methods") {
            operations.push(Operation {
                method: method.to_uppercase(),
                path: path.clone(),
                told: told.clone(),
            });
        }
    }
    operations
}

/// The paths that a router answers, as it shows them itself: `RouteId(7): "/orders"`.
fn paths_of(router: &impl std::fmt::Debug) -> BTreeSet<String> {
    let shown = format!("{router:?}");
    let path = |rest: &str| Some(rest.split_once("): \"")?.1.split_once('"')?.0.to_owned());
    shown.split("RouteId(").filter_map(path).filter(|path| path.starts_with('/')).collect()
}

#[tokio::test]
async fn the_document_tells_of_every_route() {
    let app = TestApp::start().await;
    let edge = Edge::new(app.instance.app.clone(), Readiness::default());
    let sandbox = sandbox::routes(app.gateway.clone(), Arc::new(edge.clone()));
    let routed = paths_of(&http::router(edge, Some(sandbox), true));
    assert!(routed.contains("/orders"), "the router shows itself in another way now: {routed:?}");

    let documented: BTreeSet<String> = operations(&app).await.into_iter().map(|one| one.path).collect();
    let known: BTreeSet<String> = documented.into_iter().chain(UNDOCUMENTED.map(str::to_owned)).collect();
    assert_eq!(routed, known, "routes on the left, the document and UNDOCUMENTED on the right");
    app.end().await;
}

/// The paths alone do not tell methods: those that are not documented must not be there.
#[tokio::test]
async fn the_document_tells_of_every_method() {
    let app = TestApp::start().await;
    let operations = operations(&app).await;
    let known: BTreeSet<(&str, &str)> =
        operations.iter().map(|one| (one.method.as_str(), one.path.as_str())).collect();
    for operation in &operations {
        let url = format!("{}{}", app.url, operation.path.replace(['{', '}'], ""));
        for method in ["GET", "POST", "PUT", "PATCH", "DELETE", "TRACE"] {
            if known.contains(&(method, operation.path.as_str())) {
                continue;
            }
            let request = app.http.request(method.parse().expect("a method"), &url).bearer_auth(SECRET_KEY);
            let reply = Reply::of(request.send().await.expect("an answer")).await;
            assert_eq!(reply.problem(405), "METHOD_NOT_ALLOWED", "{method} {}", operation.path);
        }
    }
    app.end().await;
}

#[tokio::test]
async fn every_route_tells_its_answers_with_examples() {
    let app = TestApp::start().await;
    for operation in operations(&app).await {
        let (name, told, statuses) = (operation.name(), &operation.told, operation.statuses());
        let wants =
            |status: u16, why: &str| assert!(statuses.contains(&status), "{name} has no {status}: {why}");
        assert!(
            told["summary"].as_str().is_some_and(|text| !text.is_empty()),
            "{name} says nothing of itself"
        );
        if told["security"].is_array() {
            wants(401, "it asks for a credential");
            wants(403, "there are other kinds of credentials");
        }
        if operation.has_parameter_in("path") {
            wants(404, "its path names something");
        }
        if operation.has_parameter_in("query") {
            wants(422, "its query can be wrong");
        }
        if told["requestBody"].is_object() {
            [400, 408, 413].into_iter().for_each(|status| wants(status, "it reads a body"));
        }
        if operation.body().is_some() && told["tags"][0] != "webhooks" {
            [415, 422].into_iter().for_each(|status| wants(status, "its body is JSON"));
        }
        if told["tags"][0] != "health" {
            [500, 503].into_iter().for_each(|status| wants(status, "it needs a store"));
        }
        if operation.method == "POST" && operation.takes("secret_key") {
            wants(409, "a request with its key may be running");
            let is_key =
                |parameter: &Value| parameter["name"] == "Idempotency-Key" && parameter["in"] == "header";
            assert!(operation.parameters().any(is_key), "{name} honours no Idempotency-Key");
        }
        assert_examples(&name, told);
    }
    app.end().await;
}

fn has_example(holder: &Value) -> bool {
    holder.get("example").is_some_and(|example| !example.is_null())
        || holder["examples"].as_object().is_some_and(|examples| !examples.is_empty())
}

fn assert_examples(name: &str, told: &Value) {
    for parameter in told["parameters"].as_array().into_iter().flatten().filter(|one| one["required"] == true)
    {
        assert!(has_example(parameter), "{name}: no example of {}", parameter["name"]);
    }
    for (kind, body) in told.pointer("/requestBody/content").and_then(Value::as_object).into_iter().flatten()
    {
        assert!(has_example(body), "{name}: no example of a {kind} to send");
    }
    for (status, answer) in told["responses"].as_object().expect("answers") {
        assert!(answer["description"].is_string(), "{name} {status}");
        for (kind, body) in answer["content"].as_object().into_iter().flatten() {
            assert!(has_example(body), "{name}: no example of {status} in {kind}: {answer}");
            let has_right_status =
                |example: &Value| example["value"]["status"] == json!(status.parse::<u16>().ok());
            if kind == "application/problem+json" {
                assert!(
                    body["examples"].as_object().expect("by code").values().all(has_right_status),
                    "{name}"
                );
            }
        }
        if status.starts_with('4') && told["tags"][0] != "webhooks" {
            assert!(
                answer["content"]["application/problem+json"].is_object(),
                "{name}: {status} is no problem"
            );
        }
    }
}

/// Nothing is done as if a word of a request had not been said.
#[tokio::test]
async fn a_query_that_a_route_does_not_know_is_refused_before_anything_is_done() {
    let app = TestApp::start().await;
    let (mut refused, mut heard) = (0, 0);
    for operation in operations(&app).await {
        let path = format!("{}?dry_run=true", operation.path.replace(['{', '}'], ""));
        let method: Method = operation.method.parse().expect("a method");
        let logged = app.count("admin_log").await;
        let reply = app.call(method, &path, operation.token(), operation.body().as_ref()).await;
        let name = operation.name();
        let is_lenient = ["pay", "webhooks", "sandbox", "health"]
            .contains(&operation.told["tags"][0].as_str().expect("a tag"));
        if is_lenient {
            assert!(!reply.text.contains("\"query\""), "{name}: {}", reply.text);
            heard += 1;
        } else {
            assert_eq!(reply.problem(422), "VALIDATION_FAILED", "{name}");
            assert!(reply.text.contains("\"query\""), "{name}: {}", reply.text);
            assert!(operation.statuses().contains(&422), "{name} tells of no 422");
            assert_eq!(app.count("admin_log").await, logged, "{name}: nothing was done");
            refused += 1;
        }
    }
    assert!(refused > 60 && heard > 5, "{refused} refused, {heard} heard");
    app.end().await;
}

/// Who tries the reader's examples must not be told that they are wrong.
#[tokio::test]
async fn the_examples_can_be_sent_as_they_are() {
    let app = TestApp::start().await;
    app.stock("TEA", 10).await;
    app.tokens_with("0.03", json!({"product_code": "llm-tokens"})).await.expect(200);
    // Used more than they had, and so owes 150.
    app.top_up("T-short", "u1", 30).await;
    let body = hold_with("short", "u1", 1_000, json!({"product_code": "llm-tokens"}));
    let hold_id = app.post("/usage/holds", body).await.expect(201).text_of("hold_id").to_owned();
    app.confirm(&hold_id, Some(6_000)).await.expect(200);
    app.top_up("T-u1", "u1", 1_000).await;
    let mut deeds = 0;
    for operation in operations(&app).await {
        let Some(body) = operation.body().filter(|_| operation.told["tags"][0] != "webhooks") else {
            continue;
        };
        let mut path = operation.path.clone();
        for parameter in operation.parameters().filter(|parameter| parameter["in"] == "path") {
            let name = format!("{{{}}}", parameter["name"].as_str().expect("a name"));
            let example = &parameter["example"];
            assert!(!example.is_null(), "an example of {name}");
            path = path.replace(&name, example.as_str().unwrap_or(&example.to_string()));
        }
        let method: Method = operation.method.parse().expect("a method");
        let logged = app.count("admin_log").await;
        let reply = app.call(method, &path, operation.token(), Some(&body)).await;
        let (name, status) = (operation.name(), reply.status);
        assert!(
            !matches!(status, 400 | 401 | 403 | 415 | 422) && status < 500,
            "{name} {body}: {}",
            reply.text
        );
        assert!(operation.statuses().contains(&status), "{name} answers {status}, which it does not tell");
        if path.starts_with("/admin/") && status < 300 {
            assert_in_the_log(&app, &path, body, logged).await;
            deeds += 1;
        }
    }
    assert!(deeds > 12, "of so few deeds was looked whether they are in the log: {deeds}");
    app.end().await;
}

/// A deed of an operator stands in the log once, behind the `logged` entries that were there before. One that was only
/// asked for does not, until it is done.
async fn assert_in_the_log(app: &TestApp, path: &str, mut body: Value, logged: i64) {
    if body["dry_run"] == true {
        assert_eq!(app.count("admin_log").await, logged, "{path} was only asked for");
        body["dry_run"] = json!(false);
        body["reason"] = json!("the story wants it");
        app.admin_post(path, body).await.expect(200);
    }
    assert_eq!(app.count("admin_log").await, logged + 1, "{path}");
}

/// Ids of one merchant in another's hands, on every route that a merchant's key opens.
#[tokio::test]
async fn on_every_route_what_is_another_merchants_is_not_there() {
    let app = TestApp::start().await;
    let pay_order_id = app.order_to_pay("MINE").await;
    app.top_up("MINE-2", "rich", 5000).await;
    let withdrawal = json!({"withdrawal_no": "MINE", "user_id": "rich", "amount": 500, "currency": "CNY",
                            "channel": "sandbox", "account": "a"});
    app.post("/withdrawals", withdrawal).await.expect(201);
    app.post("/refunds", json!({"refund_no": "MINE", "order_no": "MINE-2", "amount": 1})).await.expect(201);
    app.tokens_with("1", json!({"product_code": "llm-tokens"})).await.expect(200);
    let hold_id =
        app.post("/usage/holds", hold_with("MINE", "rich", 10, json!({"product_code": "llm-tokens"}))).await;
    let hold_id = hold_id.expect(201).text_of("hold_id").to_owned();
    let event = app.get("/events?order_no=MINE-2&limit=1").await.expect(200).body["data"][0].clone();
    let theirs = [
        ("event_id", event["event_id"].as_str().expect("an event")),
        ("order_no", "MINE"),
        ("pay_order_id", pay_order_id.as_str()),
        ("withdrawal_no", "MINE"),
        ("refund_no", "MINE"),
        ("user_id", "rich"),
        ("hold_id", hold_id.as_str()),
    ];
    let stranger =
        app.admin_post("/admin/merchants", json!({"merchant_id": "second", "name": "Second"})).await;
    let stranger = stranger.expect(201);
    let before = app.find_order("MINE").await;
    let creates = |one: &Operation| {
        let made = CREATING.iter().find(|(method, path, _)| (*method, *path) == (&one.method, &one.path));
        made.map(|(.., status)| *status)
    };
    let mut operations = operations(&app).await;
    operations.retain(|operation| operation.takes("secret_key"));
    // What a stranger makes under the same number comes last, so that it is in nobody's way.
    operations.sort_by_key(creates);
    assert!(operations.len() >= 5, "{operations:#?}");
    for operation in &operations {
        let (path, body) = in_strange_hands(operation, &theirs);
        let is_for_browsers = operation.takes("publishable_key");
        let of_a_stranger = match () {
            () if operation.is_a_list() => 200,
            () => creates(operation).unwrap_or(404),
        };
        for (token, expected) in [
            (stranger.text_of("secret_key"), of_a_stranger),
            (stranger.text_of("publishable_key"), if is_for_browsers { 404 } else { 403 }),
            (PUBLISHABLE_KEY, if is_for_browsers { 200 } else { 403 }),
            (OPERATOR, 403),
            ("sk_unknown", 401),
            ("", 401),
        ] {
            let method = operation.method.parse().expect("a method");
            let reply = app.call(method, &path, token, body.as_ref()).await;
            assert_eq!(reply.status, expected, "{} with {token:?}: {}", operation.name(), reply.text);
            if reply.status == 200 && operation.is_a_list() {
                assert_eq!(reply.body["data"], json!([]), "{}: {}", operation.name(), reply.text);
            }
        }
    }
    assert_eq!(app.find_order("MINE").await, before, "nothing of it moved");
    app.end().await;
}

/// The route's path and body with the ids of `theirs` wherever they fit.
fn in_strange_hands(operation: &Operation, theirs: &[(&str, &str)]) -> (String, Option<Value>) {
    let (mut path, mut body) = (operation.path.clone(), operation.body());
    for (name, id) in theirs {
        path = path.replace(&format!("{{{name}}}"), id);
        if let Some(member) = body.as_mut().and_then(|body| body.get_mut(name)) {
            *member = json!(id);
        }
    }
    assert!(
        !path.contains('{'),
        "{}: give this story the id of what another merchant has there",
        operation.name()
    );
    if path == "/orders" {
        // Their stock is their own too: an order by amount needs none.
        body = Some(json!({"order_no": "MINE", "user_id": "u2", "currency": "USD", "amount": 5}));
    }
    (path, body)
}
