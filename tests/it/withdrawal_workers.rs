//! Withdrawals whose worker was given up, or overtaken: the money goes out once, and a person hears of what is wrong.

use payonce::channels::sandbox::{FaultKind, FaultOp};
use payonce::compensation::Drive;
use payonce::withdrawals;
use serde_json::{Value, json};

use crate::support::TestApp;

/// A withdrawal of 600 CNY that waits for its worker; gives the number that the channel will know it by.
async fn pending_withdrawal(app: &TestApp) -> String {
    app.top_up("T-u1", "u1", 1_000).await;
    let body = json!({"withdrawal_no": "W1", "user_id": "u1", "amount": 600, "currency": "CNY",
                      "channel": "sandbox", "account": "u@example.com"});
    app.post("/withdrawals", body).await.expect(201);
    let id = sqlx::query_scalar("SELECT withdrawal_id FROM withdrawals");
    id.fetch_one(&mut app.direct_connection().await).await.expect("its id")
}

async fn status(app: &TestApp) -> Value {
    app.get("/withdrawals/W1").await.expect(200).body["status"].clone()
}

async fn drive(app: &TestApp, id: &str) -> Drive {
    withdrawals::drive(&app.instance.app, id).await.expect("a worker")
}

#[tokio::test]
async fn a_payout_without_a_result_is_money_at_risk() {
    let app = TestApp::start().await;
    pending_withdrawal(&app).await;
    app.fault(FaultOp::Payout, FaultKind::TimeoutBefore, 1, Some(1_200)).await;
    app.run_until_idle().await;
    let at_risk = async || app.admin_get("/admin/overview").await.expect(200).body["money_at_risk"].clone();
    assert_eq!(at_risk().await, json!([{"currency": "CNY", "amount": 600}]));
    app.clock.advance(crate::support::minutes(1));
    app.run_until_idle().await;
    assert_eq!(at_risk().await, json!([{"currency": "CNY", "amount": 0}]));
    app.end().await;
}
