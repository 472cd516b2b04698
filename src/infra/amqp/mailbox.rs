//! A mailbox on RabbitMQ: a durable queue that others write to, read with manual acknowledgement, and beside it a queue
//! for what cannot be done, for a person.
//!
//! A letter is acknowledged only after its work is committed: a worker that dies before that leaves it to the next one.
//! One whose work cannot be done now stays in the hand that has it for a while, and is then given back for others to try: a
//! quorum queue counts how often it gives a letter out, and after 20 times sets it aside without a word to us (RabbitMQ 4).

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use lapin::message::Delivery;
use lapin::options::{
    BasicAckOptions, BasicConsumeOptions, BasicNackOptions, BasicQosOptions, BasicRejectOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Acker, Consumer};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::{ANSWER_WITHIN, Amqp, AmqpDown, Line, Refusal, ladder};

/// Letters in hand at most.
const IN_HAND: u16 = 1000;
/// How long one stays there whose work cannot be done before others are to try: it may be this process alone that cannot.
const KEPT_AT_FIRST: Duration = Duration::from_secs(30);
/// The same of one that was given back before: 20 times that is an hour and a half. The broker waits for its acknowledgement
/// for half an hour.
const KEPT_FOR: Duration = Duration::from_secs(270);

/// One mailbox, shared by all instances that name it alike. Cheap to clone.
#[derive(Clone)]
pub struct Mailbox(Arc<Inside>);

struct Inside {
    amqp: Amqp,
    queue: String,
    session: Mutex<Option<Session>>,
    refusal: Refusal,
}

struct Session {
    line: Line,
    consumer: Consumer,
    /// Letters whose work could not be done yet.
    kept: VecDeque<Letter>,
}

impl fmt::Debug for Mailbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mailbox").field("queue", &self.0.queue).finish_non_exhaustive()
    }
}

/// A letter in hand.
#[derive(Debug)]
pub struct Letter {
    /// What it says.
    pub body: Vec<u8>,
    /// Whether it was given out before, and nobody could say what became of it.
    pub is_repeat: bool,
    acker: Acker,
    keep_until: Instant,
}

/// What becomes of a letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Its work is done.
    Done,
    /// Its work can never be done: to the queue beside, for a person.
    Dead,
    /// Its work could not be done now: it is received once more, here or elsewhere.
    Again,
}

impl Mailbox {
    /// The mailbox of this name. Nothing is connected yet.
    #[must_use]
    pub fn new(amqp: Amqp, queue: String) -> Self {
        Self(Arc::new(Inside { amqp, queue, session: Mutex::default(), refusal: Refusal::default() }))
    }

