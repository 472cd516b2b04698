//! Refunds that are asked for, and that end, at the same time: each means what it means alone.

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::support::{Cluster, Reply, TestApp, TestOptions};

fn refund(refund_no: &str, order_no: &str, amount: i64) -> Value {
    json!({"refund_no": refund_no, "order_no": order_no, "amount": amount})
}

fn codes(answers: &[Reply]) -> (usize, Vec<&str>) {
    let made = answers.iter().filter(|answer| answer.status == 201).count();
    let refused = answers.iter().filter(|answer| answer.status != 201);
    (made, refused.map(|answer| answer.body["code"].as_str().unwrap_or("none")).collect())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_parts_of_one_order_at_once_as_many_are_made_as_fit() {
    for redis_url in [None, Some("redis://127.0.0.1:1".to_owned())] {
        let cluster = Cluster::start(2, TestOptions { redis_url, ..TestOptions::default() }).await;
        let app = cluster.first();
        let (one, other) = (app.paid("A").await, app.paid("B").await);
        app.run_until_idle().await;
        // One of the two takes what is asked of it in hand.
        app.instance.app.handover.open();
        let asked = (0..80).map(|n| {
            let order_no = if n % 2 == 0 { "A" } else { "B" };
            cluster.turn(n / 2).post("/refunds", refund(&format!("R{n}"), order_no, 60))
        });
        let answers = join_all(asked).await;
        let (made, refused) = codes(&answers);
        // 1990 is 33 times 60, and 10.
        assert_eq!(made, 66, "{answers:?}");
        assert!(refused.iter().all(|code| *code == "REFUND_EXCEEDS_PAID"), "{refused:?}");
        for (number, order_no) in [("RESTA", "A"), ("RESTB", "B")] {
            let rest = app.post("/refunds", json!({"refund_no": number, "order_no": order_no})).await;
            assert_eq!(rest.expect(201).body["amount"], 10);
        }

        tokio::join!(app.run_until_idle(), cluster.turn(1).run_until_idle());
        app.run_until_idle().await;
        for (order_no, attempt) in [("A", one), ("B", other)] {
            assert_eq!(app.refunded(order_no).await, ("REFUNDED".into(), 1_990));
            assert_eq!(app.gone_back(&attempt).await, 1_990);
            let moves =
                format!("order_no = '{order_no}' AND pay_order_id = '' AND event LIKE 'REFUNDED_IN_%'");
            assert_eq!(app.count_where("order_history", &moves).await, 2, "in part, then in full");
        }
        assert_eq!(app.count_where("outbox", "event = 'refund.finished'").await, 68);
        app.assert_books_agree().await;
        cluster.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_parts_that_all_fit_none_is_refused_however_many_come_at_once() {
    for redis_url in [None, Some("redis://127.0.0.1:1".to_owned())] {
        let cluster = Cluster::start(2, TestOptions { redis_url, ..TestOptions::default() }).await;
        let app = cluster.first();
        let orders = [("A", app.paid("A").await), ("B", app.paid("B").await)];
        app.run_until_idle().await;
        // Of each order 33 times 60, and the 10 that are left.
        let asked = (0..68).map(|n| {
            let amount = if n < 66 { 60 } else { 10 };
            cluster.turn(n / 2).post("/refunds", refund(&format!("R{n}"), orders[n % 2].0, amount))
        });
        let answers = join_all(asked).await;
        assert_eq!(codes(&answers), (68, vec![]), "{answers:?}");
        for (order_no, _) in &orders {
            let more = app.post("/refunds", refund(&format!("MORE{order_no}"), order_no, 1)).await;
            assert_eq!(more.problem(422), "REFUND_EXCEEDS_PAID");
        }
        tokio::join!(app.run_until_idle(), cluster.turn(1).run_until_idle());
        app.run_until_idle().await;
        for (order_no, attempt) in &orders {
            assert_eq!(app.refunded(order_no).await, ("REFUNDED".into(), 1_990));
            assert_eq!(app.gone_back(attempt).await, 1_990);
        }
        app.assert_books_agree().await;
        cluster.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_number_is_one_refund_whoever_asks_for_it_at_once() {
    let redis_url = Some("redis://127.0.0.1:1".to_owned());
    let cluster = Cluster::start(2, TestOptions { redis_url, ..TestOptions::default() }).await;
    let app = cluster.first();
    for n in 0..20 {
        let orders = [format!("A{n}"), format!("B{n}")];
        for order_no in &orders {
            app.paid(order_no).await;
        }
        let number = format!("R{n}");
        let asked =
            (0..6).map(|i| cluster.turn(i / 2).post("/refunds", refund(&number, &orders[i % 2], 700)));
        let answers = join_all(asked).await;
        let count = |status: u16| answers.iter().filter(|answer| answer.status == status).count();
        assert_eq!((count(201), count(200), count(422)), (1, 2, 3), "{answers:?}");
        let differing = answers.iter().filter(|answer| answer.status == 422);
        for answer in differing {
            assert_eq!(answer.problem(422), "REFUND_PARAMS_MISMATCH");
            assert!(answer.text.contains("order_no"), "{}", answer.text);
        }
    }
    assert_eq!(app.count("refunds").await, 20);
    app.run_until_idle().await;
    app.assert_books_agree().await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn top_ups_of_one_user_give_back_at_once_what_is_there() {
    let app = TestApp::start().await;
    app.top_up("T1", "u1", 1_000).await;
    app.top_up("T2", "u1", 1_000).await;
    let out = json!({"withdrawal_no": "W1", "user_id": "u1", "amount": 990, "currency": "CNY",
                     "channel": "sandbox", "account": "a"});
    app.post("/withdrawals", out).await.expect(201);
    let orders = ["T1", "T2"];
    let asked = (0..30).map(|n| app.post("/refunds", refund(&format!("R{n}"), orders[n % 2], 100)));
    let answers: Vec<Reply> = join_all(asked.collect::<Vec<_>>()).await;
    let (made, refused) = codes(&answers);
    assert_eq!(made, 10, "{answers:?}");
    let is_told = |code: &&str| matches!(*code, "INSUFFICIENT_BALANCE" | "REFUND_EXCEEDS_PAID");
    assert!(refused.iter().all(is_told), "{refused:?}");
    app.assert_books_balance().await;
    app.run_until_idle().await;
    assert_eq!(app.cny_of("u1").await, (10, 0));
    app.assert_books_agree().await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stock_comes_back_once_however_many_refunds_end_together() {
    let app = TestApp::start().await;
    app.stock("TEA", 50).await;
    for n in 0..10 {
        let (order_no, items) = (format!("S{n}"), json!([{"sku": "TEA", "quantity": 2, "unit_price": 995}]));
        let order = json!({"order_no": order_no, "user_id": "u1", "currency": "CNY", "items": items});
        app.order_with(order).await;
        let paid = app.pay_url(&order_no).await.expect(200).text_of("pay_order_id").to_owned();
        app.sandbox_pay(&paid, json!({})).await.expect(200);
    }
    app.run_until_idle().await;
    assert_eq!(app.stock_of("TEA").await, (30, 0));
    let asked = (0..30).map(|n| {
        let (order, part) = (n / 3, n % 3);
        let mut body = json!({"refund_no": format!("R{n}"), "order_no": format!("S{order}"),
                              "amount": if part < 2 { 495 } else { 1_000 }});
        // Of every other order one part wants the stock back, whichever ends last.
        body["return_stock"] = json!(order % 2 == 0 && part == order % 3);
        app.post("/refunds", body)
    });
    for answer in join_all(asked.collect::<Vec<_>>()).await {
        answer.expect(201);
    }
    app.run_until_idle().await;
    for n in 0..10 {
        assert_eq!(app.refunded(&format!("S{n}")).await, ("REFUNDED".into(), 1_990));
    }
    assert_eq!(app.stock_of("TEA").await, (40, 0));
    app.assert_books_agree().await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_key_of_a_batch_gets_its_own_first_answer_again() {
    let app = TestApp::start().await;
    for n in 0..10 {
        app.paid(&format!("A{n}")).await;
    }
    let keyed = async |n: usize| {
        let (number, order_no) = (format!("R{n}"), format!("A{}", n % 10));
        app.post_keyed("/refunds", &format!("k{n}"), &refund(&number, &order_no, 800)).await
    };
    let first = join_all((0..30).map(&keyed)).await;
    let (made, refused) = codes(&first);
    assert_eq!((made, refused.len()), (20, 10), "two of three fit: {first:?}");
    app.run_until_idle().await;
    let again = join_all((0..30).map(&keyed)).await;
    for (first, again) in first.iter().zip(&again).filter(|(first, _)| first.status == 201) {
        assert_eq!((again.status, &again.text), (201, &first.text));
    }
    assert_eq!(app.count("idempotency_keys").await, 20, "refusals are not kept");
    app.assert_books_agree().await;
    app.end().await;
}
