//! Callbacks: believed only when signed, applied once, and answered in the channel's own words.

use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use payonce::channels::sandbox::{FaultKind, FaultOp};
use serde_json::{Value, json};

use crate::support::{Cluster, TestApp, TestOptions, minutes};

mod crowd;
mod same_id;
mod strangers;

#[tokio::test]
async fn a_first_payment_pays_its_order() {
    let app = TestApp::start().await;
    let id = app.order_to_pay("W1").await;
    let mut callback = app.success("e1", &id, "t1", 1990);
    callback["a_field_of_tomorrow"] = json!({"nested": [1, 2]});
    app.deliver(&callback).await;

    let order = app.find_order("W1").await;
    assert_eq!((&order["status"], &order["paid_by"]), (&json!("PAID"), &json!(id)));
    // The channel's clock is days behind: it was not paid before it was made.
    assert_eq!(
        (&order["paid_at"], &order["pay_orders"][0]["paid_at"]),
        (&order["created_at"], &callback["paid_at"])
    );
    assert_eq!(order["pay_orders"][0]["status"], "PAID");
    assert_eq!(order["pay_orders"][0]["transaction_id"], "t1");
    assert_eq!(app.verdict_of("e1").await.as_deref(), Some("APPLIED"));
    assert_eq!(app.count_where("outbox", "event = 'order.paid'").await, 1);
    app.end().await;
}

#[tokio::test]
async fn a_thousand_repeats_have_one_effect() {
    let cluster = Cluster::start(2, TestOptions::default()).await;
    let app = cluster.first();
    app.stock("TEA", 10).await;
    let items = json!([{"sku": "TEA", "quantity": 2, "unit_price": 995}]);
    app.order_with(json!({"order_no": "W2", "user_id": "u1", "currency": "CNY", "items": items})).await;
    let id = app.pay_url("W2").await.expect(200).text_of("pay_order_id").to_owned();

    // Equal bytes, the same event in other bytes, and the same trade told by other events.
    let repeats = (0..1000).map(|index| {
        let event = if index % 4 == 3 { format!("e{index}") } else { "e".to_owned() };
        let mut body = app.success(&event, &id, "t2", 1990);
        if index % 4 == 2 {
            body["try"] = json!(index);
        }
        let app = cluster.turn(index);
        async move { app.webhook(&body).await }
    });
    let replies: Vec<_> = stream::iter(repeats).buffer_unordered(64).collect().await;

    let wrong = replies.iter().find(|reply| (reply.status, reply.text.as_str()) != (200, "SUCCESS"));
    assert!(wrong.is_none(), "{wrong:?}");
    assert_eq!(app.status_of("W2").await, "PAID");
    assert_eq!(app.stock_of("TEA").await, (8, 0));
    assert_eq!(app.count("webhook_inbox").await, 251);
    assert_eq!(app.count_where("webhook_inbox", "verdict = 'APPLIED'").await, 1);
    assert_eq!(app.count_where("outbox", "event = 'order.paid'").await, 1);
    assert_eq!(app.count("stray_payments").await, 0);
    cluster.end().await;
}

#[tokio::test]
async fn what_is_not_signed_is_not_believed_and_leaves_no_trace() {
    let app = TestApp::start().await;
    let id = app.order_to_pay("W3").await;
    let body = serde_json::to_vec(&app.success("e1", &id, "t1", 1990)).expect("json");
    let before = app.row_counts().await;
    let good = app.sign(&body);
    let (t, v1) = good.split_once(',').expect("two parts");
    let forged = [
        String::new(),
        t.to_owned(),
        v1.to_owned(),
        format!("{t},v1={}", v1[3..].to_uppercase()),
        format!("{t},v1={}", "0".repeat(64)),
        format!("{t},v2={}", &v1[3..]),
        good.replace("t=", "T="),
        format!("{t}1,{v1}"),
        app.sign(b"{}"),
        app.sign_at(&body, -301),
        // Far enough ahead that it does not come true while the story is told.
        app.sign_at(&body, 360),
        app.sign_at(&body, -86_400),
        app.sign_at(&body, 86_400),
    ];
    for signature in &forged {
        let reply = app.webhook_bytes(&body, signature).await;
        assert_eq!((reply.status, reply.text.as_str()), (400, "FAIL"), "{signature}");
    }
    let unsigned = app.http.post(format!("{}/webhooks/sandbox", app.url)).body(body.clone());
    assert_eq!(unsigned.send().await.expect("an answer").status(), 400);

    assert_eq!(app.row_counts().await, before);
    for offset in [-299, 299] {
        assert_eq!(app.webhook_bytes(&body, &app.sign_at(&body, offset)).await.status, 200, "{offset} s");
    }
    assert_eq!(app.status_of("W3").await, "PAID");
    app.end().await;
}

