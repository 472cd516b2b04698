//! Races that others lost, each named after what their users saw.

use std::time::Duration;

use futures_util::future::join_all;
use payonce::channels::sandbox::{FaultKind, FaultOp};
use payonce::orders;
use serde_json::json;
use sqlx::{AssertSqlSafe, Connection, Executor};

use crate::support::{
    Chance, Cluster, Reply, TestApp, TestOptions, hang_up_once, minutes, seconds, until_waiting,
};

/// An attempt's rows as `pay` writes them, for a connection that has not committed yet.
pub async fn write_attempt(conn: &mut sqlx::PgConnection, order_no: &str, pay_order_id: &str) {
    for statement in [
        "UPDATE orders SET attempts = attempts + 1 WHERE order_no = $1 AND $2 <> ''",
        "INSERT INTO pay_orders (pay_order_id, merchant_id, order_no, payer_id, channel, amount, currency,
                                 expires_at, created_at, updated_at)
         SELECT $2, merchant_id, order_no, user_id, 'sandbox', amount, currency, expires_at, created_at, created_at
         FROM orders WHERE order_no = $1",
        "INSERT INTO order_history (merchant_id, order_no, pay_order_id, seq, to_status, event, created_at)
         SELECT merchant_id, order_no, $2, 1, 'INIT', 'BEGUN', created_at FROM orders WHERE order_no = $1",
    ] {
        sqlx::query(statement).bind(order_no).bind(pay_order_id).execute(&mut *conn).await.expect("rows");
    }
}

#[tokio::test]
async fn a_callback_before_its_row_exists_is_not_lost() {
    let app = TestApp::start().await;
    app.order("R1").await;
    let mut conn = app.direct_connection().await;
    let mut uncommitted = conn.begin().await.expect("a transaction");
    write_attempt(&mut uncommitted, "R1", "po_early").await;

    app.deliver(&app.success("e1", "po_early", "t1", 1990)).await;
    assert_eq!(app.verdict_of("e1").await.as_deref(), Some("UNMATCHED"));
    app.run_until_idle().await;
    uncommitted.commit().await.expect("the commit");
    app.clock.advance(seconds(5));
    app.run_until_idle().await;

    assert_eq!(app.verdict_of("e1").await.as_deref(), Some("APPLIED"));
    assert_eq!(app.find_order("R1").await["paid_by"], "po_early");
    app.deliver(&app.success("e1", "po_early", "t1", 1990)).await;
    assert_eq!(app.count_where("outbox", "event = 'order.paid'").await, 1);
    app.end().await;
}

#[tokio::test]
async fn an_early_callback_of_a_wrong_amount_is_not_taken_for_the_right_one() {
    let app = TestApp::start().await;
    app.order("R2").await;
    app.deliver(&app.success("e1", "po_early", "t1", 5)).await;
    write_attempt(&mut app.direct_connection().await, "R2", "po_early").await;
    app.clock.advance(minutes(5));
    app.run_until_idle().await;
    assert_eq!(app.verdict_of("e1").await.as_deref(), Some("AMOUNT_MISMATCH"));
    assert_eq!(app.status_of("R2").await, "PENDING");
    assert_eq!(app.webhook(&app.success("e1", "po_early", "t1", 5)).await.status, 400);
    assert_eq!(app.count("stray_payments").await, 1);
    app.end().await;
}

#[tokio::test]
async fn deduplication_is_not_marked_before_the_effect() {
    let app = TestApp::start().await;
    let hasty = TestApp::start_with(TestOptions::over(&app).in_haste()).await;
    let id = app.order_to_pay("R3").await;
    let callback = app.success("e1", &id, "t1", 1990);
    let before = app.row_counts().await;

    // Everything can be read and the callback can be kept, but the order's row cannot be written.
    let mut other = app.direct_connection().await;
    let mut lock = other.begin().await.expect("a transaction");
    sqlx::query("SELECT 1 FROM orders FOR UPDATE").execute(&mut *lock).await.expect("the lock");
    assert_eq!(hasty.webhook(&callback).await.status, 500);
    assert_eq!(app.row_counts().await, before, "no mark without its effect");
    lock.rollback().await.expect("the end of the lock");

    app.deliver(&callback).await;
    assert_eq!(app.status_of("R3").await, "PAID");
    app.end().await;
}

