//! Several relays, slow neighbours, and a broker that is away.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use lapin::options::{BasicGetOptions, QueueBindOptions, QueueDeclareOptions};
use lapin::types::FieldTable;
use serde_json::json;
use sqlx::{AssertSqlSafe, Executor, PgConnection};

use crate::support::receiver::{Manner, Receiver};
use crate::support::servers::{Broker, private_rabbitmq};
use crate::support::{Cluster, TestApp, TestOptions, UNTOLD, until_waiting};

/// So many orders with these events each, appended at once, spread over the orders.
pub async fn append_many(app: &TestApp, merchant: &str, prefix: &str, orders: usize, each: usize) {
    app.sql(&format!(
        "INSERT INTO outbox (merchant_id, order_no, event, event_version, payload, created_at)
         SELECT '{merchant}', '{prefix}' || o, 'story.told', 1,
                jsonb_build_object('order_no', '{prefix}' || o, 'seq', s), '{}'
         FROM generate_series(1, {each}) AS s, generate_series(1, {orders}) AS o",
        app.clock.now()
    ))
    .await;
}

/// What was told of each order, in order of first arrival, is 1, 2, 3 …
pub fn assert_in_order(receiver: &Receiver, prefix: &str, orders: usize, each: usize) {
    let mut told: HashMap<String, Vec<u64>> = HashMap::new();
    for call in receiver.calls().iter().filter(|call| call.order_no().starts_with(prefix)) {
        let seq = call.json()["data"]["seq"].as_u64().expect("a number");
        let known = told.entry(call.order_no()).or_default();
        if !known.contains(&seq) {
            known.push(seq);
        }
    }
    assert_eq!(told.len(), orders, "every order was heard of");
    let wanted: Vec<u64> = (1..=each as u64).collect();
    for (order_no, seqs) in told {
        assert_eq!(seqs, wanted, "{order_no}");
    }
}

