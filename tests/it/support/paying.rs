//! Paying as a story sees it: links, attempts, closes, and how often the channel was called.

use std::time::Duration;

use payonce::channels::sandbox::{FaultKind, FaultOp};
use reqwest::Method;
use serde_json::{Value, json};

use super::app::{OPERATOR, TestApp};
use super::reply::Reply;

/// More calls than any story makes.
const MANY: u32 = 1_000_000;

impl TestApp {
    /// Asks for the order's pay URL for this payer.
    pub async fn pay_url_by(&self, order_no: &str, payer_id: &str) -> Reply {
        self.post("/pay/url", json!({"order_no": order_no, "payer_id": payer_id, "channel": "sandbox"})).await
    }

    pub async fn close(&self, order_no: &str) -> Reply {
        self.post(&format!("/orders/{order_no}/close"), json!({})).await
    }

    /// The order's attempts, oldest first.
    pub async fn attempts_of(&self, order_no: &str) -> Vec<Value> {
        self.find_order(order_no).await["pay_orders"].as_array().expect("a list").clone()
    }

    /// Where the order's attempts stand, oldest first.
    pub async fn attempt_statuses(&self, order_no: &str) -> Vec<String> {
        let attempts = self.attempts_of(order_no).await;
        attempts.iter().map(|attempt| attempt["status"].as_str().expect("a status").to_owned()).collect()
    }

    /// Waits until the order has an attempt that is being linked, and gives its id.
    pub async fn begun_attempt_of(&self, order_no: &str) -> String {
        let statement = format!("order_no = '{order_no}' AND status = 'INIT'");
        while self.count_where("pay_orders", &statement).await == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let attempts = self.attempts_of(order_no).await;
        let init = attempts.iter().find(|attempt| attempt["status"] == "INIT").expect("still INIT");
        init["pay_order_id"].as_str().expect("an id").to_owned()
    }

    /// From now on every call of this kind takes the channel so long, and is counted.
    pub async fn watch_calls(&self, op: FaultOp, ms: u32) {
        self.fault(op, FaultKind::Delay, MANY, Some(ms)).await;
    }

    /// How many calls of this kind the channel got since [`TestApp::watch_calls`].
    pub async fn calls_of(&self, op: FaultOp) -> i64 {
        let faults = self.call(Method::GET, "/sandbox/faults", OPERATOR, None).await.expect(200).body;
        let faults = faults["data"].as_array().expect("a list").clone();
        let watch = faults.iter().find(|fault| fault["op"] == json!(op) && fault["fault"] == "delay");
        i64::from(MANY) - watch.expect("a watch")["times"].as_i64().expect("a count")
    }

    /// Writes to the database behind the service's back, as its owner.
    pub async fn execute(&self, statement: String) {
        self.sql(&statement).await;
    }
}