#[tokio::test]
async fn no_bit_of_a_signed_body_can_be_flipped() {
    let app = TestApp::start().await;
    let id = app.order_to_pay("W4").await;
    let body = serde_json::to_vec(&app.success("e1", &id, "t1", 1990)).expect("json");
    let (before, signature) = (app.row_counts().await, app.sign(&body));
    let flipped = (0..body.len() * 8).map(|bit| {
        let (mut body, app, signature) = (body.clone(), &app, &signature);
        body[bit / 8] ^= 1 << (bit % 8);
        async move { (bit, app.webhook_bytes(&body, signature).await.status) }
    });
    let believed: Vec<_> = stream::iter(flipped)
        .buffer_unordered(32)
        .filter(|(_, status)| std::future::ready(*status != 400))
        .collect()
        .await;
    assert_eq!(believed, [], "bits and statuses");
    assert_eq!(app.row_counts().await, before);
    app.end().await;
}

#[tokio::test]
async fn signed_nonsense_is_refused_and_moves_nothing_but_a_person_sees_it() {
    let app = TestApp::start().await;
    let id = app.order_to_pay("W5").await;
    let before = app.row_counts().await;
    let good = app.success("e1", &id, "t1", 1990);
    let with = |field: &str, value: Value| {
        let mut body = good.clone();
        body[field] = value;
        serde_json::to_vec(&body).expect("json")
    };
    let nonsense = [
        b"".to_vec(),
        b"{".to_vec(),
        b"[]".to_vec(),
        vec![b'['; 10_000],
        with("total_fee", json!(0)),
        with("total_fee", json!(-1990)),
        with("total_fee", json!("1990")),
        with("total_fee", json!(1990.0)),
        with("currency", json!("XXQ")),
        with("transaction_id", json!("")),
        with("transaction_id", json!("x".repeat(5000))),
        with("event_id", json!("a\u{0}b")),
        with("trade_status", json!("success")),
        with("out_trade_no", Value::Null),
        // Moments that no calendar has, and the zero of a clock.
        with("paid_at", json!("9999-12-31T23:59:59-23:59")),
        with("paid_at", json!("0000-01-01T00:00:00+00:01")),
        with("paid_at", json!("1970-01-01T00:00:00+08:00")),
    ];
    for body in &nonsense {
        let reply = app.webhook_bytes(body, &app.sign(body)).await;
        assert_eq!(reply.status, 400, "{}", String::from_utf8_lossy(body));
    }
    // It may stand for real money, so each is shown once, however often it comes.
    app.webhook_bytes(&nonsense[4], &app.sign(&nonsense[4])).await.expect(400);
    let mut expected = before;
    expected.insert("exceptions".to_owned(), i64::try_from(nonsense.len()).expect("a count"));
    assert_eq!(app.row_counts().await, expected);
    assert_eq!(app.count_where("exceptions", "kind = 'UNREADABLE_CALLBACK'").await, expected["exceptions"]);
    assert_eq!(app.status_of("W5").await, "PENDING");
    app.end().await;
}

