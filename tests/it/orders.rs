//! Orders: made once, waited for, closed once.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use payonce::channels::sandbox::{FaultKind, FaultOp};
use serde_json::{Value, json};
use sqlx::{Executor, raw_sql};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::commands;
use crate::support::{Chance, Cluster, Reply, SECRET_KEY, TestApp, TestOptions, seconds, until_waiting};

fn fields_of(reply: &Reply) -> Vec<&str> {
    let errors = reply.body["errors"].as_array().expect("errors");
    errors.iter().map(|error| error["field"].as_str().expect("a field")).collect()
}

fn with(mut body: Value, field: &str, value: Value) -> Value {
    body[field] = value;
    body
}

fn instant(value: &Value) -> OffsetDateTime {
    OffsetDateTime::parse(value.as_str().expect("a time"), &Rfc3339).expect("RFC 3339")
}

fn full_order() -> Value {
    json!({
        "order_no": "A1", "user_id": "u1", "currency": "CNY", "kind": "SALE",
        "items": [{"sku": "TEA", "quantity": 2, "unit_price": 995}],
        "rebate": {"user_id": "r1", "rate": "0.05"}, "subject": "Tea", "metadata": {"a": [1]},
    })
}

#[tokio::test]
async fn a_repeated_order_is_the_same_order_and_holds_its_stock_once() {
    let app = TestApp::start().await;
    app.stock("TEA", 10).await;
    let replies = join_all((0..30).map(|_| app.post("/orders", full_order()))).await;

    let made = replies.iter().filter(|reply| reply.status == 201).count();
    assert_eq!(made, 1, "{replies:?}");
    assert!(replies.iter().all(|reply| matches!(reply.status, 200 | 201)));
    let first = replies.iter().find(|reply| reply.status == 201).expect("one");
    assert!(replies.iter().all(|reply| reply.body == first.body), "every answer shows the same order");
    assert_eq!(app.stock_of("TEA").await, (10, 2));
    app.end().await;
}

#[tokio::test]
async fn of_two_that_ask_in_the_same_microsecond_one_has_made_the_order() {
    let app = TestApp::start().await;
    // Tells at once, and not with a commit, how a request dates its order.
    app.sql(
        "CREATE SEQUENCE dated;
         CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
             PERFORM setval('public.dated', (extract(epoch FROM NEW.created_at) * 1000000)::bigint);
             RETURN NEW; END $$;
         CREATE TRIGGER tell BEFORE INSERT ON orders FOR EACH ROW WHEN (NEW.subject = 'second') EXECUTE FUNCTION tell()",
    )
    .await;
    let mut first = app.direct_connection().await;
    let make = "BEGIN;
         INSERT INTO orders (merchant_id, order_no, user_id, amount, currency, expires_at, created_at, updated_at)
         VALUES ('demo', 'A1', 'u1', 1990, 'CNY', now() + interval '30 minutes', now(), now())";
    first.execute(raw_sql(make)).await.expect("in hand");
    let body =
        json!({"order_no": "A1", "user_id": "u1", "currency": "CNY", "amount": 1990, "subject": "second"});
    let beside = async {
        until_waiting(&app, 1).await;
        let date = "UPDATE orders SET created_at = (SELECT 'epoch'::timestamptz + last_value * interval '1 microsecond' FROM dated)
             WHERE order_no = 'A1';
             UPDATE orders SET updated_at = created_at WHERE order_no = 'A1';
             INSERT INTO order_history (merchant_id, order_no, seq, to_status, event, created_at)
             SELECT merchant_id, order_no, 1, 'PENDING', 'CREATED', created_at FROM orders WHERE order_no = 'A1';
             COMMIT";
        first.execute(raw_sql(date)).await.expect("it is made");
    };
    let (second, ()) = tokio::join!(app.post_keyed("/orders", "k-1", &body), beside);
    let second = second.expect(200);
    let dated: OffsetDateTime =
        sqlx::query_scalar("SELECT 'epoch'::timestamptz + last_value * interval '1 microsecond' FROM dated")
            .fetch_one(&mut first)
            .await
            .expect("a date");
    assert_eq!(instant(&second.body["created_at"]), dated, "both are dated alike");
    app.end().await;
}

