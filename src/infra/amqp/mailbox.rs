//! A mailbox on RabbitMQ: a durable queue that others write to, read with manual acknowledgement, and beside it a queue
//! for what cannot be done, for a person.
//!
//! A letter is acknowledged only after its work is committed: a worker that dies before that leaves it to the next one.

use std::fmt;
use std::sync::Arc;

use futures_util::{FutureExt, StreamExt};
use lapin::message::Delivery;
use lapin::options::{
    BasicAckOptions, BasicConsumeOptions, BasicNackOptions, BasicQosOptions, BasicRejectOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Acker, Consumer};
use tokio::sync::Mutex;

use super::{ANSWER_WITHIN, Amqp, AmqpDown, Line, Refusal, ladder};

/// Letters in hand at most.
const IN_HAND: u16 = 1000;

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
    /// Whether it was given out before, to somebody who did not say what became of it.
    pub is_repeat: bool,
    acker: Acker,
}

/// What becomes of a letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Its work is done.
    Done,
    /// Its work can never be done: to the queue beside, for a person.
    Dead,
    /// Its work could not be done now: back to the queue.
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

    /// Up to `limit` letters that are there already.
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
        let mut letters = Vec::new();
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
        let Some(line) = session.as_ref().map(|session| session.line.clone()) else { return Ok(()) };
        let told = letters.iter().map(|(letter, fate)| letter.settle(*fate));
        let outcome = line.answered(ANSWER_WITHIN, futures_util::future::try_join_all(told)).await;
        if outcome.is_err() {
            *session = None;
        }
        self.0.amqp.hang_up_after(outcome.as_ref().err()).await;
        outcome.map(drop)
    }

    async fn open(&self) -> Result<Session, AmqpDown> {
        let (line, queue) = (self.0.amqp.channel().await?, self.0.queue.clone());
        line.answered(ANSWER_WITHIN, declare(&line, &queue)).await?;
        line.answered(ANSWER_WITHIN, line.basic_qos(IN_HAND, BasicQosOptions::default())).await?;
        let (options, arguments) = (BasicConsumeOptions::default(), FieldTable::default());
        let consuming = line.basic_consume(queue.into(), "".into(), options, arguments);
        let consumer = line.answered(ANSWER_WITHIN, consuming).await?;
        Ok(Session { line, consumer })
    }
}

/// The queue and the one beside it; what is rejected moves by the broker itself.
async fn declare(line: &Line, queue: &str) -> Result<(), AmqpDown> {
    let dead = format!("{queue}.dead");
    let mut arguments = FieldTable::default();
    arguments.insert("x-dead-letter-exchange".into(), AMQPValue::LongString("".into()));
    arguments.insert("x-dead-letter-routing-key".into(), AMQPValue::LongString(dead.clone().into()));
    ladder::declare_queue(line, dead, FieldTable::default()).await?;
    ladder::declare_queue(line, queue.to_owned(), arguments).await
}

impl Letter {
    fn of(delivery: Delivery) -> Self {
        Self { body: delivery.data, is_repeat: delivery.redelivered, acker: delivery.acker }
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
