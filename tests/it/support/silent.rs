//! A channel that is asked and says nothing, beside the sandbox.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use payonce::channels::{
    Acknowledgement, CallError, Callback, CallbackError, Channel, Closing, CreatedTrade, LinkLife, NewTrade,
    PayoutCall, PayoutState, RawCallback, Reception, RefundCall, RefundState, StatementPage, TradeRef,
    TradeState,
};

/// It counts who waits for its word; but for its name and its silence it is the sandbox.
#[derive(Clone)]
pub struct Silent {
    pub like: Arc<dyn Channel>,
    pub asked: Arc<AtomicUsize>,
    /// How long it keeps whoever asks.
    pub silence: Duration,
    /// Whether it has found its voice.
    pub speaks: Arc<AtomicBool>,
}

impl Silent {
    /// One that keeps whoever asks for so long.
    pub fn beside(like: Arc<dyn Channel>, silence: Duration) -> Self {
        Self { like, asked: Arc::default(), silence, speaks: Arc::default() }
    }

    async fn silence<T>(&self) -> Result<T, CallError> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(self.silence).await;
        Err(CallError::Silent("as always".to_owned()))
    }
}

#[async_trait]
impl Channel for Silent {
    fn name(&self) -> &'static str {
        "silent"
    }
    fn link_life(&self) -> LinkLife {
        self.like.link_life()
    }
    async fn create(&self, _: &NewTrade) -> Result<CreatedTrade, CallError> {
        self.silence().await
    }
    async fn query(&self, _: &TradeRef) -> Result<TradeState, CallError> {
        self.silence().await
    }
    async fn close(&self, trade: &TradeRef) -> Result<Closing, CallError> {
        match self.speaks.load(Ordering::SeqCst) {
            true => self.like.close(trade).await,
            false => self.silence().await,
        }
    }
    async fn refund(&self, _: &RefundCall) -> Result<RefundState, CallError> {
        self.silence().await
    }
    async fn query_refund(&self, _: &RefundCall) -> Result<RefundState, CallError> {
        self.silence().await
    }
    async fn payout(&self, _: &PayoutCall) -> Result<PayoutState, CallError> {
        self.silence().await
    }
    async fn query_payout(&self, _: &PayoutCall) -> Result<PayoutState, CallError> {
        self.silence().await
    }
    async fn statement(&self, _: time::Date, _: Option<&str>) -> Result<StatementPage, CallError> {
        self.silence().await
    }
    fn verify(&self, callback: &RawCallback<'_>) -> Result<(), CallbackError> {
        self.like.verify(callback)
    }
    fn read(&self, body: &[u8], received_at: time::OffsetDateTime) -> Result<Callback, CallbackError> {
        self.like.read(body, received_at)
    }
    fn acknowledge(&self, reception: Reception) -> Acknowledgement {
        self.like.acknowledge(reception)
    }
}
