//! Stray money: whatever no order accepts goes back once, or waits for a person; everybody can see it.

use std::time::Duration;

use payonce::channels::sandbox::{FaultKind, FaultOp};
use payonce::compensation::Lane;
use payonce::drive;
use reqwest::Method;
use serde_json::{Value, json};
use sqlx::Executor;

use crate::support::{TestApp, minutes, seconds};

/// What an order says of its only stray payment: status, reason, amount, currency.
fn stray_of(order: &Value) -> (&str, &str, i64, &str) {
    let strays = order["stray_payments"].as_array().expect("strays");
    assert_eq!(strays.len(), 1, "{order}");
    let text = |member: &str| strays[0][member].as_str().expect("text");
    (text("status"), text("reason"), strays[0]["amount"].as_i64().expect("amount"), text("currency"))
}

#[tokio::test]
async fn late_money_goes_back_and_everybody_sees_it() {
    let app = TestApp::start().await;
    let id = app.late_money("S1").await;
    app.run_until_idle().await;

    let order = app.find_order("S1").await;
    assert_eq!(order["status"], "CLOSED");
    assert_eq!(order["refunded_amount"], 0, "the order itself collected nothing");
    assert_eq!(stray_of(&order), ("REFUNDED", "LATE_PAYMENT", 1990, "CNY"));
    assert_eq!(order["refunds"][0]["status"], "SUCCEEDED");
    assert_eq!(order["refunds"][0]["amount"], 1990);
    assert_eq!(order["refunds"][0]["pay_order_id"], Value::Null);
    assert_eq!(app.stray().await["order_no"], "S1");
    let admin = app.admin_get("/admin/orders/S1").await.expect(200).body;
    assert_eq!(stray_of(&admin), stray_of(&order));
    assert_eq!(app.sandbox_trade(&id).await["payments"][0]["refunded_amount"], 1990);
    assert_eq!(app.count_where("outbox", "event = 'stray_payment.received'").await, 1);
    assert_eq!(app.count_where("outbox", "event = 'refund.finished'").await, 1);
    // Whose money it was is told and shown, so that nobody takes it for the order's.
    let its_own = "event = 'refund.finished' AND payload ->> 'pay_order_id' IS NULL
                   AND payload ->> 'stray_id' = (SELECT stray_id FROM stray_payments)";
    assert_eq!(app.count_where("outbox", its_own).await, 1);
    assert_eq!(order["refunds"][0]["stray_id"], order["stray_payments"][0]["stray_id"]);
    app.end().await;
}

#[tokio::test]
async fn money_that_went_astray_goes_back_alone_also_above_what_an_operator_must_approve() {
    let app = TestApp::start().await;
    app.sql("UPDATE merchants SET refund_approval_above = 100 WHERE merchant_id = 'demo'").await;
    app.late_money("S1").await;
    app.run_until_idle().await;
    let order = app.find_order("S1").await;
    assert_eq!(stray_of(&order), ("REFUNDED", "LATE_PAYMENT", 1990, "CNY"));
    assert_eq!(order["refunds"][0]["status"], "SUCCEEDED");
    // What is asked for waits.
    app.paid("S2").await;
    let asked = app.post("/refunds", json!({"refund_no": "R", "order_no": "S2"})).await.expect(201);
    assert_eq!(asked.text_of("status"), "AWAITING_APPROVAL");
    app.end().await;
}