#[tokio::test]
async fn a_callback_above_64_kib_and_one_of_an_unknown_channel_are_refused() {
    let app = TestApp::start().await;
    let id = app.order_to_pay("W6").await;
    let mut callback = app.success("e1", &id, "t1", 1990);
    callback["padding"] = json!("x".repeat(64 * 1024));
    assert_eq!(app.webhook(&callback).await.problem(413), "BODY_TOO_LARGE");

    let unknown = app.http.post(format!("{}/webhooks/nobody", app.url)).body("{}").send().await;
    assert_eq!(unknown.expect("an answer").status(), 404);
    assert_eq!(app.count("webhook_inbox").await, 0);

    callback["padding"] = json!("x".repeat(60 * 1024));
    app.deliver(&callback).await;
    assert_eq!(app.status_of("W6").await, "PAID");
    app.end().await;
}

#[tokio::test]
async fn a_declined_or_closed_attempt_ends_and_the_order_can_be_tried_again() {
    let app = TestApp::start().await;
    for (order_no, word) in [("W7", "FAILED"), ("W8", "CLOSED")] {
        let first = app.order_to_pay(order_no).await;
        let ended = app.ended(&format!("{order_no}-e"), &first, word);
        app.deliver(&ended).await;
        app.deliver(&ended).await;
        let order = app.find_order(order_no).await;
        assert_eq!(order["status"], "PENDING");
        assert_eq!(order["pay_orders"][0]["status"], word);
        assert_eq!(order["pay_orders"][0]["channel_code"].is_string(), word == "FAILED");

        let second = app.pay_url(order_no).await.expect(200).text_of("pay_order_id").to_owned();
        assert_ne!(second, first);
        app.sandbox_pay(&second, json!({})).await.expect(200);
        app.run_until_idle().await;
        assert_eq!(app.find_order(order_no).await["paid_by"], second);
    }
    app.end().await;
}

#[tokio::test]
async fn bad_news_of_a_paid_attempt_is_noted_and_changes_nothing() {
    let app = TestApp::start().await;
    let id = app.order_to_pay("W9").await;
    app.deliver(&app.success("e1", &id, "t1", 1990)).await;
    for (event, word) in [("e2", "FAILED"), ("e3", "CLOSED")] {
        app.deliver(&app.ended(event, &id, word)).await;
        assert_eq!(app.verdict_of(event).await.as_deref(), Some("RECORDED"));
    }
    let order = app.find_order("W9").await;
    assert_eq!((&order["status"], &order["pay_orders"][0]["status"]), (&json!("PAID"), &json!("PAID")));
    app.end().await;
}

#[tokio::test]
async fn money_on_an_ended_attempt_pays_the_order_and_the_live_one_is_closed_at_its_channel() {
    let app = TestApp::start().await;
    for (order_no, word) in [("W10", "FAILED"), ("W11", "CLOSED")] {
        let first = app.order_to_pay(order_no).await;
        app.deliver(&app.ended(&format!("{order_no}-e1"), &first, word)).await;
        let second = app.pay_url(order_no).await.expect(200).text_of("pay_order_id").to_owned();

        let callback = app.success(&format!("{order_no}-e2"), &first, &format!("{order_no}-t"), 1990);
        app.deliver(&callback).await;
        let order = app.find_order(order_no).await;
        assert_eq!((&order["status"], &order["paid_by"]), (&json!("PAID"), &json!(first)));

        app.run_until_idle().await;
        let order = app.find_order(order_no).await;
        assert_eq!(order["pay_orders"][1]["status"], "CLOSED", "{order}");
        assert_eq!(app.sandbox_trade(&second).await["status"], "CLOSED");
    }
    app.end().await;
}

#[tokio::test]
async fn an_attempt_that_was_paid_while_another_paid_the_order_goes_back_when_it_is_closed() {
    let app = TestApp::start().await;
    let first = app.order_to_pay("W12").await;
    app.deliver(&app.ended("e1", &first, "FAILED")).await;
    let second = app.pay_url("W12").await.expect(200).text_of("pay_order_id").to_owned();
    app.sandbox_pay(&second, json!({"notify": false})).await.expect(200);
    app.deliver(&app.success("e2", &first, "t1", 1990)).await;

    app.run_until_idle().await;
    let order = app.find_order("W12").await;
    assert_eq!(order["paid_by"], first);
    assert_eq!(order["stray_payments"][0]["reason"], "DUPLICATE_PAYMENT");
    assert_eq!(order["stray_payments"][0]["status"], "REFUNDED");
    assert_eq!(app.sandbox_books().await, (1990, 1990));
    app.end().await;
}

