//! What stories about usage ask for.

use serde_json::{Value, json};

use super::app::TestApp;
use super::reply::Reply;

/// What a hold of `tokens` for a user asks for.
pub fn hold(key: &str, user_id: &str, estimated_units: i64) -> Value {
    json!({"request_id": format!("req-{key}"), "user_id": user_id, "product_code": "tokens", "idempotency_key": key,
           "currency": "CNY", "estimated_units": estimated_units})
}

/// The same with other fields.
pub fn hold_with(key: &str, user_id: &str, estimated_units: i64, more: Value) -> Value {
    with(hold(key, user_id, estimated_units), more)
}

fn with(mut body: Value, more: Value) -> Value {
    let fields = more.as_object().expect("fields").clone();
    body.as_object_mut().expect("a body").extend(fields);
    body
}

impl TestApp {
    /// A product `tokens` at so many CNY minor units each.
    pub async fn tokens(&self, unit_price: &str) {
        self.tokens_with(unit_price, json!({})).await.expect(200);
    }

    /// The same with more fields.
    pub async fn tokens_with(&self, unit_price: &str, more: Value) -> Reply {
        let body = json!({"merchant_id": "demo", "product_code": "tokens", "currency": "CNY", "unit_price": unit_price,
                          "reason": "the story wants it"});
        self.admin_post("/admin/products", with(body, more)).await
    }

    /// Makes a hold; gives its id.
    pub async fn held(&self, key: &str, user_id: &str, estimated_units: i64) -> String {
        let made = self.post("/usage/holds", hold(key, user_id, estimated_units)).await;
        made.expect(201).text_of("hold_id").to_owned()
    }

    pub async fn report(&self, hold_id: &str, message_id: &str, units: i64) -> Reply {
        let body = json!({"message_id": message_id, "cumulative_units": units});
        self.post(&format!("/usage/holds/{hold_id}/progress"), body).await
    }

    pub async fn confirm(&self, hold_id: &str, units: Option<i64>) -> Reply {
        let body = units.map_or(json!({}), |units| json!({"units": units}));
        self.post(&format!("/usage/holds/{hold_id}/confirm"), body).await
    }

    pub async fn release(&self, hold_id: &str) -> Reply {
        self.post(&format!("/usage/holds/{hold_id}/release"), json!({})).await
    }

    pub async fn find_hold(&self, hold_id: &str) -> Value {
        self.get(&format!("/usage/holds/{hold_id}")).await.expect(200).body
    }

    /// Where a hold stands: (status, held, charged, units).
    pub async fn standing(&self, hold_id: &str) -> (String, i64, i64, Option<i64>) {
        let found = self.find_hold(hold_id).await;
        let minor = |field: &str| found[field].as_i64().expect("minor units");
        let status = found["status"].as_str().expect("a status").to_owned();
        (status, minor("held"), minor("charged"), found["units"].as_i64())
    }

    /// How many events of that name the outbox has.
    pub async fn told(&self, event: &str) -> i64 {
        self.count_where("outbox", &format!("event = '{event}'")).await
    }
}
