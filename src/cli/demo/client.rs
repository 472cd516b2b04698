//! The instance, as a shop, a buyer, a channel and an operator see it.

use std::time::Duration;

use reqwest::Method;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::channels::sandbox::signature::{self, Keys};
use crate::cli::CliError;
use crate::ids::Ids;
use crate::infra::clock::{Clock, unix_micros};
use crate::infra::http_client;

/// Longest wait for one answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// An answer: its status and its body.
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) body: Value,
    pub(super) text: String,
}

impl Reply {
    /// The body, when the status is a good one.
    pub(super) fn good(self, what: &str) -> Result<Value, String> {
        if (200..300).contains(&self.status) {
            return Ok(self.body);
        }
        let code = self.body["code"].as_str().unwrap_or(&self.text);
        Err(format!("{what} was answered with {} {code}", self.status))
    }
}

pub(super) struct Client {
    http: reqwest::Client,
    url: String,
    key: SecretString,
    token: SecretString,
    signer: Keys,
    clock: Clock,
    ids: Ids,
}

impl Client {
    pub(super) fn new(
        url: &str,
        key: SecretString,
        token: SecretString,
        sandbox_secret: &SecretString,
        clock: Clock,
        ids: Ids,
    ) -> Result<Self, CliError> {
        // Of connections that rest the service may have to close some when there are many.
        let http =
            http_client::builder().timeout(PATIENCE).pool_idle_timeout(Duration::from_millis(500)).build()?;
        let signer = Keys::new(std::slice::from_ref(sandbox_secret))?;
        Ok(Self { http, url: url.trim_end_matches('/').to_owned(), key, token, signer, clock, ids })
    }

    /// A number that no earlier play has used.
    pub(super) fn order_no(&self) -> String {
        format!("demo-{}", self.ids.uuid().simple())
    }

    async fn call(
        &self,
        method: Method,
        path: &str,
        token: Option<&SecretString>,
        body: Option<&Value>,
    ) -> Result<Reply, String> {
        let mut request = self.http.request(method, format!("{}{path}", self.url));
        if let Some(token) = token {
            request = request.bearer_auth(token.expose_secret());
        }
        if let Some(body) = body {
            request = request.json(body);
        }
        read(request).await
    }

    pub(super) async fn shop_post(&self, path: &str, body: &Value) -> Result<Reply, String> {
        self.call(Method::POST, path, Some(&self.key), Some(body)).await
    }

    /// Makes an order of 1990 CNY that lives so long. What is signed here is judged by the instance's clock, so that is
    /// gone by: it shows in when the order was made.
    pub(super) async fn order(&self, lives_secs: u32) -> Result<String, String> {
        let order_no = self.order_no();
        let body = json!({"order_no": order_no, "user_id": "u-demo", "currency": "CNY", "amount": 1990,
                          "expires_in": lives_secs});
        let asked = Clock::ask();
        let made = self.shop_post("/orders", &body).await?.good("an order")?;
        let made_at = OffsetDateTime::parse(&text(&made, "created_at")?, &Rfc3339);
        self.clock.follow(asked, unix_micros(made_at.map_err(|error| error.to_string())?));
        Ok(order_no)
    }

    pub(super) async fn pay_url(&self, order_no: &str) -> Result<Reply, String> {
        let body = json!({"order_no": order_no, "payer_id": "u-demo", "channel": "sandbox"});
        self.shop_post("/pay/url", &body).await
    }

    /// Makes an order with its link; gives both numbers.
    pub(super) async fn order_to_pay(&self, lives_secs: u32) -> Result<(String, String), String> {
        let order_no = self.order(lives_secs).await?;
        let link = self.pay_url(&order_no).await?.good("a pay URL")?;
        Ok((order_no, text(&link, "pay_order_id")?))
    }

    pub(super) async fn find_order(&self, order_no: &str) -> Result<Value, String> {
        self.call(Method::GET, &format!("/orders/{order_no}"), Some(&self.key), None).await?.good("an order")
    }

    /// Presses Pay.
    pub(super) async fn press_pay(&self, pay_order_id: &str, body: &Value) -> Result<Reply, String> {
        self.call(Method::POST, &format!("/sandbox/trades/{pay_order_id}/pay"), None, Some(body)).await
    }

    pub(super) async fn admin(&self, path: &str) -> Result<Value, String> {
        self.call(Method::GET, path, Some(&self.token), None).await?.good(path)
    }

    /// Sends a callback, signed as the sandbox signs.
    pub(super) async fn callback(&self, body: &Value) -> Result<Reply, String> {
        let bytes = body.to_string().into_bytes();
        let signature = self.signer.sign(&bytes, self.clock.now());
        let request = self.http.post(format!("{}/webhooks/sandbox", self.url)).body(bytes);
        read(request.header(signature::HEADER, signature).header("content-type", "application/json")).await
    }
}

async fn read(request: reqwest::RequestBuilder) -> Result<Reply, String> {
    let failed = |error: reqwest::Error| {
        let source = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        format!("no answer: {error} {source}").trim_end().to_owned()
    };
    let response = request.send().await.map_err(failed)?;
    let status = response.status().as_u16();
    let text = response.text().await.map_err(failed)?;
    Ok(Reply { status, body: serde_json::from_str(&text).unwrap_or(Value::Null), text })
}

/// A text member of an answer.
pub(super) fn text(body: &Value, member: &str) -> Result<String, String> {
    body[member].as_str().map(str::to_owned).ok_or_else(|| format!("an answer has no {member}"))
}
