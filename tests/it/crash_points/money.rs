//! Stories of money that goes back, or out, and whose process dies.

use std::time::Duration;

use payonce::channels::sandbox::{FaultKind, FaultOp};
use reqwest::Method;
use serde_json::{Value, json};
use sqlx::Connection;

use super::statements;
use super::stories::SILENCE_MS;
use crate::support::refunding::told_of_refund;
use crate::support::service::{Gone, OPERATOR_OF_PROCESS, Service, Shop};
use crate::support::{TestApp, until_waiting};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Money {
    Refund,
    RefundOfASettledOrder,
    RefundAwaitingApproval,
    RejectionOfATopUpsRefund,
    RefundMadeAfterAll,
    RefundThatWasNotMade,
    ReversalToldInSilence,
    Withdraw,
    WithdrawInSilence,
    WithdrawRefused,
    WithdrawalThatCameBack,
    KeyOfAnOldWithdrawal,
    Settle,
    KeyOfAnOldSettlement,
    SettleMany,
    SettleSlowly,
    RetryOfADeadTask,
    Reconcile,
    CompensatingCharge,
    GiveBackACharge,
    Stumble,
    UploadAStatement,
    ApproveADifference,
    OldStatement,
    RetryOfManyTasks,
    DeadTaskOfAPaidOrder,
    CollectADebt,
    WriteADebtOff,
}

impl Money {
    /// What was there before the process that dies.
    pub async fn prepare(self, app: &TestApp, number: &str) {
        match self {
            Self::Refund
            | Self::RefundAwaitingApproval
            | Self::ReversalToldInSilence
            | Self::DeadTaskOfAPaidOrder => {
                app.paid(number).await;
            }
            Self::Withdraw
            | Self::WithdrawInSilence
            | Self::WithdrawRefused
            | Self::WithdrawalThatCameBack
            | Self::RejectionOfATopUpsRefund
            | Self::RefundMadeAfterAll
            | Self::RefundThatWasNotMade
            | Self::KeyOfAnOldWithdrawal
            | Self::RetryOfManyTasks
            | Self::RetryOfADeadTask => {
                app.top_up(&format!("T-{number}"), &user_of(number), 1_000).await;
            }
            Self::Settle
            | Self::SettleMany
            | Self::SettleSlowly
            | Self::RefundOfASettledOrder
            | Self::KeyOfAnOldSettlement => earn(app, number).await,
            Self::CollectADebt | Self::WriteADebtOff => owe(app, number).await,
            _ => statements::prepare(self, app, number).await,
        }
        match self {
            Self::RefundAwaitingApproval => ask_for_approval(app, refund(number)).await,
            Self::RejectionOfATopUpsRefund => {
                let body = json!({"refund_no": number, "order_no": format!("T-{number}"), "amount": 400});
                ask_for_approval(app, body).await;
            }
            Self::RefundMadeAfterAll => {
                let refund_id = app.refused_refund(number, &format!("T-{number}"), 400).await;
                let told = made(app, number).await;
                app.sandbox_makes_after_all(&refund_id, told["out_trade_no"].as_str().expect("an attempt"))
                    .await;
            }
            Self::RefundThatWasNotMade => {
                app.refused_refund(number, &format!("T-{number}"), 400).await;
                let told = made(app, number).await;
                app.webhook(&told).await.expect(200);
            }
            Self::ReversalToldInSilence => be_told_in_silence(app, number).await,
            Self::WithdrawRefused => {
                app.fault(FaultOp::Payout, FaultKind::Refuse, 1_000_000, None).await;
            }
            Self::WithdrawInSilence => {
                app.fault(FaultOp::Payout, FaultKind::TimeoutBefore, 1, Some(SILENCE_MS)).await;
            }
            Self::WithdrawalThatCameBack => come_back(app, number).await,
            Self::KeyOfAnOldWithdrawal => {
                app.post("/withdrawals", withdrawal(number)).await.expect(201);
            }
            Self::RetryOfADeadTask | Self::RetryOfManyTasks => {
                app.post("/withdrawals", withdrawal(number)).await.expect(201);
                app.give_up_task_of_withdrawal(number).await;
            }
            Self::DeadTaskOfAPaidOrder => app.sql(&given_up(number)).await,
            Self::RefundOfASettledOrder | Self::KeyOfAnOldSettlement => {
                app.settle(number).await.expect(201);
            }
            _ => {}
        }
    }

