//! The main job: order → pay URL → paid, or closed in time.

use serde_json::json;

use crate::support::{TestApp, minutes};

#[tokio::test]
async fn an_order_is_paid_once() {
    let app = TestApp::start().await;
    app.stock("TEA", 10).await;
    let items = json!([{"sku": "TEA", "quantity": 2, "unit_price": 995}]);
    let order = json!({"order_no": "A1", "user_id": "u1", "currency": "CNY", "items": items});
    app.order_with(order.clone()).await;
    assert_eq!(app.stock_of("TEA").await, (10, 2));
    app.post("/orders", order).await.expect(200);

    let link = app.pay_url("A1").await.expect(200);
    assert_eq!(link.body["amount"], 1990);
    assert_eq!(app.pay_url("A1").await.expect(200).body, link.body, "a repeat gets the same link");

    app.sandbox_pay(link.text_of("pay_order_id"), json!({})).await.expect(200);
    app.run_until_idle().await;

    let paid = app.find_order("A1").await;
    assert_eq!(paid["status"], "PAID");
    assert_eq!(paid["paid_by"], link.body["pay_order_id"]);
    assert_eq!(app.stock_of("TEA").await, (8, 0));
    assert_eq!(app.pay_url("A1").await.problem(409), "ORDER_IS_ALREADY_PAID");
    app.end().await;
}

#[tokio::test]
async fn an_order_that_nobody_pays_is_closed_and_late_money_goes_back() {
    let app = TestApp::start().await;
    app.stock("TEA", 1).await;
    let items = json!([{"sku": "TEA", "quantity": 1, "unit_price": 1990}]);
    app.order_with(json!({"order_no": "B1", "user_id": "u1", "currency": "CNY", "items": items})).await;
    let pay_order = app.pay_url("B1").await.expect(200).text_of("pay_order_id").to_owned();

    app.clock.advance(minutes(31));
    app.run_until_idle().await;
    let closed = app.find_order("B1").await;
    assert_eq!((&closed["status"], &closed["close_reason"]), (&json!("CLOSED"), &json!("TIMEOUT")));
    assert_eq!(app.stock_of("TEA").await, (1, 0));

    app.sandbox_pay(&pay_order, json!({"force": true})).await.expect(200);
    app.run_until_idle().await;
    let order = app.find_order("B1").await;
    assert_eq!(order["status"], "CLOSED");
    assert_eq!(order["stray_payments"][0]["status"], "REFUNDED", "{order}");
    assert_eq!(order["refunds"][0]["reason"], "LATE_PAYMENT");
    app.end().await;
}
