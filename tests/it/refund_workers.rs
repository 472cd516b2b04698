//! Two workers of one refund: the slower one overslept its lease, and what the faster one did stands.

use std::time::Duration;

use payonce::channels::sandbox::{FaultKind, FaultOp};
use payonce::channels::{RefundCall, RefundState, TradeRef};
use payonce::compensation::{Action, Drive};
use payonce::money::{Amount, Money};
use payonce::refunds;
use serde_json::json;
use sqlx::Connection;

use crate::support::{TestApp, until_waiting};

/// A refund that waits for its worker, and what its channel is asked for.
async fn pending_refund(app: &TestApp, order_no: &str) -> RefundCall {
    // The channel's own callback would tell what a worker must find out.
    app.fault(FaultOp::Webhook, FaultKind::Drop, 1000, None).await;
    let id = app.order_to_pay(order_no).await;
    app.close(order_no).await.expect(200);
    let paid = app.sandbox_pay(&id, json!({"force": true, "notify": false})).await.expect(200);
    let transaction_id = paid.text_of("transaction_id");
    app.deliver(&app.success(order_no, &id, transaction_id, 1990)).await;

    let refund = app.find_order(order_no).await["refunds"][0].clone();
    assert_eq!(refund["status"], "PENDING");
    let amount = Amount::try_from(1990).expect("an amount");
    let money = Money { amount, currency: "CNY".parse().expect("a currency") };
    let pay_order_id = id.parse().expect("an id");
    RefundCall {
        refund_id: refund["refund_no"].as_str().expect("a number").parse().expect("an id"),
        trade: TradeRef { pay_order_id, channel_ref: None, money, expires_at: app.clock.now() },
        transaction_id: transaction_id.to_owned(),
        money,
        taken: money,
        reason: "LATE_PAYMENT".to_owned(),
    }
}

async fn drive(app: &TestApp, call: &RefundCall) -> Drive {
    let drive = async |task: &_| refunds::drive(&app.instance.app, task).await.expect("a worker");
    app.drive_by_hand(Action::DriveRefund, call.refund_id.as_str(), drive).await
}

