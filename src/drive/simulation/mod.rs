//! The core, simulated: an order with its attempts at two channels, refunds, stray money, a commission, withdrawals,
//! callbacks and tasks, in a world without a database or a clock, where anything may happen between the two halves of
//! a step. Our side moves by the project's own pure functions alone ([`rules`]); what must hold is told by a naive
//! reference ([`reference`]), after each happening and in the end, when everything has been driven to rest.
//!
//! 100,000 lives of 200 happenings, on 2 threads; `PAYONCE_SEED=…` plays one again. What fails is cut down to the
//! happenings that it takes, and printed with its seed.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

mod channel;
mod drain;
mod money;
mod ops;
mod reference;
mod rules;
mod steps;
mod tasks;
mod told;
mod violations;
mod world;

use ops::{Chance, Op, What, draw, often};
use reference::{Reference, Rule, settled};
use rules::Rules;
use world::World;

use crate::infra::fuzz::is_full;

/// Lives that are played.
const LIVES: u64 = 100_000;
/// Happenings of a life.
const HAPPENINGS: usize = 200;
const THREADS: u64 = 2;
/// Time that all of it may take with `PAYONCE_FULL=1`, on a machine that does nothing else (49 s in a slow hour). Beside
/// other tests it is told, and judged by nobody.
const WITHIN: Duration = Duration::from_secs(60);

/// What became of a life that broke a rule.
struct Broken {
    seed: u64,
    rule: Rule,
    /// What it takes, in its order.
    ops: Vec<Op>,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:?} does not hold; PAYONCE_SEED={} plays it again:", self.rule, self.seed)?;
        self.ops.iter().enumerate().try_for_each(|(number, op)| writeln!(f, "{number:>3} {op:?}"))
    }
}

/// Leads a life; gives the rule that broke, with the number of the happening.
fn live(rules: Rules, seed: u64, ops: &[Op]) -> Result<World, (Rule, usize)> {
    let (mut world, mut reference) = (World::new(rules, seed), Reference::default());
    for (number, op) in ops.iter().enumerate() {
        world.apply(*op);
        reference.look(&mut world).map_err(|rule| (rule, number + 1))?;
    }
    let end = |rule| (rule, ops.len());
    world.drain(&mut reference).map_err(end)?;
    settled(&world).map_err(end)?;
    Ok(world)
}

/// Leaves out what a failure does not take: halves first, then ever less, down to single happenings.
fn cut_down(rules: Rules, seed: u64, rule: Rule, mut ops: Vec<Op>) -> Vec<Op> {
    let fails = |ops: &[Op]| live(rules, seed, ops).is_err_and(|(broken, _)| broken == rule);
    let mut size = ops.len() / 2;
    while size > 0 {
        let mut at = 0;
        while at < ops.len() {
            let end = (at + size).min(ops.len());
            let fewer: Vec<Op> = ops[..at].iter().chain(&ops[end..]).copied().collect();
            if fails(&fewer) {
                ops = fewer;
            } else {
                at = end;
            }
        }
        size /= 2;
    }
    ops
}

fn play(rules: Rules, seed: u64, often: &[What], ops: &mut Vec<Op>) -> Result<World, Box<Broken>> {
    draw(&mut Chance::of(seed), often, HAPPENINGS, ops);
    live(rules, seed, ops).map_err(|(rule, count)| {
        let ops = cut_down(rules, seed, rule, ops[..count].to_vec());
        Box::new(Broken { seed, rule, ops })
    })
}

/// What lives came to, so that none of it is only believed to happen.
#[derive(Debug, Default)]
struct Seen {
    paid: u64,
    closed: u64,
    strays: u64,
    refunded: u64,
    taken_back: u64,
    settled: u64,
    withdrawn: u64,
    unknown: u64,
}

impl Seen {
    fn note(&mut self, world: &World) {
        use crate::refunds::{RefundStatus, StrayReason};
        let count = |holds: bool| u64::from(holds);
        self.paid += count(world.order.paid_by.is_some());
        self.closed += count(world.order.paid_by.is_none());
        self.strays += count(!world.strays.is_empty());
        self.unknown += count(world.strays.iter().any(|stray| stray.reason == StrayReason::UnknownOrder));
        self.refunded += count(world.order.refunded > 0);
        let is_taken_back = |refund: &world::Refund| refund.was_made && refund.status == RefundStatus::Failed;
        self.taken_back += count(world.refunds.iter().any(is_taken_back));
        self.settled += count(world.settlement.is_some());
        self.withdrawn += count(!world.withdrawals.is_empty());
    }

    fn add(&mut self, other: &Self) {
        self.paid += other.paid;
        self.closed += other.closed;
        self.strays += other.strays;
        self.unknown += other.unknown;
        self.refunded += other.refunded;
        self.taken_back += other.taken_back;
        self.settled += other.settled;
        self.withdrawn += other.withdrawn;
    }

    const fn least(&self) -> u64 {
        let rarest = [self.paid, self.closed, self.strays, self.unknown, self.refunded];
        let others = [self.taken_back, self.settled, self.withdrawn, u64::MAX, u64::MAX];
        let (mut least, mut place) = (u64::MAX, 0);
        while place < rarest.len() {
            least = if rarest[place] < least { rarest[place] } else { least };
            least = if others[place] < least { others[place] } else { least };
            place += 1;
        }
        least
    }
}

/// Leads so many lives from that seed on, side by side; gives what they came to, or the first that broke a rule.
fn play_many(rules: Rules, from: u64, count: u64) -> Result<Seen, Box<Broken>> {
    let (next, seen, broken) = (AtomicU64::new(0), Mutex::new(Seen::default()), Mutex::new(None));
    let work = || {
        let (often, mut ops, mut own) = (often(), Vec::new(), Seen::default());
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                break;
            }
            let seed = from.wrapping_add(number);
            match catch_unwind(AssertUnwindSafe(|| play(rules, seed, &often, &mut ops))).unwrap_or_else(
                |panic| {
                    eprintln!("PAYONCE_SEED={seed} panics again");
                    resume_unwind(panic)
                },
            ) {
                Ok(world) => own.note(&world),
                Err(failure) => {
                    next.store(count, Ordering::Relaxed);
                    let mut first = broken.lock().expect("no panic");
                    if first.as_ref().is_none_or(|(before, _)| number < *before) {
                        *first = Some((number, failure));
                    }
                }
            }
        }
        seen.lock().expect("no panic").add(&own);
    };
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(work);
        }
    });
    match broken.into_inner().expect("no panic") {
        Some((_, failure)) => Err(failure),
        None => Ok(seen.into_inner().expect("no panic")),
    }
}

#[test]
#[expect(clippy::print_stdout, reason = "it tells its seeds and what it took")]
fn whatever_happens_money_is_paid_given_back_and_known_once() {
    let given = std::env::var("PAYONCE_SEED").ok().and_then(|seed| seed.parse().ok());
    let (from, count) = match given {
        Some(seed) => (seed, 1),
        None => (rand::Rng::random(&mut rand::rng()), LIVES),
    };
    let begun = Instant::now();
    let outcome = play_many(Rules::ours(), from, count);
    let took = begun.elapsed();
    println!("{count} lives of {HAPPENINGS} happenings from seed {from} on, in {} ms", took.as_millis());
    match outcome {
        Ok(seen) => {
            println!("{seen:?}");
            assert!(took < WITHIN || !is_full(), "{took:?}");
            assert!(given.is_some() || seen.least() > count / 200, "something hardly ever happens: {seen:?}");
        }
        Err(failure) => panic!("{failure}"),
    }
}
