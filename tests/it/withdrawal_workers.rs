//! Withdrawals whose worker was given up, or overtaken: the money goes out once, and a person hears of what is wrong.

use futures_util::future::join_all;
use payonce::channels::sandbox::{FaultKind, FaultOp};
use payonce::compensation::{Action, Drive};
use payonce::withdrawals;
use serde_json::{Value, json};

use crate::support::{Reply, TestApp, TestOptions};

async fn withdraw(app: &TestApp, number: &str, amount: i64) -> Reply {
    let body = json!({"withdrawal_no": number, "user_id": "u1", "amount": amount, "currency": "CNY", "channel": "sandbox",
                      "account": "u@example.com"});
    app.post("/withdrawals", body).await
}

/// A withdrawal of 600 CNY that waits for its worker; gives the number that the channel will know it by.
async fn pending_withdrawal(app: &TestApp) -> String {
    app.top_up("T-u1", "u1", 1_000).await;
    withdraw(app, "W1", 600).await.expect(201);
    let id = sqlx::query_scalar("SELECT withdrawal_id FROM withdrawals");
    id.fetch_one(&mut app.direct_connection().await).await.expect("its id")
}

async fn status(app: &TestApp) -> Value {
    app.get("/withdrawals/W1").await.expect(200).body["status"].clone()
}

async fn drive(app: &TestApp, id: &str) -> Drive {
    let drive = async |task: &_| withdrawals::drive(&app.instance.app, task).await.expect("a worker");
    app.drive_by_hand(Action::DriveWithdrawal, id, drive).await
}

#[tokio::test]
async fn a_withdrawal_that_was_given_up_is_driven_on_by_a_decision() {
    let app = TestApp::start().await;
    pending_withdrawal(&app).await;
    app.fault(FaultOp::Payout, FaultKind::TimeoutAfter, 1, Some(1_200)).await;
    // Its last try: the channel makes the payout and keeps silent.
    app.sql("UPDATE compensations SET attempts = 12 WHERE status = 'READY'").await;
    app.run_until_idle().await;
    assert_eq!(status(&app).await, "PAYING");
    let given_up = app.open_exception().await;
    assert_eq!(given_up["kind"], "DEAD_TASK");

    for action in ["REFUND", "KEEP"] {
        assert_eq!(app.resolve(&given_up, action).await.problem(409), "NO_MONEY_HELD", "{action}");
    }
    app.resolve(&given_up, "NONE").await.expect(200);
    app.run_until_idle().await;
    assert_eq!(status(&app).await, "SUCCEEDED", "it was asked about under the same number");
    assert_eq!(app.cny_of("u1").await, (400, 0));
    assert_eq!(app.count("sandbox.payouts").await, 1);
    app.end().await;
}

/// It is refused, and its user has the money again.
async fn refused(app: &TestApp, id: &str) {
    app.fault(FaultOp::Payout, FaultKind::Refuse, 1, None).await;
    assert_eq!(drive(app, id).await, Drive::Done);
    assert_eq!((status(app).await, app.cny_of("u1").await), (json!("REVERSED"), (1_000, 0)));
}

/// So many hear at once that it was made all the same.
async fn hear_that_it_was_made(app: &TestApp, id: &str, times: usize) {
    app.sql(
        "INSERT INTO sandbox.payouts (payout_id, account, amount, currency, paid_out_at, created_at, updated_at)
         SELECT withdrawal_id, account, amount, currency, updated_at, updated_at, updated_at
         FROM withdrawals WHERE withdrawal_no = 'W1' ON CONFLICT DO NOTHING",
    )
    .await;
    let hear = || withdrawals::replay(&app.instance.app, id, format!("so_{id}"));
    for heard in join_all((0..times).map(|_| hear())).await {
        assert_eq!(heard.expect("heard"), Drive::Done);
    }
}

