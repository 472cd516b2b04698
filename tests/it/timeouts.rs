//! Timeouts: every order that nobody pays is closed at its deadline, whatever becomes of Redis and of workers.

use std::time::{Duration, Instant};

use payonce::channels::sandbox::{FaultKind, FaultOp};
use payonce::infra::duty::Batch;
use payonce::workers;
use serde_json::{Value, json};

use crate::support::{Cluster, TestApp, TestOptions, minutes, seconds};

mod early;

/// Variables that say which delay queue a story is told over.
type Vars = Vec<(&'static str, String)>;

const TIMERS: &str = "delay:order_timeout";
const LEASED: &str = "delay:order_timeout:leased";

impl TestApp {
    /// Makes an order with this life, and one of `TEA` in it.
    async fn order_for(&self, order_no: &str, expires_in: u64) {
        let items = json!([{"sku": "TEA", "quantity": 1, "unit_price": 1990}]);
        let body = json!({"order_no": order_no, "user_id": "u1", "currency": "CNY", "items": items,
                          "expires_in": expires_in});
        self.order_with(body).await;
    }

    async fn timers(&self, key: &str) -> i64 {
        self.redis_command(&["ZCARD", key]).await
    }

    /// Runs one duty once, as its loop would.
    async fn run_duty(&self, name: &str) -> bool {
        let duties = workers::duties(&self.instance.app);
        duties.iter().find(|duty| duty.name() == name).expect("a duty").run_once().await.is_ok()
    }

    async fn open_orders(&self) -> i64 {
        self.count_where("orders", "status = 'PENDING'").await
    }
}

fn why(order: &Value) -> (&str, &str) {
    (order["status"].as_str().expect("a status"), order["close_reason"].as_str().unwrap_or("-"))
}

#[tokio::test]
async fn workers_close_orders_on_time() {
    let app = TestApp::start_working().await;
    app.stock("TEA", 100).await;
    for index in 0..30 {
        app.order_for(&format!("T1-{index}"), 1 + index % 2).await;
    }
    app.eventually("all are closed", async || app.open_orders().await == 0).await;
    let late: f64 = sqlx::query_scalar(
        "SELECT max(extract(epoch FROM updated_at - expires_at))::float8 FROM orders WHERE status = 'CLOSED'",
    )
    .fetch_one(app.instance.app.db.pool())
    .await
    .expect("the lateness");
    println!("the latest of 30 timeouts came {late:.3} s after its deadline");
    assert!((0.0..3.0).contains(&late), "{late} s");
    assert_eq!(app.stock_of("TEA").await, (100, 0));
    assert_eq!(why(&app.find_order("T1-0").await), ("CLOSED", "TIMEOUT"));
    app.end().await;
}

#[tokio::test]
async fn an_emptied_redis_gets_its_timers_back_and_none_is_lost() {
    let app = TestApp::start().await;
    app.stock("TEA", 100).await;
    app.run_until_idle().await;
    for index in 0..20 {
        app.order_for(&format!("T2-{index}"), if index < 10 { 60 } else { 600 }).await;
    }
    let _: () = app.redis_command(&["FLUSHALL"]).await;
    assert!(app.run_duty("orders.sweep").await);
    assert_eq!(app.timers(TIMERS).await, 20, "rebuilt");

    app.clock.advance(seconds(61));
    assert!(app.run_duty("orders.expire").await);
    assert_eq!(app.open_orders().await, 10, "closed by the timers");
    let _: () = app.redis_command(&["FLUSHALL"]).await;
    app.clock.advance(seconds(600));
    app.run_until_idle().await;
    assert_eq!(app.open_orders().await, 0, "closed by the sweep");
    assert_eq!(app.stock_of("TEA").await, (100, 0));
    app.end().await;
}

#[tokio::test]
async fn an_instance_that_never_saw_redis_closes_orders_all_the_same() {
    let redis_url = Some("redis://127.0.0.1:1/".to_owned());
    let app = TestApp::start_with(TestOptions { redis_url, ..TestOptions::default() }).await;
    app.stock("TEA", 10).await;
    app.order_for("T3", 60).await;
    let id = app.pay_url("T3").await.expect(200).text_of("pay_order_id").to_owned();
    app.order_for("T4", 60).await;
    app.clock.advance(seconds(62));
    app.run_until_idle().await;
    assert_eq!(why(&app.find_order("T3").await), ("CLOSED", "TIMEOUT"));
    assert_eq!(why(&app.find_order("T4").await), ("CLOSED", "TIMEOUT"));
    assert_eq!(app.sandbox_trade(&id).await["status"], "CLOSED");
    app.end().await;
}

#[tokio::test]
async fn timers_in_the_hands_of_a_dead_worker_come_back() {
    let cluster = Cluster::start(2, TestOptions::default()).await;
    let (app, dying) = (cluster.first(), cluster.turn(1));
    app.stock("TEA", 10).await;
    app.run_until_idle().await;
    for index in 0..5 {
        app.order_for(&format!("T5-{index}"), 60).await;
    }
    app.clock.advance(seconds(60));
    // It claims, and dies before its commit: its database is gone.
    dying.instance.app.db.close().await;
    assert!(!dying.run_duty("orders.expire").await);
    assert_eq!((app.timers(TIMERS).await, app.timers(LEASED).await), (0, 5));

    assert!(app.run_duty("orders.expire").await);
    assert_eq!(app.open_orders().await, 5, "the lease holds");
    app.clock.advance(seconds(16));
    assert!(app.run_duty("orders.expire").await);
    assert_eq!(app.open_orders().await, 0);
    assert_eq!((app.timers(TIMERS).await, app.timers(LEASED).await), (0, 0));

    let Cluster { mut instances } = cluster;
    drop(instances.pop());
    instances.remove(0).end().await;
}

#[tokio::test]
async fn a_task_in_the_hands_of_a_dead_worker_is_taken_over_within_thirty_seconds() {
    let app = TestApp::start().await;
    app.stock("TEA", 10).await;
    app.order_for("T6", 60).await;
    app.pay_url("T6").await.expect(200);
    app.clock.advance(seconds(60));
    assert!(app.run_duty("orders.expire").await);
    assert_eq!(app.open_orders().await, 1, "its attempt is left to a task");
    app.sql("UPDATE compensations SET status = 'RUNNING', attempts = 1, due_at = due_at + interval '25 s'")
        .await;
    app.run_until_idle().await;
    assert_eq!(app.open_orders().await, 1);
    app.clock.advance(seconds(30));
    app.run_until_idle().await;
    assert_eq!(why(&app.find_order("T6").await), ("CLOSED", "TIMEOUT"));
    app.end().await;
}

#[tokio::test]
async fn an_order_with_a_live_attempt_is_closed_at_its_channel_first() {
    an_order_with_a_live_attempt_is_closed_at_its_channel_first_over(Vec::new()).await;
}

pub async fn an_order_with_a_live_attempt_is_closed_at_its_channel_first_over(vars: Vars) {
    let app = TestApp::start_with(TestOptions { vars, ..TestOptions::default() }).await;
    app.stock("TEA", 10).await;
    app.order_for("T7", 60).await;
    let id = app.pay_url("T7").await.expect(200).text_of("pay_order_id").to_owned();
    app.clock.advance(seconds(62));
    app.run_until_idle().await;
    let order = app.find_order("T7").await;
    assert_eq!((why(&order), &order["pay_orders"][0]["status"]), (("CLOSED", "TIMEOUT"), &json!("CLOSED")));
    assert_eq!(app.sandbox_trade(&id).await["status"], "CLOSED");
    assert_eq!(app.sandbox_pay(&id, json!({})).await.expect(409).body["code"], "TRADE_CLOSED");
    assert_eq!(app.stock_of("TEA").await, (10, 0));
    app.end().await;
}

#[tokio::test]
async fn an_order_paid_in_silence_before_its_deadline_is_paid_at_its_deadline() {
    an_order_paid_in_silence_before_its_deadline_is_paid_at_its_deadline_over(Vec::new()).await;
}

pub async fn an_order_paid_in_silence_before_its_deadline_is_paid_at_its_deadline_over(vars: Vars) {
    let app = TestApp::start_with(TestOptions { vars, ..TestOptions::default() }).await;
    app.stock("TEA", 10).await;
    app.order_for("T8", 60).await;
    let id = app.pay_url("T8").await.expect(200).text_of("pay_order_id").to_owned();
    app.sandbox_pay(&id, json!({"notify": false})).await.expect(200);
    app.clock.advance(seconds(62));
    app.run_until_idle().await;
    assert_eq!(app.find_order("T8").await["paid_by"], id);
    assert_eq!(app.stock_of("TEA").await, (9, 0));
    app.end().await;
}

#[tokio::test]
async fn a_channel_that_is_silent_at_the_deadline_is_asked_until_it_answers() {
    let app = TestApp::start().await;
    app.stock("TEA", 10).await;
    for (order_no, is_paid) in [("T9", false), ("T10", true)] {
        app.order_for(order_no, 60).await;
        let id = app.pay_url(order_no).await.expect(200).text_of("pay_order_id").to_owned();
        if is_paid {
            app.sandbox_pay(&id, json!({"notify": false})).await.expect(200);
        }
    }
    app.order_for("T11", 60).await;
    app.fault(FaultOp::Close, FaultKind::TimeoutBefore, 4, Some(3000)).await;
    app.clock.advance(seconds(60));
    app.run_until_idle().await;
    assert_eq!((app.status_of("T9").await, app.status_of("T10").await), ("PENDING".into(), "PENDING".into()));
    assert_eq!(
        why(&app.find_order("T11").await),
        ("CLOSED", "TIMEOUT"),
        "nobody waits for another's channel"
    );
    app.assert_books_balance().await;

    for _ in 0..6 {
        app.clock.advance(seconds(20));
        app.run_until_idle().await;
    }
    assert_eq!((app.status_of("T9").await, app.status_of("T10").await), ("CLOSED".into(), "PAID".into()));
    assert_eq!(app.stock_of("TEA").await, (9, 0));
    app.end().await;
}

#[tokio::test]
async fn an_order_is_closed_as_soon_as_its_attempt_is_however_long_its_channel_was_silent() {
    let app = TestApp::start().await;
    app.stock("TEA", 10).await;
    app.order_for("T17", 60).await;
    app.pay_url("T17").await.expect(200);
    app.fault(FaultOp::Close, FaultKind::TimeoutBefore, 1, Some(1_200)).await;
    app.clock.advance(seconds(61));
    app.run_until_idle().await;
    assert_eq!(app.open_orders().await, 1, "its channel is silent");
    // As after many silent tries: the order's own next one is far away, the attempt's is not.
    app.sql("UPDATE compensations SET attempts = 9, due_at = due_at + interval '1 h' WHERE action = 'EXPIRE_ORDER'")
        .await;
    app.clock.advance(seconds(5));
    app.run_until_idle().await;
    assert_eq!(why(&app.find_order("T17").await), ("CLOSED", "TIMEOUT"));
    assert_eq!(app.stock_of("TEA").await, (10, 0));
    app.end().await;
}

#[tokio::test]
async fn money_past_the_deadline_but_before_the_close_pays_the_order() {
    let app = TestApp::start().await;
    app.stock("TEA", 10).await;
    app.order_for("T12", 60).await;
    let id = app.pay_url("T12").await.expect(200).text_of("pay_order_id").to_owned();
    app.clock.advance(minutes(5));
    app.deliver(&app.success("e1", &id, "t1", 1990)).await;
    assert_eq!(app.status_of("T12").await, "PAID");
    app.run_until_idle().await;
    assert_eq!(app.find_order("T12").await["paid_by"], id);
    assert_eq!(app.pay_url("T12").await.problem(409), "ORDER_IS_ALREADY_PAID");
    app.end().await;
}

#[tokio::test]
async fn a_clock_that_is_set_back_or_runs_ahead_elsewhere_is_harmless() {
    let app = TestApp::start().await;
    app.stock("TEA", 10).await;
    app.clock.advance(minutes(60));
    app.order_for("T13", 60).await;
    app.order_for("T14", 60).await;
    let id = app.pay_url("T14").await.expect(200).text_of("pay_order_id").to_owned();
    app.clock.set_back(minutes(60));
    app.run_until_idle().await;
    assert_eq!(app.open_orders().await, 2, "not due by this clock");
    app.deliver(&app.success("e1", &id, "t1", 1990)).await;

    app.clock.advance(seconds(3600 + 61));
    assert!(app.run_duty("orders.expire").await);
    app.clock.set_back(minutes(60));
    app.run_until_idle().await;
    assert_eq!(why(&app.find_order("T13").await), ("CLOSED", "TIMEOUT"));
    assert_eq!(app.status_of("T14").await, "PAID");
    assert_eq!(app.stock_of("TEA").await, (9, 0));
    app.end().await;
}

#[tokio::test]
async fn instances_that_sweep_at_once_close_each_order_once() {
    instances_that_sweep_at_once_close_each_order_once_over(Vec::new()).await;
}

pub async fn instances_that_sweep_at_once_close_each_order_once_over(vars: Vars) {
    let cluster = Cluster::start(3, TestOptions { vars, ..TestOptions::default() }).await;
    let app = cluster.first();
    app.stock("TEA", 100).await;
    for index in 0..60 {
        app.order_for(&format!("T15-{index}"), 60).await;
        if index % 3 == 0 {
            app.pay_url(&format!("T15-{index}")).await.expect(200);
        }
    }
    app.clock.advance(minutes(2));
    for _ in 0..5 {
        let duties = ["orders.expire", "orders.sweep", "compensation.sweep"];
        let pairs = duties.iter().flat_map(|name| (0..3).map(move |index| (name, index)));
        let all = pairs.map(|(name, index)| cluster.turn(index).run_duty(name));
        futures_util::future::join_all(all).await;
    }
    app.run_until_idle().await;
    assert_eq!(app.open_orders().await, 0);
    assert_eq!(app.count_where("outbox", "event = 'order.closed'").await, 60);
    assert_eq!(app.stock_of("TEA").await, (100, 0));
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_orders_paid_in_the_instant_of_their_timeout_are_paid_or_refunded() {
    const ORDERS: usize = 1000;
    let vars = vec![("ORDER_SWEEP_MS", "500".to_owned()), ("CHANNEL_DEADLINE_MS", "5000".to_owned())];
    let options = TestOptions { workers: true, vars, ..TestOptions::default() };
    let cluster = Cluster::start(2, options).await;
    let app = cluster.first();
    app.stock("TEA", 1000).await;
    let ids = open_links(&cluster, ORDERS).await;
    // Whatever becomes of the others, one was paid before, and one is paid behind its end.
    let [before, at_once @ .., behind] = ids.as_slice() else { panic!("many") };
    app.sandbox_pay(before, json!({"notify": false})).await.expect(200);

    let started = Instant::now();
    app.clock.advance(minutes(10));
    let payments = at_once.iter().enumerate().map(|(index, id)| {
        let app = cluster.turn(index);
        async move { app.sandbox_pay(id, json!({"force": true})).await.status }
    });
    let statuses: Vec<u16> = collect(payments).await;
    assert!(statuses.iter().all(|status| *status == 200), "force pays whatever the trade's state");
    until_all_is_told(app).await;
    app.sandbox_pay(behind, json!({"force": true})).await.expect(200);
    until_all_is_told(app).await;
    let paid = app.count_where("orders", "status = 'PAID'").await;
    let closed = app.count_where("orders", "status = 'CLOSED'").await;
    println!("{paid} paid, {closed} closed and refunded, in {:?}", started.elapsed());
    assert!(paid > 0 && closed > 0, "both are met");
    assert_eq!(paid + closed, i64::try_from(ORDERS).expect("small"));
    assert_eq!(
        app.count_where("stray_payments", "status = 'REFUNDED' AND reason = 'LATE_PAYMENT'").await,
        closed
    );
    assert_eq!(app.stock_of("TEA").await, (1000 - paid, 0));
    assert_eq!(app.sandbox_books().await, (1990 * (paid + closed), 1990 * closed));
    cluster.end().await;
}

/// Waits until every order has come to its end, its channel has told all, and what came too late is back.
async fn until_all_is_told(app: &TestApp) {
    let since = Instant::now();
    loop {
        let open = app.open_orders().await;
        let strays = app.count_where("stray_payments", "status <> 'REFUNDED'").await;
        let untold = app.count_where("sandbox.deliveries", "status = 'PENDING'").await;
        if open + strays + untold == 0 {
            return;
        }
        let left = format!("{open} orders, {strays} stray payments, {untold} callbacks");
        assert!(since.elapsed() < Duration::from_secs(120), "{left} are left");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// So many orders of ten minutes with their links.
async fn open_links(cluster: &Cluster, count: usize) -> Vec<String> {
    let links = (0..count).map(|index| {
        let app = cluster.turn(index);
        async move {
            let order_no = format!("T16-{index}");
            app.order_for(&order_no, 600).await;
            app.pay_url(&order_no).await.expect(200).text_of("pay_order_id").to_owned()
        }
    });
    collect(links).await
}

/// Runs them, 32 at a time.
async fn collect<T>(work: impl Iterator<Item = impl Future<Output = T>>) -> Vec<T> {
    use futures_util::stream::{self, StreamExt};
    stream::iter(work).buffer_unordered(32).collect().await
}

#[tokio::test]
async fn an_order_that_cannot_be_closed_holds_up_no_other() {
    let app = TestApp::start().await;
    app.stock("TEA", 10).await;
    app.order_for("T20", 60).await;
    let items = json!([{"sku": "CUP", "quantity": 1, "unit_price": 5}]);
    app.stock("CUP", 10).await;
    let odd =
        json!({"order_no": "T21", "user_id": "u1", "currency": "CNY", "items": items, "expires_in": 60});
    app.order_with(odd).await;
    app.sql("UPDATE skus SET lock_stock = 0 WHERE sku = 'CUP'").await;

    app.clock.advance(seconds(62));
    app.run_until_idle().await;
    assert_eq!(why(&app.find_order("T20").await), ("CLOSED", "TIMEOUT"));
    assert_eq!(app.status_of("T21").await, "PENDING");
    let driven = "action = 'EXPIRE_ORDER' AND order_no = 'T21' AND status = 'READY' AND last_error <> ''";
    assert_eq!(app.count_where("compensations", driven).await, 1);

    app.sql("UPDATE skus SET lock_stock = 1 WHERE sku = 'CUP'").await;
    app.clock.advance(minutes(1));
    app.run_until_idle().await;
    assert_eq!(why(&app.find_order("T21").await), ("CLOSED", "TIMEOUT"));
    app.end().await;
}

#[tokio::test]
async fn a_guard_that_was_not_needed_leaves_no_row_and_what_is_done_is_forgotten() {
    let app = TestApp::start().await;
    app.order_to_pay("T22").await;
    app.close("T22").await.expect(200);
    app.order("T23").await;
    app.fault(FaultOp::Create, FaultKind::Refuse, 1, None).await;
    app.pay_url("T23").await.expect(402);
    assert_eq!(app.count("compensations").await, 0);

    for (subject, status, age) in
        [("old", "DONE", 91), ("young", "DONE", 89), ("given up", "DEAD", 400), ("alive", "READY", 400)]
    {
        app.sql(&format!(
            "INSERT INTO compensations (kind, action, subject, status, due_at, created_at, updated_at)
             VALUES ('REDO_BUSINESS', 'DRIVE_REFUND', '{subject}', '{status}', now() + interval '9 d',
                     now() - interval '{age} d', now() - interval '{age} d')"
        ))
        .await;
    }
    assert!(app.run_duty("compensation.forget").await);
    assert_eq!(app.count("compensations").await, 3);
    assert_eq!(app.count_where("compensations", "subject = 'old'").await, 0);
    app.sql("DELETE FROM compensations").await;
    app.end().await;
}

/// The plan of the service's statement that has this text in it, as its connections make it.
async fn plan_of(app: &TestApp, text: &str, arguments: &str) -> String {
    let kept = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.sqlx")).expect("the statements");
    let statements =
        kept.map(|file| std::fs::read_to_string(file.expect("a file").path()).expect("a statement"));
    let statements = statements.map(|text| serde_json::from_str::<Value>(&text).expect("json"));
    let mut found = statements.filter_map(|kept| kept["query"].as_str().map(str::to_owned));
    let statement = found.find(|statement| statement.contains(text)).expect("the statement");

    let mut conn = app.instance.app.db.pool().acquire().await.expect("a connection");
    let prepare = format!("DEALLOCATE ALL; PREPARE asked AS {statement}");
    sqlx::raw_sql(sqlx::AssertSqlSafe(prepare)).execute(&mut *conn).await.expect("prepared");
    let explain = format!("EXPLAIN (COSTS OFF) EXECUTE asked ({arguments})");
    let lines: Vec<String> =
        sqlx::query_scalar(sqlx::AssertSqlSafe(explain)).fetch_all(&mut *conn).await.expect("a plan");
    drop(conn.detach());
    lines.join("\n")
}

#[tokio::test]
async fn a_sweep_meets_what_tasks_drive_once_and_looks_each_up() {
    let app = TestApp::start().await;
    // Statistics of a quiet night: nothing is due and no task alive.
    app.sql("ANALYZE orders; ANALYZE compensations; ANALYZE pay_orders").await;
    let alive = "'{READY,RUNNING}'";
    for (text, arguments, index) in [
        ("FROM pending AS due\n", "'epoch', now(), 5000, ", "orders_pending_by_deadline"),
        ("pay_order_id, page.merchant_id", "'epoch', now(), 500, now(), ", "pay_orders_live_by_end"),
    ] {
        let plan = plan_of(&app, text, &format!("{arguments}{alive}")).await;
        let (_, tasks) = plan.split_once("using compensations_of_order on compensations").expect(&plan);
        let condition = tasks.lines().nth(1).unwrap_or_default();
        assert!(condition.contains("(merchant_id = ") && condition.contains("(order_no = "), "{plan}");
        // In the index's own order: a sort would read all that is due for each page.
        let (above, _) = plan.split_once(index).expect(&plan);
        let node = above.lines().rev().nth(1).unwrap_or_default();
        assert!(node.trim_start_matches([' ', '-', '>']).starts_with("Limit"), "{plan}");
    }

    // More than two pages that tasks drive, and behind them two orders that nobody does.
    app.sql(
        "INSERT INTO orders (merchant_id, order_no, user_id, kind, amount, currency, expires_at, created_at, updated_at)
         SELECT 'demo', 'T30-' || n, 'u1', 'SALE', 1, 'CNY', now() - interval '1 h', now(), now()
         FROM generate_series(1, 1200) AS n;
         INSERT INTO compensations (kind, action, subject, merchant_id, order_no, due_at, created_at, updated_at)
         SELECT 'REDO_BUSINESS', 'EXPIRE_ORDER', 'demo:' || order_no, 'demo', order_no, now() + interval '1 h', now(), now()
         FROM orders",
    )
    .await;
    app.stock("TEA", 10).await;
    app.order_for("T31", 60).await;
    app.order_for("T32", 60).await;
    app.clock.advance(seconds(62));
    let duties = workers::duties(&app.instance.app);
    let sweep = duties.iter().find(|duty| duty.name() == "orders.sweep").expect("a duty");
    assert_eq!(sweep.run_once().await.expect("a sweep"), Batch::Done);
    assert_eq!(app.count_where("orders", "status = 'CLOSED'").await, 2);
    assert_eq!(app.count("compensations").await, 1200, "no task was written twice");
    app.sql("DELETE FROM compensations; DELETE FROM orders WHERE order_no LIKE 'T30-%'").await;
    app.end().await;
}