#[tokio::test]
async fn an_order_that_differs_from_its_first_self_names_each_field() {
    let app = TestApp::start().await;
    app.stock("TEA", 10).await;
    app.order_with(full_order()).await;
    let one_item = json!([{"sku": "TEA", "quantity": 1, "unit_price": 1990}]);
    let more = json!([{"sku": "TEA", "quantity": 3, "unit_price": 995}]);
    for (field, value, named) in [
        ("user_id", json!("u2"), vec!["user_id"]),
        ("currency", json!("USD"), vec!["currency"]),
        ("items", one_item, vec!["items"]),
        ("items", more, vec!["amount", "items"]),
        ("kind", json!("TOPUP"), vec!["kind"]),
        ("rebate", json!({"user_id": "r2", "rate": "0.05"}), vec!["rebate"]),
        ("rebate", json!({"user_id": "r1", "rate": "0.06"}), vec!["rebate"]),
        ("rebate", Value::Null, vec!["rebate"]),
    ] {
        let reply = app.post("/orders", with(full_order(), field, value)).await;
        assert_eq!(reply.problem(422), "ORDER_PARAMS_MISMATCH");
        assert_eq!(fields_of(&reply), named);
    }
    // What is not compared, and what is written another way, is the same order.
    for (field, value) in [
        ("rebate", json!({"user_id": "r1", "rate": "0.0500"})),
        ("rebate", json!({"user_id": "r1", "rate": "0.050000000"})),
        ("amount", json!(1990)),
        ("expires_in", json!(77)),
        ("subject", json!("Other")),
        ("metadata", Value::Null),
    ] {
        app.post("/orders", with(full_order(), field, value)).await.expect(200);
    }
    assert_eq!(app.stock_of("TEA").await, (10, 2));
    app.end().await;
}

#[tokio::test]
async fn notes_on_an_order_come_back_to_the_last_digit() {
    let app = TestApp::start().await;
    let post = async |order_no: &str, metadata: &str| {
        let body = format!(
            r#"{{"order_no":"{order_no}","user_id":"u1","currency":"CNY","amount":5,"metadata":{metadata}}}"#
        );
        let request = app.http.post(format!("{}/orders", app.url)).bearer_auth(SECRET_KEY);
        let request = request.header("content-type", "application/json").body(body);
        Reply::of(request.send().await.expect("an answer")).await
    };
    let notes = ["\"trade\":2013112011001004330000121536", "\"rate\":1.10", "\"n\":-0.12345678901234567890"];
    let metadata = format!("{{{},{},\"deep\":[{{{}}}]}}", notes[0], notes[1], notes[2]);
    let seen = [
        post("A1", &metadata).await.expect(201),
        post("A1", &metadata).await.expect(200),
        app.get("/orders/A1").await.expect(200),
        app.admin_get("/admin/orders/A1").await.expect(200),
    ];
    let environment = commands::environment(&app.database_url, &app.redis_url);
    let printed = commands::run(&["admin", "order", "A1", "-o", "json"], &environment).await;
    assert_eq!(commands::json_of(&printed)["order_no"], "A1", "{}", commands::errors(&printed));
    let printed = String::from_utf8_lossy(&printed.stdout).into_owned();
    for text in seen.map(|reply| reply.text).into_iter().chain([printed]) {
        let text = text.replace(' ', "");
        assert!(notes.iter().all(|note| text.contains(note)), "{text}");
    }

    // What PostgreSQL cannot hold, or only by writing out many zeros.
    let long = ["1".repeat(1001), format!("0.{}", "1".repeat(20_000))];
    for number in ["1e309", "1e-309", "1e-20000"].into_iter().chain(long.iter().map(String::as_str)) {
        let refused = post("A2", &format!("{{\"n\":[{number}]}}")).await;
        assert_eq!(
            (refused.problem(422), fields_of(&refused)),
            ("VALIDATION_FAILED", vec!["metadata"]),
            "{number}"
        );
    }
    app.end().await;
}

#[tokio::test]
async fn the_server_allots_numbers_to_orders_that_come_without() {
    let app = TestApp::start().await;
    let order = json!({"user_id": "u1", "currency": "CNY", "amount": 5});
    let first = app.order_with(order.clone()).await;
    let second = app.order_with(order).await;
    assert_ne!(first.text_of("order_no"), second.text_of("order_no"));
    assert_eq!(app.find_order(first.text_of("order_no")).await, first.body);
    app.end().await;
}