#[tokio::test]
async fn a_client_that_hangs_up_does_not_stop_its_callback() {
    let app = TestApp::start().await;
    let id = app.order_to_pay("R4").await;
    let callback = app.success("e1", &id, "t1", 1990);
    let mut other = app.direct_connection().await;
    let mut lock = other.begin().await.expect("a transaction");
    sqlx::query("SELECT 1 FROM orders FOR UPDATE").execute(&mut *lock).await.expect("the lock");
    hang_up_once(until_waiting(&app, 1), app.webhook(&callback)).await;
    lock.rollback().await.expect("the end of the lock");
    app.eventually("it is paid", async || app.status_of("R4").await == "PAID").await;
    app.end().await;
}

#[tokio::test]
async fn paid_orders_are_not_cancelled_as_unpaid_because_the_timer_asks_the_channel() {
    let app = TestApp::start().await;
    let timed_out = app.order_to_pay("R5").await;
    let cancelled = app.order_to_pay("R6").await;
    for id in [&timed_out, &cancelled] {
        app.sandbox_pay(id, json!({"notify": false})).await.expect(200);
    }
    assert_eq!(app.close("R6").await.problem(409), "ORDER_IS_ALREADY_PAID");
    assert_eq!(app.find_order("R6").await["paid_by"], cancelled);
    app.clock.advance(minutes(31));
    app.run_until_idle().await;
    assert_eq!(app.find_order("R5").await["paid_by"], timed_out);
    assert_eq!(app.count("stray_payments").await, 0);
    app.end().await;
}

#[tokio::test]
async fn a_time_out_is_not_taken_for_a_failure_and_paid_twice() {
    let app = TestApp::start().await;
    app.order("R7").await;
    app.fault(FaultOp::Create, FaultKind::TimeoutAfter, 1, Some(2000)).await;
    assert_eq!(app.pay_url("R7").await.problem(503), "CHANNEL_UNAVAILABLE");
    let order = app.find_order("R7").await;
    assert_eq!(order["pay_orders"][0]["status"], "INIT", "silence ends nothing");
    let first = order["pay_orders"][0]["pay_order_id"].as_str().expect("an id").to_owned();

    app.clock.advance(seconds(5));
    let link = app.pay_url("R7").await.expect(200);
    assert_eq!(
        link.text_of("pay_order_id"),
        first,
        "the same number, so the channel cannot take money twice"
    );
    app.sandbox_pay(&first, json!({})).await.expect(200);
    app.run_until_idle().await;
    assert_eq!(app.find_order("R7").await["paid_by"], first);
    assert_eq!(app.sandbox_books().await, (1990, 0));
    app.end().await;
}

#[tokio::test]
async fn a_wrong_payment_that_is_told_while_its_order_is_being_closed_is_counted_once() {
    let vars = vec![("CHANNEL_DEADLINE_MS", "5000".to_owned())];
    let cluster = Cluster::start(2, TestOptions { vars, ..TestOptions::default() }).await;
    let app = cluster.first();
    let id = app.order_to_pay("R15").await;
    let paid = app.sandbox_pay(&id, json!({"amount": 7, "notify": false})).await.expect(200);
    let callback = app.success("e1", &id, paid.text_of("transaction_id"), 7);
    app.fault(FaultOp::Close, FaultKind::Delay, 1, Some(900)).await;
    let tell = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        cluster.turn(1).webhook(&callback).await
    };
    let (closed, told) = tokio::join!(app.close("R15"), tell);
    assert_eq!((closed.status, told.status), (200, 400), "{closed:?}");
    app.run_until_idle().await;
    assert_eq!(app.find_order("R15").await["stray_payments"][0]["status"], "REFUNDED");
    assert_eq!(app.sandbox_books().await, (7, 7));
    cluster.end().await;
}

#[tokio::test]
async fn a_link_that_was_paid_before_we_heard_of_it_is_not_taken_for_refused() {
    let app = TestApp::start().await;
    app.order("R8").await;
    app.fault(FaultOp::Create, FaultKind::TimeoutAfter, 1, Some(2000)).await;
    app.pay_url("R8").await.expect(503);
    let order = app.find_order("R8").await;
    let id = order["pay_orders"][0]["pay_order_id"].as_str().expect("an id").to_owned();
    app.sandbox_pay(&id, json!({"notify": false})).await.expect(200);

    app.clock.advance(seconds(5));
    app.run_until_idle().await;
    let order = app.find_order("R8").await;
    assert_eq!((&order["status"], &order["paid_by"]), (&json!("PAID"), &json!(id)), "{order}");
    app.end().await;
}