#[tokio::test]
async fn money_for_a_paid_order_goes_back_whichever_attempt_took_it() {
    let app = TestApp::start().await;
    let first = app.order_to_pay("S2").await;
    app.sandbox_decline(&first).await.expect(200);
    app.run_until_idle().await;
    let second = app.pay_url("S2").await.expect(200).text_of("pay_order_id").to_owned();
    app.sandbox_pay(&second, json!({})).await.expect(200);
    app.run_until_idle().await;

    app.sandbox_pay(&first, json!({"force": true})).await.expect(200);
    app.sandbox_pay(&second, json!({"force": true})).await.expect(200);
    app.run_until_idle().await;
    let order = app.find_order("S2").await;
    assert_eq!((&order["status"], &order["paid_by"]), (&json!("PAID"), &json!(second)));
    let strays = app.strays("status=REFUNDED").await;
    assert_eq!(strays.len(), 2, "another attempt's money, and a second trade on the paying one");
    assert!(strays.iter().all(|stray| stray["reason"] == "DUPLICATE_PAYMENT"));
    assert_eq!(app.sandbox_books().await, (3 * 1990, 2 * 1990));
    app.end().await;
}

#[tokio::test]
async fn a_wrong_amount_is_refused_on_every_repeat_and_goes_back() {
    let app = TestApp::start().await;
    let cases = [
        ("S3", json!({"amount": 1, "notify": false})),
        ("S4", json!({"amount": 1991, "notify": false})),
        ("S5", json!({"currency": "USD", "notify": false})),
    ];
    for (order_no, payment) in cases {
        let first = app.order_to_pay(order_no).await;
        let receipt = app.sandbox_pay(&first, payment).await.expect(200).body;
        let number = receipt["transaction_id"].as_str().expect("a number");
        let fee = receipt["amount"].as_i64().expect("an amount");
        for event in ["a", "a", "b", "a"] {
            let mut callback = app.success(&format!("{order_no}-{event}"), &first, number, fee);
            callback["currency"] = receipt["currency"].clone();
            let reply = app.webhook(&callback).await;
            assert_eq!((reply.status, reply.text.as_str()), (400, "FAIL"));
        }
        let order = app.find_order(order_no).await;
        assert_eq!(
            (&order["status"], &order["pay_orders"][0]["status"]),
            (&json!("PENDING"), &json!("FAILED"))
        );
        assert_eq!(app.open_exception().await["kind"], "AMOUNT_MISMATCH");

        app.run_until_idle().await;
        let order = app.find_order(order_no).await;
        let currency = receipt["currency"].as_str().expect("a currency");
        assert_eq!(stray_of(&order), ("REFUNDED", "AMOUNT_MISMATCH", fee, currency));
        let exception = app.exceptions("").await[0].clone();
        assert_eq!((&exception["status"], &exception["action"]), (&json!("RESOLVED"), &json!("REFUND")));
        assert_eq!(exception["resolved_by"], "payonce");

        let second = app.pay_url(order_no).await.expect(200).text_of("pay_order_id").to_owned();
        app.sandbox_pay(&second, json!({})).await.expect(200);
        app.run_until_idle().await;
        assert_eq!(app.find_order(order_no).await["paid_by"], second);
    }
    app.end().await;
}

#[tokio::test]
async fn wrong_money_that_is_told_of_another_attempt_too_is_a_repeat() {
    let app = TestApp::start().await;
    let paid_wrongly = app.order_to_pay("S12").await;
    let other = app.order_to_pay("S13").await;
    assert_eq!(app.webhook(&app.success("a", &paid_wrongly, "t1", 1)).await.status, 400);
    // The trade is one and written down: it moves nothing of whomever else it is told of.
    app.deliver(&app.success("b", &other, "t1", 1990)).await;
    app.deliver(&app.success("c", "po_nobodys", "t1", 1)).await;
    for event in ["b", "c"] {
        assert_eq!(app.verdict_of(event).await.as_deref(), Some("REPEATED"), "{event}");
    }
    assert_eq!(app.status_of("S13").await, "PENDING");
    assert_eq!(app.count("stray_payments").await, 1);
    app.end().await;
}

