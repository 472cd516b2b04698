//! What merchants hear: signed, in order, at least once; and what becomes of it when their endpoint is not well.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use payonce::infra::duty::Batch;
use serde_json::{Value, json};
use sqlx::Executor;

use crate::support::receiver::{Call, Manner, Receiver};
use crate::support::{Cluster, TestApp, TestOptions, UNTOLD, minutes, seconds};

mod ages;
mod catalogue;
mod crowds;
mod endpoints;
mod lookups;
mod past;
mod pauses;
mod refusals;
mod relays;
mod resends;

/// A developer's well-known secret.
pub const DEMO_SECRET: &str = "whsec_ZGVtby1zZWNyZXQtb2YtMjQtYnl0ZXMh";

/// Shorter tries than those that are shipped: 600 ms.
const SHORT: (&str, &str) = ("TASK_LEASE_MS", "1000");

/// An instance driven by hand, whose demo merchant hears at this endpoint.
async fn telling(receiver: &Receiver) -> TestApp {
    let vars = vec![(SHORT.0, SHORT.1.to_owned())];
    let app = TestApp::start_with(TestOptions { vars, ..TestOptions::default() }).await;
    app.tell_at(Some(&receiver.url)).await;
    app
}

impl TestApp {
    /// Saves where the demo merchant hears of its events.
    pub async fn tell_at(&self, url: Option<&str>) {
        let body = json!({"notify_url": url, "reason": "a story"});
        self.admin_post("/admin/merchants/demo/notify-url", body).await.expect(200);
    }

    /// Makes an order and closes it: one event.
    pub async fn closed_order(&self, order_no: &str) {
        self.order(order_no).await;
        self.post(&format!("/orders/{order_no}/close"), json!({})).await.expect(200);
    }

    /// The newest event of an order, with every try.
    pub async fn event_of(&self, order_no: &str) -> Value {
        let path = format!("/admin/outbox?merchant_id=demo&order_no={order_no}&limit=1");
        let page = self.admin_get(&path).await.expect(200).body;
        let id = page["data"][0]["event_id"].as_str().expect("an event").to_owned();
        self.admin_get(&format!("/admin/outbox/{id}")).await.expect(200).body
    }

    /// Where an order's timeline says that such an event got.
    async fn told_of_event(&self, order_no: &str, name: &str) -> Vec<String> {
        let path = format!("/admin/orders/{order_no}/timeline");
        let timeline = self.admin_get(&path).await.expect(200).body["data"].clone();
        let entries = timeline.as_array().expect("entries").iter();
        let of_event = entries.filter(|entry| entry["kind"] == "EVENT" && entry["event"] == name);
        of_event.map(|entry| entry["status"].as_str().expect("a word").to_owned()).collect()
    }

    /// Appends events of an order as the service does with its facts, past them.
    pub async fn append_events(&self, order_no: &str, payloads: &[&str]) {
        for payload in payloads {
            self.sql(&format!(
                "INSERT INTO outbox (merchant_id, order_no, event, event_version, payload, created_at)
                 VALUES ('demo', '{order_no}', 'story.told', 1, '{payload}', '{}')",
                self.clock.now()
            ))
            .await;
        }
    }
}

/// The scheme's library for Python believes it too, where `.ci/run` has put one.
fn assert_judge_believes(call: &Call) {
    let Ok(python) = std::env::var("PAYONCE_SIGNATURE_JUDGE") else { return };
    let of = |name: &str| call.headers[name].clone();
    let mut judge = Command::new(python)
        .args([".ci/judge_signature.py", DEMO_SECRET])
        .args([of("webhook-id"), of("webhook-timestamp"), of("webhook-signature")])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a judge");
    judge.stdin.take().expect("a way in").write_all(call.body.as_bytes()).expect("told");
    let judged = judge.wait_with_output().expect("a judgement");
    assert!(judged.status.success() && judged.stdout.starts_with(b"believed"), "{judged:?}");
}