#[tokio::test]
async fn a_merchant_is_not_told_success_for_a_closed_order() {
    let app = TestApp::start().await;
    let id = app.order_to_pay("R9").await;
    app.fault(FaultOp::Close, FaultKind::PayAfterClose, 1, None).await;
    app.close("R9").await.expect(200);
    app.run_until_idle().await;
    let order = app.find_order("R9").await;
    assert_eq!((&order["status"], &order["paid_by"]), (&json!("CLOSED"), &json!(null)));
    assert_eq!(order["stray_payments"][0]["status"], "REFUNDED");
    assert_eq!(app.count_where("outbox", "event = 'order.paid'").await, 0);
    assert_eq!(app.sandbox_trade(&id).await["payments"][0]["refunded_amount"], 1990);
    app.end().await;
}

#[tokio::test]
async fn charged_then_out_of_stock_cannot_happen() {
    let app = TestApp::start().await;
    app.stock("TEA", 3).await;
    let mut ids = Vec::new();
    let order = |index: usize| {
        let items = json!([{"sku": "TEA", "quantity": 1, "unit_price": 1990}]);
        json!({"order_no": format!("R10-{index}"), "user_id": "u1", "currency": "CNY", "items": items})
    };
    let replies = join_all((0..10).map(|index| app.post("/orders", order(index)))).await;
    for reply in &replies {
        match reply.status {
            201 => {
                let link = app.pay_url(reply.text_of("order_no")).await.expect(200);
                ids.push(link.text_of("pay_order_id").to_owned());
            }
            _ => assert_eq!(reply.problem(409), "OUT_OF_STOCK"),
        }
    }
    assert_eq!(ids.len(), 3);
    let paid = ids.iter().map(|id| app.sandbox_pay(id, json!({})));
    assert!(join_all(paid).await.iter().all(|reply| reply.status == 200));
    app.run_until_idle().await;
    assert_eq!(app.count_where("orders", "status = 'PAID'").await, 3);
    assert_eq!(app.stock_of("TEA").await, (0, 0));
    assert_eq!(app.post("/orders", order(99)).await.problem(409), "OUT_OF_STOCK");
    app.end().await;
}

#[tokio::test]
async fn the_return_the_callback_and_the_timer_pay_an_order_once() {
    let cluster = Cluster::start(2, TestOptions::default()).await;
    let app = cluster.first();
    for round in 0..10 {
        let order_no = format!("R11-{round}");
        let id = app.order_to_pay(&order_no).await;
        let receipt = app.sandbox_pay(&id, json!({"notify": false})).await.expect(200);
        let number = receipt.text_of("transaction_id");
        let callback = |event: &str| app.success(&format!("{order_no}-{event}"), &id, number, 1990);
        // Its time is over, and nobody has closed it yet.
        app.clock.advance(minutes(31));
        let (first, second) = (callback("a"), callback("b"));
        let (one, two, close, other_close, timer, sweep) = tokio::join!(
            app.webhook(&first),
            cluster.turn(1).webhook(&second),
            app.close(&order_no),
            cluster.turn(1).close(&order_no),
            orders::expire_due(&app.instance.app),
            orders::sweep_due(&cluster.turn(1).instance.app),
        );
        assert_eq!((one.status, two.status), (200, 200));
        timer.and(sweep).expect("no duty fails");
        for close in [close, other_close] {
            let code = close.problem(409);
            assert!(matches!(code, "ORDER_IS_ALREADY_PAID" | "LOCK_BUSY"), "{code}");
        }
    }
    app.run_until_idle().await;
    assert_eq!(app.count_where("outbox", "event = 'order.paid'").await, 10);
    assert_eq!(app.count("stray_payments").await, 0);
    assert_eq!(app.sandbox_books().await, (19_900, 0));
    cluster.end().await;
}