#[tokio::test]
async fn money_that_went_out_after_a_refusal_is_taken_from_its_user_and_shown_to_a_person() {
    let vars = vec![("CHANNEL_DEADLINE_MS", "10000".to_owned())];
    let app = TestApp::start_with(TestOptions { vars, ..TestOptions::default() }).await;
    let id = pending_withdrawal(&app).await;
    // The slower worker's call takes long and is carried out; the faster one's is refused meanwhile.
    app.fault(FaultOp::Payout, FaultKind::Delay, 1, Some(3_000)).await;
    app.fault(FaultOp::Payout, FaultKind::Refuse, 1, None).await;
    let overtake = async {
        app.eventually("the slower one has called", async || {
            let faults = app.gateway.list_faults().await.expect("faults");
            faults.iter().filter(|fault| fault.op == FaultOp::Payout).count() == 1
        })
        .await;
        assert_eq!(drive(&app, &id).await, Drive::Done);
        assert_eq!((status(&app).await, app.cny_of("u1").await), (json!("REVERSED"), (1_000, 0)));
    };
    let (slower, ()) = tokio::join!(drive(&app, &id), overtake);
    assert_eq!(slower, Drive::Done);
    assert_eq!((status(&app).await, app.count("sandbox.payouts").await), (json!("REVERSED"), 1));

    assert_eq!(app.cny_of("u1").await, (400, 0));
    assert_eq!(app.balance_of("USER_RECEIVABLE:demo:u1:CNY").await, 0);
    assert_eq!(app.balance_of("CHANNEL:sandbox:CNY").await, 400, "as the channel's own books say");
    let told = app.open_exception().await;
    assert_eq!((&told["kind"], &told["subject"]), (&json!("CONTRADICTION"), &json!(id)));
    let detail = told["detail"].as_str().expect("text");
    assert!(detail.contains("W1") && detail.contains("it is taken from what they have"), "{detail}");
    assert_eq!(app.count_where("outbox", "event = 'withdrawal.made_after_all'").await, 1);
    assert_eq!(withdraw(&app, "W2", 600).await.problem(422), "INSUFFICIENT_BALANCE");

    app.resolve(&told, "NONE").await.expect(200);
    app.run_until_idle().await;
    assert_eq!(status(&app).await, "REVERSED", "what has ended is not driven on");
    app.assert_books_agree_both_ways().await;
    app.end().await;
}

#[tokio::test]
async fn what_its_user_has_spent_by_then_is_owed_and_however_often_it_is_heard_is_booked_once() {
    let app = TestApp::start().await;
    let id = pending_withdrawal(&app).await;
    refused(&app, &id).await;
    withdraw(&app, "W2", 900).await.expect(201);
    for times in [1, 4] {
        hear_that_it_was_made(&app, &id, times).await;
    }
    app.run_until_idle().await;
    assert_eq!(app.cny_of("u1").await, (0, 0));
    assert_eq!(app.balance_of("USER_RECEIVABLE:demo:u1:CNY").await, 500);
    let owed = app.admin_get("/admin/receivables").await.expect(200).body["data"][0].clone();
    assert_eq!((&owed["user_id"], &owed["amount"]), (&json!("u1"), &json!(500)));
    app.assert_books_agree_both_ways().await;
    app.end().await;
}

#[tokio::test]
async fn who_hears_of_it_at_once_takes_it_once_beside_whoever_spends_and_what_was_shown_before_is_shown_anew()
{
    let app = TestApp::start().await;
    let id = pending_withdrawal(&app).await;
    refused(&app, &id).await;
    // By a version that booked nothing.
    app.sql(&format!(
        "INSERT INTO exceptions (exception_id, kind, merchant_id, subject, detail, created_at, updated_at)
         VALUES ('ex_BEFORE', 'CONTRADICTION', 'demo', '{id}', 'user u1 has so much twice', now(), now())"
    ))
    .await;
    let ((), spent) = tokio::join!(hear_that_it_was_made(&app, &id, 4), withdraw(&app, "W2", 700));
    app.run_until_idle().await;
    // Whoever came first: what was spent is owed, or was not there to be spent.
    let stands = if spent.status == 201 { (0, 0, 300) } else { (400, 0, 0) };
    let (_, available, held, owed) = app.balances_of("u1").await.remove(0);
    assert_eq!((available, held, owed), stands, "{}", spent.text);
    let told = app.open_exception().await;
    assert!(
        told["detail"].as_str().is_some_and(|detail| detail.contains("what that lacks is owed")),
        "{told}"
    );
    app.assert_books_agree_both_ways().await;
    app.end().await;
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