#[tokio::test]
async fn an_event_arrives_signed_as_the_scheme_wants_it_and_is_published_with_its_try() {
    let receiver = Receiver::start().await;
    let app = telling(&receiver).await;
    app.paid("N1").await;

    let calls = receiver.calls();
    assert_eq!(calls.len(), 1, "{calls:#?}");
    let (call, body) = (&calls[0], calls[0].json());
    assert!(call.is_signed_by(DEMO_SECRET), "{call:?}");
    assert!(!call.is_signed_by("whsec_bm90IHRoZSBzZWNyZXQgb2YgYW55Ym9keQ=="));
    assert_judge_believes(call);
    assert_eq!(call.headers["content-type"], "application/json");
    assert_eq!((&body["type"], &body["version"]), (&json!("order.paid"), &json!(1)));
    assert_eq!((&body["data"]["order_no"], &body["data"]["amount"]), (&json!("N1"), &json!(1990)));
    assert!(body["timestamp"].as_str().is_some_and(|at| at.ends_with('Z')), "{body}");

    let event = app.event_of("N1").await;
    assert_eq!(event["event_id"], call.id());
    assert_eq!((&event["status"], event["published_at"].is_string()), (&json!("PUBLISHED"), true));
    let delivery = &event["deliveries"][0];
    assert_eq!((&delivery["kind"], &delivery["status"]), (&json!("REPLAY_CALLBACK"), &json!("DELIVERED")));
    assert_eq!(
        (&delivery["log"][0]["status"], &delivery["log"][0]["to"]),
        (&json!(200), &json!(receiver.url))
    );
    app.end().await;
}