#[tokio::test]
async fn a_refund_run_by_the_callback_and_by_the_answer_is_run_once() {
    let app = TestApp::start().await;
    for index in 0..5 {
        app.late_money(&format!("R12-{index}")).await;
    }
    // The channel's own callback of each refund races with the answer to the call that made it.
    app.run_until_idle().await;
    assert_eq!(app.strays("status=REFUNDED").await.len(), 5);
    assert_eq!(app.count_where("outbox", "event = 'refund.finished'").await, 5);
    for refund in app.find_order("R12-0").await["refunds"].as_array().expect("refunds") {
        let number = refund["refund_no"].as_str().expect("a number");
        let notices: Vec<_> =
            (0..20).map(|index| app.refund_notice(&format!("n{index}"), number, "SUCCEEDED")).collect();
        let replies = join_all(notices.iter().map(|notice| app.webhook(notice))).await;
        assert!(replies.iter().all(|reply| reply.status == 200));
    }
    assert_eq!(app.count_where("outbox", "event = 'refund.finished'").await, 5);
    assert_eq!(app.sandbox_books().await, (5 * 1990, 5 * 1990));
    app.end().await;
}

#[tokio::test]
async fn a_refund_whose_callback_overtakes_the_answer_is_run_once() {
    let app = TestApp::start().await;
    app.late_money("R16").await;
    app.fault(FaultOp::Refund, FaultKind::Delay, 1, Some(600)).await;
    let tell = async {
        let is_asked = async || app.count_where("refunds", "status = 'PROCESSING'").await == 1;
        app.eventually("the channel is asked", is_asked).await;
        let order = app.find_order("R16").await;
        let number = order["refunds"][0]["refund_no"].as_str().expect("a number").to_owned();
        app.deliver(&app.refund_notice("n1", &number, "SUCCEEDED")).await;
        assert_eq!(app.find_order("R16").await["refunds"][0]["status"], "SUCCEEDED");
        assert_eq!(app.sandbox_books().await, (1990, 0), "the answer is still to come");
    };
    tokio::join!(app.run_until_idle(), tell);
    app.run_until_idle().await;
    assert_eq!(app.count_where("outbox", "event = 'refund.finished'").await, 1);
    assert_eq!(app.count("refunds").await, 1);
    assert_eq!(app.sandbox_books().await, (1990, 1990));
    app.end().await;
}

/// What chance does to an order: one step of the storm.
async fn step(app: &TestApp, order_no: &str, dice: u32) {
    let order = app.find_order(order_no).await;
    let ids: Vec<_> = order["pay_orders"].as_array().expect("attempts").iter().collect();
    let id = ids.get(dice as usize % ids.len().max(1)).and_then(|attempt| attempt["pay_order_id"].as_str());
    let Some(id) = id else {
        app.pay_url(order_no).await;
        return;
    };
    match dice / 8 % 8 {
        0 | 1 => drop(app.pay_url(order_no).await),
        2 | 3 => drop(app.sandbox_pay(id, json!({"force": true})).await),
        4 => drop(app.sandbox_pay(id, json!({"force": true, "amount": 7})).await),
        5 => drop(app.sandbox_decline(id).await),
        6 => drop(app.close(order_no).await),
        _ => drop(app.sandbox_pay(id, json!({"force": true, "notify": false})).await),
    }
}

