//! Stock: held by orders, never oversold, given back once.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use payonce::orders;
use serde_json::{Value, json};
use sqlx::{Connection, Executor, PgConnection};

use crate::support::{Cluster, Reply, TestApp, TestOptions, is_gathered, minutes};

fn order(order_no: &str, lines: &[(&str, i64)]) -> Value {
    let items: Vec<Value> = lines
        .iter()
        .map(|(sku, quantity)| json!({"sku": sku, "quantity": quantity, "unit_price": 10}))
        .collect();
    json!({"order_no": order_no, "user_id": "u1", "currency": "CNY", "items": items})
}

fn details_of(reply: &Reply) -> Vec<&str> {
    let errors = reply.body["errors"].as_array().expect("errors");
    errors.iter().map(|error| error["detail"].as_str().expect("a detail")).collect()
}

fn count_of(replies: &[Reply], status: u16) -> usize {
    replies.iter().filter(|reply| reply.status == status).count()
}

#[tokio::test]
async fn when_one_of_many_things_is_lacking_none_is_held() {
    let app = TestApp::start().await;
    app.stock("CUP", 5).await;
    app.stock("POT", 1).await;
    app.stock("TEA", 5).await;

    let refused = app.post("/orders", order("A1", &[("TEA", 2), ("POT", 2), ("CUP", 2)])).await;
    assert_eq!(refused.problem(409), "OUT_OF_STOCK");
    assert_eq!(details_of(&refused), ["not enough of POT is left"]);
    // Two lines of one thing are counted together.
    let refused = app.post("/orders", order("A1", &[("TEA", 3), ("CUP", 1), ("TEA", 3)])).await;
    assert_eq!(details_of(&refused), ["not enough of TEA is left"]);

    for sku in ["CUP", "POT", "TEA"] {
        assert_eq!(app.stock_of(sku).await.1, 0, "{sku}");
    }
    assert_eq!((app.count("orders").await, app.count("stock_reservations").await), (0, 0));
    app.order_with(order("A1", &[("TEA", 2), ("POT", 1), ("TEA", 3)])).await;
    assert_eq!((app.stock_of("TEA").await, app.stock_of("POT").await), ((5, 5), (1, 1)));
    app.end().await;
}

#[tokio::test]
async fn a_repeat_gets_its_order_also_when_nothing_is_left() {
    let app = TestApp::start().await;
    app.stock("TEA", 1).await;
    app.order_with(order("A1", &[("TEA", 1)])).await;
    let again = app.post("/orders", order("A1", &[("TEA", 1)])).await.expect(200);
    assert_eq!(again.body["order_no"], "A1");
    assert_eq!(app.post("/orders", order("A2", &[("TEA", 1)])).await.problem(409), "OUT_OF_STOCK");
    assert_eq!(app.post("/orders", order("A1", &[("TEA", 2)])).await.problem(422), "ORDER_PARAMS_MISMATCH");

    app.close("A1").await.expect(200);
    app.order_with(order("A2", &[("TEA", 1)])).await;
    assert_eq!(app.stock_of("TEA").await, (1, 1));
    app.end().await;
}

