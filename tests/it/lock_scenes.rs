//! Which deeds take a lock, and what becomes of those who find it in somebody else's hands. In a process of its own, because
//! it counts them.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::app::metric_at;
use crate::support::metering::hold_with;
use crate::support::service::{Service, Shop};
use crate::support::{Reply, SECRET_KEY};

/// How often it came to that with the locks of a scene.
async fn count(service: &Service, scene: &str, outcome: &str) -> f64 {
    let labels = [("scene", scene), ("outcome", outcome)];
    let counted = metric_at(&service.http, &service.url, "payonce_lock_acquire_total", &labels).await;
    counted.expect("an answer")
}

/// Asks once: who is told that it is busy does not come again.
async fn post(service: &Service, path: &str, body: &Value) -> Reply {
    service.ask_once(Method::POST, path, SECRET_KEY, Some(body)).await.expect("it lives")
}

fn withdrawal(number: &str) -> Value {
    json!({"withdrawal_no": number, "user_id": "u1", "amount": 100, "currency": "CNY", "channel": "sandbox",
           "account": "u@example.com"})
}

fn refund(number: &str) -> Value {
    json!({"refund_no": number, "order_no": "A", "amount": 90})
}

fn metered(key: &str) -> Value {
    hold_with(key, "u1", 100, json!({"cycle": "c1"}))
}

fn order(order_no: &str) -> Value {
    json!({"order_no": order_no, "user_id": "u1", "currency": "CNY", "amount": 1990})
}

/// A shop with money on a balance and a paid order `A`.
async fn open() -> (Shop, Service) {
    let shop = Shop::open().await;
    shop.app.rebate_rule(None, "0.05").await;
    shop.app.tokens("1").await;
    shop.app.top_up("T", "u1", 1_000).await;
    let service = shop.serve("").await;
    post(&service, "/orders", &order("A")).await.expect(201);
    let before =
        (count(&service, "GENERATE_PAY_URL", "acquired").await, count(&service, "WEBHOOK", "acquired").await);
    let link = json!({"order_no": "A", "payer_id": "u1", "channel": "sandbox"});
    let link = post(&service, "/pay/url", &link).await.expect(200);
    shop.app.sandbox_pay(link.text_of("pay_order_id"), json!({})).await.expect(200);
    let is_paid = async || shop.app.count_where("orders", "order_no = 'A' AND status = 'PAID'").await == 1;
    service.until("it is paid", is_paid).await.expect("it lives");
    assert!(count(&service, "GENERATE_PAY_URL", "acquired").await > before.0);
    assert!(count(&service, "WEBHOOK", "acquired").await > before.1);
    (shop, service)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_scene_takes_its_lock_and_counts_it() {
    let (shop, service) = open().await;
    post(&service, "/orders", &order("B")).await.expect(201);
    for (scene, path, body, status) in [
        ("SETTLE", "/settlements", json!({"order_no": "A"}), 201),
        ("REFUND", "/refunds", refund("R1"), 201),
        ("WITHDRAW", "/withdrawals", withdrawal("W1"), 201),
        ("BILLING", "/usage/holds", metered("k1"), 201),
        ("CLOSE", "/orders/B/close", json!({}), 200),
    ] {
        let before = count(&service, scene, "acquired").await;
        post(&service, path, &body).await.expect(status);
        assert!(count(&service, scene, "acquired").await > before, "{scene}");
    }
    let before = count(&service, "REQUEST", "acquired").await;
    service.post_keyed("/orders", "k", &order("C")).await.expect("it lives").expect(201);
    assert!(count(&service, "REQUEST", "acquired").await > before);
    shop.settle("all is done").await;
    service.kill().await;
    shop.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_withdrawal_waits_for_its_users_lock_and_refunds_and_usage_go_on_without_theirs() {
    let (shop, service) = open().await;
    let app = &shop.app;
    post(&service, "/withdrawals", &withdrawal("W1")).await.expect(201);
    shop.settle("it has gone out").await;
    let keys = ["lock:WITHDRAW:demo:u1", "lock:ORDER:demo:A", "lock:BILLING:demo:u1:tokens:c1"];
    for key in keys {
        let _: () = app.redis_command(&["SET", key, "somebody else"]).await;
    }

    let before = count(&service, "WITHDRAW", "busy").await;
    let busy = post(&service, "/withdrawals", &withdrawal("W2")).await;
    assert_eq!((busy.problem(409), busy.header("retry-after")), ("LOCK_BUSY", Some("1")));
    assert!(count(&service, "WITHDRAW", "busy").await > before);
    assert_eq!(app.count("withdrawals").await, 1, "nothing was done");
    let known = post(&service, "/withdrawals", &withdrawal("W1")).await.expect(200);
    let found = service.ask_once(Method::GET, "/withdrawals/W1", SECRET_KEY, None).await.expect("it lives");
    assert_eq!((known.text_of("status"), &known.body), ("SUCCEEDED", &found.expect(200).body));

    for (scene, path, body) in
        [("REFUND", "/refunds", refund("R1")), ("BILLING", "/usage/holds", metered("k1"))]
    {
        let before = count(&service, scene, "busy").await;
        for status in [201, 200] {
            post(&service, path, &body).await.expect(status);
        }
        assert!(count(&service, scene, "busy").await > before, "{scene}");
    }
    assert_eq!((app.count("refunds").await, app.count("usage_holds").await), (1, 1));

    for key in keys {
        let holder: Option<String> = app.redis_command(&["GET", key]).await;
        assert_eq!(holder.as_deref(), Some("somebody else"), "{key} is nobody's to take or to give back");
        let _: i64 = app.redis_command(&["DEL", key]).await;
    }
    post(&service, "/withdrawals", &withdrawal("W2")).await.expect(201);
    shop.settle("all is done").await;
    assert_eq!(app.cny_of("u1").await, (700, 100));
    service.kill().await;
    shop.end().await;
}
