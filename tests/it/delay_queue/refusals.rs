//! A broker that lets the queues of timers be declared, and not be read or sent to.

use lapin::options::{BasicCancelOptions, BasicConsumeOptions};
use lapin::types::FieldTable;
use payonce::local::RabbitServer;
use serde_json::{Value, json};

use super::by_hand;
use crate::support::TestApp;
use crate::support::servers::Broker;
use crate::support::stores::{directory, fresh_name};

/// What readiness says of the timers, and what the overview says is done without.
async fn standing(app: &TestApp) -> (Value, Value) {
    let ready = app.get("/readyz").await.expect(200).body;
    let overview = app.admin_get("/admin/overview").await.expect(200).body;
    (ready["timers"].clone(), overview["degraded"].clone())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_that_may_not_be_read_is_said_aloud_until_it_is_read() {
    let broker = Broker::fresh().await;
    let app = by_hand(&broker).await;
    app.order_with_timer("R13", 600).await;
    assert_eq!(standing(&app).await, (json!("up"), json!([])));

    // Somebody has the queue to themselves.
    let channel = broker.channel().await;
    let (queue, alone) =
        (broker.queue("due"), BasicConsumeOptions { exclusive: true, ..BasicConsumeOptions::default() });
    let consuming = channel.basic_consume(queue.into(), "alone".into(), alone, FieldTable::default());
    let _consumer = consuming.await.expect("a consumer");
    let refused = (json!("down"), json!(["timers"]));
    assert!(app.run_one("orders.expire").await, "the sweep is the net");
    assert_eq!(standing(&app).await, refused);
    app.order_with_timer("R13", 600).await;
    assert_eq!(standing(&app).await, refused, "that it may be sent to says nothing of it");

    channel.basic_cancel("alone".into(), BasicCancelOptions::default()).await.expect("cancelled");
    let well = (json!("up"), json!([]));
    app.eventually("it is read", async || app.run_one("orders.expire").await && standing(&app).await == well)
        .await;
    broker.end(app).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queues_that_may_not_be_sent_to_are_said_aloud_although_they_can_be_had() {
    // What is sent to a queue goes through an exchange without a name of ours. RabbitMQ wants all three or none, and some take
    // the second for the third.
    let permissions = [("configure", ".*"), ("read", "^payonce-test-"), ("write", "^payonce-test-")];
    let lines = permissions.map(|(what, names)| format!("default_permissions.{what} = {names}"));
    let dir = directory().join("rabbitmq").join(fresh_name());
    let mut server = RabbitServer::start_with(&dir, &lines).await.expect("a private RabbitMQ");
    let broker = Broker::on(&server.url());
    let app = by_hand(&broker).await;
    app.eventually("its queues are read", async || {
        let is_run = app.run_one("orders.expire").await;
        is_run && app.get("/readyz").await.expect(200).body["broker"] == "up"
    })
    .await;
    assert_eq!(standing(&app).await, (json!("up"), json!([])));

    app.order_of_seconds("R14", 600).await;
    let refused = (json!("down"), json!(["timers"]));
    app.eventually("it is refused", async || standing(&app).await == refused).await;
    assert!(app.run_one("orders.expire").await);
    assert_eq!(standing(&app).await, refused, "that they can be had and read says nothing of it");
    app.end().await;
    server.stop().await.expect("stopped");
}
