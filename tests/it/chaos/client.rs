//! A merchant's backend in bad weather: whatever it asks it asks again, of any instance, under the same key, until it
//! knows; and it keeps a log of what it was told.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::judge::Told;
use crate::support::{Reply, SECRET_KEY};

/// Longest that something may stay unknown.
const PATIENCE: Duration = Duration::from_secs(90);

/// The merchant, its instances, and its log.
pub struct Merchant {
    pub urls: Vec<String>,
    http: reqwest::Client,
    /// Every answer in its order, those that were asked for once more among them.
    pub log: Mutex<Vec<Told>>,
    pub is_over: AtomicBool,
    turn: AtomicUsize,
    /// Questions that nobody answered for good: lost, or told to come back.
    pub unknown: AtomicUsize,
}

impl Merchant {
    pub fn new(urls: Vec<String>) -> Self {
        // No connection is kept: a killed instance closes many, and who is asked next is another one anyway.
        let http = payonce::infra::http_client::builder()
            .pool_max_idle_per_host(0)
            .timeout(Duration::from_secs(8))
            .build()
            .expect("a client");
        Self {
            urls,
            http,
            log: Mutex::default(),
            is_over: AtomicBool::new(false),
            turn: AtomicUsize::new(0),
            unknown: AtomicUsize::new(0),
        }
    }

    /// Asks any instance once; nothing when nobody answered.
    async fn ask_once(&self, method: Method, path: &str, key: &str, body: &Value) -> Option<Reply> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let url = &self.urls[turn % self.urls.len()];
        let request = self.http.request(method.clone(), format!("{url}{path}")).bearer_auth(SECRET_KEY);
        let request = match method {
            Method::GET => request,
            _ => request.json(body).header("idempotency-key", key),
        };
        let response = request.send().await.ok()?;
        let reply = Reply::of(response).await;
        // An answer that was cut off is none.
        (reply.body != Value::Null).then_some(reply)
    }

    /// Asks until it is known, and notes what that was.
    pub async fn post(&self, path: &str, key: &str, body: Value) -> Told {
        let reply = self.until_known(Method::POST, path, key, &body).await;
        let told = Told {
            path: path.to_owned(),
            key: key.to_owned(),
            body,
            status: reply.status,
            answer: reply.text,
        };
        self.log.lock().expect("no panic").push(told.clone());
        told
    }

    /// Asks the same again, under the same key.
    pub async fn ask_again(&self, told: &Told) -> Told {
        self.post(&told.path, &told.key, told.body.clone()).await
    }

    pub async fn get(&self, path: &str) -> Reply {
        self.until_known(Method::GET, path, "", &json!({})).await
    }

    async fn until_known(&self, method: Method, path: &str, key: &str, body: &Value) -> Reply {
        let since = Instant::now();
        let mut last = "nobody answered".to_owned();
        while since.elapsed() < PATIENCE {
            match self.ask_once(method.clone(), path, key, body).await {
                Some(reply) if !is_unknown(&reply) => return reply,
                Some(reply) => last = format!("{} {}", reply.status, reply.text),
                None => {}
            }
            self.unknown.fetch_add(1, Ordering::Relaxed);
            sleep(Duration::from_millis(50)).await;
        }
        panic!("{method} {path} {body}: unknown for {PATIENCE:?}: {last}");
    }
}

/// Whether what was asked may have happened or not, so that it is to be asked again.
fn is_unknown(reply: &Reply) -> bool {
    let code = reply.body["code"].as_str().unwrap_or_default();
    reply.status >= 500 || reply.status == 429 || matches!(code, "LOCK_BUSY" | "REQUEST_IN_PROGRESS")
}
