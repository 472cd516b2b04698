//! A broker that is there and refuses the exchange of events.

use lapin::ExchangeKind;
use lapin::options::{ExchangeDeclareOptions, ExchangeDeleteOptions};
use lapin::types::FieldTable;
use serde_json::json;

use super::relays::vars;
use crate::support::servers::Broker;
use crate::support::{TestApp, TestOptions, UNTOLD};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_exchange_of_another_kind_is_said_aloud_and_published_to_once_it_is_gone() {
    let broker = Broker::fresh().await;
    let exchange = format!("{}.events", broker.prefix);
    let channel = broker.channel().await;
    let durable = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
    let name = || exchange.as_str().into();
    let declared = channel.exchange_declare(name(), ExchangeKind::Fanout, durable, FieldTable::default());
    declared.await.expect("an exchange");
    let options = TestOptions { workers: true, vars: vars(&broker), ..TestOptions::default() };
    let app = TestApp::start_with(options).await;
    let ready = async || app.get("/readyz").await.expect(200).body;
    assert_eq!(ready().await["events"], "up", "nothing was refused yet");

    app.closed_order("X1").await;
    app.eventually("it is refused", async || ready().await["events"] == "down").await;
    let standing = ready().await;
    assert_eq!((&standing["status"], &standing["broker"]), (&json!("degraded"), &json!("up")), "{standing}");
    let degraded = async || app.admin_get("/admin/overview").await.expect(200).body["degraded"].clone();
    assert_eq!(degraded().await, json!(["events"]));
    assert!(app.count_where("outbox", UNTOLD).await > 0);
    let tried = "last_error LIKE '%PRECONDITION_FAILED%' AND last_error NOT LIKE '%amqp://%'";
    app.eventually("the attempt says why", async || app.count_where("deliveries", tried).await > 0).await;

    channel.exchange_delete(name(), ExchangeDeleteOptions::default()).await.expect("deleted");
    app.eventually("all is told", async || app.count_where("outbox", UNTOLD).await == 0).await;
    app.eventually("it is ready", async || ready().await["status"] == "ready").await;
    assert_eq!((&ready().await["events"], degraded().await), (&json!("up"), json!([])));
    broker.end(app).await;
}