#[tokio::test]
async fn without_an_endpoint_and_a_broker_an_event_is_published_at_once_and_costs_no_row() {
    let app = TestApp::start().await;
    app.closed_order("N2").await;
    app.run_until_idle().await;
    for (table, rows) in [("outbox", 1), ("outbox_queue", 0), ("deliveries", 0)] {
        assert_eq!(app.count(table).await, rows, "{table}");
    }
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_nobody_is_to_be_told_of_takes_nothing_along_that_somebody_is_to_be_told_of() {
    let (shops, own) = (Receiver::start().await, Receiver::start().await);
    let cluster = Cluster::start(2, TestOptions { workers: true, ..TestOptions::default() }).await;
    let app = cluster.first();
    app.merchant("told", "hold").await;
    let url = json!({"notify_url": shops.url, "reason": "the story wants it"});
    app.admin_post("/admin/merchants/told/notify-url", url).await.expect(200);
    for number in 1..=20 {
        let order = json!({"order_no": format!("own-{number}"), "user_id": "u1", "currency": "CNY", "amount": 5,
                           "notify_url": own.url});
        app.post("/orders", order).await.expect(201);
    }
    // More than is looked at in one turn, those of nobody before, between and behind the others.
    app.sql(&format!(
        "INSERT INTO outbox (merchant_id, order_no, event, event_version, payload, created_at)
         SELECT CASE whose WHEN 2 THEN 'told' ELSE 'demo' END, name || o, 'story.told', 1,
                jsonb_build_object('order_no', name || o, 'seq', s), '{}'
         FROM generate_series(1, 4) AS s, generate_series(1, 400) AS o,
              (VALUES (1, 'plain-'), (2, 'shop-'), (3, 'own-'), (4, 'late-')) AS asked (whose, name)
         WHERE whose IN (1, 4) OR o <= 20
         ORDER BY s, o, whose",
        app.clock.now()
    ))
    .await;
    app.eventually("nothing waits", async || app.count_where("outbox", UNTOLD).await == 0).await;
    assert_eq!(app.count_where("deliveries", "status = 'DELIVERED'").await, 160);
    for (receiver, name) in [(&shops, "shop-"), (&own, "own-")] {
        relays::assert_in_order(receiver, name, 20, 4);
    }

    // Whoever has an endpoint from now on hears of what comes from now on.
    app.tell_at(Some(&shops.url)).await;
    app.closed_order("later").await;
    app.eventually("it is told", async || shops.told_of("later") == ["order.closed"]).await;
    assert_eq!(app.count("deliveries").await, 161);
    cluster.end().await;
}

#[tokio::test]
async fn a_turn_says_whether_another_one_finds_more_that_nobody_is_to_be_told_of() {
    let receiver = Receiver::start().await;
    let app = TestApp::start().await;
    app.merchant("told", "hold").await;
    let url = json!({"notify_url": receiver.url, "reason": "the story wants it"});
    app.admin_post("/admin/merchants/told/notify-url", url).await.expect(200);
    let turn = async || app.instance.app.relay.run_once().await.expect("a turn");

    relays::append_many(&app, "demo", "plain-", 1_025, 1).await;
    for (outcome, left) in [(Batch::MoreWaiting, 1), (Batch::Done, 0), (Batch::Empty, 0)] {
        assert_eq!((turn().await, app.count("outbox_queue").await), (outcome, left));
    }
    // What has an endpoint waits for no other turn behind one that has none.
    relays::append_many(&app, "demo", "head-", 1, 1).await;
    relays::append_many(&app, "told", "one-", 1, 1).await;
    assert_eq!((turn().await, app.count("deliveries").await), (Batch::Done, 1));

    // Whoever holds them is waited for, and not asked for again and again.
    relays::append_many(&app, "demo", "head-", 1, 1).await;
    relays::append_many(&app, "told", "many-", 1, 1_100).await;
    let mut other = app.direct_connection().await;
    let first = "BEGIN; SELECT event_id FROM outbox_queue ORDER BY event_id LIMIT 2 FOR UPDATE";
    other.execute(first).await.expect("in hand");
    assert_eq!((turn().await, app.count("outbox_queue").await), (Batch::Done, 1_101));
    other.execute("ROLLBACK").await.expect("free");
    app.sql("UPDATE merchants SET notify_url = NULL").await;
    app.run_until_idle().await;
    assert_eq!((app.count("outbox_queue").await, receiver.calls().len()), (0, 1));
    app.end().await;
}

#[tokio::test]
async fn an_order_has_an_endpoint_of_its_own_where_it_names_one() {
    let (own, other) = (Receiver::start().await, Receiver::start().await);
    let app = telling(&other).await;
    app.order_with(
        json!({"order_no": "N3", "user_id": "u1", "currency": "CNY", "amount": 5, "notify_url": own.url}),
    )
    .await;
    app.post("/orders/N3/close", json!({})).await.expect(200);
    app.run_until_idle().await;
    assert_eq!((own.told_of("N3"), other.calls().len()), (vec!["order.closed".to_owned()], 0));
    app.end().await;
}

#[tokio::test]
async fn a_failed_try_holds_back_what_comes_after_it_in_its_order_and_nothing_else() {
    let receiver = Receiver::start().await;
    let app = telling(&receiver).await;
    receiver.behaves([Manner::status(500)]);
    app.paid("N4").await;
    app.append_events("N4", &["{\"order_no\": \"N4\"}"]).await;
    app.closed_order("N4-other").await;
    app.run_until_idle().await;
    assert_eq!(receiver.told_of("N4"), ["order.paid"], "the second one waits");
    assert_eq!(receiver.told_of("N4-other"), ["order.closed"]);
    let event = app.admin_get("/admin/outbox?status=PENDING&order_no=N4").await.expect(200).body;
    assert_eq!(event["data"].as_array().expect("a page").len(), 2);

    // The clock goes on meanwhile.
    app.clock.advance(seconds(3));
    app.run_until_idle().await;
    assert_eq!(receiver.told_of("N4").len(), 1, "not before its time");
    app.clock.advance(seconds(3));
    app.run_until_idle().await;
    assert_eq!(receiver.told_of("N4"), ["order.paid", "order.paid", "story.told"]);
    let ids: Vec<String> = receiver
        .calls()
        .iter()
        .filter(|call| call.order_no() == "N4")
        .map(|call| call.id().to_owned())
        .collect();
    assert_eq!(ids[0], ids[1], "a retry has the same id");
    assert_ne!(ids[1], ids[2]);
    app.end().await;
}

#[tokio::test]
async fn after_three_days_of_failures_an_event_is_a_dead_letter_and_the_next_goes_on() {
    let receiver = Receiver::start().await;
    let app = telling(&receiver).await;
    receiver.always(Manner::Answer(500, "", "no".to_owned()));
    app.closed_order("N5").await;
    app.append_events("N5", &["{\"order_no\": \"N5\"}"]).await;
    for _ in 0..9 {
        app.run_until_idle().await;
        app.assert_books_balance().await;
        app.clock.advance(minutes(24 * 60 + 150));
    }
    app.run_until_idle().await;
    let first: Vec<_> = receiver.calls().into_iter().filter(|call| call.name() == "order.closed").collect();
    assert_eq!(first.len(), 10, "one try and nine more");
    assert!(first.iter().all(|call| (call.id(), &call.body) == (first[0].id(), &first[0].body)));
    assert!(first.iter().all(|call| call.is_signed_by(DEMO_SECRET)));
    assert_eq!(app.count_where("deliveries", "status = 'DEAD' AND attempts = 10").await, 1);
    let open = app.admin_get("/admin/exceptions?status=OPEN").await.expect(200).body["data"].clone();
    assert_eq!((&open[0]["kind"], &open[0]["subject"]), (&json!("DEAD_TASK"), &json!(first[0].id())));
    assert_eq!(receiver.told_of("N5").last().expect("told"), "story.told", "the next one is tried");

    receiver.always(Manner::status(204));
    let dead = app.admin_get("/admin/outbox?status=DEAD").await.expect(200).body["data"][0].clone();
    assert_eq!((&dead["event_id"], &dead["published_at"]), (&json!(first[0].id()), &Value::Null));
    assert_eq!(app.told_of_event("N5", "order.closed").await, ["WRITTEN", "DEAD"]);
    let path = format!("/admin/outbox/{}/resend", first[0].id());
    app.admin_post(&path, json!({"reason": "the shop is back"})).await.expect(200);
    app.clock.advance(minutes(10));
    app.run_until_idle().await;
    assert_eq!(app.count_where("deliveries", "status = 'DELIVERED'").await, 2);
    assert_eq!(app.told_of_event("N5", "order.closed").await, ["WRITTEN", "PUBLISHED"]);
    assert_eq!(app.count_where("exceptions", "status = 'OPEN'").await, 0);
    assert_eq!(app.count_where("admin_log", "action = 'outbox.resend' AND order_no = 'N5'").await, 1);
    app.end().await;
}

#[tokio::test]
async fn an_endpoint_that_asks_for_a_pause_gets_it_and_one_that_is_gone_gets_nothing_more() {
    let receiver = Receiver::start().await;
    let app = telling(&receiver).await;
    receiver.behaves([Manner::Answer(503, "Retry-After: 120\r\n", String::new()), Manner::status(410)]);
    app.closed_order("N6").await;
    app.run_until_idle().await;
    app.clock.advance(seconds(119));
    app.run_until_idle().await;
    assert_eq!(receiver.calls().len(), 1, "it asked for 120 s");
    app.clock.advance(seconds(14));
    app.run_until_idle().await;
    assert_eq!(receiver.calls().len(), 2);
    app.closed_order("N6-2").await;
    app.run_until_idle().await;
    assert_eq!(receiver.calls().len(), 2, "it is disabled");
    assert_eq!(app.count_where("deliveries", "status = 'DROPPED'").await, 2);
    assert_eq!(app.told_of_event("N6", "order.closed").await, ["WRITTEN", "DROPPED"]);
    assert_eq!(app.count_where("exceptions", "kind = 'ENDPOINT_DISABLED' AND status = 'OPEN'").await, 1);

    app.tell_at(Some(&receiver.url)).await;
    assert_eq!(app.count_where("exceptions", "status = 'OPEN'").await, 0);
    let again = json!({"merchant_id": "demo", "since": "2026-01-01T00:00:00Z", "only_undelivered": true,
                       "reason": "it is back"});
    let counted = json!({"dry_run": true});
    let mut dry = again.clone();
    dry.as_object_mut().expect("an object").extend(counted.as_object().expect("an object").clone());
    assert_eq!(app.admin_post("/admin/outbox/resend", dry).await.expect(200).body["events"], 2);
    app.run_until_idle().await;
    assert_eq!(receiver.calls().len(), 2, "that only counted");
    assert_eq!(app.admin_post("/admin/outbox/resend", again).await.expect(200).body["events"], 2);
    app.run_until_idle().await;
    assert_eq!((receiver.told_of("N6").len(), receiver.told_of("N6-2").len()), (3, 1));
    app.end().await;
}

#[tokio::test]
async fn a_secret_is_replaced_without_a_notification_that_either_would_refuse() {
    let receiver = Receiver::start().await;
    let app = telling(&receiver).await;
    let rotate = json!({"overlap_seconds": 3600, "reason": "the yearly rotation"});
    let new = app.admin_post("/admin/merchants/demo/notify-secret", rotate).await.expect(201);
    let new = new.text_of("notify_secret").to_owned();
    app.closed_order("N7").await;
    app.run_until_idle().await;
    app.clock.advance(minutes(61));
    app.closed_order("N7-2").await;
    app.run_until_idle().await;
    let calls = receiver.calls();
    assert!(calls[0].is_signed_by(DEMO_SECRET) && calls[0].is_signed_by(&new), "both, for an hour");
    assert!(!calls[1].is_signed_by(DEMO_SECRET) && calls[1].is_signed_by(&new), "then the new one alone");
    assert_eq!(app.count_where("admin_log", "action = 'merchants.rotate_notify_secret'").await, 1);
    app.end().await;
}

#[tokio::test]
async fn a_secret_that_was_promised_an_end_signs_until_then_however_often_it_is_replaced() {
    let receiver = Receiver::start().await;
    let app = telling(&receiver).await;
    let rotate = async |overlap: i64| {
        let body = json!({"overlap_seconds": overlap, "reason": "an answer was lost"});
        app.admin_post("/admin/merchants/demo/notify-secret", body).await
    };
    for _ in 0..4 {
        rotate(3600).await.expect(201);
    }
    assert_eq!(rotate(3600).await.problem(409), "TOO_MANY_SECRETS");
    app.closed_order("N7-3").await;
    app.run_until_idle().await;
    assert!(receiver.calls()[0].is_signed_by(DEMO_SECRET));
    // One that leaked ends at once, and all before it.
    let new = rotate(0).await.expect(201).text_of("notify_secret").to_owned();
    app.closed_order("N7-4").await;
    app.run_until_idle().await;
    assert!(receiver.calls()[1].is_signed_by(&new) && !receiver.calls()[1].is_signed_by(DEMO_SECRET));
    app.end().await;
}

#[tokio::test]
async fn an_answer_is_waited_for_and_read_no_longer_than_it_deserves() {
    let (receiver, elsewhere) = (Receiver::start().await, Receiver::start().await);
    let app = telling(&receiver).await;
    let long = Duration::from_millis(1500);
    let location: &'static str = format!("Location: {}\r\n", elsewhere.url).leak();
    for (number, manner, error) in [
        ("N8-slow", Manner::Slow(long), "no answer within"),
        ("N8-drip", Manner::Drip(Duration::from_millis(100)), "no answer within"),
        ("N8-hang", Manner::Hang, "no answer within"),
        ("N8-away", Manner::Answer(302, location, String::new()), "it answered 302"),
    ] {
        receiver.behaves([manner]);
        app.closed_order(number).await;
        let asked = std::time::Instant::now();
        app.run_until_idle().await;
        assert!(asked.elapsed() < Duration::from_secs(3), "{number}: {:?}", asked.elapsed());
        let delivery = app.event_of(number).await["deliveries"][0].clone();
        assert!(
            delivery["last_error"].as_str().is_some_and(|text| text.contains(error)),
            "{number}: {delivery}"
        );
        assert_eq!((&delivery["status"], &delivery["attempts"]), (&json!("PENDING"), &json!(1)), "{number}");
    }
    assert_eq!(elsewhere.calls().len(), 0, "no redirect is followed");

    receiver.behaves([Manner::Answer(200, "", "\u{1}é".repeat(5_000_000))]);
    app.closed_order("N8-huge").await;
    app.run_until_idle().await;
    let delivery = app.event_of("N8-huge").await["deliveries"][0].clone();
    assert_eq!(delivery["status"], "DELIVERED", "its status was heard: {delivery}");
    let kept = delivery["log"][0]["answer"].as_str().expect("how it begins");
    assert!(kept.chars().count() <= 500 && kept.starts_with(" é é"), "{kept}");
    app.clock.advance(seconds(6));
    app.run_until_idle().await;
    assert_eq!(app.count_where("deliveries", "status = 'PENDING'").await, 0);
    app.end().await;
}

#[tokio::test]
async fn what_cannot_be_told_is_a_dead_letter_at_once_and_blocks_nothing() {
    let receiver = Receiver::start().await;
    let app = telling(&receiver).await;
    let huge = format!("{{\"order_no\": \"{}\"}}", "x".repeat(300_000));
    app.append_events("N9", &["[1]", &huge, "null", "{\"order_no\": \"N9\"}"]).await;
    app.run_until_idle().await;
    assert_eq!(receiver.told_of("N9"), ["story.told"]);
    assert_eq!(
        app.count_where("deliveries", "status = 'DEAD' AND last_error LIKE '%cannot be told%'").await,
        3
    );
    assert_eq!(app.count_where("exceptions", "kind = 'DEAD_TASK' AND order_no = 'N9'").await, 3);
    assert_eq!(app.count_where("outbox", UNTOLD).await, 0);
    app.clock.advance(minutes(91 * 24 * 60));
    app.run_until_idle().await;
    assert_eq!(app.count_where("deliveries", "status = 'DEAD'").await, 3, "these are not forgotten");
    assert_eq!(app.count("deliveries").await, 3);
    app.end().await;
}

#[tokio::test]
async fn what_was_delivered_long_ago_is_forgotten_and_the_event_stays() {
    let receiver = Receiver::start().await;
    let app = telling(&receiver).await;
    app.closed_order("N10").await;
    app.run_until_idle().await;
    app.clock.advance(minutes(91 * 24 * 60));
    app.run_until_idle().await;
    assert_eq!((app.count("deliveries").await, app.count("outbox").await), (0, 1));
    let id = receiver.calls()[0].id().to_owned();
    app.admin_post(&format!("/admin/outbox/{id}/resend"), json!({"reason": "once more"})).await.expect(200);
    app.run_until_idle().await;
    let calls = receiver.calls();
    assert_eq!((calls[1].id(), &calls[1].body), (id.as_str(), &calls[0].body));
    app.end().await;
}

/// It takes a lock of the whole server at each commit.
#[test]
fn nothing_is_woken_by_notify() {
    for path in crate::tidy::source::files("src").into_iter().chain(crate::tidy::source::files("migrations"))
    {
        let text = crate::tidy::source::read(&path);
        let speaks =
            text.contains("pg_notify(") || text.lines().any(|line| line.trim_start().starts_with("NOTIFY "));
        assert!(!speaks, "{path} uses NOTIFY");
    }
}
