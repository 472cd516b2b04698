//! What follows from how every route is made is written into the document once, here: the answers that come from
//! credentials, bodies, keys and stores, the kind of problem documents, and their examples.
//!
//! What a route says of itself stays; codes that it leaves out are added.

use axum::http::StatusCode;
use serde_json::{Map, Value, json};

use super::examples;
use crate::http::{overload, query};

/// Codes that a route answers with by what it is made of.
type Answers = Vec<(u16, &'static [&'static str])>;

/// Completes a generated document.
pub(super) fn complete(mut document: Value) -> Value {
    let components = document["components"].clone();
    for (path, item) in members(&mut document["paths"]) {
        for (method, operation) in members(item) {
            operation["operationId"] = json!(operation_id(method, path));
            for (status, codes) in answers_of(path, operation) {
                add_answer(operation, status, codes);
            }
            describe_replay(operation);
            // Probes and the sandbox's callers come again by themselves.
            let is_asked_to_wait = operation["tags"][0] != "health" && !path.starts_with("/sandbox/");
            for (status, answer) in members(&mut operation["responses"]) {
                complete_answer(status.parse().unwrap_or(0), answer, is_asked_to_wait, &components);
            }
            examples::of_request(operation, &components);
        }
    }
    document
}

/// A handler's own name is another's too.
fn operation_id(method: &str, path: &str) -> String {
    let words = path.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.fold(method.to_owned(), |id, word| format!("{id}_{word}"))
}

fn members(value: &mut Value) -> impl Iterator<Item = (&String, &mut Value)> {
    value.as_object_mut().into_iter().flatten()
}

fn has_parameter(operation: &Value, is_it: impl Fn(&Value) -> bool) -> bool {
    operation["parameters"].as_array().is_some_and(|parameters| parameters.iter().any(is_it))
}

fn is_keyed(operation: &Value) -> bool {
    has_parameter(operation, |parameter| parameter["name"] == "Idempotency-Key")
}

fn answers_of(path: &str, operation: &Value) -> Answers {
    let mut answers = Answers::new();
    // What channels and probes are told is theirs.
    if operation["tags"][0] == "health" {
        return answers;
    }
    if operation["security"].is_array() {
        answers.extend([(401, &["UNAUTHENTICATED"][..]), (403, &["FORBIDDEN"])]);
    }
    if has_parameter(operation, |parameter| parameter["in"] == "path") {
        answers.push((404, &["NOT_FOUND"]));
    }
    let is_in_query = |parameter: &Value| parameter["in"] == "query";
    let tag = operation["tags"][0].as_str().unwrap_or_default();
    if has_parameter(operation, is_in_query) || query::is_taken_to_the_letter(tag) {
        answers.push((422, &["VALIDATION_FAILED"]));
    }
    if operation["requestBody"].is_object() {
        answers.extend([
            (400, &["BODY_INCOMPLETE"][..]),
            (408, &["BODY_TIMEOUT"]),
            (413, &["BODY_TOO_LARGE"]),
        ]);
        // A channel's words are not ours to judge by their form.
        if !path.starts_with("/webhooks/") {
            let json: Answers = vec![
                (400, &["MALFORMED_JSON"]),
                (415, &["UNSUPPORTED_MEDIA_TYPE"]),
                (422, &["VALIDATION_FAILED"]),
            ];
            answers.extend(json);
        }
    }
    if is_keyed(operation) {
        answers.extend([(409, &["REQUEST_IN_PROGRESS"][..]), (422, &["IDEMPOTENCY_KEY_REUSED"])]);
    }
    let unavailable: &[&str] = match path {
        // The sandbox is a gateway of its own, with its own words for a store that is away.
        _ if path.starts_with("/sandbox/") => &["SANDBOX_UNAVAILABLE"],
        _ if overload::is_bounded(path) => &["DATABASE_UNAVAILABLE", "TIMED_OUT", "OVERLOADED"],
        _ => &["DATABASE_UNAVAILABLE", "TIMED_OUT"],
    };
    answers.extend([(500, &["INTERNAL_ERROR"][..]), (503, unavailable)]);
    answers
}

