//! What panics, in a process of its own: it ends in the dead letters with its reason, and blocks nothing.

use serde_json::json;

use crate::support::receiver::Receiver;
use crate::support::service::Shop;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_panics_at_every_try_is_a_dead_letter_and_its_neighbours_are_driven() {
    let shop = Shop::open().await;
    let app = &shop.app;
    app.paid("P1").await;
    app.run_until_idle().await;
    app.post("/refunds", json!({"refund_no": "P1", "order_no": "P1"})).await.expect(201);
    // Its last try.
    app.sql("UPDATE compensations SET attempts = 12 WHERE action = 'DRIVE_REFUND'").await;
    app.sql(
        "INSERT INTO compensations (kind, action, subject, attempts, due_at, created_at, updated_at)
         SELECT 'REDO_BUSINESS', 'DRIVE_PAY_ORDER', 'po_' || g, 1, now(), now(), now() FROM generate_series(1, 100) AS g",
    )
    .await;
    let service = shop.serve("refunds.begin.before=panic(a defect, on purpose)").await;
    let dead =
        "action = 'DRIVE_REFUND' AND status = 'DEAD' AND last_error LIKE '%panicked: a defect, on purpose%'";
    service
        .until("it is dead", async || app.count_where("compensations", dead).await == 1)
        .await
        .expect("it lives");
    let done = "action = 'DRIVE_PAY_ORDER' AND status = 'DONE'";
    service
        .until("the others are done", async || app.count_where("compensations", done).await == 100)
        .await
        .expect("it lives");
    let shown = app.open_exception().await;
    assert_eq!(shown["kind"], "DEAD_TASK");
    service.kill().await;

    // Mended, and tried again by whoever decides over the exception.
    app.resolve(&shown, "REFUND").await.expect(200);
    app.run_until_idle().await;
    assert_eq!(app.refunded("P1").await.0, "REFUNDED");
    shop.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_whose_sending_panics_is_a_dead_letter_and_those_behind_it_are_told() {
    let receiver = Receiver::start().await;
    let shop = Shop::open().await;
    let app = &shop.app;
    app.sql(&format!("UPDATE merchants SET notify_url = '{}'", receiver.url)).await;
    app.append_events("P2", &["{\"order_no\": \"P2\"}", "{\"order_no\": \"P2\"}"]).await;
    let service = shop.serve("outbox.notify.before=1*panic(a defect, on purpose)").await;
    let dead = "status = 'DEAD' AND last_error LIKE '%sending it panicked%'";
    service
        .until("the first is dead", async || app.count_where("deliveries", dead).await == 1)
        .await
        .expect("it lives");
    service.until("the second is told", async || receiver.told_of("P2").len() == 1).await.expect("it lives");
    assert_eq!(app.open_exception().await["kind"], "DEAD_TASK");
    let is_told = "status = 'DELIVERED'";
    service
        .until("and it is noted", async || app.count_where("deliveries", is_told).await == 1)
        .await
        .expect("it lives");
    service.kill().await;
    shop.end().await;
}
