//! What stories about orders' refunds ask for.

use serde_json::{Value, json};

use super::app::TestApp;

impl TestApp {
    /// The number of the task that drives a withdrawal.
    pub async fn task_of_withdrawal(&self, withdrawal_no: &str) -> i64 {
        let task = "SELECT task.id FROM compensations AS task
                    JOIN withdrawals ON withdrawal_id = subject WHERE withdrawal_no = $1";
        let mut conn = self.direct_connection().await;
        sqlx::query_scalar(task).bind(withdrawal_no).fetch_one(&mut conn).await.expect("a task")
    }

    /// As it stands after the last try of its task.
    pub async fn give_up_task_of_withdrawal(&self, withdrawal_no: &str) {
        let id = self.task_of_withdrawal(withdrawal_no).await;
        self.sql(&format!(
            "BEGIN;
             UPDATE compensations SET status = 'DEAD', attempts = 13 WHERE id = {id};
             INSERT INTO exceptions (exception_id, kind, subject, detail, created_at, updated_at)
             SELECT 'ex_' || id, 'DEAD_TASK', subject, 'silent', now(), now() FROM compensations WHERE id = {id};
             COMMIT"
        ))
        .await;
    }

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