#[tokio::test]
async fn the_right_amount_on_an_attempt_that_was_paid_wrongly_pays_the_order() {
    let app = TestApp::start().await;
    let id = app.order_to_pay("S6").await;
    app.sandbox_pay(&id, json!({"amount": 1000})).await.expect(200);
    app.run_until_idle().await;
    app.sandbox_pay(&id, json!({"force": true})).await.expect(200);
    app.run_until_idle().await;
    let order = app.find_order("S6").await;
    assert_eq!((&order["status"], &order["paid_by"]), (&json!("PAID"), &json!(id)));
    assert_eq!(stray_of(&order), ("REFUNDED", "AMOUNT_MISMATCH", 1000, "CNY"));
    assert_eq!(app.sandbox_books().await, (2990, 1000));
    app.end().await;
}

#[tokio::test]
async fn a_merchant_that_holds_stray_money_decides_about_each() {
    let app = TestApp::start().await;
    let key = app.merchant("holder", "hold").await;
    let late = app.late_money_as(&key, "S7").await;
    let wrong = app.order_to_pay_as(&key, "S8").await;
    app.sandbox_pay(&wrong, json!({"amount": 5})).await.expect(200);
    let twice = app.order_to_pay_as(&key, "S9").await;
    app.sandbox_pay(&twice, json!({})).await.expect(200);
    app.sandbox_pay(&twice, json!({"force": true})).await.expect(200);
    app.run_until_idle().await;

    for (order_no, reason, amount, kind, action, end) in [
        ("S7", "LATE_PAYMENT", 1990, "STRAY_MONEY", "REFUND", "REFUNDED"),
        ("S8", "AMOUNT_MISMATCH", 5, "AMOUNT_MISMATCH", "REFUND", "REFUNDED"),
        ("S9", "DUPLICATE_PAYMENT", 1990, "STRAY_MONEY", "KEEP", "KEPT"),
    ] {
        let order = app.find_order_as(&key, order_no).await;
        assert_eq!(stray_of(&order), ("HELD", reason, amount, "CNY"));
        assert_eq!(order["refunds"], json!([]));
        let open = app.exceptions("status=OPEN").await;
        let exception = open.iter().find(|exception| exception["order_no"] == order_no).expect("one");
        assert_eq!((&exception["kind"], &exception["merchant_id"]), (&json!(kind), &json!("holder")));
        app.resolve(exception, action).await.expect(200);
        app.run_until_idle().await;
        assert_eq!(stray_of(&app.find_order_as(&key, order_no).await).0, end);
    }
    assert_eq!(app.exceptions("status=OPEN").await.len(), 0);
    assert_eq!(app.sandbox_trade(&late).await["payments"][0]["refunded_amount"], 1990);
    assert_eq!(app.sandbox_books().await, (1990 + 5 + 2 * 1990, 1990 + 5));

    let told = app.call(Method::GET, "/events?order_no=S9", &key, None).await.expect(200).body;
    let told = told["data"].as_array().expect("events");
    let [kept, received, _paid] = told.as_slice() else { panic!("{told:#?}") };
    let stray_id = &received["data"]["stray_id"];
    assert_eq!(
        (&kept["type"], &kept["data"]),
        (
            &json!("stray_payment.kept"),
            &json!({"order_no": "S9", "stray_id": stray_id, "reason": "DUPLICATE_PAYMENT", "amount": 1990, "currency": "CNY"})
        )
    );
    let payments = &app.sandbox_trade(&twice).await["payments"];
    assert_eq!(received["type"], "stray_payment.received");
    for (field, expected) in [
        ("pay_order_id", json!(twice)),
        ("channel", json!("sandbox")),
        ("transaction_id", payments[1]["transaction_id"].clone()),
    ] {
        assert_eq!(received["data"][field], expected, "{field}");
    }
    app.end().await;
}

