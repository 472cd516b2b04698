//! The document tells of every event, as it is really sent.

use std::collections::BTreeSet;

use serde_json::json;

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
        let name = call.name();
        let schema =
            &document["webhooks"][&name]["post"]["requestBody"]["content"]["application/json"]["schema"];
        let wanted: BTreeSet<&String> =
            schema["properties"]["data"]["properties"].as_object().expect(&name).keys().collect();
        let body = call.json();
        let sent: BTreeSet<&String> = body["data"].as_object().expect("data").keys().collect();
        assert_eq!(sent, wanted, "{name}");
    }
    app.end().await;
}