#[tokio::test]
async fn things_that_are_not_on_sale_are_named() {
    let app = TestApp::start().await;
    app.stock("TEA", 1).await;
    let refused = app.post("/orders", order("A1", &[("TEA", 1), ("MOON", 1), ("SUN", 2)])).await;
    assert_eq!(refused.problem(422), "UNKNOWN_SKU");
    assert_eq!(details_of(&refused), ["there is no sku MOON", "there is no sku SUN"]);
    // What can never be had is said before what may be had later.
    let refused = app.post("/orders", order("A1", &[("TEA", 2), ("MOON", 1)])).await;
    assert_eq!((refused.problem(422), details_of(&refused)), ("UNKNOWN_SKU", vec!["there is no sku MOON"]));
    assert_eq!((app.count("orders").await, app.stock_of("TEA").await), (0, (1, 0)));
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orders_over_the_same_things_in_opposite_order_never_deadlock() {
    let app = TestApp::start().await;
    for sku in ["CUP", "POT", "TEA"] {
        app.stock(sku, 1_000).await;
    }
    let forth = [("CUP", 1), ("POT", 2), ("TEA", 3)];
    let back = [("TEA", 3), ("POT", 2), ("CUP", 1)];
    let make = |n: usize| {
        let lines = if n.is_multiple_of(2) { forth } else { back };
        let app = &app;
        async move { app.post("/orders", order(&format!("A{n}"), &lines)).await }
    };
    let made = join_all((0..50).map(make)).await;
    assert_eq!(count_of(&made, 201), 50, "{made:?}");
    assert_eq!(app.stock_of("TEA").await, (1_000, 150));

    // Closed, while others are made and paid.
    let mixed = join_all((0..50).map(|n| {
        let (app, make) = (&app, &make);
        async move { if n % 2 == 0 { app.close(&format!("A{n}")).await } else { make(100 + n).await } }
    }))
    .await;
    assert_eq!((count_of(&mixed, 200), count_of(&mixed, 201)), (25, 25), "{mixed:?}");
    assert_eq!(app.stock_of("TEA").await, (1_000, 150));
    app.end_without_deadlocks().await;
}

/// What an order of the crowd below must be answered.
fn expected_of(n: usize, free_at_the_end: i64) -> (Value, Vec<(u16, &'static str)>) {
    let quantity = i64::try_from(n % 7).expect("small") + 1;
    let number = format!("A{n}");
    match n % 6 {
        0 => (order(&number, &[("TEA", 1), ("MOON", 1)]), vec![(422, "UNKNOWN_SKU")]),
        1 => (order(&number, &[("CUP", 1), ("TEA", 5_000)]), vec![(409, "OUT_OF_STOCK")]),
        2 => (order("OLD", &[("POT", 1)]), vec![(200, "")]),
        3 => (order("OLD", &[("POT", 2)]), vec![(422, "ORDER_PARAMS_MISMATCH")]),
        // Who is refused wanted more than there is left when all is over.
        _ if quantity > free_at_the_end => {
            (order(&number, &[("CUP", 1), ("TEA", quantity)]), vec![(201, ""), (409, "OUT_OF_STOCK")])
        }
        _ => (order(&number, &[("CUP", 1), ("TEA", quantity)]), vec![(201, "")]),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orders_that_cannot_be_made_are_in_nobodys_way() {
    let app = TestApp::start().await;
    for (sku, stock) in [("CUP", 1_000), ("POT", 1), ("TEA", 150)] {
        app.stock(sku, stock).await;
    }
    app.order_with(order("OLD", &[("POT", 1)])).await;
    let bodies = (0..300).map(|n| expected_of(n, 0).0);
    let replies = join_all(bodies.map(|body| app.post("/orders", body))).await;

    let free = 150 - app.stock_of("TEA").await.1;
    assert!((0..7).contains(&free), "{free} are left, and somebody wanted one");
    for (n, reply) in replies.iter().enumerate() {
        let (body, allowed) = expected_of(n, free);
        let answer = (reply.status, reply.body["code"].as_str().unwrap_or_default());
        assert!(
            allowed.contains(&answer),
            "{body} was answered {answer:?} with {free} left, not {allowed:?}"
        );
    }
    let made = i64::try_from(count_of(&replies, 201)).expect("few");
    assert_eq!((app.count("orders").await, app.stock_of("CUP").await.1), (made + 1, made));
    assert_eq!(app.count_where("stock_reservations", "sku = 'TEA'").await, made);
    app.end_without_deadlocks().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thing_that_somebody_holds_does_not_hold_up_orders_for_others() {
    let app = TestApp::start().await;
    app.stock("POT", 100).await;
    app.stock("TEA", 100).await;
    let mut somebody = PgConnection::connect(&app.database_url).await.expect("connect");
    let mut held = somebody.begin().await.expect("a transaction");
    let hold = "SELECT 1 FROM skus WHERE sku = 'POT' FOR UPDATE";
    sqlx::query(hold).execute(&mut *held).await.expect("held");

    // Three for each connection that the service has.
    let waiting = join_all((0..48).map(|n| {
        let app = &app;
        async move { app.post("/orders", order(&format!("P{n}"), &[("POT", 1)])).await }
    }));
    let others = async {
        for round in 0..10 {
            let asks = (0..5).map(|n| app.post("/orders", order(&format!("T{round}-{n}"), &[("TEA", 1)])));
            assert_eq!(count_of(&join_all(asks).await, 201), 5);
        }
        let answered_at = Instant::now();
        tokio::time::sleep(Duration::from_secs(1)).await;
        held.rollback().await.expect("let go");
        answered_at
    };
    let asked_at = Instant::now();
    let (waiting, answered_at) = tokio::join!(waiting, others);
    // Less than what one of them waits for its row; where nothing is gathered, the lane's short wait for each of them.
    let (others_took, limit) = (answered_at - asked_at, if is_gathered() { 2 } else { 10 });
    assert!(others_took < Duration::from_secs(limit), "{others_took:?}");
    assert_eq!(count_of(&waiting, 201), 48, "{waiting:?}");
    assert_eq!((app.stock_of("POT").await, app.stock_of("TEA").await), ((100, 48), (100, 50)));
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_buyers_of_a_hundred_things_get_exactly_a_hundred() {
    let cluster = Cluster::start(2, TestOptions::default()).await;
    let app = cluster.first();
    app.stock("TEA", 100).await;
    let buy = |n: usize| {
        let app = cluster.turn(n);
        async move { app.post("/orders", order(&format!("A{n}"), &[("TEA", 1)])).await }
    };
    let replies = join_all((0..200).map(buy)).await;
    assert_eq!((count_of(&replies, 201), count_of(&replies, 409)), (100, 100));
    for refused in replies.iter().filter(|reply| reply.status == 409) {
        assert_eq!(refused.problem(409), "OUT_OF_STOCK");
    }
    assert_eq!(app.stock_of("TEA").await, (100, 100));

    app.clock.advance(minutes(31));
    app.run_until_idle().await;
    assert_eq!(app.stock_of("TEA").await, (100, 0));
    cluster.end().await;
}

/// What an operator makes of a stock that was looked at.
fn from_to(expected: i64, stock: i64) -> Value {
    json!({"merchant_id": "demo", "sku": "TEA", "stock": stock, "expected_stock": expected})
}

#[tokio::test]
async fn what_was_sold_since_somebody_looked_does_not_come_back() {
    let app = TestApp::start().await;
    let set = async |expected, stock| app.admin_post("/admin/skus", from_to(expected, stock)).await;
    assert_eq!(set(5, 10).await.problem(409), "STOCK_CHANGED");
    let page = app.admin_get("/admin/skus?merchant_id=demo&limit=100").await.expect(200);
    assert!(
        page.body["data"].as_array().expect("a page").iter().all(|row| row["sku"] != "TEA"),
        "{}",
        page.text
    );

    set(0, 10).await.expect(200);
    let again = set(0, 10).await;
    assert!(again.problem(409) == "STOCK_CHANGED" && again.text.contains("is 10 by now"), "{}", again.text);
    set(10, 20).await.expect(200);
    app.paid_order("A1", order("A1", &[("TEA", 4)])).await;
    assert_eq!(app.stock_of("TEA").await, (16, 0), "sold");

    let repeated = set(10, 20).await;
    assert_eq!(repeated.problem(409), "STOCK_CHANGED");
    assert!(repeated.text.contains("is 16 by now"), "{}", repeated.text);
    assert_eq!(app.stock_of("TEA").await, (16, 0), "what was sold stays sold");
    let logged = app.count_where("admin_log", "action = 'skus.set'").await;
    assert_eq!(logged, 2, "what was refused was not done");

    // As many are broken as were sold since: the shelf is not what the operator takes it for.
    assert_eq!(set(20, 16).await.problem(409), "STOCK_CHANGED");
    // Of those who looked at the same stock, one sets it.
    let wishes = join_all((0..8).map(|n| set(16, 100 + n))).await;
    assert_eq!((count_of(&wishes, 200), count_of(&wishes, 409)), (1, 7));
    app.assert_invariants().await;
    app.end().await;
}

#[tokio::test]
async fn orders_whose_stock_is_held_for_longer_than_a_statement_may_take_are_left_to_tasks() {
    let app = TestApp::start().await;
    let hasty = TestOptions { clock: app.clock.clone(), ..TestOptions::over(&app).in_haste() };
    let hasty = TestApp::start_with(hasty).await;
    app.stock("TEA", 100).await;
    for order_no in ["A1", "A2"] {
        app.post("/orders", order(order_no, &[("TEA", 1)])).await.expect(201);
    }
    // Somebody forgot to let go of it.
    let mut owner = app.direct_connection().await;
    owner.execute("BEGIN; SELECT 1 FROM skus WHERE sku = 'TEA' FOR UPDATE").await.expect("in hand");
    app.clock.advance(minutes(60));
    orders::sweep_due(&hasty.instance.app).await.expect("they are left to tasks");
    let waiting = "action = 'EXPIRE_ORDER' AND status = 'READY'";
    assert_eq!(app.count_where("compensations", waiting).await, 2);
    owner.execute("ROLLBACK").await.expect("free");
    app.run_until_idle().await;
    assert_eq!(app.count_where("orders", "status = 'CLOSED'").await, 2);
    assert_eq!(app.stock_of("TEA").await, (100, 0));
    app.end().await;
}
