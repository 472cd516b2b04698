//! What goes on in the shop meanwhile: orders of every kind, and what becomes of their money.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use super::client::{Merchant, Told};
use crate::support::service::Shop;
use crate::support::{Chance, TestApp};

/// One of those who sell and pay at the same time, with numbers of its own.
pub struct Seller {
    pub name: usize,
    pub shop: Arc<Shop>,
    pub merchant: Arc<Merchant>,
    pub chance: Chance,
    pub count: usize,
}

impl Seller {
    /// Sells until the story is over; gives how many orders that were.
    pub async fn go_on(mut self) -> usize {
        while !self.merchant.is_over.load(Ordering::Relaxed) {
            self.count += 1;
            let order_no = format!("C-{}-{}", self.name, self.count);
            self.live(&order_no).await;
        }
        self.count
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.chance.one_of(count) == 0
    }

    /// One order's life, as its dice fall.
    async fn live(&mut self, order_no: &str) {
        let user = format!("u{}", self.chance.one_of(4));
        let made = self.order(order_no, &user).await;
        if !made.is_done() {
            return;
        }
        let link = json!({"order_no": order_no, "payer_id": user, "channel": "sandbox"});
        let asked = self.post("/pay/url", &format!("L-{order_no}"), link).await;
        let link: Value = serde_json::from_str(&asked.answer).unwrap_or_default();
        if let Some(attempt) = link["pay_order_id"].as_str() {
            self.pay_or_not(order_no, attempt).await;
        }
        self.after(order_no, &user).await;
        if self.one_in(3) {
            self.repeat_something().await;
        }
    }

    async fn order(&mut self, order_no: &str, user: &str) -> Told {
        let expires_in = if self.one_in(6) { 1 } else { 1_800 };
        let mut order =
            json!({"order_no": order_no, "user_id": user, "currency": "CNY", "expires_in": expires_in});
        match self.chance.one_of(4) {
            0 => order["kind"] = json!("TOPUP"),
            1 => {}
            // Of the rare thing there is not enough for all.
            _ => {
                let sku = if self.one_in(5) { "RARE" } else { "TEA" };
                order["items"] = json!([{"sku": sku, "quantity": 1, "unit_price": 1990}]);
            }
        }
        if order["items"].is_null() {
            order["amount"] = json!(500 + self.chance.one_of(3_000));
        }
        self.post("/orders", &format!("O-{order_no}"), order).await
    }

    /// The customer pays, pays too much, pays late, declines or leaves; somebody forges a callback.
    async fn pay_or_not(&mut self, order_no: &str, attempt: &str) {
        match self.chance.one_of(12) {
            0 => self.at_the_channel(attempt, "decline", json!({})).await,
            1 => self.forge(attempt).await,
            2 => {
                self.post(&format!("/orders/{order_no}/close"), &format!("X-{order_no}"), json!({})).await;
                self.at_the_channel(attempt, "pay", json!({"force": true})).await;
            }
            3 => self.at_the_channel(attempt, "pay", json!({"amount": 7})).await,
            4 => self.at_the_channel(attempt, "pay", json!({"currency": "USD"})).await,
            5 => {
                let (merchant, path) = (self.merchant.clone(), format!("/orders/{order_no}/close"));
                let close = tokio::spawn({
                    let key = format!("X-{order_no}");
                    async move { merchant.post(&path, &key, json!({})).await }
                });
                self.at_the_channel(attempt, "pay", json!({})).await;
                close.await.expect("no panic");
            }
            6 => {}
            _ => self.at_the_channel(attempt, "pay", json!({})).await,
        }
    }

    /// Settles, gives back, pays out; mostly after the callback, sometimes at the same time.
    async fn after(&mut self, order_no: &str, user: &str) {
        if !self.one_in(4) {
            self.merchant.get(&format!("/orders/{order_no}?wait=2")).await;
        }
        if self.one_in(2) {
            self.post("/settlements", &format!("S-{order_no}"), json!({"order_no": order_no})).await;
        }
        for part in 0..self.chance.one_of(3) {
            let refund_no = format!("R-{order_no}-{part}");
            let amount = 1 + self.chance.one_of(1_200);
            let body = json!({"refund_no": refund_no, "order_no": order_no, "amount": amount});
            self.post("/refunds", &refund_no.clone(), body).await;
        }
        if self.one_in(3) {
            let number = format!("W-{order_no}");
            let amount = 1 + self.chance.one_of(800);
            let body = json!({"withdrawal_no": number, "user_id": user, "amount": amount, "currency": "CNY",
                              "channel": "sandbox", "account": "a"});
            self.post("/withdrawals", &number.clone(), body).await;
        }
    }

    async fn post(&self, path: &str, key: &str, body: Value) -> Told {
        self.merchant.post(path, key, body).await
    }

    /// What was told once is told again.
    async fn repeat_something(&mut self) {
        let done: Option<Told> = {
            let log = self.merchant.log.lock().expect("no panic");
            let told = &log[self.chance.one_of(log.len())];
            told.is_done().then(|| told.clone())
        };
        if let Some(told) = done {
            self.merchant.repeat(&told).await;
        }
    }

    /// Presses a button at the channel, until it is answered: its books live in the database that crashes.
    async fn at_the_channel(&self, attempt: &str, button: &str, body: Value) {
        for _ in 0..200 {
            let app = &self.shop.app;
            let request = app.http.post(format!("{}/sandbox/trades/{attempt}/{button}", app.url)).json(&body);
            match request.send().await {
                Ok(answer) if answer.status().as_u16() < 500 => return,
                _ => sleep(Duration::from_millis(50)).await,
            }
        }
        panic!("the sandbox does not answer");
    }

    /// Somebody without the secret says that it was paid.
    async fn forge(&self, attempt: &str) {
        let event = format!("forged-{attempt}");
        let body = serde_json::to_vec(&self.shop.app.success(&event, attempt, &event, 1990)).expect("json");
        let signature = forged(&self.shop.app, &body);
        for url in &self.merchant.urls {
            let request = self.shop.app.http.post(format!("{url}/webhooks/sandbox")).body(body.clone());
            let request = request.header(payonce::channels::sandbox::signature::HEADER, &signature);
            if let Ok(answer) = request.send().await {
                assert!(matches!(answer.status().as_u16(), 400 | 429 | 503), "{}", answer.status());
            }
        }
    }
}

fn forged(app: &TestApp, body: &[u8]) -> String {
    let right = app.sign(body);
    let (rest, last) = right.split_at(right.len() - 1);
    format!("{rest}{}", if last == "0" { "1" } else { "0" })
}