#[tokio::test]
async fn an_order_lives_from_one_second_to_seven_days() {
    let app = TestApp::start().await;
    let order = |life: Value| json!({"user_id": "u1", "currency": "CNY", "amount": 5, "expires_in": life});
    for (life, expected) in [(json!(1), 1), (Value::Null, 1_800), (json!(604_800), 604_800)] {
        let made = app.order_with(order(life)).await.body;
        let lives = instant(&made["expires_at"]) - instant(&made["created_at"]);
        assert_eq!(lives.whole_milliseconds(), expected * 1000);
    }
    for life in [json!(0), json!(-1), json!(604_801), json!("60"), json!(1.5)] {
        let refused = app.post("/orders", order(life)).await;
        assert_eq!(refused.problem(422), "VALIDATION_FAILED");
        assert_eq!(fields_of(&refused), ["expires_in"]);
    }
    let short = app.order_with(order(json!(1))).await.text_of("order_no").to_owned();
    app.clock.advance(seconds(3));
    app.run_until_idle().await;
    assert_eq!(app.find_order(&short).await["close_reason"], "TIMEOUT");
    app.end().await;
}

#[tokio::test]
async fn an_amount_agrees_with_its_items_or_nothing_is_done() {
    let app = TestApp::start().await;
    app.stock("TEA", 10).await;
    let item = |quantity: i64, unit_price: i64| json!({"sku": "TEA", "quantity": quantity, "unit_price": unit_price});
    let max = 1_000_000_000_000_i64;
    for (amount, items, field) in [
        (Value::Null, json!([]), "amount"),
        (json!(1991), json!([item(2, 995)]), "amount"),
        (json!(0), json!([]), "amount"),
        (json!(-5), json!([]), "amount"),
        (json!(max + 1), json!([]), "amount"),
        (json!("5"), json!([]), "amount"),
        (Value::Null, json!([item(1, 0)]), "items"),
        (Value::Null, json!([item(2, max)]), "items"),
        (Value::Null, json!([item(0, 5)]), "items[0].quantity"),
        (Value::Null, json!([item(1, 5), item(1, -1)]), "items[1].unit_price"),
        (Value::Null, Value::Array(vec![item(1, 1); 101]), "items"),
    ] {
        let body = json!({"user_id": "u1", "currency": "CNY", "amount": amount, "items": items});
        let refused = app.post("/orders", body).await;
        assert_eq!((refused.problem(422), fields_of(&refused)), ("VALIDATION_FAILED", vec![field]));
    }
    assert_eq!((app.count("orders").await, app.stock_of("TEA").await), (0, (10, 0)));

    let gift = json!([item(1, 1990), item(1, 0)]);
    app.order_with(json!({"user_id": "u1", "currency": "CNY", "amount": 1990, "items": gift})).await;
    app.order_with(json!({"user_id": "u1", "currency": "CNY", "amount": max})).await;
    app.end().await;
}

#[tokio::test]
async fn who_waits_for_an_order_hears_of_its_payment_at_once_also_from_another_instance() {
    let cluster = Cluster::start(2, TestOptions::default()).await;
    let app = cluster.first();
    for (waits_at, order_no) in [(0, "A1"), (1, "A2")] {
        let pay_order = app.order_to_pay(order_no).await;
        let path = format!("/orders/{order_no}?wait=25");
        let started = Instant::now();
        let pay = async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            let paid = app.success(order_no, &pay_order, order_no, 1990);
            app.webhook(&paid).await.expect(200);
        };
        let (order, ()) = tokio::join!(cluster.turn(waits_at).get(&path), pay);
        assert_eq!(order.expect(200).body["status"], "PAID");
        assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    }
    cluster.end().await;
}

