//! The sandbox under another name, or as if its callbacks spoke for another account than the configured one.

use std::sync::Arc;

use async_trait::async_trait;
use payonce::app::App;
use payonce::channels::sandbox::signature;
use payonce::channels::{
    Acknowledgement, CallError, Callback, CallbackError, Channel, Channels, Closing, CreatedTrade, LinkLife,
    NewTrade, PayoutCall, PayoutState, RawCallback, Reception, RefundCall, RefundState, StatementPage,
    TradeRef, TradeState,
};
use payonce::http;
use payonce::webhooks::{self, Taken};
use reqwest::header::HeaderMap;
use serde_json::{Value, json};

use super::{OPERATOR, TestApp};

/// In all else it is the sandbox.
#[derive(Clone)]
pub struct Twin {
    like: Arc<dyn Channel>,
    name: &'static str,
    is_ours: bool,
}

impl Twin {
    /// A channel of that name.
    pub fn named(app: &TestApp, name: &'static str) -> Self {
        Self { name, ..Self::of(app) }
    }

    /// The sandbox, of somebody else.
    pub fn of_another_account(app: &TestApp) -> Self {
        Self { is_ours: false, ..Self::of(app) }
    }

    fn of(app: &TestApp) -> Self {
        let like = app.instance.app.channels.get("sandbox").expect("the sandbox").clone();
        Self { name: like.name(), like, is_ours: true }
    }

    /// A callback of it is taken in.
    pub async fn told(&self, app: &TestApp, callback: &Value) -> Taken {
        let service = &app.instance.app;
        let body = serde_json::to_vec(callback).expect("json");
        let mut headers = HeaderMap::new();
        headers.insert(signature::HEADER, app.sign(&body).parse().expect("a header"));
        let told = webhooks::verify(service, self, &headers, &body).expect("believed");
        webhooks::take_in(service, &told).await
    }

    /// An operator has one of its callbacks replayed by an instance that has this channel alone.
    pub async fn replay(&self, app: &TestApp, event_id: &str) -> Value {
        let service = &app.instance.app;
        let channels = Channels::new(vec![Arc::new(self.clone())]);
        let (config, ids) = (service.config.clone(), service.ids.clone());
        let alone = App::new(config, ids, service.db.clone(), channels).expect("an instance");
        let path = format!("/admin/webhooks/{}:{event_id}/replay", self.name);
        let body = json!({"reason": "the story wants it"}).to_string().into_bytes();
        let body = Some(("application/json", body));
        let (status, answer) =
            http::answer_within(&alone, "POST", &path, OPERATOR, body).await.expect("a request");
        let text = String::from_utf8_lossy(&answer).into_owned();
        assert_eq!(status, 200, "{text}");
        serde_json::from_str(&text).expect("json")
    }
}

#[async_trait]
impl Channel for Twin {
    fn name(&self) -> &'static str {
        self.name
    }
    fn link_life(&self) -> LinkLife {
        self.like.link_life()
    }
    async fn create(&self, trade: &NewTrade) -> Result<CreatedTrade, CallError> {
        self.like.create(trade).await
    }
    async fn query(&self, trade: &TradeRef) -> Result<TradeState, CallError> {
        self.like.query(trade).await
    }
    async fn close(&self, trade: &TradeRef) -> Result<Closing, CallError> {
        self.like.close(trade).await
    }
    async fn refund(&self, refund: &RefundCall) -> Result<RefundState, CallError> {
        self.like.refund(refund).await
    }
    async fn query_refund(&self, refund: &RefundCall) -> Result<RefundState, CallError> {
        self.like.query_refund(refund).await
    }
    async fn payout(&self, payout: &PayoutCall) -> Result<PayoutState, CallError> {
        self.like.payout(payout).await
    }
    async fn query_payout(&self, payout: &PayoutCall) -> Result<PayoutState, CallError> {
        self.like.query_payout(payout).await
    }
    async fn statement(&self, day: time::Date, from: Option<&str>) -> Result<StatementPage, CallError> {
        self.like.statement(day, from).await
    }
    fn verify(&self, callback: &RawCallback<'_>) -> Result<(), CallbackError> {
        self.like.verify(callback)
    }
    fn read(&self, body: &[u8], received_at: time::OffsetDateTime) -> Result<Callback, CallbackError> {
        let read = self.like.read(body, received_at)?;
        Ok(Callback { account_matches: self.is_ours && read.account_matches, ..read })
    }
    fn acknowledge(&self, reception: Reception) -> Acknowledgement {
        self.like.acknowledge(reception)
    }
}