#[tokio::test]
async fn a_refund_with_an_unknown_result_is_asked_about_and_made_once() {
    let app = TestApp::start().await;
    for (order_no, fault) in [("S10", FaultKind::TimeoutBefore), ("S11", FaultKind::TimeoutAfter)] {
        app.fault(FaultOp::Refund, fault, 1, Some(3000)).await;
        // Its own callback would end the doubt; the query must.
        let id = app.late_money(order_no).await;
        app.fault(FaultOp::Webhook, FaultKind::Drop, 100, None).await;
        app.run_until_idle().await;
        assert_eq!(app.find_order(order_no).await["refunds"][0]["status"], "PROCESSING", "{fault}");
        let number = app.find_order(order_no).await["refunds"][0]["refund_no"].clone();

        for _ in 0..3 {
            app.clock.advance(seconds(30));
            app.run_until_idle().await;
        }
        let order = app.find_order(order_no).await;
        assert_eq!(order["refunds"].as_array().expect("refunds").len(), 1);
        assert_eq!(
            (&order["refunds"][0]["status"], &order["refunds"][0]["refund_no"]),
            (&json!("SUCCEEDED"), &number)
        );
        let trade = app.sandbox_trade(&id).await;
        assert_eq!(trade["refunds"].as_array().expect("refunds").len(), 1, "{trade}");
        app.gateway.clear_faults().await.expect("no faults");
    }
    assert_eq!(app.sandbox_books().await, (2 * 1990, 2 * 1990));
    app.end().await;
}

#[tokio::test]
async fn a_refund_refused_for_good_waits_for_a_person_who_tries_again_or_keeps_the_money() {
    let app = TestApp::start().await;
    app.fault(FaultOp::Refund, FaultKind::Refuse, 2, None).await;
    app.late_money("S12").await;
    app.run_until_idle().await;
    let first = app.open_exception().await;
    assert_eq!((&first["kind"], &first["order_no"]), (&json!("STRAY_MONEY"), &json!("S12")));
    assert!(first["detail"].as_str().is_some_and(|detail| detail.contains("SANDBOX_REFUSED")), "{first}");
    assert!(app.find_order("S12").await["refunds"][0]["failure"].is_string());

    app.resolve(&first, "REFUND").await.expect(200);
    app.run_until_idle().await;
    let second = app.open_exception().await;
    assert_ne!(second["exception_id"], first["exception_id"], "refused again, so it is open again");

    app.resolve(&second, "REFUND").await.expect(200);
    app.run_until_idle().await;
    let order = app.find_order("S12").await;
    assert_eq!(stray_of(&order).0, "REFUNDED");
    let statuses: Vec<_> =
        order["refunds"].as_array().expect("refunds").iter().map(|r| r["status"].clone()).collect();
    assert_eq!(statuses, ["FAILED", "FAILED", "SUCCEEDED"]);

    app.fault(FaultOp::Refund, FaultKind::Refuse, 1, None).await;
    app.late_money("S13").await;
    app.run_until_idle().await;
    app.resolve(&app.open_exception().await, "KEEP").await.expect(200);
    app.clock.advance(minutes(60));
    app.run_until_idle().await;
    assert_eq!(stray_of(&app.find_order("S13").await).0, "KEPT");
    assert_eq!(app.sandbox_books().await, (2 * 1990, 1990));
    app.end().await;
}

#[tokio::test]
async fn wrong_money_that_is_kept_leaves_nothing_open() {
    let app = TestApp::start().await;
    for (order_no, decided) in [("S18", "AMOUNT_MISMATCH"), ("S19", "STRAY_MONEY")] {
        app.fault(FaultOp::Refund, FaultKind::Refuse, 1, None).await;
        let id = app.order_to_pay(order_no).await;
        app.sandbox_pay(&id, json!({"amount": 5})).await.expect(200);
        app.run_until_idle().await;
        // The wrong amount, and the channel that refuses to take it back.
        let open = app.exceptions("status=OPEN").await;
        let mut kinds: Vec<_> = open.iter().map(|open| open["kind"].as_str().expect("a kind")).collect();
        kinds.sort_unstable();
        assert_eq!(kinds, ["AMOUNT_MISMATCH", "STRAY_MONEY"]);

        let one = open.iter().find(|open| open["kind"] == decided).expect("one");
        app.resolve(one, "KEEP").await.expect(200);
        assert_eq!(app.exceptions("status=OPEN").await.len(), 0, "{decided} decides over both");
        let order = format!("order_no = '{order_no}' AND status = 'RESOLVED' AND action = 'KEEP'");
        let by = "resolved_by = 'operator' AND reason = 'the story wants it'";
        assert_eq!(app.count_where("exceptions", &format!("{order} AND {by}")).await, 2);
        assert_eq!(stray_of(&app.find_order(order_no).await), ("KEPT", "AMOUNT_MISMATCH", 5, "CNY"));
    }
    app.end().await;
}