/// A fault for the next calls of the channel.
async fn trouble(app: &TestApp, dice: u32) {
    let (op, fault) = [
        (FaultOp::Create, FaultKind::TimeoutAfter),
        (FaultOp::Create, FaultKind::TimeoutBefore),
        (FaultOp::Close, FaultKind::TimeoutAfter),
        (FaultOp::Close, FaultKind::PayAfterClose),
        (FaultOp::Refund, FaultKind::TimeoutAfter),
        (FaultOp::Refund, FaultKind::TimeoutBefore),
        (FaultOp::Webhook, FaultKind::Repeat),
        (FaultOp::Webhook, FaultKind::Reorder),
    ][dice as usize % 8];
    app.fault(op, fault, 1, Some(1200)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_buyers_merchants_and_channels_do_at_once_the_money_adds_up() {
    storm(TestOptions::default()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_any_lock_the_money_adds_up_all_the_same() {
    let redis_url = Some("redis://127.0.0.1:1/".to_owned());
    storm(TestOptions { redis_url, ..TestOptions::default() }).await;
}

/// Chance has its way with a dozen orders over two instances; `SEED` in the environment repeats a run.
async fn storm(options: TestOptions) {
    let mut chance = Chance::new();
    let cluster = Cluster::start(2, options).await;
    let app = cluster.first();
    let orders: Vec<String> = (0..12).map(|index| format!("R13-{index}")).collect();
    for order_no in &orders {
        app.order(order_no).await;
    }
    for round in 0..8 {
        trouble(app, chance.number()).await;
        let steps: Vec<(usize, u32)> =
            (0..24).map(|_| (chance.one_of(orders.len()), chance.number())).collect();
        let steps = steps.iter().enumerate();
        join_all(steps.map(|(turn, (order, dice))| step(cluster.turn(turn), &orders[*order], *dice))).await;
        app.clock.advance(seconds(if round == 6 { 1800 } else { 3 }));
        app.run_until_idle().await;
    }
    settle(app).await;
    assert_eq!(app.count_where("orders", "status = 'PENDING'").await, 0);
    app.assert_books_agree().await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn paid_and_cancelled_in_the_same_millisecond_is_one_or_the_other() {
    let redis_url = Some("redis://127.0.0.1:1/".to_owned());
    let vars = vec![("CHANNEL_DEADLINE_MS", "10000".to_owned())];
    let cluster = Cluster::start(2, TestOptions { redis_url, vars, ..TestOptions::default() }).await;
    let app = cluster.first();
    app.stock("TEA", 40).await;
    for round in 0..40 {
        let order_no = format!("R14-{round}");
        let items = json!([{"sku": "TEA", "quantity": 1, "unit_price": 1990}]);
        app.order_with(json!({"order_no": order_no, "user_id": "u1", "currency": "CNY", "items": items}))
            .await;
        let id = app.pay_url(&order_no).await.expect(200).text_of("pay_order_id").to_owned();
        let pay = async {
            tokio::time::sleep(Duration::from_millis(round % 10)).await;
            app.sandbox_pay(&id, json!({"force": true})).await
        };
        let (paid, closed) = match round {
            // So that both are met, whatever chance makes of the others.
            0..2 => meet_at_the_trade(&cluster, &order_no, &id, Deed::Pay).await,
            2..4 => meet_at_the_trade(&cluster, &order_no, &id, Deed::Close).await,
            _ => tokio::join!(pay, cluster.turn(1).close(&order_no)),
        };
        assert_eq!(paid.status, 200);
        assert!(matches!(closed.status, 200 | 409), "{closed:?}");
        app.run_until_idle().await;
        let status = app.status_of(&order_no).await;
        assert_eq!(
            status,
            if closed.status == 200 { "CLOSED" } else { "PAID" },
            "what the merchant was told"
        );
    }
    let paid = app.count_where("orders", "status = 'PAID'").await;
    println!("{paid} of 40 were paid");
    assert!((2..=38).contains(&paid), "each of both was first at a trade: {paid}");
    assert_eq!(app.stock_of("TEA").await, (40 - paid, 0));
    assert_eq!(app.sandbox_books().await, (40 * 1990, (40 - paid) * 1990));
    cluster.end().await;
}

/// What two do about a trade at once.
#[derive(PartialEq)]
enum Deed {
    Pay,
    Close,
}

/// A buyer pays while the merchant closes, on two instances; both wait for the trade, in whose queue one is the first.
async fn meet_at_the_trade(cluster: &Cluster, order_no: &str, id: &str, first: Deed) -> (Reply, Reply) {
    let app = cluster.first();
    let mut owner = app.direct_connection().await;
    let hold = format!("BEGIN; SELECT 1 FROM sandbox.trades WHERE pay_order_id = '{id}' FOR UPDATE");
    owner.execute(AssertSqlSafe(hold)).await.expect("in hand");
    let in_turn = async |deed: Deed| until_waiting(app, i64::from(first != deed)).await;
    let pay = async {
        in_turn(Deed::Pay).await;
        app.sandbox_pay(id, json!({"force": true})).await
    };
    let close = async {
        in_turn(Deed::Close).await;
        cluster.turn(1).close(order_no).await
    };
    let free = async {
        until_waiting(app, 2).await;
        owner.execute("COMMIT").await.expect("free");
    };
    let (paid, closed, ()) = tokio::join!(pay, close, free);
    (paid, closed)
}

/// Lets every pause of every schedule pass.
async fn settle(app: &TestApp) {
    app.gateway.clear_faults().await.expect("no faults");
    for _ in 0..12 {
        app.clock.advance(minutes(2));
        app.run_until_idle().await;
    }
}