/// Waits until the channel has this many faults left.
async fn faults_left(app: &TestApp, op: FaultOp, left: usize) {
    loop {
        let faults = app.gateway.list_faults().await.expect("faults");
        if faults.iter().filter(|fault| fault.op == op).count() == left {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_worker_that_finds_the_refund_taken_over_asks_before_it_calls() {
    let app = TestApp::start().await;
    let call = pending_refund(&app, "W1").await;
    let channel = app.instance.app.channels.get("sandbox").expect("the sandbox").clone();

    // The faster one writes down that it asks, while the slower one still believes what it read before.
    let mut faster = app.direct_connection().await;
    let mut begun = faster.begin().await.expect("a transaction");
    sqlx::query("UPDATE refunds SET status = 'PROCESSING', version = version + 1")
        .execute(&mut *begun)
        .await
        .expect("the row is held");
    let overtake = async {
        until_waiting(&app, 1).await;
        let made = channel.refund(&call).await.expect("the channel gives it back");
        assert!(matches!(made, RefundState::Succeeded { .. }));
        app.fault(FaultOp::Refund, FaultKind::Refuse, 1, None).await;
        begun.commit().await.expect("the row is free");
    };
    let (slower, ()) = tokio::join!(drive(&app, &call), overtake);
    assert_eq!(slower, Drive::Done, "it hears that the refund was made");

    app.run_until_idle().await;
    assert_eq!(app.find_order("W1").await["refunds"][0]["status"], "SUCCEEDED");
    assert_eq!(app.stray().await["status"], "REFUNDED");
    assert_eq!(app.exceptions("").await.len(), 0);
    assert_eq!(app.sandbox_books().await, (1990, 1990));
    app.end().await;
}

#[tokio::test]
async fn a_late_refusal_does_not_undo_a_refund_that_was_made() {
    let app = TestApp::start().await;
    let call = pending_refund(&app, "W2").await;
    app.fault(FaultOp::Refund, FaultKind::Delay, 1, Some(600)).await;
    let overtake = async {
        faults_left(&app, FaultOp::Refund, 0).await;
        assert_eq!(drive(&app, &call).await, Drive::Done);
        assert_eq!(app.stray().await["status"], "REFUNDED");
        // What comes under this number from now on is another refund to the channel: it says no.
        app.sql("UPDATE sandbox.refunds SET amount = 1").await;
    };
    let (slower, ()) = tokio::join!(drive(&app, &call), overtake);
    assert_eq!(slower, Drive::Done);

    assert_eq!(app.find_order("W2").await["refunds"][0]["status"], "SUCCEEDED");
    assert_eq!(app.stray().await["status"], "REFUNDED");
    assert_eq!(app.count_where("outbox", "event = 'refund.reversed'").await, 0);
    assert_eq!(app.exceptions("").await.len(), 0);

    // The channel's own word counts: it takes the money back.
    app.sandbox_takes_back(call.refund_id.as_str()).await;
    let reversal = app.refund_notice("r1", call.refund_id.as_str(), "FAILED");
    app.deliver(&reversal).await;
    assert_eq!(app.stray().await["status"], "HELD");
    // It was known to have succeeded: a repeat of that, however late, is no news.
    app.deliver(&app.refund_notice("r0", call.refund_id.as_str(), "SUCCEEDED")).await;
    assert_eq!(app.open_exception().await["kind"], "STRAY_MONEY");
    app.end().await;
}

#[tokio::test]
async fn money_that_went_back_after_a_refusal_is_shown_to_a_person() {
    let app = TestApp::start().await;
    let call = pending_refund(&app, "W3").await;
    let id = call.refund_id.as_str();
    app.fault(FaultOp::Refund, FaultKind::Delay, 1, Some(600)).await;
    app.fault(FaultOp::Refund, FaultKind::Refuse, 1, None).await;
    let overtake = async {
        faults_left(&app, FaultOp::Refund, 1).await;
        assert_eq!(drive(&app, &call).await, Drive::Done);
        assert_eq!(app.open_exception().await["kind"], "STRAY_MONEY");
    };
    let (slower, ()) = tokio::join!(drive(&app, &call), overtake);
    assert_eq!(slower, Drive::Done);

    let open = app.exceptions("status=OPEN").await;
    let told = open.iter().find(|exception| exception["subject"] == id).expect("the contradiction");
    assert_eq!((&told["kind"], &told["order_no"]), (&json!("CONTRADICTION"), &json!("W3")));
    assert_eq!(app.find_order("W3").await["refunds"][0]["status"], "FAILED");

    app.resolve(told, "NONE").await.expect(200);
    app.deliver(&app.refund_notice("r1", id, "SUCCEEDED")).await;
    let held = app.open_exception().await;
    assert_eq!(held["kind"], "STRAY_MONEY", "what a person has seen is not told again");
    assert_eq!(app.resolve(&held, "KEEP").await.expect(409).text_of("code"), "MONEY_WENT_BACK");
    app.resolve(&held, "NONE").await.expect(200);
    assert_eq!(app.sandbox_books().await, (1990, 1990));
    app.end().await;
}

#[tokio::test]
async fn a_refund_whose_payment_is_not_there_is_shown_to_a_person_and_spoils_no_other() {
    let app = TestApp::start().await;
    let (lost, fine) = (app.paid("LOST").await, app.paid("FINE").await);
    for order_no in ["LOST", "FINE"] {
        let refund = json!({"refund_no": order_no, "order_no": order_no, "amount": 90});
        app.post("/refunds", refund).await.expect(201);
    }
    app.sql("UPDATE refunds SET pay_order_id = 'po_gone' WHERE refund_no = 'LOST'").await;
    // Asked about by whoever drives it, and told of by its channel.
    let (refund_id, other_id) = (app.refund_id("LOST").await, app.refund_id("FINE").await);
    let drive = async |task: &_| refunds::drive(&app.instance.app, task).await.expect("an answer");
    let driven = app.drive_by_hand(Action::DriveRefund, &refund_id, drive).await;
    assert!(matches!(driven, Drive::Never(_)), "{driven:?}");
    let told = async |refund_id: &str, pay_order_id: &str| {
        app.tell_refund(&format!("e-{refund_id}"), refund_id, pay_order_id, 90, "SUCCEEDED").await;
    };
    tokio::join!(told(&refund_id, &lost), told(&other_id, &fine));
    assert_eq!(app.find_refund("LOST").await["status"], "PENDING");
    assert_eq!(app.find_refund("FINE").await["status"], "SUCCEEDED");
    app.run_until_idle().await;
    let shown = app.open_exception().await;
    assert_eq!((&shown["kind"], &shown["subject"]), (&json!("DEAD_TASK"), &json!(refund_id)));

    app.sql(&format!("UPDATE refunds SET pay_order_id = '{lost}' WHERE refund_no = 'LOST'")).await;
    app.resolve(&shown, "REFUND").await.expect(200);
    app.run_until_idle().await;
    assert_eq!(app.find_refund("LOST").await["status"], "SUCCEEDED");
    app.end().await;
}
