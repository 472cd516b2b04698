//! A delay queue on RabbitMQ: members go in with an instant and come out when it has come.
//!
//! Durable queues, persistent messages, publisher confirms; a message is acknowledged only when its member is done
//! with, so a worker that dies gives it to the next one. Members may come out twice, after a crash or a repeat.

use std::sync::Arc;
use std::time::Duration;

use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::{BasicProperties, Channel};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

use super::inbox::Inbox;
use super::ladder::{self, Names};
use super::{ANSWER_WITHIN, Amqp, AmqpDown, ConnectionNo, Line, Refusal};
use crate::infra::causes::with_causes;

/// Longest wait for the broker's word that it has a new member; without it, the sweep finds what it stands for.
const PUT_WITHIN: Duration = Duration::from_secs(1);
/// AMQP's word for a message that survives a restart.
const PERSISTENT: u8 = 2;

/// A member and its instant, as they travel.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Message {
    pub(super) member: String,
    pub(super) due_at_ms: i64,
}

/// One delay queue, shared by all instances that name it alike. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Delays(Arc<Inside>);

#[derive(Debug)]
struct Inside {
    out: Outbox,
    inbox: Mutex<Inbox>,
}

impl Delays {
    /// The queue of this name. Nothing is connected yet.
    #[must_use]
    pub fn new(amqp: Amqp, name: &str) -> Self {
        let (channel, refusals) = (Mutex::default(), Refusals::default());
        let out = Outbox { amqp, names: Names::new(name), channel, refusals };
        Self(Arc::new(Inside { out, inbox: Mutex::default() }))
    }

    /// Whether the broker was there the last time that its queues were asked for, sent to, or read from, and refused it:
    /// something of that name is of another kind, or not ours. A person has to see to that.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        let Refusals { declaring, sending, reading } = &self.0.out.refusals;
        [declaring, sending, reading].into_iter().any(Refusal::is_met)
    }

    /// Puts a member in, to come out at `due_at_ms`. When this returns, the broker has it.
    ///
    /// # Errors
    /// [`AmqpDown`] when it may not have it.
    pub async fn put(&self, member: String, due_at_ms: i64, now_ms: i64) -> Result<(), AmqpDown> {
        self.0.out.send(&Message { member, due_at_ms }, now_ms, PUT_WITHIN).await
    }

    /// Up to `limit` members whose instant has come. They stay in hand until [`Delays::done`], and are given out
    /// again before that. What `is_known` does not know goes to a queue for a person.
    ///
    /// # Errors
    /// [`AmqpDown`] when the broker cannot be had; what was in hand then comes again later.
    pub async fn take_due(
        &self,
        now_ms: i64,
        limit: usize,
        is_known: impl Fn(&str) -> bool + Send,
    ) -> Result<Vec<String>, AmqpDown> {
        let mut inbox = self.0.inbox.lock().await;
        inbox.receive(&self.0.out, now_ms, is_known).await?;
        Ok(inbox.due(now_ms, limit))
    }

    /// How many members wait, and how many of those that are due are in nobody's hand.
    ///
    /// # Errors
    /// [`AmqpDown`] when the broker cannot be asked.
    pub async fn count(&self) -> Result<(i64, i64), AmqpDown> {
        let out = &self.0.out;
        let channel = out.writing().await?;
        channel.answered(ANSWER_WITHIN, ladder::count(&channel, &out.names)).await
    }

    /// Forgets members that were taken, for good.
    pub async fn done(&self, members: &[String], now_ms: i64) {
        self.0.inbox.lock().await.done(&self.0.out, members, now_ms).await;
    }
}

/// Where messages are sent from: one channel with confirms, made anew when it broke.
#[derive(Debug)]
pub(super) struct Outbox {
    amqp: Amqp,
    names: Names,
    channel: Mutex<Option<Line>>,
    refusals: Refusals,
}

/// What the broker refuses. Who may do the one may not be allowed the other, so neither stands for another.
#[derive(Debug, Default)]
struct Refusals {
    declaring: Refusal,
    sending: Refusal,
    reading: Refusal,
}

impl Outbox {
    /// A channel for the inbox, and the name of the queue that it reads.
    pub(super) async fn reading(&self) -> Result<(Line, String), AmqpDown> {
        Ok((self.declared().await?, self.names.due()))
    }

    /// Notes how it went to begin with reading.
    pub(super) fn note_reading<T>(&self, outcome: &Result<T, AmqpDown>) {
        self.note(&self.refusals.reading, outcome);
    }

    fn note<T>(&self, refusal: &Refusal, outcome: &Result<T, AmqpDown>) {
        if let Some(error) = refusal.note(outcome) {
            let (queue, error) = (self.names.due(), with_causes(error));
            tracing::warn!(
                queue,
                error,
                "RabbitMQ refuses the queues of timers; orders close by the sweep until a person mends that"
            );
        }
    }

    async fn writing(&self) -> Result<Line, AmqpDown> {
        let mut cached = self.channel.lock().await;
        if let Some(channel) = cached.as_ref().filter(|channel| channel.status().connected()) {
            return Ok(channel.clone());
        }
        let channel = self.declared().await?;
        let confirms = channel.confirm_select(ConfirmSelectOptions::default());
        let confirms = channel.answered(ANSWER_WITHIN, confirms).await;
        self.amqp.hang_up_after(confirms.as_ref().err()).await;
        confirms?;
        Ok(cached.insert(channel).clone())
    }

    /// A channel, when all queues are there.
    async fn declared(&self) -> Result<Line, AmqpDown> {
        let channel = self.amqp.channel().await?;
        let declared = channel.answered(ANSWER_WITHIN, ladder::declare(&channel, &self.names)).await;
        self.note(&self.refusals.declaring, &declared);
        self.amqp.hang_up_after(declared.as_ref().err()).await;
        declared.map(|()| channel)
    }

    /// Gives up the connection, where the broker keeps silent on it.
    pub(super) async fn hang_up(&self, connection: ConnectionNo) {
        self.amqp.hang_up(connection).await;
    }

    /// Sends a message to the step that fits, and waits so long for the broker's word. A word that comes later is not
    /// heard: the broker may have the message all the same.
    pub(super) async fn send(
        &self,
        message: &Message,
        now_ms: i64,
        within: Duration,
    ) -> Result<(), AmqpDown> {
        let left = u64::try_from(message.due_at_ms.saturating_sub(now_ms)).unwrap_or(0);
        let queue = match ladder::step_for(Duration::from_millis(left)) {
            Some(step) => self.names.step(step),
            None => self.names.due(),
        };
        let body = serde_json::to_vec(message).map_err(|_| AmqpDown::Refused)?;
        let channel = self.writing().await?;
        let outcome = channel.answered(within, publish(&channel, queue, &body)).await;
        self.note(&self.refusals.sending, &outcome);
        if outcome.is_err() {
            // A queue may have been deleted, or the broker keep silent: the next channel finds out, and declares all of
            // them. Whoever sent beside us may have made that one already.
            self.channel.lock().await.take_if(|cached| cached.is(&channel));
        }
        outcome
    }
}

async fn publish(channel: &Channel, queue: String, body: &[u8]) -> Result<(), AmqpDown> {
    // Mandatory: a message that fits no queue comes back, instead of vanishing with a confirm.
    let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
    let properties = BasicProperties::default().with_delivery_mode(PERSISTENT);
    let confirm = channel.basic_publish("".into(), queue.into(), options, body, properties).await?.await?;
    let has_it = confirm.is_ack() && confirm.take_message().is_none();
    if has_it { Ok(()) } else { Err(AmqpDown::Refused) }
}
