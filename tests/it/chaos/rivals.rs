//! Somebody else has a hand in an order, while the one who sold it is still at it.

use serde_json::json;

use super::life::Seller;

/// The newest orders, among which it chooses: those that are still lived with.
const NEWEST: usize = 6;

impl Seller {
    /// Another payer wants a link and pays by it, or the order is closed, settled, given back or looked at.
    pub async fn meddle(&mut self, mark: &str) {
        let Some(order_no) = self.a_new_order() else { return };
        match self.chance.one_of(5) {
            0 | 1 => {
                let link = json!({"order_no": order_no, "payer_id": "another", "channel": "sandbox"});
                let link = self.post("/pay/url", &format!("L-{mark}-other"), link).await.reply();
                if let Some(attempt) = link["pay_order_id"].as_str().filter(|_| self.one_in(2)) {
                    self.at_the_channel(attempt, "pay", json!({})).await;
                }
            }
            2 => {
                let path = format!("/orders/{order_no}/close");
                self.post(&path, &format!("X-{mark}-other"), json!({})).await;
            }
            3 => {
                let body = json!({"order_no": order_no});
                self.post("/settlements", &format!("S-{mark}-other"), body).await;
            }
            _ => self.give_back(&format!("R-{mark}-other"), &order_no).await,
        }
        self.merchant.get(&format!("/orders/{order_no}")).await;
    }

    /// The number of one of the newest orders, whoever sold it.
    fn a_new_order(&mut self) -> Option<String> {
        let newest: Vec<String> = {
            let log = self.merchant.log.lock().expect("no panic");
            let sold = log.iter().rev().filter(|told| told.path == "/orders" && told.is_done());
            sold.take(NEWEST)
                .filter_map(|told| told.reply()["order_no"].as_str().map(str::to_owned))
                .collect()
        };
        (!newest.is_empty()).then(|| newest[self.chance.one_of(newest.len())].clone())
    }

    /// A part of it or what is left of it, sometimes with what was sold.
    pub async fn give_back(&mut self, refund_no: &str, order_no: &str) {
        let mut body = json!({"refund_no": refund_no, "order_no": order_no});
        if !self.one_in(3) {
            body["amount"] = json!(1 + self.chance.one_of(1_200));
        }
        if self.one_in(2) {
            body["return_stock"] = json!(true);
        }
        let asked = self.post("/refunds", refund_no, body).await;
        if asked.is_done() && asked.reply()["status"] == "AWAITING_APPROVAL" {
            self.decide(refund_no).await;
        }
    }
}
