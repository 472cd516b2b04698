//! The merchant's endpoint: it keeps what it is told, and while the storm lasts it is not always well.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use serde_json::Value;
use tokio::net::TcpListener;

/// While it is not well, one call of so many fails.
const FAILS_ONE_IN: usize = 20;

/// What it was told once.
#[derive(Clone, Debug)]
pub struct Heard {
    pub id: String,
    pub body: String,
    /// Whether it said that it had heard.
    pub is_taken: bool,
}

pub struct Endpoint {
    pub url: String,
    inside: Arc<Inside>,
}

#[derive(Default)]
struct Inside {
    heard: Mutex<Vec<Heard>>,
    calls: AtomicUsize,
    is_well: AtomicBool,
}

impl Endpoint {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}/hook", listener.local_addr().expect("an address"));
        let inside = Arc::new(Inside::default());
        let router = axum::Router::new().route("/hook", post(hear)).with_state(inside.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { url, inside }
    }

    pub fn is_well(&self, is_well: bool) {
        self.inside.is_well.store(is_well, Ordering::Relaxed);
    }

    /// All that it was told, which it forgets.
    pub fn take(&self) -> Vec<Heard> {
        std::mem::take(&mut *self.inside.heard.lock().expect("no panic"))
    }
}

async fn hear(State(inside): State<Arc<Inside>>, headers: HeaderMap, body: String) -> StatusCode {
    let call = inside.calls.fetch_add(1, Ordering::Relaxed);
    let is_taken = inside.is_well.load(Ordering::Relaxed) || !call.is_multiple_of(FAILS_ONE_IN);
    let id = headers["webhook-id"].to_str().expect("text").to_owned();
    inside.heard.lock().expect("no panic").push(Heard { id, body, is_taken });
    if is_taken { StatusCode::OK } else { StatusCode::INTERNAL_SERVER_ERROR }
}

impl Heard {
    pub fn told(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_default()
    }

    /// What happened, to what, and how it ended.
    pub fn news(&self) -> String {
        let told = self.told();
        let names = ["refund_no", "withdrawal_no", "hold_id", "stray_id", "reference", "order_no"];
        let name = names.into_iter().find_map(|name| told["data"][name].as_str()).unwrap_or_default();
        let status = told["data"]["status"].as_str().unwrap_or_default();
        format!("{} {name} {status}", told["type"].as_str().unwrap_or_default()).trim_end().to_owned()
    }
}