#[tokio::test]
async fn a_signed_payment_that_the_channel_does_not_know_is_believed_and_its_refund_is_refused_there() {
    let app = TestApp::start().await;
    let id = app.order_to_pay("S14").await;
    app.close("S14").await.expect(200);
    app.deliver(&app.success("e1", &id, "t_of_nobody", 1990)).await;
    app.run_until_idle().await;

    let order = app.find_order("S14").await;
    assert_eq!(stray_of(&order), ("HELD", "LATE_PAYMENT", 1990, "CNY"));
    assert_eq!(order["refunds"][0]["status"], "FAILED");
    assert_eq!(app.open_exception().await["kind"], "STRAY_MONEY");
    app.end().await;
}

#[tokio::test]
async fn lies_about_the_amount_are_believed_but_never_refunded_beyond_what_was_taken() {
    let app = TestApp::start().await;
    for (order_no, lie) in [("S15", FaultKind::WrongAmount), ("S16", FaultKind::WrongCurrency)] {
        let id = app.order_to_pay(order_no).await;
        app.fault(FaultOp::Webhook, lie, 1, None).await;
        app.sandbox_pay(&id, json!({})).await.expect(200);
        app.run_until_idle().await;
        let order = app.find_order(order_no).await;
        assert_eq!((order["status"].as_str(), stray_of(&order).0), (Some("PENDING"), "HELD"), "{lie}");
    }
    let kinds: Vec<_> = app.exceptions("status=OPEN").await.iter().map(|e| e["kind"].clone()).collect();
    assert_eq!(kinds.iter().filter(|kind| *kind == "AMOUNT_MISMATCH").count(), 2, "{kinds:?}");
    assert_eq!(app.sandbox_books().await, (2 * 1990, 0));
    app.end().await;
}

#[tokio::test]
async fn money_of_nobody_goes_back_when_a_person_says_so() {
    let app = TestApp::start().await;
    // The row of an attempt can be lost with an unflushed commit; its trade at the channel is not.
    let id = app.order_to_pay("S17").await;
    app.sandbox_pay(&id, json!({"notify": false})).await.expect(200);
    let trade = app.sandbox_trade(&id).await;
    let number = trade["payments"][0]["transaction_id"].as_str().expect("a number").to_owned();
    app.sql(&format!(
        "DELETE FROM pay_orders WHERE pay_order_id = '{id}'; DELETE FROM order_history WHERE pay_order_id = '{id}';
         UPDATE orders SET attempts = 0"
    ))
    .await;
    app.deliver(&app.success("e1", &id, &number, 1990)).await;
    for _ in 0..12 {
        app.clock.advance(minutes(1));
        app.run_until_idle().await;
    }
    let exception = app.open_exception().await;
    assert_eq!((&exception["kind"], &exception["merchant_id"]), (&json!("UNKNOWN_ORDER"), &Value::Null));
    app.resolve(&exception, "REFUND").await.expect(200);
    app.run_until_idle().await;
    assert_eq!(app.stray().await["status"], "REFUNDED");
    assert_eq!(app.sandbox_books().await, (1990, 1990));
    app.end().await;
}

