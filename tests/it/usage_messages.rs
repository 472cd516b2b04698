//! Reports of usage from RabbitMQ: acknowledged after the commit, harmless when they come again, and for a person when
//! they can never be done.

use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use lapin::options::{BasicConsumeOptions, QueueDeclareOptions, QueueDeleteOptions};
use lapin::types::FieldTable;
use payonce::usage;
use serde_json::{Value, json};

use crate::support::metering::hold_with;
use crate::support::servers::{Broker, send_letter};
use crate::support::{TestApp, TestOptions, metric, minutes, stores};

async fn start(broker: &Broker) -> TestApp {
    start_with(broker, TestOptions::default()).await
}

async fn start_with(broker: &Broker, mut options: TestOptions) -> TestApp {
    options.vars.extend([("AMQP_URL", broker.url.clone()), ("AMQP_PREFIX", broker.prefix.clone())]);
    let app = TestApp::start_with(options).await;
    app.top_up("T", "u1", 1_000).await;
    app.tokens("1").await;
    // The queues come to be.
    usage::consume(&app.instance.app).await.expect("a look");
    app
}

async fn tell(broker: &Broker, message: &Value) {
    send_letter(&broker.url, &format!("{}.usage.report", broker.prefix), message.to_string().as_bytes())
        .await;
}

fn message(hold_id: &str, message_id: &str, units: i64) -> Value {
    json!({"merchant_id": "demo", "hold_id": hold_id, "message_id": message_id, "cumulative_units": units})
}

fn final_message(hold_id: &str, message_id: &str, units: i64) -> Value {
    let mut message = message(hold_id, message_id, units);
    message["final"] = json!(true);
    message
}

async fn waiting(broker: &Broker, queue: &str) -> u32 {
    let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
    let name = format!("{}.{queue}", broker.prefix);
    let queue = broker.channel().await.queue_declare(name.into(), passive, FieldTable::default()).await;
    queue.map_or(0, |queue| queue.message_count())
}

