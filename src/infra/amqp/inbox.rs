//! What a worker has in hand of a delay queue: delivered, not acknowledged yet, and due within a second or already.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::{FutureExt, StreamExt, TryStreamExt};
use lapin::message::Delivery;
use lapin::options::{
    BasicAckOptions, BasicConsumeOptions, BasicNackOptions, BasicQosOptions, BasicRejectOptions,
};
use lapin::types::FieldTable;
use lapin::{Acker, Consumer};

use super::delays::{Message, Outbox};
use super::{ANSWER_WITHIN, AmqpDown, Line, ladder};
use crate::infra::crash::effect;

/// Messages in hand at most: as many fall due within the second that is waited out here.
const IN_HAND: u16 = 4000;
/// Messages that are sent on at the same time.
const SENT_ON_AT_ONCE: usize = 200;
/// Longest wait for the broker's word that it has a message that was sent on: nobody waits for it, and giving up
/// early would leave two of it.
const SENT_ON_WITHIN: Duration = Duration::from_secs(10);

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
    channel: Line,
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
        let outcome = self.take_in(out, now_ms, is_known).await;
        self.end_session_after(out, outcome.as_ref().err()).await;
        outcome
    }

    async fn take_in(
        &mut self,
        out: &Outbox,
        now_ms: i64,
        is_known: impl Fn(&str) -> bool,
    ) -> Result<(), AmqpDown> {
        let (line, arrived) = self.drain(out, now_ms, is_known).await?;
        for acker in arrived.unreadable {
            tracing::error!("a message of the delay queue cannot be read and was parked");
            metrics::counter!("payonce_delay_queue_parked_total").increment(1);
            let parked = acker.reject(BasicRejectOptions { requeue: false });
            line.answered(ANSWER_WITHIN, parked).await?;
        }
        let early = futures_util::stream::iter(arrived.early.into_iter().map(Ok));
        let line = &line;
        let send_on = |(message, acker)| async move { send_on(out, line, &message, &acker, now_ms).await };
        early.try_for_each_concurrent(SENT_ON_AT_ONCE, send_on).await
    }

    /// After a failure the broker gives what was in hand to the next who asks; after a silence a new connection must
    /// be had first.
    async fn end_session_after(&mut self, out: &Outbox, failure: Option<&AmqpDown>) {
        let Some(error) = failure else { return };
        tracing::debug!(%error, "RabbitMQ will deliver some messages once more");
        self.session = None;
        self.held.clear();
        if let AmqpDown::Silent(Some(connection)) = error {
            out.hang_up(*connection).await;
        }
    }

    async fn drain(
        &mut self,
        out: &Outbox,
        now_ms: i64,
        is_known: impl Fn(&str) -> bool,
    ) -> Result<(Line, Arrived), AmqpDown> {
        self.session.take_if(|session| !session.channel.status().connected());
        let mut session = match self.session.take() {
            Some(session) => session,
            None => {
                self.held.clear();
                Session::open(out).await?
            }
        };
        let (line, mut arrived) = (session.channel.clone(), Arrived::default());
        for _ in 0..IN_HAND {
            match session.consumer.next().now_or_never() {
                None => break,
                Some(Some(delivery)) => self.sort(delivery?, now_ms, &is_known, &mut arrived),
                // The queue was deleted, or the channel closed.
                Some(None) => return Err(AmqpDown::Refused),
            }
        }
        self.session = Some(session);
        Ok((line, arrived))
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
    pub(super) async fn done(&mut self, out: &Outbox, members: &[String], now_ms: i64) {
        let members: BTreeSet<&String> = members.iter().collect();
        let due = self.held.range(..=(now_ms, u64::MAX));
        let places: Vec<_> =
            due.filter(|(_, (member, _))| members.contains(member)).map(|(place, _)| *place).collect();
        let ended: Vec<Acker> =
            places.iter().filter_map(|place| self.held.remove(place)).map(|(_, acker)| acker).collect();
        let acknowledged = ended.iter().map(|acker| acker.ack(BasicAckOptions::default()));
        let Some(line) = self.session.as_ref().map(|session| session.channel.clone()) else { return };
        let outcome = line.answered(ANSWER_WITHIN, futures_util::future::try_join_all(acknowledged)).await;
        self.end_session_after(out, outcome.as_ref().err()).await;
    }
}

impl Session {
    async fn open(out: &Outbox) -> Result<Self, AmqpDown> {
        let (channel, queue) = out.reading().await?;
        channel.answered(ANSWER_WITHIN, channel.basic_qos(IN_HAND, BasicQosOptions::default())).await?;
        let (options, arguments) = (BasicConsumeOptions::default(), FieldTable::default());
        let consuming = channel.basic_consume(queue.into(), "".into(), options, arguments);
        let consumer = channel.answered(ANSWER_WITHIN, consuming).await;
        out.note_reading(&consumer);
        Ok(Self { channel, consumer: consumer? })
    }
}

/// To the next step; acknowledged here only when the broker has it there. After a silence it may have it or not:
/// then nothing more is said of it on this session.
async fn send_on(
    out: &Outbox,
    line: &Line,
    message: &Message,
    acker: &Acker,
    now_ms: i64,
) -> Result<(), AmqpDown> {
    let settled = match effect!("timers.hop", out.send(message, now_ms, SENT_ON_WITHIN).await) {
        Err(AmqpDown::Refused) => {
            tracing::debug!("a timer could not be sent on and stays where it is");
            let again = BasicNackOptions { requeue: true, ..BasicNackOptions::default() };
            line.answered(ANSWER_WITHIN, acker.nack(again)).await
        }
        sent => {
            sent?;
            line.answered(ANSWER_WITHIN, acker.ack(BasicAckOptions::default())).await
        }
    };
    settled.map(drop)
}
