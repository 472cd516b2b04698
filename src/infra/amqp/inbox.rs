//! What a worker has in hand of a delay queue: delivered, not acknowledged yet, and due within a second or already.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use lapin::Acker;
use lapin::message::Delivery;
use lapin::options::{
    BasicAckOptions, BasicConsumeOptions, BasicNackOptions, BasicQosOptions, BasicRejectOptions,
};
use lapin::types::FieldTable;
use lapin::{Channel, Consumer};

use super::AmqpDown;
use super::delays::{Message, Outbox};
use super::ladder;

/// Messages in hand at most: as many fall due within the second that is waited out here.
const IN_HAND: u16 = 4000;

/// One worker's end of the queue.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    session: Option<Session>,
    /// By instant and order of arrival.
    held: BTreeMap<(i64, u64), (String, Acker)>,
    arrived: u64,
}

#[derive(Debug)]
struct Session {
    channel: Channel,
    consumer: Consumer,
}

/// What one round brought.
#[derive(Default)]
struct Arrived {
    /// Not due for a second or more: on to the next step.
    early: Vec<(Message, Acker)>,
    /// Nobody can read them.
    unreadable: Vec<Acker>,
}

impl Inbox {
    /// Takes in what was delivered, without waiting for more, and sends on what is early.
    pub(super) async fn receive(
        &mut self,
        out: &Outbox,
        now_ms: i64,
        is_known: impl Fn(&str) -> bool,
    ) -> Result<(), AmqpDown> {
        let arrived = self.drain(out, now_ms, is_known).await;
        if arrived.is_err() {
            // The broker gives what was in hand to the next who asks.
            self.session = None;
            self.held.clear();
        }
        let arrived = arrived?;
        let sent = arrived.early.iter().map(|(message, acker)| send_on(out, message, acker, now_ms));
        futures_util::future::join_all(sent).await;
        for acker in arrived.unreadable {
            tracing::error!("a message of the delay queue cannot be read and was parked");
            metrics::counter!("payonce_delay_queue_parked_total").increment(1);
            settled(acker.reject(BasicRejectOptions { requeue: false }).await);
        }
        Ok(())
    }

    async fn drain(
        &mut self,
        out: &Outbox,
        now_ms: i64,
        is_known: impl Fn(&str) -> bool,
    ) -> Result<Arrived, AmqpDown> {
        let is_open = self.session.as_ref().is_some_and(|session| session.channel.status().connected());
        if !is_open {
            self.held.clear();
            self.session = Some(Session::open(out).await?);
        }
        let mut arrived = Arrived::default();
        for _ in 0..IN_HAND {
            let Some(session) = &mut self.session else { break };
            match session.consumer.next().now_or_never() {
                None => break,
                Some(Some(delivery)) => self.sort(delivery?, now_ms, &is_known, &mut arrived),
                // The queue was deleted, or the channel closed.
                Some(None) => return Err(AmqpDown::Refused),
            }
        }
        Ok(arrived)
    }

    fn sort(
        &mut self,
        delivery: Delivery,
        now_ms: i64,
        is_known: &impl Fn(&str) -> bool,
        arrived: &mut Arrived,
    ) {
        let message = serde_json::from_slice::<Message>(&delivery.data).ok();
        let Some(message) = message.filter(|message| is_known(&message.member)) else {
            arrived.unreadable.push(delivery.acker);
            return;
        };
        let left = u64::try_from(message.due_at_ms.saturating_sub(now_ms)).unwrap_or(0);
        if ladder::step_for(Duration::from_millis(left)).is_some() {
            arrived.early.push((message, delivery.acker));
            return;
        }
        self.arrived += 1;
        self.held.insert((message.due_at_ms, self.arrived), (message.member, delivery.acker));
    }

    /// Up to `limit` different members whose instant has come.
    pub(super) fn due(&self, now_ms: i64, limit: usize) -> Vec<String> {
        let due = self.held.range(..=(now_ms, u64::MAX)).map(|(_, (member, _))| member);
        let different: BTreeSet<&String> = due.take(limit).collect();
        different.into_iter().cloned().collect()
    }

    /// Acknowledges these, each as often as it was delivered.
    pub(super) async fn done(&mut self, members: &[String], now_ms: i64) {
        let members: BTreeSet<&String> = members.iter().collect();
        let due = self.held.range(..=(now_ms, u64::MAX));
        let places: Vec<_> =
            due.filter(|(_, (member, _))| members.contains(member)).map(|(place, _)| *place).collect();
        let ended: Vec<Acker> =
            places.iter().filter_map(|place| self.held.remove(place)).map(|(_, acker)| acker).collect();
        let acknowledged = ended.iter().map(|acker| acker.ack(BasicAckOptions::default()));
        futures_util::future::join_all(acknowledged).await.into_iter().for_each(settled);
    }
}

impl Session {
    async fn open(out: &Outbox) -> Result<Self, AmqpDown> {
        let (channel, queue) = out.reading().await?;
        channel.basic_qos(IN_HAND, BasicQosOptions::default()).await?;
        let options = BasicConsumeOptions::default();
        let consumer = channel.basic_consume(queue.into(), "".into(), options, FieldTable::default()).await?;
        Ok(Self { channel, consumer })
    }
}

/// To the next step; acknowledged here only when the broker has it there.
async fn send_on(out: &Outbox, message: &Message, acker: &Acker, now_ms: i64) {
    match out.send(message, now_ms).await {
        Ok(()) => settled(acker.ack(BasicAckOptions::default()).await),
        Err(error) => {
            tracing::debug!(%error, "a timer could not be sent on and stays where it is");
            settled(acker.nack(BasicNackOptions { requeue: true, ..BasicNackOptions::default() }).await);
        }
    }
}

/// What could not be told to the broker makes it deliver once more, and that is harmless.
fn settled(outcome: lapin::Result<bool>) {
    if let Err(error) = outcome {
        tracing::debug!(%error, "RabbitMQ will deliver a message once more");
    }
}
