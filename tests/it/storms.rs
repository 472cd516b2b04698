//! Storms: five hundred equal requests cost one execution, with Redis and without.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use payonce::channels::sandbox::FaultOp;
use serde_json::json;
use sqlx::{Connection, PgConnection};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::support::{Chance, Cluster, Reply, TestApp, TestOptions};

const STORM: usize = 500;

fn options() -> TestOptions {
    // The deadline of production: five hundred requests of a debug build keep a call waiting for a while.
    let vars = vec![("CHANNEL_DEADLINE_MS", "5000".to_owned())];
    TestOptions { vars, ..TestOptions::default() }
}

async fn start() -> Cluster {
    Cluster::start(4, options()).await
}

async fn kill_redis(cluster: &mut Cluster) {
    cluster.instances[0].redis.as_mut().expect("its own").kill().await.expect("killed");
}

/// Empties Redis, as an operator's slip or a restart without a disk would.
async fn empty_redis(cluster: &Cluster) {
    let client = redis::Client::open(cluster.first().redis_url.as_str()).expect("a url");
    let mut conn = client.get_multiplexed_async_connection().await.expect("a connection");
    redis::cmd("FLUSHALL").query_async::<()>(&mut conn).await.expect("emptied");
}

/// The same request at all instances at once.
async fn storm(cluster: &Cluster, order_no: &str) -> Vec<Reply> {
    join_all((0..STORM).map(|n| cluster.turn(n).pay_url(order_no))).await
}