    /// What the client does, up to the end that it waits for.
    pub async fn tell(self, shop: &Shop, service: &Service, number: &str) -> Result<(), Gone> {
        match self {
            Self::Refund | Self::RefundOfASettledOrder => {
                let made = service.post("/refunds", &refund(number)).await?;
                assert!(matches!(made.status, 200 | 201), "{}", made.text);
            }
            Self::RefundMadeAfterAll => {
                let told = serde_json::to_vec(&made(&shop.app, number).await).expect("json");
                let signature = shop.app.sign(&told);
                assert_eq!(service.webhook(told, &signature).await?.status, 200);
            }
            Self::RefundAwaitingApproval
            | Self::RejectionOfATopUpsRefund
            | Self::RefundThatWasNotMade
            | Self::WithdrawalThatCameBack => self.decide(service, number).await?,
            Self::Withdraw | Self::WithdrawInSilence | Self::WithdrawRefused => {
                let made = service.post("/withdrawals", &withdrawal(number)).await?;
                assert!(matches!(made.status, 200 | 201), "{}", made.text);
            }
            Self::KeyOfAnOldWithdrawal => {
                let made = service.post_keyed("/withdrawals", number, &withdrawal(number)).await?;
                assert_eq!(made.status, 200, "{}", made.text);
            }
            Self::RetryOfADeadTask => {
                let task_id = shop.app.task_of_withdrawal(number).await;
                let path = format!("/admin/compensations/{task_id}/retry");
                let body = json!({"reason": "the story wants it"});
                let done = service.ask(Method::POST, &path, OPERATOR_OF_PROCESS, Some(&body)).await?;
                assert!(matches!(done.status, 200 | 409), "{}", done.text);
            }
            Self::RetryOfManyTasks => {
                let body = json!({"status": "DEAD", "reason": "the story wants it"});
                retry_many(service, &body).await?;
            }
            Self::CollectADebt => clear(service, "collect", number, 100).await?,
            Self::WriteADebtOff => clear(service, "write-off", number, 250).await?,
            Self::Settle => {
                let settled = service.post("/settlements", &json!({"order_no": number})).await?;
                assert!(matches!(settled.status, 200 | 201), "{}", settled.text);
            }
            Self::KeyOfAnOldSettlement => {
                let body = json!({"order_no": number});
                let settled = service.post_keyed("/settlements", number, &body).await?;
                assert_eq!(settled.status, 200, "{}", settled.text);
            }
            Self::SettleMany => begin_run(service).await?,
            Self::SettleSlowly => {
                // Whoever settles waits for this row, longer than a third of a lease.
                let mut other = shop.app.direct_connection().await;
                let mut held = other.begin().await.expect("a transaction");
                let hold = "SELECT 1 FROM orders WHERE order_no = $1 FOR UPDATE";
                sqlx::query(hold).bind(number).execute(&mut *held).await.expect("the row is held");
                let begun = begin_run(service).await;
                if begun.is_ok() && !self.has_ended(&shop.app, number).await {
                    tokio::select! {
                        () = until_waiting(&shop.app, 1) => {}
                        // It may be dead before anybody looks.
                        _ = service.until("its death", async || false) => {}
                    }
                }
                tokio::time::sleep(Duration::from_secs(1)).await;
                held.rollback().await.expect("the row is free");
                begun?;
            }
            Self::DeadTaskOfAPaidOrder | Self::ReversalToldInSilence => {}
            _ => statements::tell(self, &shop.app, service, number).await?,
        }
        service.until("its end", async || self.has_ended(&shop.app, number).await).await
    }

    /// An operator decides over a refund or a withdrawal.
    async fn decide(self, service: &Service, number: &str) -> Result<(), Gone> {
        let path = match self {
            Self::RefundAwaitingApproval => format!("/admin/refunds/{number}/approve"),
            Self::RejectionOfATopUpsRefund => format!("/admin/refunds/{number}/reject"),
            Self::WithdrawalThatCameBack => format!("/admin/withdrawals/{number}/returned"),
            _ => format!("/admin/refunds/{number}/not-made"),
        };
        let body = json!({"reason": "the story wants it"});
        let done = service.ask(Method::POST, &path, OPERATOR_OF_PROCESS, Some(&body)).await?;
        assert_eq!(done.status, 200, "{}", done.text);
        Ok(())
    }

