//! The ladder: queues in which every message waits equally long, 1, 2, 4 … seconds. Nothing blocks at the head of
//! such a queue, as messages with lives of their own would.
//!
//! A message takes the largest step that fits into what is left until it is due, comes out at the bottom, and takes
//! the next one; less than a second is waited out in the process that has it. So it is never early, and late only by
//! the time it takes to be moved.

use std::time::Duration;

use lapin::options::{ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Channel, ExchangeKind};

use super::AmqpDown;

/// Steps of 2^0 to 2^19 seconds: six days. What waits longer takes the last one again.
const STEPS: u32 = 20;

/// The longest step that is over before `left` is; `None` when that is less than a second away.
pub(super) fn step_for(left: Duration) -> Option<u32> {
    let seconds = left.as_secs();
    (seconds > 0).then(|| seconds.ilog2().min(STEPS - 1))
}

/// How long a step lasts, in seconds.
const fn seconds_of(step: u32) -> u32 {
    1 << step
}

/// The names of the queues and of the exchange below which messages come out again.
#[derive(Clone, Debug)]
pub(super) struct Names {
    base: String,
}

impl Names {
    pub(super) fn new(base: &str) -> Self {
        Self { base: base.to_owned() }
    }

    fn exchange(&self) -> String {
        self.base.clone()
    }

    /// Where messages are when a step is over.
    pub(super) fn due(&self) -> String {
        format!("{}.due", self.base)
    }

    /// Where messages are that nobody can read, for a person.
    fn parked(&self) -> String {
        format!("{}.parked", self.base)
    }

    /// Where messages wait so long.
    pub(super) fn step(&self, step: u32) -> String {
        format!("{}.wait.{}s", self.base, seconds_of(step))
    }
}

/// Makes what is missing; all of it survives a restart of the broker. Killed within two seconds of being told the first
/// time it may have forgotten a binding, and then drops what falls due before somebody declares it again.
pub(super) async fn declare(channel: &Channel, names: &Names) -> Result<(), AmqpDown> {
    let durable = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
    channel
        .exchange_declare(names.exchange().into(), ExchangeKind::Direct, durable, FieldTable::default())
        .await?;
    declare_queue(channel, names.parked(), FieldTable::default()).await?;
    declare_queue(channel, names.due(), then(names, names.parked())).await?;
    for step in 0..STEPS {
        let mut arguments = then(names, names.due());
        arguments.insert("x-message-ttl".into(), AMQPValue::LongLongInt(i64::from(seconds_of(step)) * 1000));
        declare_queue(channel, names.step(step), arguments).await?;
    }
    for queue in [names.parked(), names.due()] {
        let (exchange, options) = (names.exchange(), QueueBindOptions::default());
        channel
            .queue_bind(queue.clone().into(), exchange.into(), queue.into(), options, FieldTable::default())
            .await?;
    }
    Ok(())
}

/// Where a message goes when its time in a queue is over, or it was rejected there.
fn then(names: &Names, queue: String) -> FieldTable {
    let mut arguments = FieldTable::default();
    arguments.insert("x-dead-letter-exchange".into(), AMQPValue::LongString(names.exchange().into()));
    arguments.insert("x-dead-letter-routing-key".into(), AMQPValue::LongString(queue.into()));
    arguments
}

pub(super) async fn declare_queue(
    channel: &Channel,
    name: String,
    arguments: FieldTable,
) -> Result<(), AmqpDown> {
    let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    channel.queue_declare(name.into(), durable, arguments).await?;
    Ok(())
}

/// How many messages wait on the ladder, and how many are due and in nobody's hand.
pub(super) async fn count(channel: &Channel, names: &Names) -> Result<(i64, i64), AmqpDown> {
    let look = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
    let mut waiting = 0;
    for step in 0..STEPS {
        let queue = channel.queue_declare(names.step(step).into(), look, FieldTable::default()).await?;
        waiting += i64::from(queue.message_count());
    }
    let due = channel.queue_declare(names.due().into(), look, FieldTable::default()).await?;
    Ok((waiting, i64::from(due.message_count())))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The steps that a message takes, and what is then waited out in the process.
    fn walk(delay: Duration) -> (Vec<u32>, Duration) {
        let (mut left, mut steps) = (delay, Vec::new());
        while let Some(step) = step_for(left) {
            left -= Duration::from_secs(seconds_of(step).into());
            steps.push(step);
        }
        (steps, left)
    }

    #[test]
    fn the_steps_of_any_delay_add_up_to_it_and_never_beyond() {
        let edges = [0, 1, 999, 1000, 1001, 1999, 2000, 524_288_000, 524_288_999, 604_800_000, 2_592_000_000];
        // A prime stride walks through thirty days without a pattern.
        let others = (0..20_000_u64).map(|index| index * 1_299_709 % 2_592_000_000);
        for millis in edges.into_iter().chain(others) {
            let delay = Duration::from_millis(millis);
            let (steps, rest) = walk(delay);
            let waited: u64 = steps.iter().map(|step| u64::from(seconds_of(*step))).sum();
            assert_eq!(Duration::from_secs(waited) + rest, delay, "{millis} ms");
            assert!(rest < Duration::from_secs(1), "{millis} ms: the process waits {rest:?}");
            assert!(steps.is_sorted_by(|before, after| before >= after), "{millis} ms: {steps:?}");
        }
    }

    #[test]
    fn seven_days_take_the_long_step_once_and_no_more_than_twenty_hops() {
        let (steps, _) = walk(Duration::from_secs(7 * 24 * 3600));
        assert_eq!(steps.iter().filter(|step| **step == STEPS - 1).count(), 1);
        assert!(steps.len() <= 20, "{steps:?}");
        assert_eq!(walk(Duration::from_secs(30 * 24 * 3600)).0.iter().filter(|step| **step == 19).count(), 4);
    }

    #[test]
    fn late_by_any_hop_a_message_never_overshoots_by_a_step() {
        // Whatever moving takes, the next step is chosen from what is left then.
        for late in [1_u64, 40, 700, 1500] {
            let (mut now, due) = (0_u64, 100_000_u64);
            while let Some(step) = step_for(Duration::from_millis(due.saturating_sub(now))) {
                now += u64::from(seconds_of(step)) * 1000 + late;
            }
            assert!(now.max(due) - due <= late, "late by {} ms after hops of {late} ms", now.max(due) - due);
        }
    }
}