#[tokio::test]
async fn an_unknown_pay_order_is_looked_for_and_then_shown_to_a_person() {
    let app = TestApp::start().await;
    let callback = app.success("e1", "po_nobody", "t1", 1990);
    app.deliver(&callback).await;
    app.deliver(&callback).await;
    assert_eq!(app.verdict_of("e1").await.as_deref(), Some("UNMATCHED"));

    for _ in 0..9 {
        app.clock.advance(minutes(1));
        app.run_until_idle().await;
    }
    assert_eq!(app.verdict_of("e1").await.as_deref(), Some("UNMATCHED"), "for ten minutes");
    assert_eq!(app.count("exceptions").await, 0);
    for _ in 0..2 {
        app.clock.advance(minutes(1));
        app.run_until_idle().await;
    }
    assert_eq!(app.verdict_of("e1").await.as_deref(), Some("UNKNOWN_ORDER"));
    let (stray, exception) = (app.stray().await, app.open_exception().await);
    assert_eq!((&stray["status"], &stray["reason"]), (&json!("HELD"), &json!("UNKNOWN_ORDER")));
    assert_eq!((&stray["amount"], &stray["currency"]), (&json!(1990), &json!("CNY")));
    assert_eq!((&exception["kind"], &exception["subject"]), (&json!("UNKNOWN_ORDER"), &stray["stray_id"]));
    app.deliver(&callback).await;
    assert_eq!(app.count("stray_payments").await, 1);
    app.end().await;
}

#[tokio::test]
async fn a_database_failure_makes_the_channel_repeat_itself() {
    let app = TestApp::start().await;
    let hasty = TestApp::start_with(TestOptions::over(&app).in_haste()).await;
    let id = app.order_to_pay("W13").await;
    let callback = app.success("e1", &id, "t1", 1990);

    let mut other = app.direct_connection().await;
    let mut lock = sqlx::Connection::begin(&mut other).await.expect("a transaction");
    sqlx::query("LOCK TABLE orders, exceptions").execute(&mut *lock).await.expect("the lock");
    // What nobody can read is shown to a person, and not given up before that.
    let unreadable = json!({"no": "callback"});
    for callback in [&callback, &unreadable] {
        let reply = hasty.webhook(callback).await;
        assert_eq!((reply.status, reply.text.as_str()), (500, "FAIL"));
    }
    assert_eq!(app.count("webhook_inbox").await, 0, "nothing half");
    lock.rollback().await.expect("the end of the lock");
    assert_eq!(app.webhook(&unreadable).await.status, 400);
    assert_eq!(app.open_exception().await["kind"], "UNREADABLE_CALLBACK");

    app.deliver(&callback).await;
    assert_eq!(app.status_of("W13").await, "PAID");
    app.end().await;
}

