//! The timers on RabbitMQ: prompt, never early, and nothing lost with the broker, a worker or a message.

use std::time::{Duration, Instant};

use lapin::options::{BasicPublishOptions, ExchangeDeclareOptions, ExchangeDeleteOptions};
use lapin::types::FieldTable;
use lapin::{BasicProperties, ExchangeKind};
use payonce::workers;
use serde_json::json;

use crate::support::fake_broker::{FakeBroker, Manner, Seen};
use crate::support::servers::{Broker, private_rabbitmq};
use crate::support::{Cluster, TestApp, TestOptions, metric, seconds};
use crate::timeouts;

mod refusals;

/// So rarely that the sweep closes nothing in these stories, unless they run it.
fn without_sweep(broker: &Broker) -> Vec<(&'static str, String)> {
    let mut vars = broker.vars();
    vars.push(("ORDER_SWEEP_MS", "600000".to_owned()));
    vars
}

async fn working(broker: &Broker) -> TestApp {
    let app = TestApp::start_with(TestOptions {
        workers: true,
        vars: without_sweep(broker),
        ..TestOptions::default()
    })
    .await;
    app.eventually("the broker is there", async || readiness(&app).await == "ready").await;
    app
}

async fn by_hand(broker: &Broker) -> TestApp {
    TestApp::start_with(TestOptions { vars: broker.vars(), ..TestOptions::default() }).await
}

async fn readiness(app: &TestApp) -> String {
    app.get("/readyz").await.expect(200).text_of("status").to_owned()
}

impl TestApp {
    async fn order_of_seconds(&self, order_no: &str, expires_in: u64) {
        let body = json!({"order_no": order_no, "user_id": "u1", "currency": "CNY", "amount": 1990,
                          "expires_in": expires_in});
        self.order_with(body).await;
    }