#[tokio::test]
async fn money_of_a_trade_that_cannot_be_ours_comes_back_to_the_person_when_it_cannot_be_refunded() {
    let app = TestApp::start().await;
    app.deliver(&app.success("e1", "another-shop/4711: not one of our ids", "t1", 1990)).await;
    for _ in 0..12 {
        app.clock.advance(minutes(1));
        app.run_until_idle().await;
    }
    app.resolve(&app.open_exception().await, "REFUND").await.expect(200);
    app.run_until_idle().await;
    assert_eq!(app.stray().await["status"], "HELD");
    app.resolve(&app.open_exception().await, "KEEP").await.expect(200);
    assert_eq!(app.stray().await["status"], "KEPT");
    app.end().await;
}

#[tokio::test]
async fn a_refund_callback_must_fit_its_refund_and_a_reversal_is_not_lost() {
    let app = TestApp::start().await;
    app.fault(FaultOp::Refund, FaultKind::TimeoutBefore, 1, Some(1500)).await;
    app.late_money("R9").await;
    app.run_until_idle().await;
    let refund = app.find_order("R9").await["refunds"][0].clone();
    assert_eq!(refund["status"], "PROCESSING");
    let told = |event: &str, fee: i64, currency: &str, status: &str| {
        json!({"event_id": event, "kind": "REFUND", "refund_id": refund["refund_no"], "out_trade_no": "po_x",
               "refund_fee": fee, "currency": currency, "status": status})
    };

    app.webhook(&told("r1", 1, "CNY", "SUCCEEDED")).await.expect(400);
    app.webhook(&told("r2", 1990, "USD", "SUCCEEDED")).await.expect(400);
    assert_eq!(app.stray().await["status"], "REFUNDING", "another amount or currency moves nothing");
    app.webhook(&told("r3", 1990, "CNY", "SUCCEEDED")).await.expect(200);
    assert_eq!(app.stray().await["status"], "REFUNDED");

    app.webhook(&told("r4", 1990, "CNY", "FAILED")).await.expect(200);
    app.webhook(&told("r4", 1990, "CNY", "FAILED")).await.expect(200);
    assert_eq!(app.stray().await["status"], "HELD", "the channel took it back: the money is ours again");
    assert_eq!(app.count_where("exceptions", "kind = 'STRAY_MONEY' AND status = 'OPEN'").await, 1);
    assert_eq!(app.count_where("outbox", "event = 'refund.reversed'").await, 1);
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_becomes_of_stray_money_is_told_in_its_place_among_the_events_of_its_order() {
    let app = TestApp::start().await;
    app.late_money("O1").await;
    app.gateway.deliver_due().await.expect("delivered");
    app.eventually("it was taken in", async || app.count("stray_payments").await == 1).await;
    // Somebody is changing the order: what they tell has an earlier number, and is not there yet.
    let mut other = app.direct_connection().await;
    other.execute("BEGIN; SELECT FROM orders WHERE order_no = 'O1' FOR UPDATE").await.expect("held");
    other
        .execute(
            "INSERT INTO outbox (merchant_id, order_no, event, event_version, payload, created_at)
             VALUES ('demo', 'O1', 'story.told', 1, '{}', now())",
        )
        .await
        .expect("told");
    let service = app.instance.app.clone();
    let driving = tokio::spawn(async move { drive::run_due(&service, Lane::Realtime).await });
    app.eventually("the channel gave it back", async || app.sandbox_books().await.1 == 1990).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    let finished = "event = 'refund.finished'";
    assert_eq!(app.count_where("outbox", finished).await, 0, "not before the earlier one");
    other.execute("COMMIT").await.expect("free");
    driving.await.expect("no panic").expect("a session");
    app.run_until_idle().await;
    let order: Vec<String> = sqlx::query_scalar("SELECT event FROM outbox WHERE order_no = 'O1' ORDER BY id")
        .fetch_all(&mut other)
        .await
        .expect("events");
    assert_eq!(order, ["order.closed", "stray_payment.received", "story.told", "refund.finished"]);
    app.end().await;
}