#[tokio::test]
async fn connections_that_die_under_a_storm_of_callbacks_lose_nothing() {
    let app = TestApp::start().await;
    let mut callbacks = Vec::new();
    for index in 0..20 {
        let id = app.order_to_pay(&format!("W14-{index}")).await;
        callbacks.push(app.success(&format!("e{index}"), &id, &format!("t{index}"), 1990));
    }
    let killer = async {
        for _ in 0..10 {
            app.sql(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                 WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name = 'payonce'",
            )
            .await;
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let storm = futures_util::future::join_all(callbacks.iter().map(|callback| app.webhook(callback)));
    let (replies, ()) = tokio::join!(storm, killer);
    assert!(replies.iter().all(|reply| matches!(reply.status, 200 | 500)), "{replies:?}");

    for callback in &callbacks {
        app.deliver(callback).await;
    }
    assert_eq!(app.count_where("orders", "status = 'PAID'").await, 20);
    app.end().await;
}

#[tokio::test]
async fn callbacks_do_not_need_redis() {
    let mut app = TestApp::start_with(TestOptions::default().soon_without_redis()).await;
    let mut ids = Vec::new();
    for index in 0..4 {
        ids.push(app.order_to_pay(&format!("W15-{index}")).await);
    }
    let _: () = app.redis_command(&["FLUSHALL"]).await;
    app.deliver(&app.success("e0", &ids[0], "t0", 1990)).await;

    app.redis.as_mut().expect("a Redis").pause().await.expect("a pause");
    app.deliver(&app.success("e1", &ids[1], "t1", 1990)).await;
    app.redis.as_mut().expect("a Redis").resume().await.expect("going on");

    app.redis.as_mut().expect("a Redis").kill().await.expect("a kill");
    app.deliver(&app.success("e2", &ids[2], "t2", 1990)).await;
    app.deliver(&app.success("e2", &ids[2], "t2", 1990)).await;
    app.redis.as_mut().expect("a Redis").restart().await.expect("a restart");
    app.deliver(&app.success("e3", &ids[3], "t3", 1990)).await;

    assert_eq!(app.count_where("orders", "status = 'PAID'").await, 4);
    assert_eq!(app.count_where("outbox", "event = 'order.paid'").await, 4);
    app.end().await;
}

#[tokio::test]
async fn a_callback_goes_on_without_a_lock_that_somebody_keeps() {
    let app = TestApp::start().await;
    let id = app.order_to_pay("W16").await;
    let _: () = app.redis_command(&["SET", "lock:ORDER:demo:W16", "somebody else"]).await;
    app.deliver(&app.success("e1", &id, "t1", 1990)).await;
    assert_eq!(app.status_of("W16").await, "PAID");
    app.end().await;
}

#[tokio::test]
async fn lost_repeated_and_reordered_callbacks_end_alike() {
    const TEN_MINUTES_MS: u32 = 600_000;
    let app = TestApp::start().await;
    for (order_no, fault, ms) in [
        ("W17", FaultKind::Repeat, None),
        ("W18", FaultKind::Drop, None),
        ("W19", FaultKind::Reorder, Some(TEN_MINUTES_MS)),
        ("W20", FaultKind::Delay, Some(TEN_MINUTES_MS)),
    ] {
        let id = app.order_to_pay(order_no).await;
        app.fault(FaultOp::Webhook, fault, 1, ms).await;
        if fault == FaultKind::Reorder {
            // What is held back of it is let go by a later event of the same trade.
            app.sandbox_decline(&id).await.expect(200);
        }
        app.sandbox_pay(&id, json!({"force": true})).await.expect(200);
        app.run_until_idle().await;
    }
    let of_books = async |query: &'static str| {
        sqlx::query_scalar::<_, Vec<String>>(query).fetch_one(&mut app.direct_connection().await).await
    };
    // Nobody looks at an order: whoever looks has its channel asked.
    let paid = async || {
        let paid = "SELECT array_agg(order_no ORDER BY order_no) FROM orders WHERE status = 'PAID'";
        of_books(paid).await.expect("some")
    };
    assert_eq!(paid().await, ["W17", "W19"], "by their callbacks");
    let as_they_came = "SELECT array_agg(body::json->>'trade_status' ORDER BY told.updated_at)
                        FROM sandbox.deliveries AS told JOIN pay_orders USING (pay_order_id)
                        WHERE order_no = 'W19' AND told.status = 'DELIVERED'";
    assert_eq!(of_books(as_they_came).await.expect("two"), ["SUCCESS", "FAILED"], "the later one first");
    let thrice =
        "SELECT array_agg(told.status) FROM sandbox.deliveries AS told JOIN pay_orders USING (pay_order_id)
                  WHERE order_no = 'W17'";
    assert_eq!(of_books(thrice).await.expect("three"), ["DELIVERED"; 3]);

    app.clock.advance(minutes(11));
    app.run_until_idle().await;
    assert!(paid().await.contains(&"W20".to_owned()), "its callback was late");
    // A dropped one is asked about at the deadline at the latest.
    app.clock.advance(minutes(20));
    app.run_until_idle().await;
    assert_eq!(paid().await, ["W17", "W18", "W19", "W20"]);
    assert_eq!((app.count_where("outbox", "event = 'order.paid'").await, app.strays("").await.len()), (4, 0));
    app.end().await;
}

#[tokio::test]
async fn repeats_after_ninety_days_are_recognised_by_their_trade() {
    let app = TestApp::start().await;
    let id = app.order_to_pay("W21").await;
    app.deliver(&app.success("e1", &id, "t1", 1990)).await;
    for (days, kept) in [(89, 1), (2, 0)] {
        app.clock.advance(minutes(60 * 24 * days));
        app.run_until_idle().await;
        assert_eq!(app.count("webhook_inbox").await, kept, "kept for 90 days");
    }

    app.deliver(&app.success("e1", &id, "t1", 1990)).await;
    assert_eq!(app.verdict_of("e1").await.as_deref(), Some("REPEATED"));
    assert_eq!(app.count("stray_payments").await, 0);
    app.end().await;
}

#[tokio::test]
async fn callbacks_of_refunds_and_of_nothing_that_we_know_are_acknowledged() {
    let app = TestApp::start().await;
    app.deliver(&app.refund_notice("e1", "rf_nobody", "SUCCEEDED")).await;
    app.deliver(&json!({"event_id": "e2", "kind": "DISPUTE"})).await;
    assert_eq!(app.verdict_of("e1").await.as_deref(), Some("RECORDED"));
    assert_eq!(app.verdict_of("e2").await.as_deref(), Some("RECORDED"));

    app.fault(FaultOp::Refund, FaultKind::TimeoutAfter, 1, Some(5000)).await;
    app.fault(FaultOp::Webhook, FaultKind::Drop, 2, None).await;
    let id = app.late_money("W22").await;
    let trade = app.sandbox_trade(&id).await;
    let number = trade["payments"][0]["transaction_id"].as_str().expect("a number");
    app.deliver(&app.success("e3", &id, number, 1990)).await;
    app.run_until_idle().await;
    let refund = app.find_order("W22").await["refunds"][0].clone();
    assert_eq!(refund["status"], "PROCESSING", "the channel did not answer");

    let notice = app.refund_notice("e4", refund["refund_no"].as_str().expect("a number"), "SUCCEEDED");
    app.deliver(&notice).await;
    app.deliver(&notice).await;
    let order = app.find_order("W22").await;
    assert_eq!(order["refunds"][0]["status"], "SUCCEEDED");
    assert_eq!(order["stray_payments"][0]["status"], "REFUNDED");
    app.end().await;
}

#[tokio::test]
async fn a_refund_that_was_made_under_a_number_of_ours_and_is_not_here_is_shown_to_a_person() {
    let app = TestApp::start().await;
    let id = app.instance.app.ids.refund();
    for event in ["e1", "e1", "e2"] {
        app.deliver(&app.refund_notice(event, id.as_str(), "SUCCEEDED")).await;
        assert_eq!(app.verdict_of(event).await.as_deref(), Some("RECORDED"));
    }
    let shown = app.open_exception().await;
    assert_eq!((&shown["kind"], &shown["subject"]), (&json!("UNKNOWN_ORDER"), &json!(id)));
    let detail = shown["detail"].as_str().expect("text");
    assert!(detail.ends_with("sandbox says 1990 CNY (minor units)"), "{detail}");
    app.resolve(&shown, "NONE").await.expect(200);

    // Nothing went back, or it is another service's on the same account.
    let failed = app.instance.app.ids.refund();
    for (event, id, status) in [("e3", failed.as_str(), "FAILED"), ("e4", "rf_theirs", "SUCCEEDED")] {
        app.deliver(&app.refund_notice(event, id, status)).await;
    }
    assert!(app.exceptions("status=OPEN").await.is_empty());
    app.end().await;
}
