//! Strangers who mean harm: connections that are held and never used, requests without end or with two meanings,
//! headers that lie, signatures that are nearly right. They are refused, the service's memory stays flat, and
//! customers notice nothing.

use std::cell::Cell;
use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::json;

use crate::support::SECRET_KEY;
use crate::support::service::{Service, Shop};

mod forwarding;
mod half_open;
mod headers;
mod idle;
mod signatures;
mod smuggling;
mod waiting;

/// A customer's whole way: an order, its link, the channel's callback. It must be right whatever strangers do.
async fn sell(shop: &Shop, service: &Service, order_no: &str) {
    let order = json!({"order_no": order_no, "user_id": "u1", "currency": "CNY", "amount": 1990});
    service.post("/orders", &order).await.expect("alive").expect(201);
    let asked = json!({"order_no": order_no, "payer_id": "u1", "channel": "sandbox"});
    let link = service.post("/pay/url", &asked).await.expect("alive").expect(200);
    shop.app.sandbox_pay(link.text_of("pay_order_id"), json!({})).await.expect(200);
    let path = format!("/orders/{order_no}");
    let is_paid = async || {
        let found = service.ask(Method::GET, &path, SECRET_KEY, None).await.expect("alive").expect(200);
        found.text_of("status") == "PAID"
    };
    service.until("the order is paid", is_paid).await.expect("alive");
    service.ask_once(Method::GET, "/readyz", "", None).await.expect("alive").expect(200);
}

/// Sells until something is over; gives how many customers were served meanwhile, and the longest that one of them took.
async fn sell_until(shop: &Shop, service: &Service, name: &str, is_over: &Cell<bool>) -> (usize, Duration) {
    let (mut sales, mut slowest) = (0, Duration::ZERO);
    while !is_over.get() {
        let since = Instant::now();
        sell(shop, service, &format!("{name}-{sales}")).await;
        (sales, slowest) = (sales + 1, slowest.max(since.elapsed()));
    }
    (sales, slowest)
}
