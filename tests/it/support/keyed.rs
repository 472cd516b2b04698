//! Requests with an idempotency key.

use reqwest::header::HeaderMap;
use serde_json::Value;

use super::app::{SECRET_KEY, TestApp};
use super::reply::Reply;

impl TestApp {
    /// POST with the demo merchant's secret key, under an idempotency key.
    pub async fn post_keyed(&self, path: &str, key: &str, body: &Value) -> Reply {
        self.post_keyed_as(SECRET_KEY, path, key, body).await
    }

    pub async fn post_keyed_as(&self, token: &str, path: &str, key: &str, body: &Value) -> Reply {
        let mut headers = HeaderMap::new();
        headers.insert("idempotency-key", key.parse().expect("a header"));
        self.post_with(token, path, headers, body).await
    }

    pub async fn post_with(&self, token: &str, path: &str, headers: HeaderMap, body: &Value) -> Reply {
        let request = self.http.post(format!("{}{path}", self.url)).bearer_auth(token);
        Reply::of(request.headers(headers).json(body).send().await.expect("an answer")).await
    }

    /// The same, repeated as `Retry-After` asks for while the first one runs.
    pub async fn post_keyed_patiently(&self, path: &str, key: &str, body: &Value) -> Reply {
        loop {
            let reply = self.post_keyed(path, key, body).await;
            if reply.status != 409 || reply.problem(409) != "REQUEST_IN_PROGRESS" {
                return reply;
            }
            let secs = reply.header("retry-after").and_then(|secs| secs.parse().ok()).expect("seconds");
            tokio::time::sleep(std::time::Duration::from_secs(secs)).await;
        }
    }
}

impl Reply {
    /// Whether the answer was given before.
    pub fn is_replayed(&self) -> bool {
        self.header("idempotent-replayed") == Some("true")
    }

    /// What a repeat must give again: status, kind and bytes.
    pub fn said(&self) -> (u16, Option<&str>, &str) {
        (self.status, self.header("content-type"), &self.text)
    }
}