    pub async fn has_ended(self, app: &TestApp, number: &str) -> bool {
        match self {
            // Half of its money, so that what is done twice shows.
            Self::Refund | Self::RefundAwaitingApproval | Self::RefundOfASettledOrder => {
                let order = app.find_order(number).await;
                // Of what is left 49.75 are due, and 99 were given.
                let is_clawed_back = self != Self::RefundOfASettledOrder
                    || app.settlement_of(number).await["clawed_back"] == json!(50);
                let stands = (&order["status"], &order["refunded_amount"]);
                is_clawed_back && stands == (&json!("PARTIALLY_REFUNDED"), &json!(995))
            }
            Self::RejectionOfATopUpsRefund | Self::RefundThatWasNotMade => {
                app.find_refund(number).await["status"] == "FAILED"
                    && app.cny_of(&user_of(number)).await == (1_000, 0)
            }
            // Once.
            Self::RefundMadeAfterAll => app.cny_of(&user_of(number)).await == (600, 0),
            Self::ReversalToldInSilence => {
                let open = format!("order_no = '{number}' AND status = 'OPEN'");
                app.find_refund(number).await["status"] == "FAILED"
                    && app.refunded(number).await == ("PAID".to_owned(), 0)
                    && app.count_where("exceptions", &open).await == 0
            }
            Self::WithdrawRefused => {
                let found = app.get(&format!("/withdrawals/{number}")).await;
                found.status == 200
                    && found.text_of("status") == "REVERSED"
                    && app.cny_of(&user_of(number)).await == (1_000, 0)
            }
            Self::WithdrawalThatCameBack => app.cny_of(&user_of(number)).await == (1_000, 0),
            Self::Withdraw | Self::WithdrawInSilence | Self::RetryOfADeadTask | Self::RetryOfManyTasks => {
                let found = app.get(&format!("/withdrawals/{number}")).await;
                found.status == 200 && found.text_of("status") == "SUCCEEDED"
            }
            // A part, or all of it, so that what is done twice shows, or what was shown of it.
            Self::CollectADebt => {
                app.balances_of(&user_of(number)).await == [("CNY".to_owned(), 900, 0, 150)]
            }
            Self::WriteADebtOff => {
                app.balances_of(&user_of(number)).await == [("CNY".to_owned(), 1_000, 0, 0)]
                    && app.count_where("exceptions", "kind = 'USAGE_SHORTFALL' AND status = 'OPEN'").await
                        == 0
            }
            Self::Settle | Self::SettleMany | Self::SettleSlowly => {
                let given = format!("order_no = '{number}' AND commission = 99");
                app.count_where("settlements", &given).await == 1
            }
            Self::DeadTaskOfAPaidOrder => {
                let (dead, open) = ("status = 'DEAD'", "status = 'OPEN'");
                let of_it = |state: &str| format!("order_no = '{number}' AND {state}");
                app.count_where("compensations", &of_it(dead)).await
                    + app.count_where("exceptions", &of_it(open)).await
                    == 0
            }
            Self::KeyOfAnOldWithdrawal | Self::KeyOfAnOldSettlement => {
                app.count_where("idempotency_keys", &format!("key = '{number}'")).await == 1
            }
            _ => statements::has_ended(self, app, number).await,
        }
    }
}

/// An order that earns 5 %, paid as its channel knows it.
async fn earn(app: &TestApp, number: &str) {
    let own = json!({"order_no": number, "user_id": "u1", "currency": "CNY", "amount": 1990, "rebate": {"rate": "0.05"}});
    app.order_with(own).await;
    let pay_order_id = app.pay_url(number).await.expect(200).text_of("pay_order_id").to_owned();
    app.sandbox_pay(&pay_order_id, json!({})).await.expect(200);
    app.eventually("it is paid", async || app.status_of(number).await == "PAID").await;
}

/// A user who used more than they had, owes 250 for it, and has 1000 by now.
async fn owe(app: &TestApp, number: &str) {
    let user_id = user_of(number);
    app.tokens("1").await;
    let hold_id = app.held(number, &user_id, 0).await;
    app.confirm(&hold_id, Some(250)).await.expect(200);
    app.top_up(&format!("T-{number}"), &user_id, 1_000).await;
}