fn add_answer(operation: &mut Value, status: u16, codes: &[&str]) {
    let Some(answers) = operation["responses"].as_object_mut() else { return };
    let answer = answers.entry(status.to_string()).or_insert_with(|| json!({"description": ""}));
    let mut description = answer["description"].as_str().unwrap_or_default().to_owned();
    for code in codes {
        if !description.contains(&format!("`{code}`")) {
            let comma = if description.is_empty() { "" } else { "; also " };
            description = format!("{description}{comma}`{code}`");
        }
    }
    answer["description"] = description.into();
    let content = answer.as_object_mut().map(|answer| answer.entry("content").or_insert_with(|| json!({})));
    if let Some(Value::Object(content)) = content
        && !content.contains_key("application/json")
    {
        content.insert(PROBLEM.into(), json!({"schema": {"$ref": "#/components/schemas/Problem"}}));
    }
}

const PROBLEM: &str = "application/problem+json";

fn describe_replay(operation: &mut Value) {
    if !is_keyed(operation) {
        return;
    }
    for (status, answer) in members(&mut operation["responses"]) {
        if status.starts_with('2') || status == "402" {
            answer["headers"]["Idempotent-Replayed"] = json!({
                "description": "`true` when this is the answer to an earlier request with the same key",
                "schema": {"type": "string", "enum": ["true"]},
            });
        }
    }
}

fn complete_answer(status: u16, answer: &mut Value, is_asked_to_wait: bool, components: &Value) {
    answer["headers"]["X-Request-Id"] =
        json!({"description": "The id of this request, as in the log", "schema": {"type": "string"}});
    if answer["description"].as_str().is_none_or(str::is_empty) {
        answer["description"] =
            json!(StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason()));
    }
    let codes = codes_in(answer["description"].as_str().unwrap_or_default());
    let may_pass = |code: &String| matches!(code.as_str(), "LOCK_BUSY" | "REQUEST_IN_PROGRESS");
    if is_asked_to_wait && (status == 503 || codes.iter().any(may_pass)) {
        answer["headers"]["Retry-After"] = json!({
            "description": "After how many seconds to ask again",
            "schema": {"type": "integer", "minimum": 1},
        });
    }
    let Some(content) = answer.get_mut("content").and_then(Value::as_object_mut) else { return };
    // The sandbox has a problem document of its own.
    let is_problem =
        |body: &Value| body["schema"]["$ref"].as_str().is_some_and(|name| name.ends_with("Problem"));
    if status >= 400 && content.get("application/json").is_some_and(is_problem) {
        let body = content.remove("application/json").unwrap_or_default();
        content.insert(PROBLEM.into(), body);
    }
    for (kind, body) in content.iter_mut() {
        if kind == PROBLEM {
            body["examples"] = codes.iter().map(|code| (code.clone(), problem(status, code))).collect();
        } else {
            examples::add(body, components);
        }
    }
}

/// The codes that a description names: `OUT_OF_STOCK`, not `ok`.
fn codes_in(description: &str) -> Vec<String> {
    let is_code = |word: &&str| word.len() > 2 && word.bytes().all(|b| b.is_ascii_uppercase() || b == b'_');
    description.split('`').filter(is_code).map(str::to_owned).collect()
}

fn problem(status: u16, code: &str) -> Value {
    let title = StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason());
    let mut problem = Map::new();
    problem.insert("type".into(), json!(super::super::error::kind_of(code)));
    problem.insert("title".into(), json!(title));
    problem.insert("status".into(), json!(status));
    problem.insert("detail".into(), json!("what was wrong, and what became of the request"));
    problem.insert("request_id".into(), json!("0197a3c5d7e97b2fa1c3e5d7f9b1a3c5"));
    problem.insert("code".into(), json!(code));
    if code == "CHANNEL_REFUSED" {
        problem.insert("channel_code".into(), json!("CARD_DECLINED"));
        problem.insert("channel_message".into(), json!("the card was declined"));
    }
    if code == "VALIDATION_FAILED" {
        problem.insert("errors".into(), json!([{"field": "amount", "detail": "expected a whole number"}]));
    }
    json!({"value": problem})
}
