//! Chance that can be repeated: a failing story says its seed, `SEED=… cargo test` plays it again.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// A source of chance.
pub struct Chance(StdRng);

impl Chance {
    /// A new source, whose seed is printed.
    pub fn new() -> Self {
        let given = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok());
        let seed: u64 = given.unwrap_or_else(|| rand::rng().random());
        println!("SEED={seed}");
        Self(StdRng::seed_from_u64(seed))
    }

    /// Another source, which repeats with this one.
    pub fn another(&mut self) -> Self {
        Self(StdRng::seed_from_u64(self.0.random()))
    }

    /// A pause of up to so many microseconds.
    pub fn pause(&mut self, max_micros: u64) -> Duration {
        Duration::from_micros(self.0.random_range(0..=max_micros))
    }

    /// Any number.
    pub fn number(&mut self) -> u32 {
        self.0.random()
    }

    /// One of so many.
    pub fn one_of(&mut self, count: usize) -> usize {
        self.0.random_range(0..count)
    }
}