    /// Makes an order whose timer the broker has confirmed, and gives its number. A timer that it is too slow with is
    /// left to the sweep, and another order is made.
    async fn order_with_timer(&self, name: &str, expires_in: u64) -> String {
        let since = Instant::now();
        while since.elapsed() < Duration::from_secs(30) {
            let order_no = format!("{name}-{}", self.count("orders").await);
            let before = self.left_to_sweep().await;
            self.order_of_seconds(&order_no, expires_in).await;
            self.instance.app.tasks.drained().await;
            if self.left_to_sweep().await == before {
                return order_no;
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        panic!("the broker confirms no timer");
    }

    async fn are_closed(&self, order_nos: &[String]) -> bool {
        for order_no in order_nos {
            if self.status_of(order_no).await != "CLOSED" {
                return false;
            }
        }
        true
    }

    /// Timers of the process that the broker did not confirm in time; other stories' count, too.
    async fn left_to_sweep(&self) -> f64 {
        metric(self, "payonce_timers_left_to_sweep_total", &[("queue", "rabbitmq")]).await
    }

    async fn run_one(&self, name: &str) -> bool {
        let duties = workers::duties(&self.instance.app);
        duties.iter().find(|duty| duty.name() == name).expect("a duty").run_once().await.is_ok()
    }

    async fn closed(&self) -> i64 {
        self.count_where("orders", "status = 'CLOSED'").await
    }

    /// The longest that a close came after its deadline, in seconds; less than zero when one was early.
    async fn lateness(&self) -> (f64, f64) {
        let statement = "SELECT min(extract(epoch FROM updated_at - expires_at))::float8,
                                max(extract(epoch FROM updated_at - expires_at))::float8
                         FROM orders WHERE status = 'CLOSED'";
        sqlx::query_as(statement).fetch_one(self.instance.app.db.pool()).await.expect("the lateness")
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orders_are_closed_on_time_also_behind_one_of_seven_days() {
    let broker = Broker::fresh().await;
    let app = working(&broker).await;
    let week = app.order_with_timer("R1-week", 604_800).await;
    let mut soon = Vec::new();
    for index in 0..30 {
        soon.push(app.order_with_timer("R1", 1 + index % 3).await);
    }
    app.eventually("all but one are closed", async || app.are_closed(&soon).await).await;
    let (earliest, latest) = app.lateness().await;
    println!("the earliest of 30 timeouts came {earliest:.3} s after its deadline, the latest {latest:.3} s");
    assert!(earliest >= 0.0 && latest < 9.0, "{earliest} s to {latest} s");
    assert_eq!(app.status_of(&week).await, "PENDING");
    assert!(broker.ready("wait.524288s").await >= 1);
    assert!(app.run_one("orders.sweep").await);
    broker.end(app).await;
}

/// The stories of `timeouts` that any delay queue must bear. Their clock is moved by hand and the broker's is not, so
/// the sweep closes what the broker still holds back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_stories_of_timeouts_hold_over_rabbitmq() {
    let broker = Broker::fresh().await;
    timeouts::an_order_with_a_live_attempt_is_closed_at_its_channel_first_over(broker.vars()).await;
    timeouts::an_order_paid_in_silence_before_its_deadline_is_paid_at_its_deadline_over(broker.vars()).await;
    timeouts::instances_that_sweep_at_once_close_each_order_once_over(broker.vars()).await;
    broker.clear().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_is_killed_keeps_the_timers_and_refuses_no_order() {
    let mut server = private_rabbitmq().await;
    let broker = Broker::on(&server.url());
    let app = working(&broker).await;
    app.order_with_timer("R2-later", 600).await;
    let meanwhile = app.order_with_timer("R2-meanwhile", 12).await;
    // What a broker was told to keep it writes down within two seconds, or later on a busy machine; killed before, it may
    // forget a binding.
    tokio::time::sleep(Duration::from_secs(6)).await;

    server.kill().await.expect("killed");
    let before = app.left_to_sweep().await;
    let mut refused = Vec::new();
    for index in 0..10 {
        let asked = Instant::now();
        refused.push(format!("R2-{index}"));
        app.order_of_seconds(&refused[index], 1).await;
        assert!(asked.elapsed() < Duration::from_secs(1), "{:?}", asked.elapsed());
    }
    assert_eq!(readiness(&app).await, "degraded");
    app.eventually("their timers are left to the sweep", async || app.left_to_sweep().await >= before + 10.0)
        .await;
    tokio::time::sleep(Duration::from_millis(2100)).await;
    assert!(app.run_one("orders.sweep").await);
    assert!(app.are_closed(&refused).await, "the sweep is the net");

    server.restart().await.expect("restarted");
    for _ in 0..40 {
        if app.status_of(&meanwhile).await == "CLOSED" && readiness(&app).await == "ready" {
            break;
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    assert_eq!(app.status_of(&meanwhile).await, "CLOSED", "what ran out while it was away comes");
    assert!(broker.ready("wait.512s").await >= 1, "what had not run out waits on");
    let after = app.order_with_timer("R2-after", 3).await;
    app.eventually("new timers run", async || app.status_of(&after).await == "CLOSED").await;
    assert!(app.run_one("orders.sweep").await);
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_hangs_holds_up_no_order() {
    let mut server = private_rabbitmq().await;
    let broker = Broker::on(&server.url());
    let app = working(&broker).await;
    server.pause().await.expect("paused");
    for index in 0..20 {
        let asked = Instant::now();
        app.order_of_seconds(&format!("R3-{index}"), 1).await;
        assert!(asked.elapsed() < Duration::from_secs(1), "{:?}", asked.elapsed());
    }
    app.eventually("it counts as away", async || readiness(&app).await == "degraded").await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(app.run_one("orders.sweep").await);
    assert_eq!(app.closed().await, 20);
    server.resume().await.expect("resumed");
    // What was asked of it while it hung may run into its deadline only now: that is not held against the connection
    // that there is by then.
    app.eventually("it is back", async || readiness(&app).await == "ready").await;
    let after = app.order_with_timer("R3-after", 3).await;
    app.eventually("timers run", async || app.status_of(&after).await == "CLOSED").await;
    assert!(app.run_one("orders.sweep").await);
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn timers_in_the_hands_of_a_dead_worker_come_to_the_next() {
    let broker = Broker::fresh().await;
    let cluster =
        Cluster::start(2, TestOptions { vars: without_sweep(&broker), ..TestOptions::default() }).await;
    let Cluster { mut instances } = cluster;
    let (dying, app) = (instances.pop().expect("the second"), instances.pop().expect("the first"));
    app.order_with_timer("R4-first", 600).await;
    for index in 0..5 {
        app.order_of_seconds(&format!("R4-{index}"), 3).await;
    }
    // It takes them in hand, and dies before its commit: its database is gone.
    assert!(dying.run_one("orders.expire").await);
    tokio::time::sleep(Duration::from_millis(3500)).await;
    dying.instance.app.db.close().await;
    assert!(!dying.run_one("orders.expire").await, "it has them, and cannot close them");
    assert!(app.run_one("orders.expire").await);
    assert_eq!(app.closed().await, 0, "they are in the other's hands");

    // With its connection gone, the broker gives what it had to another.
    dying.instance.stop().await;
    app.eventually("they come again", async || app.run_one("orders.expire").await && app.closed().await == 5)
        .await;
    app.eventually("and are forgotten", async || broker.ready("due").await == 0).await;
    broker.end(app).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_timer_that_comes_twice_or_for_a_paid_order_does_nothing() {
    let broker = Broker::fresh().await;
    let app = working(&broker).await;
    app.order_of_seconds("R5-paid", 2).await;
    let id = app.pay_url("R5-paid").await.expect(200).text_of("pay_order_id").to_owned();
    app.deliver(&app.success("e1", &id, "t1", 1990)).await;
    app.order_of_seconds("R5-open", 1).await;
    app.order_of_seconds("R5-later", 600).await;
    // The message is a hint: the order's own deadline decides.
    let now = payonce::infra::clock::unix_millis(app.clock.now());
    for order_no in ["R5-open", "R5-open", "R5-later", "R5-none"] {
        publish(&broker, json!({"member": format!("demo:{order_no}"), "due_at_ms": now + 500})).await;
    }
    app.eventually("the open one is closed", async || app.status_of("R5-open").await == "CLOSED").await;
    tokio::time::sleep(Duration::from_millis(2000)).await;
    assert_eq!(
        (app.status_of("R5-paid").await, app.status_of("R5-later").await),
        ("PAID".into(), "PENDING".into())
    );
    assert_eq!(app.count_where("outbox", "event = 'order.closed'").await, 1);
    assert_eq!((broker.ready("due").await, broker.ready("parked").await), (0, 0));
    broker.end(app).await;
}

async fn publish(broker: &Broker, body: serde_json::Value) {
    let body = serde_json::to_vec(&body).expect("json");
    let queue = broker.queue("due");
    let options = BasicPublishOptions::default();
    let channel = broker.channel().await;
    channel
        .basic_publish("".into(), queue.into(), options, &body, BasicProperties::default())
        .await
        .expect("sent");
    channel.close(200, "sent".into()).await.expect("closed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_nobody_can_read_is_parked_and_stops_no_other() {
    let broker = Broker::fresh().await;
    let app = working(&broker).await;
    app.eventually("the queues are there", async || app.run_one("orders.expire").await).await;
    for body in [json!("poison"), json!({"member": "no order", "due_at_ms": 0}), json!({"member": "demo:X"})]
    {
        publish(&broker, body).await;
    }
    let other = app.order_with_timer("R6", 1).await;
    app.eventually("the others go on", async || app.status_of(&other).await == "CLOSED").await;
    app.eventually("they are parked", async || broker.ready("parked").await == 3).await;
    broker.end(app).await;
}

#[tokio::test]
async fn without_any_broker_the_sweep_closes_what_is_due() {
    let broker = Broker::on("amqp://guest:guest@127.0.0.1:1/%2f");
    let app = by_hand(&broker).await;
    app.order_of_seconds("R7", 60).await;
    let id = app.pay_url("R7").await.expect(200).text_of("pay_order_id").to_owned();
    assert_eq!(readiness(&app).await, "degraded");
    assert_eq!(app.admin_get("/admin/overview").await.expect(200).body["degraded"], json!(["rabbitmq"]));
    app.clock.advance(seconds(62));
    app.run_until_idle().await;
    assert_eq!(app.find_order("R7").await["close_reason"], "TIMEOUT");
    assert_eq!(app.sandbox_trade(&id).await["status"], "CLOSED");
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queues_that_are_deleted_under_way_are_made_again() {
    let broker = Broker::fresh().await;
    let app = working(&broker).await;
    app.order_of_seconds("R8-lost", 2).await;
    Broker { url: broker.url.clone(), prefix: broker.prefix.clone() }.clear().await;
    // The first message after it comes back; the next finds the queues made anew.
    app.order_of_seconds("R8-first", 600).await;
    app.eventually("the queues are there again", async || {
        tokio::time::sleep(Duration::from_millis(200)).await;
        app.order_of_seconds(&format!("R8-{}", app.count("orders").await), 1).await;
        app.closed().await > 0
    })
    .await;
    tokio::time::sleep(Duration::from_millis(3100)).await;
    assert!(app.run_one("orders.sweep").await);
    assert_eq!(app.status_of("R8-lost").await, "CLOSED");
    broker.end(app).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ladder_of_another_kind_is_said_aloud_and_used_once_it_is_gone() {
    let broker = Broker::fresh().await;
    let exchange = format!("{}.order_timeout", broker.prefix);
    let channel = broker.channel().await;
    let durable = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
    let name = || exchange.as_str().into();
    let declared = channel.exchange_declare(name(), ExchangeKind::Fanout, durable, FieldTable::default());
    declared.await.expect("an exchange");
    let app = TestApp::start_with(TestOptions {
        workers: true,
        vars: without_sweep(&broker),
        ..TestOptions::default()
    })
    .await;
    let ready = async || app.get("/readyz").await.expect(200).body;
    app.eventually("it is refused", async || ready().await["timers"] == "down").await;
    let standing = ready().await;
    assert_eq!((&standing["status"], &standing["broker"]), (&json!("degraded"), &json!("up")), "{standing}");
    assert_eq!(app.admin_get("/admin/overview").await.expect(200).body["degraded"], json!(["timers"]));
    app.order_of_seconds("R12", 600).await;

    channel.exchange_delete(name(), ExchangeDeleteOptions::default()).await.expect("deleted");
    app.eventually("it is ready", async || ready().await["status"] == "ready").await;
    let other = app.order_with_timer("R12", 1).await;
    app.eventually("its timer is kept", async || app.status_of(&other).await == "CLOSED").await;
    broker.end(app).await;
}

async fn with_fake(broker: &FakeBroker) -> TestApp {
    TestApp::start_with(TestOptions { vars: broker.vars(), ..TestOptions::default() }).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_takes_connections_and_says_nothing_costs_one_at_a_time() {
    let broker = FakeBroker::start(Manner { is_dumb: true, ..Manner::default() }).await;
    let app = with_fake(&broker).await;
    let began = Instant::now();
    while Seen::count(&broker.seen.connections) < 4 {
        assert_eq!(readiness(&app).await, "degraded");
        assert!(app.run_one("orders.expire").await);
        assert!(began.elapsed() < Duration::from_secs(60), "it is not tried again");
    }
    println!("four connections in {:?}", began.elapsed());
    assert_eq!(Seen::count(&broker.seen.most_open), 1, "at a time");
    app.eventually("what was given up is gone", async || Seen::count(&broker.seen.open) == 0).await;

    broker.behaves(Manner::default());
    app.eventually("it is back", async || readiness(&app).await == "ready").await;
    app.end().await;
}

/// An order's timer that is not due for a while.
fn early(app: &TestApp) -> Option<String> {
    let due_at_ms = payonce::infra::clock::unix_millis(app.clock.now()) + 600_000;
    Some(json!({"member": "demo:R9", "due_at_ms": due_at_ms}).to_string())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_confirms_slowly_is_waited_for_and_gets_each_timer_once() {
    let broker = FakeBroker::start(Manner::default()).await;
    let app = with_fake(&broker).await;
    let slow = Some(Duration::from_millis(1500));
    broker.behaves(Manner { confirm_after: slow, delivery: early(&app), ..Manner::default() });
    let seen = &broker.seen;
    app.eventually("it is sent on", async || {
        app.run_one("orders.expire").await && Seen::count(&seen.acks) == 1
    })
    .await;
    for _ in 0..10 {
        assert!(app.run_one("orders.expire").await);
    }
    assert_eq!((Seen::count(&seen.publishes), Seen::count(&seen.nacks)), (1, 0));
    assert_eq!(Seen::count(&seen.connections), 1);
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_in_alarm_holds_nothing_up_and_is_seen() {
    let broker = FakeBroker::start(Manner::default()).await;
    let app = with_fake(&broker).await;
    broker.behaves(Manner { confirm_after: None, delivery: early(&app), ..Manner::default() });
    app.eventually("it is asked to take a timer in", async || {
        let began = Instant::now();
        assert!(app.run_one("orders.expire").await);
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
        Seen::count(&broker.seen.publishes) == 1
    })
    .await;
    for index in 0..20 {
        let began = Instant::now();
        assert_eq!(readiness(&app).await, "degraded");
        app.order_of_seconds(&format!("R10-{index}"), 60).await;
        assert!(app.run_one("orders.expire").await);
        assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    }
    // It goes on when it has room again, on the connection that there is.
    assert_eq!((Seen::count(&broker.seen.publishes), Seen::count(&broker.seen.connections)), (1, 1));
    app.end().await;
}
