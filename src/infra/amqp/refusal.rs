//! Whether the broker is there and refuses something, which a person has to see to.

use std::sync::atomic::{AtomicBool, Ordering};

use super::AmqpDown;

/// How the last try ended that the broker was there for.
#[derive(Debug, Default)]
pub(super) struct Refusal(AtomicBool);

impl Refusal {
    pub(super) fn is_met(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Notes how a try ended; gives the error where it is a refusal, and the first one. A broker that is away says nothing
    /// of it.
    pub(super) fn note<'a, T>(&self, outcome: &'a Result<T, AmqpDown>) -> Option<&'a AmqpDown> {
        match outcome {
            Ok(_) => {
                self.0.store(false, Ordering::Relaxed);
                None
            }
            Err(error) => (error.is_refusal() && !self.0.swap(true, Ordering::Relaxed)).then_some(error),
        }
    }
}
