//! What stories about orders' refunds ask for.

use payonce::channels::sandbox::{FaultKind, FaultOp};
use serde_json::{Value, json};

use super::app::TestApp;

/// A callback of the sandbox that tells of a refund: its id, and the pay order that it gives back.
pub fn told_of_refund(
    event_id: &str,
    (refund_id, pay_order_id): (&str, &str),
    fee: i64,
    status: &str,
) -> Value {
    json!({"event_id": event_id, "kind": "REFUND", "refund_id": refund_id, "currency": "CNY",
           "out_trade_no": pay_order_id, "refund_fee": fee, "status": status})
}

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
        self.webhook(&told_of_refund(event_id, (refund_id, pay_order_id), fee, status)).await.expect(200);
    }

    /// The same, while the channel cannot be asked about refunds: it must come again.
    pub async fn tell_in_vain(&self, told: &Value) {
        self.sql("ALTER TABLE sandbox.refunds RENAME TO hidden").await;
        let reply = self.webhook(told).await;
        self.sql("ALTER TABLE sandbox.hidden RENAME TO refunds").await;
        assert!(reply.status >= 500, "it must come again: {}: {}", reply.status, reply.text);
        assert_eq!(self.verdict_of(told["event_id"].as_str().expect("an id")).await, None);
    }

    /// Asks for a refund of an order that its channel refuses for good; gives its id.
    pub async fn refused_refund(&self, refund_no: &str, order_no: &str, amount: i64) -> String {
        self.fault(FaultOp::Refund, FaultKind::Refuse, 1, None).await;
        let refund = json!({"refund_no": refund_no, "order_no": order_no, "amount": amount});
        self.post("/refunds", refund).await.expect(201);
        self.run_until_idle().await;
        assert_eq!(self.find_refund(refund_no).await["status"], "FAILED");
        self.refund_id(refund_no).await
    }

    /// The sandbox makes a refund after all that it had refused, out of the only payment of that pay order, and tells nobody.
    pub async fn sandbox_makes_after_all(&self, refund_id: &str, pay_order_id: &str) {
        self.sql(&format!(
            "WITH made AS (
                 INSERT INTO sandbox.refunds (refund_id, transaction_id, amount, currency, reason, refunded_at, created_at,
                                              updated_at)
                 SELECT refund.refund_id, payment.transaction_id, refund.amount, refund.currency, refund.reason,
                        payment.paid_at, payment.paid_at, payment.paid_at
                 FROM refunds AS refund, sandbox.payments AS payment
                 WHERE refund.refund_id = '{refund_id}' AND payment.pay_order_id = '{pay_order_id}'
                 RETURNING transaction_id, amount
             )
             UPDATE sandbox.payments AS payment SET refunded_amount = payment.refunded_amount + made.amount
             FROM made WHERE payment.transaction_id = made.transaction_id"
        ))
        .await;
    }

    /// The sandbox takes a refund back that it had made, and tells nobody.
    pub async fn sandbox_takes_back(&self, refund_id: &str) {
        self.sql(&format!(
            "WITH back AS (
                 UPDATE sandbox.refunds SET taken_back_at = refunded_at
                 WHERE refund_id = '{refund_id}' AND taken_back_at IS NULL
                 RETURNING transaction_id, amount
             )
             UPDATE sandbox.payments AS payment SET refunded_amount = payment.refunded_amount - back.amount
             FROM back WHERE payment.transaction_id = back.transaction_id"
        ))
        .await;
    }

    /// The same, and it tells us.
    pub async fn take_refund_back(&self, event_id: &str, refund_id: &str, pay_order_id: &str, fee: i64) {
        self.sandbox_takes_back(refund_id).await;
        self.tell_refund(event_id, refund_id, pay_order_id, fee, "FAILED").await;
    }

    /// The sandbox says of a stray payment's refund, when it is asked, that it came to nothing, and tells nobody.
    pub async fn sandbox_fails(&self, refund_id: &str) {
        self.sql(&format!(
            "INSERT INTO sandbox.refunds (refund_id, transaction_id, amount, currency, reason, refunded_at,
                                          taken_back_at, created_at, updated_at)
             SELECT refund_id, transaction_id, refunds.amount, refunds.currency, refunds.reason, now(),
                    now(), now(), now()
             FROM refunds JOIN stray_payments USING (stray_id) WHERE refund_id = '{refund_id}'"
        ))
        .await;
    }

    pub async fn refund_id(&self, refund_no: &str) -> String {
        let refunds = self.admin_get("/admin/refunds").await.expect(200).body;
        let found =
            refunds["data"].as_array().expect("a page").iter().find(|one| one["refund_no"] == refund_no);
        found.expect("a refund")["refund_id"].as_str().expect("an id").to_owned()
    }
}