#[tokio::test]
async fn who_waits_for_an_order_hears_of_each_part_that_goes_back_and_of_its_settlement() {
    let app = TestApp::start().await;
    app.paid("A1").await;
    let soon = async || tokio::time::sleep(Duration::from_millis(200)).await;
    for (part, refunded) in [("R1", 300), ("R2", 600)] {
        let started = Instant::now();
        let refund = json!({"refund_no": part, "order_no": "A1", "amount": 300});
        app.post("/refunds", refund).await.expect(201);
        let (order, ()) = tokio::join!(app.get("/orders/A1?wait=25"), async {
            soon().await;
            app.run_until_idle().await;
        });
        assert_eq!(order.expect(200).body["refunded_amount"], refunded);
        assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    }
    let started = Instant::now();
    let (order, ()) = tokio::join!(app.get("/orders/A1?wait=25"), async {
        soon().await;
        app.settle("A1").await.expect(201);
    });
    assert_eq!(order.expect(200).body["settle_status"], "SETTLED");
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    app.end().await;
}

/// The order as whoever waits for it while that happens is told.
async fn heard_while(app: &TestApp, deed: impl Future) -> Value {
    let (order, ()) = tokio::join!(app.get("/orders/A1?wait=25"), async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        deed.await;
    });
    order.expect(200).body
}

#[tokio::test]
async fn who_waits_for_an_order_hears_of_whatever_is_shown_with_it() {
    let app = TestApp::start().await;
    let pay_order = app.order_to_pay("A1").await;
    let started = Instant::now();
    let order = heard_while(&app, app.deliver(&app.ended("e1", &pay_order, "FAILED"))).await;
    assert_eq!((&order["status"], &order["pay_orders"][0]["status"]), (&json!("PENDING"), &json!("FAILED")));
    // Money of the attempt that had failed pays its order all the same; whatever comes on top is stray.
    let order = heard_while(&app, app.deliver(&app.success("e2", &pay_order, "t1", 1990))).await;
    assert_eq!(order["status"], "PAID");
    let order = heard_while(&app, app.deliver(&app.success("e3", &pay_order, "t2", 1990))).await;
    assert_eq!(
        (&order["status"], &order["stray_payments"][0]["status"]),
        (&json!("PAID"), &json!("REFUNDING"))
    );
    let refund = json!({"refund_no": "R1", "order_no": "A1", "amount": 300});
    let order = heard_while(&app, async { app.post("/refunds", refund).await.expect(201) }).await;
    let refunds = order["refunds"].as_array().expect("refunds");
    assert!(refunds.iter().any(|refund| refund["refund_no"] == "R1"), "{order:#}");
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    app.end().await;
}

#[tokio::test]
async fn who_waits_in_vain_gets_the_order_as_it_is() {
    let app = TestApp::start().await;
    app.order("A1").await;
    let started = Instant::now();
    assert_eq!(app.get("/orders/A1?wait=1").await.expect(200).body["status"], "PENDING");
    let waited = started.elapsed();
    assert!((Duration::from_secs(1)..Duration::from_secs(3)).contains(&waited), "{waited:?}");
    assert_eq!(app.get("/orders/A1?wait=31").await.problem(422), "VALIDATION_FAILED");
    assert_eq!(app.get("/orders/A1?wait=soon").await.problem(422), "VALIDATION_FAILED");
    assert_eq!(app.get("/orders/nobody?wait=25").await.problem(404), "ORDER_NOT_FOUND");

    let (order, closed) = tokio::join!(app.get("/orders/A1?wait=25"), async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        app.close("A1").await
    });
    let (order, closed) = (order.expect(200).body, closed.expect(200).body);
    assert_eq!((&order["status"], &order), (&json!("CLOSED"), &closed));
    app.end().await;
}

#[tokio::test]
async fn a_closed_order_frees_its_stock_once_and_closes_its_trade() {
    let app = TestApp::start().await;
    app.stock("TEA", 5).await;
    app.order_with(full_order()).await;
    let pay_order = app.pay_url("A1").await.expect(200).text_of("pay_order_id").to_owned();

    let replies = join_all((0..20).map(|_| app.close("A1"))).await;
    for reply in replies {
        assert_eq!(reply.expect(200).body["close_reason"], "CANCELLED");
    }
    assert_eq!(app.stock_of("TEA").await, (5, 0));
    assert_eq!(app.sandbox_trade(&pay_order).await["status"], "CLOSED");
    assert_eq!(app.attempt_statuses("A1").await, ["CLOSED"]);
    assert_eq!(app.count_where("order_history", "to_status = 'CLOSED' AND pay_order_id = ''").await, 1);
    assert_eq!(app.count_where("outbox", "event = 'order.closed'").await, 1);

    assert_eq!(app.close("nobody").await.problem(404), "ORDER_NOT_FOUND");
    assert_eq!(app.post("/orders", full_order()).await.expect(200).body["status"], "CLOSED");
    app.end().await;
}