/// A withdrawal that succeeded, and whose money came back to its channel.
async fn come_back(app: &TestApp, number: &str) {
    app.post("/withdrawals", withdrawal(number)).await.expect(201);
    app.run_until_idle().await;
    app.sql("UPDATE sandbox.payouts SET taken_back_at = paid_out_at").await;
}

/// Asks for a refund that needs an approval, and does not get it yet.
async fn ask_for_approval(app: &TestApp, refund: Value) {
    app.sql("UPDATE merchants SET refund_approval_above = 0 WHERE merchant_id = 'demo'").await;
    app.post("/refunds", refund).await.expect(201);
    app.sql("UPDATE merchants SET refund_approval_above = NULL WHERE merchant_id = 'demo'").await;
}

/// What the channel tells of a refund of a top-up that it had refused, and knows nothing of.
async fn made(app: &TestApp, number: &str) -> Value {
    let refund_id = app.refund_id(number).await;
    let paid_by = app.find_order(&format!("T-{number}")).await["paid_by"].clone();
    told_of_refund(number, (&refund_id, paid_by.as_str().expect("an attempt")), 400, "SUCCEEDED")
}

/// The channel takes a refund back that it had made, and says so once, while it cannot be asked.
async fn be_told_in_silence(app: &TestApp, number: &str) {
    app.post("/refunds", refund(number)).await.expect(201);
    app.run_until_idle().await;
    let refund_id = app.refund_id(number).await;
    let attempt = app.find_order(number).await["paid_by"].as_str().expect("an attempt").to_owned();
    app.sandbox_takes_back(&refund_id).await;
    app.tell_in_vain(&told_of_refund(number, (&refund_id, &attempt), 995, "FAILED")).await;
}

/// The end of an order that was paid after all, as it stands after the last try of its task.
fn given_up(number: &str) -> String {
    format!(
        "BEGIN;
         INSERT INTO compensations (kind, action, subject, merchant_id, order_no, status, attempts, due_at, created_at,
                                    updated_at)
         VALUES ('REDO_BUSINESS', 'EXPIRE_ORDER', 'demo:{number}', 'demo', '{number}', 'DEAD', 13, now(), now(), now());
         INSERT INTO exceptions (exception_id, kind, merchant_id, order_no, subject, detail, created_at, updated_at)
         VALUES ('ex_{number}', 'DEAD_TASK', 'demo', '{number}', 'demo:{number}', 'silent', now(), now());
         COMMIT"
    )
}

async fn retry_many(service: &Service, body: &Value) -> Result<(), Gone> {
    let path = "/admin/compensations/retry";
    let done = service.ask(Method::POST, path, OPERATOR_OF_PROCESS, Some(body)).await?;
    assert_eq!(done.status, 200, "{}", done.text);
    Ok(())
}

async fn begin_run(service: &Service) -> Result<(), Gone> {
    let body = json!({"older_than_days": 0, "reason": "the story wants it"});
    let path = "/admin/settlements/run";
    let begun = service.ask(Method::POST, path, OPERATOR_OF_PROCESS, Some(&body)).await?;
    assert_eq!(begun.status, 200, "{}", begun.text);
    Ok(())
}

async fn clear(service: &Service, how: &str, number: &str, amount: i64) -> Result<(), Gone> {
    let body = json!({"merchant_id": "demo", "user_id": user_of(number), "currency": "CNY", "clearing_no": number,
                      "amount": amount, "reason": "the story wants it"});
    let path = format!("/admin/receivables/{how}");
    let cleared = service.ask(Method::POST, &path, OPERATOR_OF_PROCESS, Some(&body)).await?;
    assert!(matches!(cleared.status, 200 | 201), "{}", cleared.text);
    Ok(())
}

/// Each story has a user of its own.
fn user_of(number: &str) -> String {
    format!("u-{number}")
}

fn refund(number: &str) -> Value {
    json!({"refund_no": number, "order_no": number, "amount": 995})
}

fn withdrawal(number: &str) -> Value {
    json!({"withdrawal_no": number, "user_id": user_of(number), "amount": 600, "currency": "CNY",
           "channel": "sandbox", "account": "u@example.com"})
}
