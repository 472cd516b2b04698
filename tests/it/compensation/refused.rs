//! A final refusal is written by whoever has the task, and by nobody who has lost it meanwhile.

use payonce::channels::sandbox::{FaultKind, FaultOp};
use payonce::compensation::{Action, Drive, Lane};
use payonce::{drive, refunds, withdrawals};
use serde_json::{Value, json};

use super::waiting_refund;
use crate::support::{Cluster, TestApp, TestOptions};

fn withdrawal() -> Value {
    json!({"withdrawal_no": "W1", "user_id": "u1", "amount": 600, "currency": "CNY", "channel": "sandbox", "account": "a"})
}

/// The channel refuses once. Who heard that is slow to write it down, and another one, by whose clock its time is over,
/// takes the task and asks the channel again.
async fn refused_to_one_of_two(op: FaultOp, table: &str, refused: &str, path: &str, body: Value) {
    let cluster = Cluster::start(2, TestOptions::default()).await;
    let app = cluster.first();
    app.paid("O1").await;
    app.top_up("T1", "u1", 1_000).await;
    app.fault(op, FaultKind::Refuse, 1, None).await;
    app.post(path, body).await.expect(201);
    app.sql(&format!(
        "CREATE FUNCTION story_waits() RETURNS trigger LANGUAGE plpgsql AS
         'BEGIN PERFORM pg_sleep(1); RETURN NEW; END';
         CREATE TRIGGER story_waits BEFORE UPDATE ON {table} FOR EACH ROW WHEN (NEW.status = '{refused}')
         EXECUTE FUNCTION story_waits()"
    ))
    .await;
    let slow = cluster.turn(1).instance.app.clone();
    let slow = tokio::spawn(async move { drive::run_due(&slow, Lane::Realtime).await });
    let is_used_up = "times_left = 0";
    app.eventually("it was refused", async || app.count_where("sandbox.faults", is_used_up).await == 1).await;
    app.sql("UPDATE compensations SET due_at = now() - interval '1 s' WHERE status = 'RUNNING'").await;
    app.run_until_idle().await;
    slow.await.expect("no panic").expect("a session");
    app.run_until_idle().await;
    let open = app.exceptions("status=OPEN").await;
    assert!(open.is_empty(), "{open:#?}");
    app.assert_books_agree_both_ways().await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refund_that_one_worker_was_refused_and_another_one_made_is_made() {
    let body = json!({"refund_no": "R1", "order_no": "O1"});
    refused_to_one_of_two(FaultOp::Refund, "refunds", "FAILED", "/refunds", body).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_withdrawal_that_one_worker_was_refused_and_another_one_made_is_made() {
    refused_to_one_of_two(FaultOp::Payout, "withdrawals", "REVERSING", "/withdrawals", withdrawal()).await;
}

/// Who has lost the task asks no channel to make it: neither where nobody has, nor where nobody knows what became of it.
async fn only_one_of_two_asks(app: &TestApp, op: FaultOp, table: &str, drive: impl AsyncFn(bool) -> Drive) {
    let unused = async || app.count_where("sandbox.faults", "times_left = 1").await;
    app.fault(op, FaultKind::TimeoutBefore, 1, None).await;
    assert!(matches!(drive(false).await, Drive::Again(_)));
    assert_eq!((unused().await, app.count_where(table, "status IN ('PENDING', 'DEBITED')").await), (1, 1));
    assert!(matches!(drive(true).await, Drive::Again(_)));
    assert_eq!((unused().await, app.count_where(table, "status IN ('PROCESSING', 'PAYING')").await), (0, 1));
    app.fault(op, FaultKind::Refuse, 1, None).await;
    assert!(matches!(drive(false).await, Drive::Again(_)));
    assert_eq!(unused().await, 1);
    assert_eq!(drive(true).await, Drive::Done);
    assert_eq!((unused().await, app.count_where(table, "status IN ('FAILED', 'REVERSED')").await), (0, 1));
}

#[tokio::test]
async fn who_has_lost_the_task_of_a_refund_asks_nobody_to_make_it() {
    let app = TestApp::start().await;
    waiting_refund(&app, "O1").await;
    let lost = app.take_only_task(Action::DriveRefund).await;
    let held = app.take_revived(Action::DriveRefund).await;
    let drive = async |has_it: bool| {
        refunds::drive(&app.instance.app, if has_it { &held } else { &lost }).await.expect("a try")
    };
    only_one_of_two_asks(&app, FaultOp::Refund, "refunds", drive).await;
    app.put_back(&held).await;
    app.end().await;
}

#[tokio::test]
async fn a_worker_whose_lease_is_over_or_whose_task_an_older_version_took_asks_nobody() {
    let app = TestApp::start().await;
    waiting_refund(&app, "O1").await;
    let task = app.take_only_task(Action::DriveRefund).await;
    let drive = async || refunds::drive(&app.instance.app, &task).await.expect("a try");
    let put = async |what: &str| app.sql(&format!("UPDATE compensations SET {what}")).await;
    let pending = async || app.count_where("refunds", "status = 'PENDING'").await;
    put("due_at = due_at - interval '2 days'").await;
    assert!(matches!(drive().await, Drive::Again(_)));
    // Which counts tries only.
    put("due_at = due_at + interval '2 days', status = 'RUNNING', attempts = attempts + 1").await;
    assert!(matches!(drive().await, Drive::Again(_)));
    assert_eq!(pending().await, 1);
    put("claims = claims - 1").await;
    assert_eq!((drive().await, pending().await), (Drive::Done, 0));
    app.put_back(&task).await;
    app.end().await;
}

#[tokio::test]
async fn who_has_lost_the_task_of_a_withdrawal_asks_nobody_to_make_it() {
    let app = TestApp::start().await;
    app.top_up("T1", "u1", 1_000).await;
    app.run_until_idle().await;
    app.post("/withdrawals", withdrawal()).await.expect(201);
    let lost = app.take_only_task(Action::DriveWithdrawal).await;
    let held = app.take_revived(Action::DriveWithdrawal).await;
    let drive = async |has_it: bool| {
        withdrawals::drive(&app.instance.app, if has_it { &held } else { &lost }).await.expect("a try")
    };
    only_one_of_two_asks(&app, FaultOp::Payout, "withdrawals", drive).await;
    app.put_back(&held).await;
    app.end().await;
}

#[tokio::test]
async fn a_worker_of_a_withdrawal_whose_lease_is_over_asks_nobody() {
    let app = TestApp::start().await;
    app.top_up("T1", "u1", 1_000).await;
    app.run_until_idle().await;
    app.post("/withdrawals", withdrawal()).await.expect(201);
    let task = app.take_only_task(Action::DriveWithdrawal).await;
    let drive = async || withdrawals::drive(&app.instance.app, &task).await.expect("a try");
    let debited = async || app.count_where("withdrawals", "status = 'DEBITED'").await;
    app.sql("UPDATE compensations SET due_at = due_at - interval '2 days'").await;
    assert!(matches!(drive().await, Drive::Again(_)));
    assert_eq!((debited().await, app.count("sandbox.payouts").await), (1, 0));
    app.sql("UPDATE compensations SET due_at = due_at + interval '2 days'").await;
    assert_eq!((drive().await, debited().await), (Drive::Done, 0));
    app.put_back(&task).await;
    app.end().await;
}
