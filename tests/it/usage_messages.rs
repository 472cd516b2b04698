//! Reports of usage from RabbitMQ: acknowledged after the commit, harmless when they come again, and for a person when
//! they can never be done.

use lapin::options::{QueueDeclareOptions, QueueDeleteOptions};
use lapin::types::FieldTable;
use payonce::usage;
use serde_json::{Value, json};

use crate::support::servers::{Broker, send_letter};
use crate::support::{TestApp, TestOptions};

async fn start(broker: &Broker) -> TestApp {
    let vars = vec![("AMQP_URL", broker.url.clone()), ("AMQP_PREFIX", broker.prefix.clone())];
    let app = TestApp::start_with(TestOptions { vars, ..TestOptions::default() }).await;
    app.top_up("T", "u1", 1_000).await;
    app.tokens("1").await;
    // The queues come to be.
    usage::consume(&app.instance.app).await.expect("a look");
    app
}

async fn tell(broker: &Broker, message: &Value) {
    send_letter(&broker.url, &format!("{}.usage.report", broker.prefix), message.to_string().as_bytes())
        .await;
}

fn message(hold_id: &str, message_id: &str, units: i64) -> Value {
    json!({"merchant_id": "demo", "hold_id": hold_id, "message_id": message_id, "cumulative_units": units})
}

fn final_message(hold_id: &str, message_id: &str, units: i64) -> Value {
    let mut message = message(hold_id, message_id, units);
    message["final"] = json!(true);
    message
}

async fn waiting(broker: &Broker, queue: &str) -> u32 {
    let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
    let name = format!("{}.{queue}", broker.prefix);
    let queue = broker.channel().await.queue_declare(name.into(), passive, FieldTable::default()).await;
    queue.map_or(0, |queue| queue.message_count())
}

/// Consumes until it is so.
async fn until(app: &TestApp, what: &str, is_so: impl AsyncFn() -> bool) {
    app.eventually(what, async || {
        usage::consume(&app.instance.app).await.expect("a batch");
        is_so().await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reports_of_usage_also_come_over_the_broker_and_once() {
    let broker = Broker::fresh().await;
    let app = start(&broker).await;
    let id = app.held("k1", "u1", 300).await;
    for (name, units) in [("m2", 200), ("m1", 100), ("m2", 200), ("m3", 400), ("m1", 100)] {
        tell(&broker, &message(&id, name, units)).await;
    }
    until(&app, "all is heard", async || app.standing(&id).await == ("HELD".into(), 400, 0, Some(400))).await;
    for _ in 0..3 {
        tell(&broker, &final_message(&id, "m4", 450)).await;
    }
    until(&app, "it is charged", async || app.standing(&id).await.0 == "CONFIRMED").await;
    tell(&broker, &message(&id, "m3", 400)).await;
    // Overtaken by the last one.
    tell(&broker, &message(&id, "m0", 449)).await;
    until(&app, "nothing is left", async || waiting(&broker, "usage.report").await == 0).await;
    assert_eq!(app.standing(&id).await, ("CONFIRMED".into(), 0, 450, Some(450)));
    assert_eq!(waiting(&broker, "usage.report.dead").await, 0);
    assert_eq!(app.cny_of("u1").await, (550, 0));
    broker.clear().await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_can_never_be_done_goes_to_a_person_and_holds_nobody_up() {
    let broker = Broker::fresh().await;
    let app = start(&broker).await;
    let (id, released) = (app.held("k1", "u1", 300).await, app.held("k2", "u1", 300).await);
    app.release(&released).await.expect(200);
    let queue = format!("{}.usage.report", broker.prefix);
    for poison in [&b"not json"[..], b"", b"{}", b"[1]", b"\xff\xfe"] {
        send_letter(&broker.url, &queue, poison).await;
    }
    tell(&broker, &message(&id, "m1", -1)).await;
    tell(&broker, &message("uh_nothing", "m1", 1)).await;
    tell(&broker, &final_message(&released, "m1", 1)).await;
    let mut strange = message(&id, "m1", 1);
    strange["merchant_id"] = json!("other");
    tell(&broker, &strange).await;
    tell(&broker, &message(&id, "m0", 5)).await;
    until(&app, "it is heard", async || app.standing(&id).await.3 == Some(5)).await;
    // The same message says something else.
    tell(&broker, &final_message(&id, "m0", 240)).await;
    tell(&broker, &final_message(&id, "m1", 250)).await;
    until(&app, "the good one is charged", async || app.standing(&id).await.0 == "CONFIRMED").await;
    // More than what was charged.
    tell(&broker, &message(&id, "m9", 251)).await;
    until(&app, "the others wait for a person", async || waiting(&broker, "usage.report.dead").await == 11)
        .await;
    assert_eq!(app.cny_of("u1").await, (750, 0));
    broker.clear().await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_of_another_kind_is_said_aloud_and_read_from_once_it_is_gone() {
    let broker = Broker::fresh().await;
    let queue = format!("{}.usage.report", broker.prefix);
    let channel = broker.channel().await;
    let plain = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    channel.queue_declare(queue.clone().into(), plain, FieldTable::default()).await.expect("a queue");
    let vars = vec![("AMQP_URL", broker.url.clone()), ("AMQP_PREFIX", broker.prefix.clone())];
    let app = TestApp::start_with(TestOptions { vars, ..TestOptions::default() }).await;
    app.top_up("T", "u1", 1_000).await;
    app.tokens("1").await;
    let ready = async || app.get("/readyz").await.expect(200).body;
    let refused = usage::consume(&app.instance.app).await.expect_err("a refusal");
    println!("{refused:?}");
    let standing = ready().await;
    assert_eq!(
        (&standing["status"], &standing["broker"], &standing["usage_reports"]),
        (&json!("degraded"), &json!("up"), &json!("down"))
    );
    let id = app.held("k1", "u1", 300).await;
    channel.queue_delete(queue.into(), QueueDeleteOptions::default()).await.expect("deleted");
    until(&app, "the queue comes to be", async || ready().await["usage_reports"] == "up").await;
    assert_eq!(ready().await["status"], "ready");
    tell(&broker, &final_message(&id, "m1", 250)).await;
    until(&app, "it is charged", async || app.standing(&id).await.0 == "CONFIRMED").await;
    broker.clear().await;
    app.end().await;
}
