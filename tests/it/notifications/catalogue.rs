//! The document tells of every event, as it is really sent.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::support::TestApp;
use crate::support::receiver::{Call, Receiver};

#[tokio::test]
async fn the_document_tells_every_event_with_the_fields_that_it_really_has() {
    let receiver = Receiver::start().await;
    let app = TestApp::start().await;
    app.tell_at(Some(&receiver.url)).await;
    app.paid("K1").await;
    app.post("/refunds", json!({"refund_no": "K1", "order_no": "K1", "amount": 90})).await.expect(201);
    app.closed_order("K2").await;
    app.late_money("K3").await;
    app.run_until_idle().await;
    app.settle("K1").await;
    app.run_until_idle().await;

    let document = app.call(reqwest::Method::GET, "/openapi.json", "", None).await.expect(200).body;
    let told: BTreeSet<String> = receiver.calls().iter().map(Call::name).collect();
    for name in ["order.paid", "order.closed", "order.settled", "refund.finished", "stray_payment.received"] {
        assert!(told.contains(name), "{name} is not among {told:?}");
    }
    for call in receiver.calls() {
        assert_told(&document, &call.name(), &call.json());
    }
    app.end().await;
}

/// Each example, and each with whatever may be nothing, is of the form that the document tells.
#[tokio::test]
async fn whatever_an_event_may_hold_is_of_the_form_that_the_document_tells() {
    let app = TestApp::start().await;
    let document = app.call(reqwest::Method::GET, "/openapi.json", "", None).await.expect(200).body;
    let events = document["webhooks"].as_object().expect("events");
    assert!(events.len() >= 16, "{}", events.len());
    for (name, told) in events {
        let body = &told["post"]["requestBody"]["content"]["application/json"];
        assert_told(&document, name, &body["example"]);
    }
    // What may be there or not.
    for (name, field) in [
        ("refund.finished", "order_no"),
        ("refund.finished", "failure"),
        ("refund.finished", "stray_id"),
        ("refund.made_after_all", "pay_order_id"),
        ("refund.reversed", "order_no"),
        ("refund.reversed", "stray_id"),
        ("stray_payment.received", "order_no"),
        ("stray_payment.received", "pay_order_id"),
        ("stray_payment.kept", "order_no"),
        ("withdrawal.finished", "failure"),
        ("usage.hold_expired", "units"),
    ] {
        let mut body = events[name]["post"]["requestBody"]["content"]["application/json"]["example"].clone();
        for value in [Value::Null, if field == "units" { json!(1) } else { json!("x") }] {
            body["data"][field] = value;
            assert_told(&document, name, &body);
        }
    }
    app.end().await;
}

/// A body has just the members that the document tells of, each of a type that it tells.
fn assert_told(document: &Value, name: &str, body: &Value) {
    let told = &document["webhooks"][name]["post"]["requestBody"]["content"]["application/json"]["schema"];
    assert_form(document, told, body, name);
}

fn assert_form(document: &Value, told: &Value, value: &Value, place: &str) {
    if let Some(reference) = told["$ref"].as_str() {
        let named = document.pointer(reference.trim_start_matches('#')).expect(reference);
        return assert_form(document, named, value, place);
    }
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_i64() => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let types = &told["type"];
    assert!(
        types == kind || types.as_array().is_some_and(|all| all.contains(&json!(kind))),
        "{place}: {value}, {told}"
    );
    if let Some(constant) = told.get("const") {
        assert_eq!(value, constant, "{place}");
    }
    let Some(members) = value.as_object() else { return };
    let known = told["properties"].as_object().expect(place);
    assert_eq!(members.keys().collect::<BTreeSet<_>>(), known.keys().collect(), "{place}");
    let required = told["required"].as_array().expect(place).iter().filter_map(Value::as_str);
    assert_eq!(required.collect::<BTreeSet<_>>(), known.keys().map(String::as_str).collect(), "{place}");
    for (name, member) in members {
        assert_form(document, &known[name], member, &format!("{place}.{name}"));
    }
}