/// Consumes until it is so.
async fn until(app: &TestApp, what: &str, is_so: impl AsyncFn() -> bool) {
    app.eventually(what, async || {
        usage::consume(&app.instance.app).await.expect("a batch");
        is_so().await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reports_of_usage_also_come_over_the_broker_and_once() {
    let broker = Broker::fresh().await;
    let app = start(&broker).await;
    let id = app.held("k1", "u1", 300).await;
    for (name, units) in [("m2", 200), ("m1", 100), ("m2", 200), ("m3", 400), ("m1", 100)] {
        tell(&broker, &message(&id, name, units)).await;
    }
    until(&app, "all is heard", async || app.standing(&id).await == ("HELD".into(), 400, 0, Some(400))).await;
    for _ in 0..3 {
        tell(&broker, &final_message(&id, "m4", 450)).await;
    }
    until(&app, "it is charged", async || app.standing(&id).await.0 == "CONFIRMED").await;
    tell(&broker, &message(&id, "m3", 400)).await;
    // Overtaken by the last one.
    tell(&broker, &message(&id, "m0", 449)).await;
    until(&app, "nothing is left", async || waiting(&broker, "usage.report").await == 0).await;
    assert_eq!(app.standing(&id).await, ("CONFIRMED".into(), 0, 450, Some(450)));
    assert_eq!(waiting(&broker, "usage.report.dead").await, 0);
    assert_eq!(app.cny_of("u1").await, (550, 0));
    broker.clear().await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_is_only_told_of_over_the_broker_hears_once_that_it_should_stop() {
    let broker = Broker::fresh().await;
    let app = start(&broker).await;
    let id = app.held("k1", "u1", 300).await;
    tell(&broker, &message(&id, "m1", 1_000)).await;
    until(&app, "it is heard", async || app.standing(&id).await.1 == 1_000).await;
    assert_eq!(app.told("usage.hold_exhausted").await, 0, "all of it was there");
    for (name, units) in [("m2", 1_001), ("m3", 1_002)] {
        tell(&broker, &message(&id, name, units)).await;
        until(&app, "it is heard", async || app.standing(&id).await.3 == Some(units)).await;
    }
    assert_eq!(app.report(&id, "m4", 1_003).await.problem(422), "INSUFFICIENT_BALANCE");
    let told: Vec<Value> =
        sqlx::query_scalar("SELECT payload FROM outbox WHERE event = 'usage.hold_exhausted'")
            .fetch_all(app.instance.app.db.pool())
            .await
            .expect("events");
    let expected = json!({"hold_id": id, "user_id": "u1", "product_code": "tokens", "units": 1_001, "held": 1_000,
                          "currency": "CNY", "reason": "INSUFFICIENT_BALANCE"});
    assert_eq!(told, [expected]);
    assert_eq!(waiting(&broker, "usage.report.dead").await, 0);
    broker.clear().await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_goes_on_after_a_top_up_hears_again_when_that_is_used_up_too() {
    let broker = Broker::fresh().await;
    let app = start(&broker).await;
    let id = app.held("k1", "u1", 300).await;
    let report = async |name: &str, units: i64, held: i64| {
        tell(&broker, &message(&id, name, units)).await;
        until(&app, "it is heard", async || app.standing(&id).await == ("HELD".into(), held, 0, Some(units)))
            .await;
        app.told("usage.hold_exhausted").await
    };
    assert_eq!(report("m1", 1_001, 1_000).await, 1);
    assert_eq!(report("m2", 1_002, 1_000).await, 1);
    app.top_up("T2", "u1", 100).await;
    assert_eq!(report("m3", 1_050, 1_050).await, 1, "it may go on");
    assert_eq!(report("m4", 1_101, 1_100).await, 2);
    assert_eq!(report("m5", 1_102, 1_100).await, 2);
    app.top_up("T3", "u1", 50).await;
    // The last one is told once more, and finds what it takes.
    assert_eq!(report("m5", 1_102, 1_102).await, 2);
    assert_eq!(report("m6", 1_200, 1_150).await, 3);
    tell(&broker, &final_message(&id, "m7", 1_200)).await;
    until(&app, "it is charged", async || app.standing(&id).await.0 == "CONFIRMED").await;
    assert_eq!(app.standing(&id).await, ("CONFIRMED".into(), 0, 1_150, Some(1_200)));
    assert_eq!(waiting(&broker, "usage.report.dead").await, 0);
    assert_eq!(app.told("usage.hold_exhausted").await, 3);
    broker.clear().await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_can_never_be_done_goes_to_a_person_and_holds_nobody_up() {
    let broker = Broker::fresh().await;
    let app = start(&broker).await;
    let (id, released) = (app.held("k1", "u1", 300).await, app.held("k2", "u1", 300).await);
    app.release(&released).await.expect(200);
    let unread = app.held("k3", "u1", 300).await;
    let queue = format!("{}.usage.report", broker.prefix);
    for poison in [&b"not json"[..], b"", b"{}", b"[1]", b"\xff\xfe"] {
        send_letter(&broker.url, &queue, poison).await;
    }
    tell(&broker, &message(&unread, "m1", -1)).await;
    tell(&broker, &message("uh_nothing", "m1", 1)).await;
    tell(&broker, &final_message(&released, "m1", 1)).await;
    let mut strange = message(&id, "m1", 1);
    strange["merchant_id"] = json!("other");
    tell(&broker, &strange).await;
    tell(&broker, &message(&id, "m0", 5)).await;
    until(&app, "it is heard", async || app.standing(&id).await.3 == Some(5)).await;
    // The same message says something else.
    tell(&broker, &final_message(&id, "m0", 240)).await;
    tell(&broker, &final_message(&id, "m1", 250)).await;
    until(&app, "the good one is charged", async || app.standing(&id).await.0 == "CONFIRMED").await;
    // More than what was charged.
    tell(&broker, &message(&id, "m9", 251)).await;
    until(&app, "the others wait for a person", async || waiting(&broker, "usage.report.dead").await == 11)
        .await;
    assert_eq!(app.cny_of("u1").await, (450, 300));
    // One for each hold, of all that was refused; what names no hold of its merchant has none.
    let shown = app.exceptions("status=OPEN").await;
    let of = |hold_id: &str| {
        let found = shown.iter().find(|open| open["subject"] == *hold_id).expect("an exception");
        assert_eq!((&found["kind"], &found["merchant_id"]), (&json!("USAGE_REPORT_REFUSED"), &json!("demo")));
        found["detail"].as_str().expect("words").to_owned()
    };
    assert_eq!(shown.len(), 3, "{shown:#?}");
    for refused in ["final report m0 of 240 units", "report m9 of 251 units"] {
        assert_eq!(of(&id).matches(refused).count(), 1, "{}", of(&id));
    }
    assert!(of(&released).contains("final report m1 of 1 units"), "{}", of(&released));
    assert!(of(&unread).contains("cannot be read"), "{}", of(&unread));
    broker.clear().await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_read_is_shown_to_a_person_where_it_names_a_hold_of_its_merchant() {
    const TIMES: i64 = 5;
    let broker = Broker::fresh().await;
    let app = start(&broker).await;
    refuse_with(&app, "exceptions", TIMES, "53100").await;
    let mut named = Vec::new();
    let faults = [
        ("cumulative_units", json!(250.0)),
        ("cumulative_units", json!(1_000_000_000_001_i64)),
        ("final", json!(null)),
        ("message_id", json!("")),
        // The database keeps no such character.
        ("surprise\0", json!(1)),
    ];
    for (n, (field, value)) in faults.into_iter().enumerate() {
        let id = app.held(&format!("k{n}"), "u1", 100).await;
        let mut unread = final_message(&id, "m1", 50);
        unread[field] = value;
        tell(&broker, &unread).await;
        named.push(id);
    }
    let mut strange = message(&app.held("k9", "u1", 100).await, "m1", -1);
    strange["merchant_id"] = json!("other");
    tell(&broker, &strange).await;
    until(&app, "they wait for a person", async || waiting(&broker, "usage.report.dead").await == 6).await;
    assert!(mend(&app).await > TIMES, "they came until there was room to tell of them");

    let mut shown = Vec::new();
    for open in app.exceptions("status=OPEN").await {
        assert_eq!((&open["kind"], &open["merchant_id"]), (&json!("USAGE_REPORT_REFUSED"), &json!("demo")));
        let detail = open["detail"].as_str().expect("words");
        assert!(detail.contains("cannot be read"), "{detail}");
        shown.push(open["subject"].as_str().expect("a hold").to_owned());
    }
    named.sort_unstable();
    shown.sort_unstable();
    assert_eq!(shown, named);
    assert_eq!((app.count("usage_messages").await, app.cny_of("u1").await), (0, (400, 600)));
    broker.clear().await;
    app.end().await;
}

/// Makes the database refuse the first messages that are to be marked as heard: a defect, and nothing that passes.
async fn refuse(app: &TestApp, times: i64) {
    refuse_with(app, "usage_messages", times, "P0001").await;
}

async fn refuse_with(app: &TestApp, table: &str, times: i64, code: &str) {
    app.sql(&format!(
        "CREATE SEQUENCE refused;
         CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
             IF nextval('public.refused') <= {times} THEN RAISE 'a defect' USING ERRCODE = '{code}'; END IF;
             RETURN NEW; END $$;
         CREATE TRIGGER refuse BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION refuse()"
    ))
    .await;
}

/// Takes the defect away; gives how often a message met the database.
async fn mend(app: &TestApp) -> i64 {
    let mut conn = app.direct_connection().await;
    let met =
        sqlx::query_scalar("SELECT last_value FROM refused").fetch_one(&mut conn).await.expect("a count");
    app.sql("DROP FUNCTION refuse() CASCADE; DROP SEQUENCE refused").await;
    met
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_meets_a_defect_once_is_heard_when_it_comes_again() {
    let broker = Broker::fresh().await;
    let app = start(&broker).await;
    let id = app.held("k1", "u1", 300).await;
    refuse(&app, 1).await;
    tell(&broker, &message(&id, "m1", 400)).await;
    until(&app, "it is heard", async || app.standing(&id).await == ("HELD".into(), 400, 0, Some(400))).await;
    assert_eq!(mend(&app).await, 2, "it came twice");
    refuse(&app, 1).await;
    tell(&broker, &final_message(&id, "m2", 450)).await;
    until(&app, "it is charged", async || app.standing(&id).await.0 == "CONFIRMED").await;
    assert_eq!(mend(&app).await, 2, "it came twice");
    until(&app, "nothing is left", async || waiting(&broker, "usage.report").await == 0).await;
    assert_eq!(waiting(&broker, "usage.report.dead").await, 0);
    assert_eq!((app.cny_of("u1").await, app.told("usage.charged").await), ((550, 0), 1));
    broker.clear().await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_meets_a_defect_that_stays_comes_once_more_and_then_waits_for_a_person() {
    let broker = Broker::fresh().await;
    let app = start(&broker).await;
    let id = app.held("k1", "u1", 300).await;
    refuse(&app, i64::MAX).await;
    tell(&broker, &final_message(&id, "m1", 250)).await;
    until(&app, "it waits for a person", async || waiting(&broker, "usage.report.dead").await > 0).await;
    assert_eq!(mend(&app).await, 2, "once more, and not for ever");
    tell(&broker, &message(&id, "m2", 200)).await;
    until(&app, "the next one is heard", async || app.standing(&id).await.3 == Some(200)).await;
    assert_eq!(waiting(&broker, "usage.report.dead").await, 1);
    assert_eq!(app.cny_of("u1").await, (700, 300));
    broker.clear().await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reports_that_are_read_behind_the_expiry_count_when_it_is_confirmed() {
    let broker = Broker::fresh().await;
    let app = start(&broker).await;
    let id = app.held("k1", "u1", 300).await;
    tell(&broker, &message(&id, "m1", 100)).await;
    until(&app, "it is heard", async || app.standing(&id).await.3 == Some(100)).await;
    app.clock.advance(Duration::from_secs(901));
    app.run_until_idle().await;
    for (name, units) in [("m2", 400), ("m3", 200), ("m2", 400)] {
        tell(&broker, &message(&id, name, units)).await;
    }
    until(&app, "all are heard", async || app.standing(&id).await == ("EXPIRED".into(), 0, 0, Some(400)))
        .await;
    until(&app, "nothing is left", async || waiting(&broker, "usage.report").await == 0).await;
    assert_eq!(waiting(&broker, "usage.report.dead").await, 0);
    let late = app.confirm(&id, None).await.expect(200).body;
    assert_eq!((&late["late"], &late["charged"], &late["units"]), (&json!(true), &json!(400), &json!(400)));
    assert_eq!(app.cny_of("u1").await, (600, 0));
    broker.clear().await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_disk_is_full_reports_come_again_and_none_is_set_aside() {
    const TIMES: i64 = 5;
    let broker = Broker::fresh().await;
    let app = start(&broker).await;
    let id = app.held("k1", "u1", 300).await;
    refuse_with(&app, "usage_messages", TIMES, "53100").await;
    assert_eq!(app.report(&id, "m0", 10).await.problem(503), "DATABASE_UNAVAILABLE");
    tell(&broker, &final_message(&id, "m1", 250)).await;
    until(&app, "it is charged", async || app.standing(&id).await.0 == "CONFIRMED").await;
    assert!(mend(&app).await > TIMES, "it came until there was room");
    until(&app, "nothing is left", async || waiting(&broker, "usage.report").await == 0).await;
    assert_eq!(waiting(&broker, "usage.report.dead").await, 0);
    assert_eq!((app.cny_of("u1").await, app.told("usage.charged").await), ((750, 0), 1));
    broker.clear().await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_last_report_that_is_refused_is_shown_to_a_person_before_it_is_set_aside() {
    const TIMES: i64 = 5;
    let broker = Broker::fresh().await;
    let app = start(&broker).await;
    let id = app.held("k1", "u1", 300).await;
    app.report(&id, "m1", 200).await.expect(200);
    refuse_with(&app, "exceptions", TIMES, "53100").await;
    tell(&broker, &final_message(&id, "m2", 150)).await;
    let aside = async || waiting(&broker, "usage.report.dead").await;
    until(&app, "it is set aside", async || aside().await == 1).await;
    assert!(mend(&app).await > TIMES, "it came until there was room to tell of it");
    let shown = app.open_exception().await;
    assert_eq!((&shown["kind"], &shown["subject"]), (&json!("USAGE_REPORT_REFUSED"), &json!(id)));
    assert_eq!(shown["merchant_id"], "demo");
    let detail = shown["detail"].as_str().expect("words");
    assert!(detail.contains("final report m2 of 150 units") && detail.contains("200 units"), "{detail}");
    tell(&broker, &final_message(&id, "m3", 160)).await;
    until(&app, "so is the next one", async || aside().await == 2).await;
    let both = app.open_exception().await;
    assert_eq!(both["exception_id"], shown["exception_id"], "shown once while it is open");
    let told = both["detail"].as_str().expect("words");
    assert!(told.starts_with(detail) && told.contains("final report m3 of 160 units"), "{told}");
    assert_eq!((app.standing(&id).await.0, app.told("usage.charged").await), ("HELD".into(), 0));

    assert_eq!(app.resolve(&shown, "KEEP").await.problem(409), "NO_MONEY_HELD");
    app.confirm(&id, Some(250)).await.expect(200);
    app.resolve(&shown, "NONE").await.expect(200);
    tell(&broker, &final_message(&id, "m4", 251)).await;
    until(&app, "more than was charged is set aside", async || aside().await == 3).await;
    let again = app.open_exception().await;
    assert_ne!(again["exception_id"], shown["exception_id"], "a person hears of it anew");
    app.resolve(&again, "NONE").await.expect(200);
    assert_eq!(app.cny_of("u1").await, (750, 0));
    broker.clear().await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_lags_behind_the_end_of_a_call_that_is_paid_concerns_nobody() {
    let broker = Broker::fresh().await;
    let app = start(&broker).await;
    app.tokens_with("5", json!({"product_code": "calls", "pricing": "PER_CALL"})).await.expect(200);
    let call = async |key: &str, units: Option<i64>| {
        let call = hold_with(key, "u1", 1, json!({"product_code": "calls"}));
        let id = app.post("/usage/holds", call).await.expect(201).text_of("hold_id").to_owned();
        app.confirm(&id, units).await.expect(200);
        id
    };
    let (id, free) = (call("k1", None).await, call("k2", Some(0)).await);
    tell(&broker, &message(&id, "m1", 400)).await;
    tell(&broker, &message(&free, "m2", 1)).await;
    until(&app, "what was not paid is set aside", async || waiting(&broker, "usage.report.dead").await > 0)
        .await;
    let shown = app.open_exception().await;
    assert_eq!(shown["subject"], json!(free), "and nothing else is shown");
    app.resolve(&shown, "NONE").await.expect(200);
    assert_eq!(waiting(&broker, "usage.report.dead").await, 1);
    assert_eq!(app.cny_of("u1").await, (995, 0));
    broker.clear().await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_database_is_away_reports_come_again_and_none_is_set_aside() {
    let broker = Broker::fresh().await;
    let mut postgres = stores::private_postgres().await;
    let vars = vec![("DATABASE_ACQUIRE_MS", "500".to_owned())];
    let options = TestOptions { database_url: Some(postgres.url()), vars, ..TestOptions::default() };
    let app = start_with(&broker, options).await;
    let (id, other) = (app.held("k1", "u1", 300).await, app.held("k2", "u1", 300).await);
    let again = async || metric(&app, "payonce_usage_messages_total", &[("outcome", "again")]).await;
    let before = again().await;
    postgres.kill().await.expect("killed");
    tell(&broker, &message(&id, "m1", 350)).await;
    tell(&broker, &final_message(&other, "m1", 200)).await;
    until(&app, "they come again", async || again().await >= before + 2.0).await;
    let queue = format!("{}.usage.report", broker.prefix);
    let (channel, options) = (broker.channel().await, BasicConsumeOptions::default());
    let rival = channel.basic_consume(queue.into(), "".into(), options, FieldTable::default()).await;
    let mut rival = rival.expect("another worker");
    until(&app, "they come again and again", async || again().await >= before + 16.0).await;
    // Some brokers set aside by themselves what they have given out 20 times.
    assert!(rival.next().now_or_never().is_none(), "they stay in the hand that has them");
    drop((rival, channel));
    assert_eq!(waiting(&broker, "usage.report.dead").await, 0);
    postgres.restart().await.expect("restarted");
    until(&app, "it is charged", async || app.standing(&other).await.0 == "CONFIRMED").await;
    until(&app, "it is heard", async || app.standing(&id).await == ("HELD".into(), 350, 0, Some(350))).await;
    until(&app, "nothing is left", async || waiting(&broker, "usage.report").await == 0).await;
    assert_eq!(waiting(&broker, "usage.report.dead").await, 0);
    assert_eq!((app.cny_of("u1").await, app.told("usage.charged").await), ((450, 350), 1));
    broker.clear().await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_of_another_kind_is_said_aloud_and_read_from_once_it_is_gone() {
    let broker = Broker::fresh().await;
    let queue = format!("{}.usage.report", broker.prefix);
    let channel = broker.channel().await;
    let plain = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    channel.queue_declare(queue.clone().into(), plain, FieldTable::default()).await.expect("a queue");
    let vars = vec![("AMQP_URL", broker.url.clone()), ("AMQP_PREFIX", broker.prefix.clone())];
    // By an instance that has no broker: the duty of this one fails until the queue is gone.
    let without_broker = TestApp::start().await;
    without_broker.top_up("T", "u1", 1_000).await;
    let app = TestApp::start_with(TestOptions { vars, ..TestOptions::over(&without_broker) }).await;
    app.tokens("1").await;
    let ready = async || app.get("/readyz").await.expect(200).body;
    let refused = usage::consume(&app.instance.app).await.expect_err("a refusal");
    println!("{refused:?}");
    let standing = ready().await;
    assert_eq!(
        (&standing["status"], &standing["broker"], &standing["usage_reports"]),
        (&json!("degraded"), &json!("up"), &json!("down"))
    );
    let overview = app.admin_get("/admin/overview").await.expect(200).body;
    assert_eq!(overview["degraded"], json!(["usage_reports"]));
    let id = app.held("k1", "u1", 300).await;
    channel.queue_delete(queue.into(), QueueDeleteOptions::default()).await.expect("deleted");
    until(&app, "the queue comes to be", async || ready().await["usage_reports"] == "up").await;
    assert_eq!(ready().await["status"], "ready");
    tell(&broker, &final_message(&id, "m1", 250)).await;
    until(&app, "it is charged", async || app.standing(&id).await.0 == "CONFIRMED").await;
    broker.clear().await;
    app.end().await;
}

#[tokio::test]
async fn a_message_is_known_for_fourteen_days() {
    let app = TestApp::start().await;
    app.top_up("T", "u1", 1_000).await;
    app.tokens("1").await;
    let id = app.held("k1", "u1", 300).await;
    app.report(&id, "m1", 10).await.expect(200);
    app.confirm(&id, Some(10)).await.expect(200);
    let marks = app.count("usage_messages").await;
    assert!(marks > 0);
    for (days, kept) in [(13, marks), (2, 0)] {
        app.clock.advance(minutes(60 * 24 * days));
        usage::forget_old(&app.instance.app).await.expect("forgotten");
        assert_eq!(app.count("usage_messages").await, kept);
    }
    app.end().await;
}
