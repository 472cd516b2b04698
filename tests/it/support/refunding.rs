//! What stories about orders' refunds ask for.

use serde_json::{Value, json};

use super::app::TestApp;

impl TestApp {
    pub async fn find_refund(&self, refund_no: &str) -> Value {
        self.get(&format!("/refunds/{refund_no}")).await.expect(200).body
    }

    /// The order's state and how much of it has gone back.
    pub async fn refunded(&self, order_no: &str) -> (String, i64) {
        let order = self.find_order(order_no).await;
        let status = order["status"].as_str().expect("a status").to_owned();
        (status, order["refunded_amount"].as_i64().expect("an amount"))
    }

    /// What the sandbox says has gone back of a trade.
    pub async fn gone_back(&self, pay_order_id: &str) -> i64 {
        let trade = self.sandbox_trade(pay_order_id).await;
        trade["payments"][0]["refunded_amount"].as_i64().expect("an amount")
    }

    /// A refund callback as the sandbox would send it.
    pub async fn tell_refund(
        &self,
        event_id: &str,
        refund_id: &str,
        pay_order_id: &str,
        fee: i64,
        status: &str,
    ) {
        let body = json!({"event_id": event_id, "kind": "REFUND", "refund_id": refund_id, "currency": "CNY",
                          "out_trade_no": pay_order_id, "refund_fee": fee, "status": status});
        self.webhook(&body).await.expect(200);
    }

    pub async fn refund_id(&self, refund_no: &str) -> String {
        let refunds = self.admin_get("/admin/refunds").await.expect(200).body;
        let found =
            refunds["data"].as_array().expect("a page").iter().find(|one| one["refund_no"] == refund_no);
        found.expect("a refund")["refund_id"].as_str().expect("an id").to_owned()
    }
}
