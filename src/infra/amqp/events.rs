//! Events on RabbitMQ: a durable topic exchange, to which whoever wants some binds queues of their own.
//!
//! Persistent messages with publisher confirms; any number may be under way at once. When [`Events::publish`] returns,
//! the broker has the message on disk in every queue that is bound for it.

use std::sync::Arc;
use std::time::Duration;

use lapin::options::{BasicPublishOptions, ConfirmSelectOptions, ExchangeDeclareOptions};
use lapin::types::FieldTable;
use lapin::{BasicProperties, ExchangeKind};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};

use super::{ANSWER_WITHIN, Amqp, AmqpDown, Line, Refusal};
use crate::infra::causes::with_causes;

/// AMQP's word for a message that survives a restart.
const PERSISTENT: u8 = 2;
/// How long a refusal counts that is not met again: what was refused is tried again every second, by any instance.
const REFUSAL_COUNTS_FOR: Duration = Duration::from_secs(60);

/// One exchange. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Events(Arc<Inside>);

#[derive(Debug)]
struct Inside {
    amqp: Amqp,
    exchange: String,
    channel: Mutex<Option<Line>>,
    refusal: Refusal,
}

/// A message to all who want such.
#[derive(Clone, Copy, Debug)]
pub struct EventMessage<'a> {
    /// The event's name, which is the routing key.
    pub name: &'a str,
    /// The event's id, the same each time.
    pub id: &'a str,
    /// JSON.
    pub body: &'a str,
}

impl Events {
    /// The exchange of that name. Nothing is connected yet.
    #[must_use]
    pub fn new(amqp: Amqp, exchange: &str) -> Self {
        let (channel, refusal) = (Mutex::default(), Refusal::that_counts_for(REFUSAL_COUNTS_FOR));
        Self(Arc::new(Inside { amqp, exchange: exchange.to_owned(), channel, refusal }))
    }

    /// Whether the broker was there for the last message, less than a minute ago, and refused the exchange: it is of
    /// another kind, or not ours. A person has to see to that.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        self.0.refusal.is_met()
    }

    /// Sends a message, and waits so long for the broker's word that it has it, the way there included: past that
    /// nothing is sent any more.
    ///
    /// # Errors
    /// [`AmqpDown::Refused`] when the broker does not want it, anything else when it may not have it.
    pub async fn publish(&self, message: &EventMessage<'_>, within: Duration) -> Result<(), AmqpDown> {
        let outcome = self.publish_until(message, Instant::now() + within).await;
        if let Some(error) = self.0.refusal.note(&outcome) {
            let (exchange, error) = (self.0.exchange.as_str(), with_causes(error));
            tracing::warn!(
                exchange,
                error,
                "RabbitMQ refuses the exchange of events, which wait until a person mends that"
            );
        }
        self.0.amqp.hang_up_after(outcome.as_ref().err()).await;
        outcome
    }

    async fn publish_until(&self, message: &EventMessage<'_>, until: Instant) -> Result<(), AmqpDown> {
        let channel = timeout_at(until, self.channel()).await.map_err(|_| AmqpDown::Silent(None))??;
        let left = until.saturating_duration_since(Instant::now());
        let outcome = channel.answered(left, self.send(&channel, message)).await;
        if outcome.as_ref().is_err_and(|error| !matches!(error, AmqpDown::Refused)) {
            // Whoever sent beside us may have made another one already.
            self.0.channel.lock().await.take_if(|cached| cached.is(&channel));
        }
        outcome
    }

    async fn send(&self, channel: &Line, message: &EventMessage<'_>) -> Result<(), AmqpDown> {
        let properties = BasicProperties::default()
            .with_delivery_mode(PERSISTENT)
            .with_content_type("application/json".into())
            .with_message_id(message.id.into())
            .with_type(message.name.into());
        // Not mandatory: an event that nobody has bound a queue for is nobody's.
        let options = BasicPublishOptions::default();
        let (exchange, key) = (self.0.exchange.as_str().into(), message.name.into());
        let sent = channel.basic_publish(exchange, key, options, message.body.as_bytes(), properties).await?;
        if sent.await?.is_ack() { Ok(()) } else { Err(AmqpDown::Refused) }
    }

    /// One channel for all, made anew when it broke.
    async fn channel(&self) -> Result<Line, AmqpDown> {
        let mut cached = self.0.channel.lock().await;
        if let Some(channel) = cached.as_ref().filter(|channel| channel.status().connected()) {
            return Ok(channel.clone());
        }
        let channel = self.0.amqp.channel().await?;
        let durable = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
        let exchange = self.0.exchange.as_str().into();
        let declared =
            channel.exchange_declare(exchange, ExchangeKind::Topic, durable, FieldTable::default());
        channel.answered(ANSWER_WITHIN, declared).await?;
        channel.answered(ANSWER_WITHIN, channel.confirm_select(ConfirmSelectOptions::default())).await?;
        Ok(cached.insert(channel).clone())
    }
}