#[tokio::test]
async fn a_paid_order_cannot_be_closed() {
    let app = TestApp::start().await;
    let pay_order = app.order_to_pay("A1").await;
    app.sandbox_pay(&pay_order, json!({})).await.expect(200);
    app.run_until_idle().await;
    assert_eq!(app.close("A1").await.problem(409), "ORDER_IS_ALREADY_PAID");

    // Also when the channel alone knows of the money.
    let pay_order = app.order_to_pay("A2").await;
    app.sandbox_pay(&pay_order, json!({"notify": false})).await.expect(200);
    assert_eq!(app.close("A2").await.problem(409), "ORDER_IS_ALREADY_PAID");
    assert_eq!(app.find_order("A2").await["paid_by"], json!(pay_order));
    app.end().await;
}

#[tokio::test]
async fn an_order_stays_open_while_its_channel_is_silent_and_a_task_ends_the_attempt() {
    let app = TestApp::start().await;
    // A refusal to close says nothing about the money either.
    let silences = [FaultKind::TimeoutBefore, FaultKind::TimeoutAfter, FaultKind::Refuse];
    for (order_no, silence) in ["A1", "A2", "A3"].into_iter().zip(silences) {
        let pay_order = app.order_to_pay(order_no).await;
        app.fault(FaultOp::Close, silence, 1, Some(1500)).await;
        let refused = app.close(order_no).await;
        assert_eq!(refused.problem(503), "CHANNEL_UNAVAILABLE");
        assert!(refused.header("retry-after").is_some());
        assert_eq!(app.status_of(order_no).await, "PENDING");
        assert_eq!(app.attempt_statuses(order_no).await, ["PAYING"]);

        app.clock.advance(seconds(5));
        app.run_until_idle().await;
        assert_eq!(app.attempt_statuses(order_no).await, ["CLOSED"]);
        assert_eq!(app.sandbox_trade(&pay_order).await["status"], "CLOSED");
        assert_eq!(app.status_of(order_no).await, "PENDING");
        assert_eq!(app.close(order_no).await.expect(200).body["status"], "CLOSED");
    }
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closing_and_paying_in_the_same_instant_ends_in_exactly_one_of_both() {
    let app = TestApp::start().await;
    let mut chance = Chance::new();
    for round in 0..40 {
        let order_no = format!("A{round}");
        let pay_order = app.order_to_pay(&order_no).await;
        // Every other buyer pays also what is closed already.
        let press = json!({"force": round % 2 == 0});
        let (close_after, pay_after) = (chance.pause(4_000), chance.pause(8_000));
        let (closed, paid) = tokio::join!(
            async {
                tokio::time::sleep(close_after).await;
                app.close(&order_no).await
            },
            async {
                tokio::time::sleep(pay_after).await;
                app.sandbox_pay(&pay_order, press).await
            }
        );
        app.run_until_idle().await;
        let order = app.find_order(&order_no).await;
        let strays = order["stray_payments"].as_array().expect("a list");
        match (closed.status, paid.status) {
            (200, 409) => assert!(order["status"] == "CLOSED" && strays.is_empty(), "{order}"),
            (409, 200) => assert!(order["status"] == "PAID" && strays.is_empty(), "{order}"),
            (200, 200) => {
                assert!(order["status"] == "CLOSED" && strays[0]["status"] == "REFUNDED", "{order}");
            }
            other => panic!("{other:?}: {order}"),
        }
    }
    app.end().await;
}

#[tokio::test]
async fn a_channel_that_closes_and_takes_the_money_all_the_same_gives_it_back() {
    let app = TestApp::start().await;
    app.order_to_pay("A1").await;
    app.fault(FaultOp::Close, FaultKind::PayAfterClose, 1, None).await;
    app.close("A1").await.expect(200);
    app.run_until_idle().await;
    let order = app.find_order("A1").await;
    assert_eq!(order["status"], "CLOSED");
    assert_eq!(order["stray_payments"][0]["status"], "REFUNDED", "{order}");
    app.end().await;
}
