//! What goes on in the shop meanwhile: orders of every kind, and what becomes of their money.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::time::sleep;

use super::callbacks::Callback;
use super::client::{ANSWER_WITHIN, Merchant, PATIENCE};
use super::told::Told;
use crate::support::Chance;
use crate::support::service::Shop;

/// Longest that an order waits for its money.
pub const LONGEST_LIFE_SECS: u64 = 1_800;

/// One of those who sell and pay at the same time, with names of its own.
pub struct Seller {
    pub name: String,
    pub shop: Arc<Shop>,
    pub merchant: Arc<Merchant>,
    pub chance: Chance,
    pub count: usize,
}

/// An order: the name that it was asked for under, its number, and who buys.
struct Sold {
    mark: String,
    order_no: String,
    user: String,
}

impl Seller {
    /// Sells until the story is over; gives how many orders that were.
    pub async fn go_on(mut self) -> usize {
        while !self.merchant.is_over.load(Ordering::Relaxed) {
            self.count += 1;
            let (mark, user) =
                (format!("{}-{}", self.name, self.count), format!("u{}", self.chance.one_of(4)));
            self.live(&mark, &user).await;
            if self.one_in(3) {
                self.meddle(&mark).await;
            }
            if self.one_in(3) {
                self.meter(&mark, &user).await;
            }
            if self.one_in(3) {
                self.repeat_something().await;
            }
        }
        self.count
    }

    pub fn one_in(&mut self, count: usize) -> bool {
        self.chance.one_of(count) == 0
    }

    /// One order's life, as its dice fall.
    async fn live(&mut self, mark: &str, user: &str) {
        let made = self.order(mark, user).await;
        let number = made.reply()["order_no"].as_str().map(str::to_owned);
        let Some(order_no) = number.filter(|_| made.is_done()) else { return };
        let sold = Sold { mark: mark.to_owned(), order_no, user: user.to_owned() };
        let link = json!({"order_no": sold.order_no, "payer_id": user, "channel": "sandbox"});
        let link = self.post("/pay/url", &format!("L-{mark}"), link).await.reply();
        let mut callback = None;
        if let Some(attempt) = link["pay_order_id"].as_str() {
            callback = self.pay_or_not(&sold, attempt).await;
        }
        self.after(&sold).await;
        if let Some(callback) = callback {
            self.call_back(&callback).await;
        }
    }

    async fn order(&mut self, mark: &str, user: &str) -> Told {
        let expires_in = if self.one_in(6) { 1 } else { LONGEST_LIFE_SECS };
        let mut order = json!({"user_id": user, "currency": "CNY", "expires_in": expires_in,
                               "metadata": {"mark": mark}});
        // Without a number of its own an order that is asked for twice would be two.
        if !self.one_in(3) {
            order["order_no"] = json!(mark);
        }
        match self.chance.one_of(4) {
            0 => order["kind"] = json!("TOPUP"),
            1 => {}
            // Of the rare thing there is not enough for all.
            _ => {
                let sku = if self.one_in(5) { "RARE" } else { "TEA" };
                let quantity = 1 + self.chance.one_of(3);
                order["items"] = json!([{"sku": sku, "quantity": quantity, "unit_price": 995}]);
            }
        }
        if order["items"].is_null() {
            order["amount"] = json!(500 + self.chance.one_of(3_000));
        }
        self.post("/orders", &format!("O-{mark}"), order).await
    }

    /// The customer pays, pays too much, pays late, declines or leaves; the channel tells of it, or tells of it late;
    /// somebody forges a callback. Gives what the channel has still to tell.
    async fn pay_or_not(&mut self, sold: &Sold, attempt: &str) -> Option<Callback> {
        match self.chance.one_of(13) {
            0 => drop(self.at_the_channel(attempt, "decline", json!({})).await),
            1 => self.forge(attempt).await,
            2 => {
                self.close(sold).await;
                self.at_the_channel(attempt, "pay", json!({"force": true})).await;
            }
            3 => drop(self.at_the_channel(attempt, "pay", json!({"amount": 7})).await),
            4 => drop(self.at_the_channel(attempt, "pay", json!({"currency": "USD"})).await),
            5 => {
                tokio::join!(self.close(sold), self.at_the_channel(attempt, "pay", json!({})));
            }
            6 => {}
            7 | 8 => {
                let receipt = self.at_the_channel(attempt, "pay", json!({"notify": false})).await;
                return Callback::of(attempt, &receipt);
            }
            _ => drop(self.at_the_channel(attempt, "pay", json!({})).await),
        }
        None
    }

    async fn close(&self, sold: &Sold) -> Told {
        self.post(&format!("/orders/{}/close", sold.order_no), &format!("X-{}", sold.mark), json!({})).await
    }

    /// Settles, gives back, pays out; mostly after the callback, sometimes at the same time.
    async fn after(&mut self, sold: &Sold) {
        let Sold { mark, order_no, user } = sold;
        if !self.one_in(4) {
            self.merchant.get(&format!("/orders/{order_no}?wait=2")).await;
        }
        if self.one_in(2) {
            self.post("/settlements", &format!("S-{mark}"), json!({"order_no": order_no})).await;
        }
        for part in 0..self.chance.one_of(3) {
            self.give_back(&format!("R-{mark}-{part}"), order_no).await;
        }
        if self.one_in(3) {
            let number = format!("W-{mark}");
            let amount = 1 + self.chance.one_of(800);
            let body = json!({"withdrawal_no": number, "user_id": user, "amount": amount, "currency": "CNY",
                              "channel": "sandbox", "account": "a"});
            self.post("/withdrawals", &number, body).await;
        }
    }

    pub async fn post(&self, path: &str, key: &str, body: Value) -> Told {
        self.merchant.post(path, key, body).await
    }

    /// What was told once is told again.
    async fn repeat_something(&mut self) {
        let kept: Option<Told> = {
            let log = self.merchant.log.lock().expect("no panic");
            let kept: Vec<_> = log.iter().filter(|told| told.is_kept()).collect();
            (!kept.is_empty()).then(|| kept[self.chance.one_of(kept.len())].clone())
        };
        if let Some(told) = kept {
            self.merchant.ask_again(&told).await;
        }
    }

    /// Presses a button at the channel, until it is answered: its books live in the database that crashes.
    pub async fn at_the_channel(&self, attempt: &str, button: &str, body: Value) -> Value {
        let (app, since) = (&self.shop.app, Instant::now());
        loop {
            let request = app.http.post(format!("{}/sandbox/trades/{attempt}/{button}", app.url)).json(&body);
            let last = match request.timeout(ANSWER_WITHIN).send().await {
                Ok(answer) if answer.status().as_u16() < 500 => {
                    return answer.json().await.unwrap_or_default();
                }
                Ok(answer) => answer.status().to_string(),
                Err(error) => format!("{error:?}"),
            };
            assert!(since.elapsed() < PATIENCE, "the sandbox does not answer: {last}");
            sleep(Duration::from_millis(50)).await;
        }
    }
}