#[tokio::test]
async fn what_was_told_is_written_down_although_somebody_else_wrote_to_its_row_meanwhile() {
    let receiver = Receiver::start().await;
    let app = TestApp::start().await;
    app.tell_at(Some(&receiver.url)).await;
    receiver.behaves([Manner::Slow(Duration::from_millis(200))]);
    app.closed_order("W1").await;
    let mut other = app.direct_connection().await;
    tokio::join!(app.run_until_idle(), async {
        app.eventually("it is being told", async || receiver.calls().len() == 1).await;
        other.execute("BEGIN; UPDATE deliveries SET last_error = 'looked at'").await.expect("its row");
        until_waiting(&app, 1).await;
        other.execute("COMMIT").await.expect("the row is free");
    });
    let told =
        app.count_where("deliveries", "status = 'DELIVERED' AND attempts = 1 AND leased_until IS NULL").await;
    assert_eq!((told, receiver.calls().len()), (1, 1));
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_relays_at_once_lose_nothing_and_keep_the_order_of_every_order() {
    let receiver = Receiver::start().await;
    let options = TestOptions { workers: true, ..TestOptions::default() };
    let cluster = Cluster::start(2, options).await;
    let app = cluster.first();
    app.tell_at(Some(&receiver.url)).await;
    receiver.behaves((0..20).map(|_| Manner::Slow(Duration::from_millis(30))));
    append_many(app, "demo", "two-", 300, 4).await;
    app.eventually("all of it is told", async || {
        app.count_where("outbox", &format!("{UNTOLD} AND order_no LIKE 'two-%'")).await == 0
    })
    .await;
    assert_in_order(&receiver, "two-", 300, 4);
    println!("{} calls for 1200 events", receiver.calls().len());
    assert_eq!(app.count_where("deliveries", "status = 'DELIVERED'").await, 1200);
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_committed_late_is_told_in_its_turn_also_beside_a_snapshot_that_stays_open() {
    let receiver = Receiver::start().await;
    let app = TestApp::start_working().await;
    app.tell_at(Some(&receiver.url)).await;
    let (mut looking, mut late) = (app.direct_connection().await, app.direct_connection().await);
    run(&mut looking, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM outbox").await;
    run(&mut late, "BEGIN").await;
    run(&mut late, &appended("late-1", 1)).await;
    // For so long that looks begin behind it.
    for number in 1..=70 {
        append_many(&app, "demo", &format!("flow-{number}-"), 1, 1).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let since = Instant::now();
    run(&mut late, "COMMIT").await;
    run(&mut late, &appended("late-1", 2)).await;
    app.eventually("all of it is told", async || app.count_where("outbox", UNTOLD).await == 0).await;
    println!("what was committed late was told after {:?}", since.elapsed());
    assert_in_order(&receiver, "late-", 1, 2);
    assert_in_order(&receiver, "flow-", 70, 1);
    run(&mut looking, "COMMIT").await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beside_a_snapshot_that_stays_open_no_turn_walks_past_all_that_its_lane_had() {
    // So many that a walk past them takes long on any machine: a short one is not worth a mark.
    const HAD: i64 = 500_000;
    const TURNS: i64 = 30;
    let app = TestApp::start().await;
    let mut looking = app.direct_connection().await;
    run(&mut looking, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM outbox").await;
    app.sql(&format!(
        "INSERT INTO deliveries (event_id, kind, event, merchant_id, order_no, lane, body, status, due_at, created_at,
                                 updated_at)
         SELECT g, 'REPLAY_CALLBACK', 'story.told', 'demo', 'O' || g, 'demo', '{{}}', 'PENDING',
                CASE WHEN g = 0 THEN now() + interval '1 day' ELSE now() - interval '1 hour' END, now(), now()
         FROM generate_series(0, {HAD}) AS g;
         UPDATE deliveries SET status = 'DELIVERED' WHERE event_id > 0"
    ))
    .await;
    let telling = TestApp::start_with(TestOptions::over(&app)).await;
    for turn in 0..TURNS {
        telling.instance.app.relay.run_once().await.expect("a turn");
        if turn < 3 {
            // Its mark settles.
            tokio::time::sleep(Duration::from_millis(1_100)).await;
        }
    }
    // A connection tells what it read when it is closed.
    telling.instance.app.db.close().await;
    let read = "SELECT idx_tup_read FROM pg_stat_user_indexes WHERE indexrelname = 'deliveries_due'";
    let read: i64 =
        sqlx::query_scalar(read).fetch_one(&mut app.direct_connection().await).await.expect("a figure");
    println!("{read} entries were read in {TURNS} turns");
    assert!((HAD..TURNS * HAD / 3).contains(&read), "{read} entries were read in {TURNS} turns");
    run(&mut looking, "COMMIT").await;
    app.sql("DELETE FROM deliveries").await;
    app.end().await;
}

/// An event of an order.
fn appended(order_no: &str, seq: usize) -> String {
    format!(
        "INSERT INTO outbox (merchant_id, order_no, event, event_version, payload, created_at)
         VALUES ('demo', '{order_no}', 'story.told', 1, jsonb_build_object('order_no', '{order_no}', 'seq', {seq}), now())"
    )
}

async fn run(connection: &mut PgConnection, sql: &str) {
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(connection).await.expect(sql);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_event_leaves_at_once() {
    let receiver = Receiver::start().await;
    let app = TestApp::start_working().await;
    app.tell_at(Some(&receiver.url)).await;
    let (mut late, mut closed) = (Vec::new(), Vec::new());
    for number in 0..20 {
        let order_no = format!("F{number}");
        let since = Instant::now();
        app.closed_order(&order_no).await;
        closed.push(since.elapsed());
        let since = Instant::now();
        while receiver.told_of(&order_no).is_empty() {
            assert!(since.elapsed() < Duration::from_secs(5), "{order_no} is not told");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        late.push(since.elapsed());
    }
    late.sort();
    closed.sort();
    println!("an event is told {:?} after its commit, {:?} at the latest of 20", late[10], late[19]);
    // On a machine that takes long for everything, no longer than two requests twice.
    assert!(late[10] < Duration::from_millis(80).max(2 * closed[10]), "{late:?} beside {closed:?}");
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endpoints_that_hang_or_are_dead_hold_nobody_else_up() {
    let (well, hanging) = (Receiver::start().await, Receiver::start().await);
    hanging.always(Manner::Hang);
    let app = TestApp::start_working().await;
    app.tell_at(Some(&well.url)).await;
    for (name, url) in [("hang", hanging.url.as_str()), ("dead", "http://127.0.0.1:9/")] {
        app.merchant(name, "hold").await;
        let body = json!({"notify_url": url, "reason": "a story"});
        app.admin_post(&format!("/admin/merchants/{name}/notify-url"), body).await.expect(200);
        append_many(&app, name, "stuck-", 1500, 1).await;
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    append_many(&app, "demo", "free-", 200, 2).await;
    let since = Instant::now();
    app.eventually("the others hear all of it", async || {
        app.count_where("outbox", &format!("{UNTOLD} AND order_no LIKE 'free-%'")).await == 0
    })
    .await;
    println!("400 events beside a hanging and a dead endpoint took {:?}", since.elapsed());
    assert_in_order(&well, "free-", 200, 2);
    assert!(since.elapsed() < Duration::from_secs(5), "{:?}", since.elapsed());
    assert!(hanging.calls().len() <= 64, "it gets a few at a time: {}", hanging.calls().len());
    app.end().await;
}

#[tokio::test]
async fn endpoints_that_take_everything_late_hold_nobody_else_up() {
    let (well, late) = (Receiver::start().await, Receiver::start().await);
    late.always(Manner::Slow(Duration::from_millis(2_500)));
    let app = TestApp::start_working().await;
    app.tell_at(Some(&well.url)).await;
    for number in 0..20 {
        let name = format!("late-{number}");
        app.merchant(&name, "hold").await;
        let body = json!({"notify_url": late.url, "reason": "a story"});
        app.admin_post(&format!("/admin/merchants/{name}/notify-url"), body).await.expect(200);
        append_many(&app, &name, &format!("{name}-"), 400, 1).await;
    }
    app.eventually("they take the first ones", async || {
        app.count_where("deliveries", "merchant_id <> 'demo' AND status = 'DELIVERED'").await > 200
    })
    .await;
    append_many(&app, "demo", "free-", 300, 2).await;
    let since = Instant::now();
    app.eventually("the others hear all of it", async || {
        app.count_where("outbox", &format!("{UNTOLD} AND order_no LIKE 'free-%'")).await == 0
    })
    .await;
    println!("600 events beside twenty endpoints that dawdle took {:?}", since.elapsed());
    assert_in_order(&well, "free-", 300, 2);
    assert!(since.elapsed() < Duration::from_secs(5), "{:?}", since.elapsed());
    app.end().await;
}

#[tokio::test]
async fn a_delivery_in_the_hands_of_a_dead_sender_is_taken_over_and_nobody_else_s_is() {
    let receiver = Receiver::start().await;
    let app = TestApp::start().await;
    app.tell_at(Some(&receiver.url)).await;
    append_many(&app, "demo", "held-", 1, 2).await;
    // Another sender has the first one, and the second one waits behind it.
    app.sql(
        "INSERT INTO deliveries (event_id, kind, event, merchant_id, order_no, lane, body, status, due_at, leased_until,
                                 created_at, updated_at)
         SELECT id, 'REPLAY_CALLBACK', event, merchant_id, order_no, 'demo',
                '{\"type\":\"story.told\",\"data\":' || payload::text || '}', 'PENDING', created_at,
                created_at + interval '20 s', created_at, created_at
         FROM outbox ORDER BY id LIMIT 1;
         DELETE FROM outbox_queue WHERE event_id = (SELECT min(id) FROM outbox)",
    )
    .await;
    for _ in 0..3 {
        app.instance.app.relay.run_once().await.expect("a turn");
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
    assert_eq!(receiver.calls().len(), 0, "the first is in another's hand, the second behind it");
    app.clock.advance(Duration::from_secs(21));
    app.run_until_idle().await;
    assert_in_order(&receiver, "held-", 1, 2);
    app.end().await;
}

/// A queue that gets every event.
async fn all_events(broker: &Broker) -> (lapin::Channel, String) {
    let (channel, name) = (broker.channel().await, format!("{}.all", broker.prefix));
    let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    channel.queue_declare(name.as_str().into(), durable, FieldTable::default()).await.expect("a queue");
    let exchange = format!("{}.events", broker.prefix);
    let bound = channel.queue_bind(
        name.as_str().into(),
        exchange.as_str().into(),
        "#".into(),
        QueueBindOptions::default(),
        FieldTable::default(),
    );
    bound.await.expect("bound");
    (channel, name)
}

/// Everything that is in it: routing key, message id, body.
async fn drained(channel: &lapin::Channel, name: &str) -> Vec<(String, String, serde_json::Value)> {
    let mut told = Vec::new();
    let options = BasicGetOptions { no_ack: true };
    while let Some(got) = channel.basic_get(name.into(), options).await.expect("an answer") {
        let id = got.properties.message_id().clone().expect("an id").to_string();
        assert_eq!(*got.properties.delivery_mode(), Some(2), "it survives a restart");
        let body = serde_json::from_slice(&got.delivery.data).expect("JSON");
        told.push((got.delivery.routing_key.to_string(), id, body));
    }
    told
}

/// The variables that let an instance tell it of events.
pub fn vars(broker: &Broker) -> Vec<(&'static str, String)> {
    vec![("AMQP_URL", broker.url.clone()), ("AMQP_PREFIX", broker.prefix.clone())]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_event_goes_to_the_broker_under_its_name_and_id() {
    let broker = Broker::fresh().await;
    let receiver = Receiver::start().await;
    let app = TestApp::start_with(TestOptions { vars: vars(&broker), ..TestOptions::default() }).await;
    app.tell_at(Some(&receiver.url)).await;
    // The first event makes the exchange.
    app.closed_order("B0").await;
    app.run_until_idle().await;
    let (channel, name) = all_events(&broker).await;
    app.paid("B1").await;
    let told = drained(&channel, &name).await;
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!((told[0].0.as_str(), &told[0].2["data"]["order_no"]), ("order.paid", &json!("B1")));
    let call = receiver.calls().pop().expect("told");
    assert_eq!((told[0].1.as_str(), &told[0].2), (call.id(), &call.json()), "both hear the same");
    let kinds: Vec<_> = app.event_of("B1").await["deliveries"]
        .as_array()
        .expect("both")
        .iter()
        .map(|one| (one["kind"].as_str().expect("a kind").to_owned(), one["status"] == "DELIVERED"))
        .collect();
    assert_eq!(kinds, [("REPLAY_CALLBACK".to_owned(), true), ("RESEND_EVENT".to_owned(), true)]);
    channel
        .queue_delete(name.as_str().into(), lapin::options::QueueDeleteOptions::default())
        .await
        .expect("deleted");
    broker.end(app).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_happens_while_the_broker_is_away_reaches_it_in_order_afterwards() {
    let mut server = private_rabbitmq().await;
    let broker = Broker::on(&server.url());
    let options = TestOptions { workers: true, vars: vars(&broker), ..TestOptions::default() };
    let app = TestApp::start_with(options).await;
    append_many(&app, "demo", "before-", 1, 1).await;
    app.eventually("the exchange is there", async || app.count_where("outbox", UNTOLD).await == 0).await;
    let (_, name) = all_events(&broker).await;
    // What a broker was told to keep it writes down within two seconds, or later on a busy machine; killed before, it may
    // forget the binding.
    tokio::time::sleep(Duration::from_secs(6)).await;
    server.kill().await.expect("killed");
    append_many(&app, "demo", "away-", 100, 3).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(app.count_where("outbox", &format!("{UNTOLD} AND order_no LIKE 'away-%'")).await, 300);
    assert_eq!(
        app.count_where("deliveries", "status = 'DEAD' OR attempts > 0 AND status = 'PENDING'").await,
        0
    );

    server.restart().await.expect("restarted");
    let since = Instant::now();
    while app.count_where("outbox", UNTOLD).await > 0 {
        assert!(since.elapsed() < Duration::from_secs(40), "it does not drain");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    println!("300 events drained {:?} after the broker was back", since.elapsed());
    let told = drained(&broker.channel().await, &name).await;
    let mut orders: HashMap<String, Vec<u64>> = HashMap::new();
    for (_, _, body) in told {
        let seq = body["data"]["seq"].as_u64().expect("a number");
        let known =
            orders.entry(body["data"]["order_no"].as_str().expect("an order").to_owned()).or_default();
        if !known.contains(&seq) {
            known.push(seq);
        }
    }
    assert_eq!(orders.len(), 100, "each order's events are in the queue");
    assert!(orders.values().all(|seqs| *seqs == [1, 2, 3]), "{orders:?}");
    app.end().await;
}

#[tokio::test]
async fn an_event_that_the_database_refuses_is_a_dead_letter_and_stops_no_other() {
    let receiver = Receiver::start().await;
    let app = TestApp::start().await;
    app.tell_at(Some(&receiver.url)).await;
    app.sql(
        "ALTER TABLE deliveries ADD CONSTRAINT story_refuses CHECK (order_no <> 'bad-1' OR status = 'DEAD')",
    )
    .await;
    append_many(&app, "demo", "good-", 20, 1).await;
    append_many(&app, "demo", "bad-", 1, 1).await;
    append_many(&app, "demo", "late-", 20, 1).await;
    app.run_until_idle().await;
    assert_in_order(&receiver, "good-", 20, 1);
    assert_in_order(&receiver, "late-", 20, 1);
    let dead = "status = 'DEAD' AND order_no = 'bad-1' AND last_error LIKE '%story_refuses%'";
    assert_eq!((app.count_where("deliveries", dead).await, receiver.told_of("bad-1").len()), (1, 0));
    assert_eq!(app.count_where("exceptions", "kind = 'DEAD_TASK' AND status = 'OPEN'").await, 1);

    app.sql("ALTER TABLE deliveries DROP CONSTRAINT story_refuses").await;
    let id = app.event_of("bad-1").await["event_id"].as_str().expect("an id").to_owned();
    app.admin_post(&format!("/admin/outbox/{id}/resend"), json!({"reason": "mended"})).await.expect(200);
    app.run_until_idle().await;
    assert_in_order(&receiver, "bad-", 1, 1);
    assert_eq!(app.count_where("exceptions", "status = 'OPEN'").await, 0);
    app.end().await;
}

#[tokio::test]
async fn a_lane_behind_a_thousand_others_has_its_turn() {
    let receiver = Receiver::start().await;
    let app = TestApp::start().await;
    app.tell_at(Some(&receiver.url)).await;
    receiver.behaves([Manner::status(500)]);
    app.closed_order("L1").await;
    app.run_until_idle().await;
    app.sql(&format!(
        "WITH event AS (
             INSERT INTO outbox (event, event_version, payload, created_at)
             SELECT 'story.told', 1, '{{}}', '{now}' FROM generate_series(1, 2500) RETURNING id
         )
         INSERT INTO deliveries (event_id, kind, event, lane, body, status, due_at, created_at, updated_at)
         SELECT id, 'REPLAY_CALLBACK', 'story.told', 'a ' || id, '{{}}', 'PENDING', '{later}', '{now}', '{now}'
         FROM event;
         DELETE FROM outbox_queue",
        now = app.clock.now(),
        later = app.clock.now() + Duration::from_secs(86_400),
    ))
    .await;
    app.clock.advance(Duration::from_secs(10));
    app.run_until_idle().await;
    assert_eq!(receiver.told_of("L1").len(), 2, "its second try is due");
    app.end().await;
}

/// The event's callback ended so, and its message is still on its way.
async fn half_told(app: &TestApp, order_no: &str, status: &str) {
    app.sql(&format!(
        "UPDATE deliveries SET status = '{status}' WHERE order_no = '{order_no}' AND kind = 'REPLAY_CALLBACK';
         INSERT INTO deliveries (event_id, kind, event, merchant_id, order_no, lane, body, status, due_at, created_at,
                                 updated_at)
         SELECT event_id, 'RESEND_EVENT', event, merchant_id, order_no, '*', body, 'PENDING', due_at, created_at,
                updated_at
         FROM deliveries WHERE order_no = '{order_no}'
         ON CONFLICT DO NOTHING"
    ))
    .await;
}

#[tokio::test]
async fn what_ended_in_one_place_is_sent_there_again_while_it_is_on_its_way_to_another() {
    let receiver = Receiver::start().await;
    let app = TestApp::start().await;
    app.tell_at(Some(&receiver.url)).await;
    app.closed_order("H1").await;
    app.run_until_idle().await;
    let id = receiver.calls()[0].id().to_owned();

    half_told(&app, "H1", "DEAD").await;
    app.admin_post(&format!("/admin/outbox/{id}/resend"), json!({"reason": "again"})).await.expect(200);
    assert_eq!(app.count_where("deliveries", "status = 'PENDING'").await, 2);
    app.run_until_idle().await;
    assert_eq!(receiver.told_of("H1").len(), 2);

    half_told(&app, "H1", "DROPPED").await;
    let again = json!({"merchant_id": "demo", "since": "2026-01-01T00:00:00Z", "only_undelivered": true,
                       "reason": "it is back"});
    let sent = app.admin_post("/admin/outbox/resend", again.clone()).await.expect(200).body;
    assert_eq!((&sent["events"], app.count_where("deliveries", "status = 'PENDING'").await), (&json!(1), 2));
    app.run_until_idle().await;
    assert_eq!(receiver.told_of("H1").len(), 3);
    let sent = app.admin_post("/admin/outbox/resend", again).await.expect(200).body;
    assert_eq!(sent["events"], 0, "it arrived there");
    let calls = receiver.calls();
    assert!(calls.iter().all(|call| (call.id(), &call.body) == (id.as_str(), &calls[0].body)));

    app.sql("DELETE FROM deliveries WHERE kind = 'RESEND_EVENT'").await;
    app.end().await;
}

#[tokio::test]
async fn an_event_that_is_sent_again_does_not_wait_for_later_ones() {
    let receiver = Receiver::start().await;
    let app = TestApp::start().await;
    app.tell_at(Some(&receiver.url)).await;
    append_many(&app, "demo", "again-", 1, 1).await;
    app.run_until_idle().await;
    receiver.behaves([Manner::status(500)]);
    app.append_events("again-1", &["{\"order_no\": \"again-1\", \"seq\": 2}"]).await;
    app.run_until_idle().await;
    assert_eq!(receiver.told_of("again-1").len(), 2);
    let again = json!({"merchant_id": "demo", "since": "2026-01-01T00:00:00Z", "reason": "once more"});
    assert_eq!(app.admin_post("/admin/outbox/resend", again).await.expect(200).body["events"], 1);
    app.run_until_idle().await;
    assert_eq!(receiver.calls().last().expect("a call").json()["data"]["seq"], 1, "at once");
    app.clock.advance(Duration::from_secs(10));
    app.run_until_idle().await;
    assert_in_order(&receiver, "again-", 1, 2);
    app.end().await;
}