    /// Whether the broker was there the last time that the queue was asked for, and did not let it be had: it is of
    /// another kind, or not ours. A person has to see to that.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        self.0.refusal.is_met()
    }

    /// Up to `limit` letters that are there already, of which those that could not be done yet are half at most.
    ///
    /// # Errors
    /// [`AmqpDown`] when the broker cannot be had; what was in hand then comes again later.
    pub async fn receive(&self, limit: usize) -> Result<Vec<Letter>, AmqpDown> {
        let mut session = self.0.session.lock().await;
        session.take_if(|session| !session.line.status().connected());
        if session.is_none() {
            let opened = self.open().await;
            // Whoever asked logs it.
            self.0.refusal.note(&opened);
            self.0.amqp.hang_up_after(opened.as_ref().err()).await;
            *session = Some(opened?);
        }
        let kept = session.as_mut().map(|session| &mut session.kept);
        let mut letters: Vec<Letter> =
            kept.map_or_else(Vec::new, |kept| kept.drain(..kept.len().min(limit / 2)).collect());
        while letters.len() < limit
            && let Some(next) = session.as_mut().and_then(|session| session.consumer.next().now_or_never())
        {
            match next {
                Some(Ok(delivery)) => letters.push(Letter::of(delivery)),
                // The queue was deleted, or the channel closed.
                Some(Err(_)) | None => {
                    *session = None;
                    return Err(AmqpDown::Refused);
                }
            }
        }
        Ok(letters)
    }

    /// Tells the broker what became of letters.
    ///
    /// # Errors
    /// [`AmqpDown`] when it may not have heard: then they come again.
    pub async fn settle(&self, letters: Vec<(Letter, Fate)>) -> Result<(), AmqpDown> {
        let mut session = self.0.session.lock().await;
        let Some(Session { line, kept, .. }) = session.as_mut() else { return Ok(()) };
        let line = line.clone();
        let now = Instant::now();
        let stays = |(letter, fate): &(Letter, Fate)| *fate == Fate::Again && now < letter.keep_until;
        let (again, ended): (Vec<_>, Vec<_>) = letters.into_iter().partition(stays);
        kept.extend(again.into_iter().map(|(letter, _)| Letter { is_repeat: true, ..letter }));
        let (dead, others): (Vec<_>, Vec<_>) = ended.into_iter().partition(|(_, fate)| *fate == Fate::Dead);
        let told = async {
            tell(&others).await?;
            if !dead.is_empty() {
                // The broker drops in silence what it finds no queue for: it may have been deleted since.
                declare_dead(&line, &self.0.queue).await?;
            }
            tell(&dead).await
        };
        let outcome = line.answered(ANSWER_WITHIN, told).await;
        if outcome.is_err() {
            *session = None;
        }
        self.0.amqp.hang_up_after(outcome.as_ref().err()).await;
        outcome
    }

    async fn open(&self) -> Result<Session, AmqpDown> {
        let (line, queue) = (self.0.amqp.channel().await?, self.0.queue.clone());
        line.answered(ANSWER_WITHIN, declare(&line, &queue)).await?;
        line.answered(ANSWER_WITHIN, line.basic_qos(IN_HAND, BasicQosOptions::default())).await?;
        let (options, arguments) = (BasicConsumeOptions::default(), FieldTable::default());
        let consuming = line.basic_consume(queue.into(), "".into(), options, arguments);
        let consumer = line.answered(ANSWER_WITHIN, consuming).await?;
        Ok(Session { line, consumer, kept: VecDeque::new() })
    }
}

/// The queue and the one beside it; what is rejected moves by the broker itself.
async fn declare(line: &Line, queue: &str) -> Result<(), AmqpDown> {
    declare_dead(line, queue).await?;
    let mut arguments = FieldTable::default();
    arguments.insert("x-dead-letter-exchange".into(), AMQPValue::LongString("".into()));
    arguments.insert("x-dead-letter-routing-key".into(), AMQPValue::LongString(dead_of(queue).into()));
    ladder::declare_queue(line, queue.to_owned(), arguments).await
}

async fn declare_dead(line: &Line, queue: &str) -> Result<(), AmqpDown> {
    ladder::declare_queue(line, dead_of(queue), FieldTable::default()).await
}

fn dead_of(queue: &str) -> String {
    format!("{queue}.dead")
}

/// Tells the broker of each.
async fn tell(letters: &[(Letter, Fate)]) -> Result<(), AmqpDown> {
    let told = letters.iter().map(|(letter, fate)| letter.settle(*fate));
    futures_util::future::try_join_all(told).await?;
    Ok(())
}

impl Letter {
    fn of(delivery: Delivery) -> Self {
        let Delivery { data, redelivered, acker, .. } = delivery;
        let keep_until = Instant::now() + if redelivered { KEPT_FOR } else { KEPT_AT_FIRST };
        Self { body: data, is_repeat: redelivered, acker, keep_until }
    }

    async fn settle(&self, fate: Fate) -> Result<bool, lapin::Error> {
        match fate {
            Fate::Done => self.acker.ack(BasicAckOptions::default()).await,
            Fate::Dead => self.acker.reject(BasicRejectOptions { requeue: false }).await,
            Fate::Again => {
                let again = BasicNackOptions { requeue: true, ..BasicNackOptions::default() };
                self.acker.nack(again).await
            }
        }
    }
}
