//! A merchant's backend in bad weather, and its operators: whatever it asks it asks again, of any instance, under the same
//! key, until it knows; and it keeps a log of what it was told.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::told::Told;
use crate::support::service::OPERATOR_OF_PROCESS;
use crate::support::{Reply, SECRET_KEY};

/// Longest that something may stay unknown.
pub const PATIENCE: Duration = Duration::from_secs(90);
/// Longest that one answer is waited for.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(8);
/// One wish of so many is told to two instances at once, under one key.
const TWICE_ONE_IN: usize = 8;

/// The merchant, its instances, and its log.
pub struct Merchant {
    pub urls: Vec<String>,
    http: reqwest::Client,
    /// Every answer in its order, those that were asked for once more among them, and what was acknowledged to the channel.
    pub log: Mutex<Vec<Told>>,
    pub is_over: AtomicBool,
    turn: AtomicUsize,
    wishes: AtomicUsize,
    /// Questions that nobody answered for good: lost, or told to come back.
    pub unknown: AtomicUsize,
    /// Wishes that were granted unheard: nobody answered at first, and whoever was asked again had the answer kept.
    pub granted_unheard: AtomicUsize,
}

/// What is known of a wish at last.
struct Known {
    told: Told,
    was_granted_unheard: bool,
}

impl Merchant {
    pub fn new(urls: Vec<String>) -> Self {
        // No connection is kept: a killed instance closes many, and who is asked next is another one anyway.
        let http = payonce::infra::http_client::builder()
            .pool_max_idle_per_host(0)
            .timeout(ANSWER_WITHIN)
            .build()
            .expect("a client");
        Self {
            urls,
            http,
            log: Mutex::default(),
            is_over: AtomicBool::new(false),
            turn: AtomicUsize::new(0),
            wishes: AtomicUsize::new(0),
            unknown: AtomicUsize::new(0),
            granted_unheard: AtomicUsize::new(0),
        }
    }

    /// Asks any instance once; nothing when nobody answered.
    async fn ask_once(&self, method: Method, path: &str, key: &str, body: &Value) -> Option<Reply> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let url = &self.urls[turn % self.urls.len()];
        let token = if path.starts_with("/admin/") { OPERATOR_OF_PROCESS } else { SECRET_KEY };
        let request = self.http.request(method.clone(), format!("{url}{path}")).bearer_auth(token);
        let request = match method {
            Method::GET => request,
            _ if key.is_empty() => request.json(body),
            _ => request.json(body).header("idempotency-key", key),
        };
        let response = request.send().await.ok()?;
        let reply = Reply::of(response).await;
        // An answer that was cut off is none.
        (reply.body != Value::Null).then_some(reply)
    }

    /// Asks one instance, or two at once, until it is known; gives one of the answers.
    pub async fn post(&self, path: &str, key: &str, body: Value) -> Told {
        if self.wishes.fetch_add(1, Ordering::Relaxed).is_multiple_of(TWICE_ONE_IN) {
            let (first, second) =
                tokio::join!(self.post_once(path, key, body.clone()), self.post_once(path, key, body));
            return if first.told.is_done() { first.told } else { second.told };
        }
        let known = self.post_once(path, key, body).await;
        self.granted_unheard.fetch_add(usize::from(known.was_granted_unheard), Ordering::Relaxed);
        known.told
    }

    /// Asks until it is known, and notes what that was.
    async fn post_once(&self, path: &str, key: &str, body: Value) -> Known {
        let after = self.noted();
        let (reply, was_lost) = self.until_known(Method::POST, path, key, &body).await;
        let was_granted_unheard = was_lost && reply.header("idempotent-replayed") == Some("true");
        Known { told: self.note(after, path, key, body, &reply), was_granted_unheard }
    }

    /// Asks the same again, under the same key.
    pub async fn ask_again(&self, told: &Told) -> Told {
        self.post_once(&told.path, &told.key, told.body.clone()).await.told
    }

    /// Looks until it is known, and notes what was seen.
    pub async fn get(&self, path: &str) -> Reply {
        let after = self.noted();
        let (reply, _) = self.until_known(Method::GET, path, "", &json!({})).await;
        self.note(after, path, "", Value::Null, &reply);
        reply
    }

    /// How many answers there are by now.
    pub fn noted(&self) -> usize {
        self.log.lock().expect("no panic").len()
    }

    /// Notes an answer to what was asked when there were so many.
    pub fn note(&self, after: usize, path: &str, key: &str, body: Value, reply: &Reply) -> Told {
        let (path, key, answer) = (path.to_owned(), key.to_owned(), reply.text.clone());
        let told = Told { path, key, body, status: reply.status, answer, after };
        self.log.lock().expect("no panic").push(told.clone());
        told
    }

    /// The answer, and whether one was lost before.
    async fn until_known(&self, method: Method, path: &str, key: &str, body: &Value) -> (Reply, bool) {
        let since = Instant::now();
        let mut was_lost = false;
        let mut last = "nobody answered".to_owned();
        while since.elapsed() < PATIENCE {
            match self.ask_once(method.clone(), path, key, body).await {
                Some(reply) if !is_unknown(&reply) => return (reply, was_lost),
                Some(reply) => {
                    // Whatever breaks around the service is told as 503: this is a defect of its own.
                    assert_ne!(reply.status, 500, "{method} {path} {body}: {}", reply.text);
                    last = format!("{} {}", reply.status, reply.text);
                }
                None => was_lost = true,
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
