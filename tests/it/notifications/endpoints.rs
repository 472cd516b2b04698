//! Where notifications may go: public addresses, judged when they are saved and again by every connection.

use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use payonce::infra::outside::{self, Lookup, Outside};
use serde_json::json;

use crate::support::receiver::Receiver;
use crate::support::{TestApp, TestOptions, seconds};

/// An instance to which this machine is no exempt network.
async fn guarded() -> TestApp {
    let vars = vec![("NOTIFY_ALLOW_NETS", "192.0.2.0/24".to_owned())];
    TestApp::start_with(TestOptions { vars, ..TestOptions::default() }).await
}

#[tokio::test]
async fn an_endpoint_that_may_not_be_reached_is_refused_when_it_is_saved() {
    let app = guarded().await;
    for (url, reason) in [
        ("http://127.0.0.1:9/hook", "loopback"),
        ("http://2130706433/", "plain form"),
        ("http://[::ffff:10.0.0.1]/", "plain form"),
        ("http://169.254.169.254/latest/meta-data", "link-local"),
        ("http://user@shop.example/", "user"),
        ("ftp://shop.example/", "http(s)"),
    ] {
        let order = json!({"user_id": "u1", "currency": "CNY", "amount": 5, "notify_url": url});
        let merchant = json!({"merchant_id": "m2", "name": "M", "notify_url": url});
        let saved = json!({"notify_url": url, "reason": "a story"});
        for reply in [
            app.post("/orders", order).await,
            app.admin_post("/admin/merchants", merchant).await,
            app.admin_post("/admin/merchants/demo/notify-url", saved).await,
        ] {
            assert_eq!(reply.problem(422), "VALIDATION_FAILED", "{url}");
            assert!(
                reply.text.contains("notify_url") && reply.text.contains(reason),
                "{url}: {}",
                reply.text
            );
        }
    }
    // A name is looked up when its merchant saves it.
    let saved = json!({"notify_url": "https://localhost:8443/", "reason": "a story"});
    let refused = app.admin_post("/admin/merchants/demo/notify-url", saved).await;
    assert_eq!(refused.problem(422), "VALIDATION_FAILED");
    assert!(refused.text.contains("localhost stands for"), "{}", refused.text);
    assert_eq!((app.count("orders").await, app.count("merchants").await), (0, 1));
    app.end().await;
}

#[tokio::test]
async fn an_endpoint_that_became_private_is_not_connected_to() {
    let receiver = Receiver::start().await;
    let app = guarded().await;
    let by_name = receiver.url.replace("127.0.0.1", "localhost");
    for (number, url) in [("E2-address", &receiver.url), ("E2-name", &by_name)] {
        // As it stands when its rules were others, or its name another's.
        app.sql(&format!("UPDATE merchants SET notify_url = '{url}'")).await;
        app.closed_order(number).await;
        app.run_until_idle().await;
        let delivery = app.event_of(number).await["deliveries"][0].clone();
        let error = delivery["last_error"].as_str().expect("an error");
        assert!(error.contains("loopback address"), "{number}: {delivery}");
    }
    assert_eq!(receiver.calls().len(), 0);
    app.tell_at(None).await;
    app.clock.advance(seconds(10));
    app.run_until_idle().await;
    assert_eq!(app.count_where("deliveries", "status = 'DROPPED'").await, 2, "there is nowhere to send it");
    app.end().await;
}

/// A name that gives another answer each time.
#[derive(Clone, Default)]
struct Fickle {
    answers: Arc<Mutex<VecDeque<Vec<IpAddr>>>>,
}

impl Fickle {
    fn saying(answers: &[&[&str]]) -> Self {
        let read =
            |answer: &&[&str]| answer.iter().map(|address| address.parse().expect("an address")).collect();
        Self { answers: Arc::new(Mutex::new(answers.iter().map(read).collect())) }
    }
}

impl Lookup for Fickle {
    fn look(&self, _name: String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        let answer = self.answers.lock().expect("no panic").pop_front().expect("one more answer");
        async move { Ok(answer) }.boxed()
    }
}

fn here() -> Outside {
    Outside { exempt: vec!["127.0.0.1".parse().expect("a network")], is_dev: false }
}

async fn ask(http: &reqwest::Client, receiver: &Receiver) -> Result<u16, String> {
    let url = receiver.url.replace("127.0.0.1", "shop.example");
    let asked =
        http.post(url).header("connection", "close").body("{\"type\": \"a\", \"data\": {}}").send().await;
    asked.map(|answer| answer.status().as_u16()).map_err(|error| format!("{error:?}"))
}

#[tokio::test]
async fn a_name_that_changes_its_answer_leads_nowhere_else() {
    let receiver = Receiver::start().await;
    let answers: &[&[&str]] = &[
        &["127.0.0.1"],
        &["127.0.0.2"],
        &["10.0.0.1", "169.254.169.254"],
        &["::ffff:127.0.0.2"],
        &["::1"],
        // One of them is fine, and is the one that is connected to.
        &["10.0.0.1", "127.0.0.1"],
        &[],
    ];
    let http = outside::client(here(), Fickle::saying(answers)).expect("a client");
    let mut outcomes = Vec::new();
    for _ in answers {
        outcomes.push(ask(&http, &receiver).await);
    }
    let reached: Vec<bool> = outcomes.iter().map(Result::is_ok).collect();
    assert_eq!(reached, [true, false, false, false, false, true, false], "{outcomes:#?}");
    assert_eq!(receiver.calls().len(), 2);
    for refused in [&outcomes[1], &outcomes[2], &outcomes[3], &outcomes[4]] {
        let error = refused.as_ref().expect_err("refused");
        assert!(
            error.contains("NOTIFY_ALLOW_NETS does not exempt") || error.contains("NotOutside"),
            "{error}"
        );
    }
}