/// All were answered with the same link, and it cost one attempt and one call.
async fn assert_one_execution(cluster: &Cluster, order_no: &str, replies: &[Reply]) {
    let mut others = replies.iter().filter(|reply| reply.status != 200);
    assert!(
        others.next().is_none(),
        "{} were not answered: {:?}",
        others.count() + 1,
        replies.iter().find(|r| r.status != 200)
    );
    assert_eq!(replies.len(), STORM);
    assert_eq!(
        BTreeSet::from_iter(replies.iter().map(|reply| &reply.text)).len(),
        1,
        "all got the same link"
    );
    let app = cluster.first();
    assert_eq!(app.attempt_statuses(order_no).await, ["PAYING"]);
    assert_eq!(app.count("sandbox.trades").await, 1);
    assert_eq!(app.calls_of(FaultOp::Create).await, 1, "the channel was called once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_equal_requests_are_one() {
    let cluster = start().await;
    cluster.first().order("A1").await;
    cluster.first().watch_calls(FaultOp::Create, 0).await;
    let replies = storm(&cluster, "A1").await;
    assert_one_execution(&cluster, "A1", &replies).await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_equal_requests_are_one_also_without_redis() {
    let mut cluster = start().await;
    cluster.first().order("A1").await;
    cluster.first().watch_calls(FaultOp::Create, 0).await;
    kill_redis(&mut cluster).await;
    let replies = storm(&cluster, "A1").await;
    assert_one_execution(&cluster, "A1", &replies).await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_equal_requests_wait_for_a_slow_channel_together() {
    for slow_ms in [300, 800] {
        let cluster = start().await;
        cluster.first().order("A1").await;
        cluster.first().watch_calls(FaultOp::Create, slow_ms).await;
        let replies = storm(&cluster, "A1").await;
        assert_one_execution(&cluster, "A1", &replies).await;
        cluster.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_equal_requests_wait_for_a_slow_channel_together_also_without_redis() {
    let mut cluster = start().await;
    cluster.first().order("A1").await;
    cluster.first().watch_calls(FaultOp::Create, 300).await;
    kill_redis(&mut cluster).await;
    let replies = storm(&cluster, "A1").await;
    assert_one_execution(&cluster, "A1", &replies).await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_equal_callbacks_are_one_with_redis_and_without() {
    for has_redis in [true, false] {
        let mut cluster = start().await;
        cluster.first().stock("mug", 1).await;
        let body = json!({"order_no": "A1", "user_id": "u1", "currency": "CNY",
                          "items": [{"sku": "mug", "quantity": 1, "unit_price": 1990}]});
        cluster.first().order_with(body).await;
        let id = cluster.first().pay_url("A1").await.expect(200).text_of("pay_order_id").to_owned();
        if !has_redis {
            kill_redis(&mut cluster).await;
        }
        let callback = cluster.first().success("e1", &id, "t1", 1990);
        let replies = join_all((0..STORM).map(|n| cluster.turn(n).webhook(&callback))).await;
        assert!(
            replies.iter().all(|reply| (reply.status, reply.text.as_str()) == (200, "SUCCESS")),
            "all alike"
        );
        let app = cluster.first();
        assert_eq!(app.status_of("A1").await, "PAID");
        assert_eq!(app.stock_of("mug").await, (0, 0), "taken once");
        for (table, condition) in [("webhook_inbox", "true"), ("outbox", "event = 'order.paid'")] {
            assert_eq!(app.count_where(table, condition).await, 1, "{table}");
        }
        cluster.end().await;
    }
}

/// Who waits for the other's lock must not take the other's money for its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_trades_that_come_at_once_one_pays_and_one_is_stray() {
    let cluster = start().await;
    let app = cluster.first();
    for order_no in ["A1", "A2", "A3", "A4"] {
        let id = app.order_to_pay(order_no).await;
        let callbacks = ["first", "second"].map(|trade| {
            let name = format!("{order_no}-{trade}");
            app.success(&name, &id, &name, 1990)
        });
        let replies = join_all((0..24).map(|n| cluster.turn(n / 2).webhook(&callbacks[n % 2]))).await;
        assert!(replies.iter().all(|reply| (reply.status, reply.text.as_str()) == (200, "SUCCESS")));
        assert_eq!(app.status_of(order_no).await, "PAID");
    }
    assert_eq!(app.count("stray_payments").await, 4);
    for verdict in ["APPLIED", "STRAY"] {
        assert_eq!(app.count_where("webhook_inbox", &format!("verdict = '{verdict}'")).await, 4, "{verdict}");
    }
    assert_eq!(app.count("webhook_inbox").await, 8);
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_that_somebody_holds_does_not_hold_up_the_others() {
    let app = TestApp::start().await;
    // In one batch with the others, or in one of its own ahead of them.
    for (round, head_start_ms) in [("A", 0), ("B", 30)] {
        for n in 0..20 {
            app.order(&format!("{round}{n}")).await;
        }
        let mut somebody = PgConnection::connect(&app.database_url).await.expect("connect");
        let mut held = somebody.begin().await.expect("a transaction");
        let hold = "SELECT 1 FROM orders WHERE order_no = $1 FOR UPDATE";
        sqlx::query(hold).bind(format!("{round}7")).execute(&mut *held).await.expect("held");

        let answered = Semaphore::new(0);
        let letting_go = async {
            // Once the others are answered, or a command alone would wait no longer.
            timeout(Duration::from_secs(2), answered.acquire_many(19)).await.ok();
            held.rollback().await.expect("let go");
            Instant::now()
        };
        let asking = (0..20).map(|n| {
            let (app, answered) = (&app, &answered);
            let head_start = Duration::from_millis(if n == 7 { 0 } else { head_start_ms });
            async move {
                tokio::time::sleep(head_start).await;
                let (reply, answered_at) = (app.pay_url(&format!("{round}{n}")).await, Instant::now());
                answered.add_permits(usize::from(n != 7));
                (reply, answered_at)
            }
        });
        let (let_go_at, replies) = tokio::join!(letting_go, join_all(asking));
        for (n, (reply, answered_at)) in replies.into_iter().enumerate() {
            reply.expect(200);
            assert_eq!(n == 7, answered_at > let_go_at, "only {round}7 waits, not {round}{n}");
        }
    }
    app.end().await;
}

/// Several payers ask for one order again and again; gives how often each status was answered.
async fn quarrel(cluster: &Cluster, chance: &mut Chance) -> Vec<Reply> {
    let asks = (0..60).map(|n| {
        let (app, pause) = (cluster.turn(n), chance.pause(150_000));
        async move {
            tokio::time::sleep(pause).await;
            app.pay_url_by("A1", &format!("u{}", n % 6)).await
        }
    });
    join_all(asks).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn payers_who_quarrel_over_an_order_never_have_two_live_attempts() {
    let mut chance = Chance::new();
    for has_redis in [true, false] {
        let mut cluster = start().await;
        cluster.first().order("A1").await;
        if !has_redis {
            kill_redis(&mut cluster).await;
        }
        let replies = quarrel(&cluster, &mut chance).await;
        let app = cluster.first();
        for reply in &replies {
            // Somebody else is at it, or took the order over again and again: a clear word, to be repeated.
            assert!(reply.status == 200 || reply.problem(409) == "LOCK_BUSY", "{}", reply.text);
        }
        assert!(replies.iter().any(|reply| reply.status == 200));
        app.run_until_idle().await;
        assert!(app.count_where("pay_orders", "is_live").await <= 1);
        // Whatever an attempt of ours left behind at the channel is closed there too: at once, or by its guard where nobody
        // was left to say so.
        let forgotten = "status = 'OPEN'
            AND pay_order_id NOT IN (SELECT pay_order_id FROM pay_orders WHERE is_live)
            AND pay_order_id NOT IN (SELECT subject FROM compensations WHERE status IN ('READY', 'RUNNING'))";
        assert_eq!(app.count_where("sandbox.trades", forgotten).await, 0, "trades that nobody will close");
        app.clock.advance(Duration::from_secs(51));
        app.run_until_idle().await;
        let open = app.count_where("sandbox.trades", "status = 'OPEN'").await;
        assert!(open <= 1, "{open} trades could be paid");
        assert!(app.count_where("pay_orders", "is_live").await <= 1);
        cluster.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_redis_hangs_every_request_is_answered_in_time() {
    let mut cluster = Cluster::start(4, options().soon_without_redis()).await;
    cluster.first().order("A1").await;
    cluster.first().watch_calls(FaultOp::Create, 0).await;
    cluster.instances[0].redis.as_mut().expect("its own").pause().await.expect("paused");
    let started = Instant::now();
    let replies = storm(&cluster, "A1").await;
    let took = started.elapsed();
    assert_one_execution(&cluster, "A1", &replies).await;
    assert!(took < Duration::from_secs(10), "{took:?}");

    let started = Instant::now();
    cluster.turn(1).order("A2").await;
    cluster.turn(2).pay_url("A2").await.expect(200);
    cluster.turn(1).close("A2").await.expect(200);
    assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
    cluster.instances[0].redis.as_mut().expect("its own").resume().await.expect("resumed");
    cluster.end().await;
}

#[tokio::test]
async fn a_lock_that_a_hung_redis_grants_too_late_is_in_nobodys_way() {
    let mut cluster = Cluster::start(2, TestOptions::default().soon_without_redis()).await;
    cluster.first().order_to_pay("A0").await;
    cluster.first().close("A0").await.expect(200);
    cluster.first().order("A1").await;
    cluster.instances[0].redis.as_mut().expect("its own").pause().await.expect("paused");
    cluster.first().pay_url("A1").await.expect(200);
    cluster.instances[0].redis.as_mut().expect("its own").resume().await.expect("resumed");
    // Redis now carries out what was sent to it while it hung.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    cluster.turn(1).close("A1").await.expect(200);
    cluster.end().await;
}

#[tokio::test]
async fn a_link_that_another_instance_is_making_is_waited_for() {
    let cluster = start().await;
    let app = cluster.first();
    app.order("A1").await;
    app.watch_calls(FaultOp::Create, 1_000).await;
    let (first, second) = tokio::join!(app.pay_url("A1"), async {
        app.begun_attempt_of("A1").await;
        cluster.turn(1).pay_url("A1").await
    });
    assert_eq!(first.expect(200).body, second.expect(200).body);
    assert_eq!(app.calls_of(FaultOp::Create).await, 1);
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_is_emptied_in_the_middle_and_nobody_notices() {
    let cluster = start().await;
    cluster.first().order("A1").await;
    cluster.first().watch_calls(FaultOp::Create, 400).await;
    let empty = async {
        for _ in 0..20 {
            empty_redis(&cluster).await;
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
    };
    let (replies, ()) = tokio::join!(storm(&cluster, "A1"), empty);
    assert_one_execution(&cluster, "A1", &replies).await;

    // The timers were lost too: the sweep gives them back, and the order still times out.
    cluster.first().clock.advance(Duration::from_secs(1_805));
    cluster.first().run_until_idle().await;
    assert_eq!(cluster.first().status_of("A1").await, "CLOSED");
    cluster.end().await;
}
