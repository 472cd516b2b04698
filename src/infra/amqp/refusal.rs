//! Whether the broker is there and refuses something, which a person has to see to.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::AmqpDown;

/// How the last try ended that the broker was there for.
#[derive(Debug, Default)]
pub(super) struct Refusal {
    /// When the broker refused it last, where it did nothing better since.
    met_at: Mutex<Option<Instant>>,
    /// How long that counts; as long as nobody tries again, if nothing is said.
    counts_for: Option<Duration>,
}

impl Refusal {
    /// For what others may take over from us: we might try no more, and not hear that a person saw to it.
    pub(super) fn that_counts_for(time: Duration) -> Self {
        Self { counts_for: Some(time), ..Self::default() }
    }

    pub(super) fn is_met(&self) -> bool {
        self.counts(*self.met_at())
    }

    /// Notes how a try ended; gives the error where it is a refusal, and the first one. A broker that is away says nothing
    /// of it.
    pub(super) fn note<'a, T>(&self, outcome: &'a Result<T, AmqpDown>) -> Option<&'a AmqpDown> {
        let mut met_at = self.met_at();
        match outcome {
            Ok(_) => {
                *met_at = None;
                None
            }
            Err(error) if error.is_refusal() => {
                let before = met_at.replace(Instant::now());
                (!self.counts(before)).then_some(error)
            }
            Err(_) => None,
        }
    }

    fn counts(&self, met_at: Option<Instant>) -> bool {
        let is_fresh = |met_at: Instant| self.counts_for.is_none_or(|time| met_at.elapsed() < time);
        met_at.is_some_and(is_fresh)
    }

    fn met_at(&self) -> MutexGuard<'_, Option<Instant>> {
        self.met_at.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use lapin::ErrorKind;
    use lapin::protocol::{AMQPError, AMQPSoftError};

    use super::*;

    fn refused() -> Result<(), AmqpDown> {
        let error = AMQPError::new(AMQPSoftError::ACCESSREFUSED.into(), "not yours".into());
        Err(AmqpDown::Failed(ErrorKind::ProtocolError(error).into()))
    }

    #[test]
    fn a_refusal_is_told_once_and_ends_with_what_is_done() {
        let refusal = Refusal::default();
        assert!(refusal.note(&Err::<(), _>(AmqpDown::LeftAlone)).is_none() && !refusal.is_met());
        assert!(refusal.note(&refused()).is_some() && refusal.is_met());
        assert!(refusal.note(&refused()).is_none() && refusal.is_met());
        assert!(refusal.note(&Err::<(), _>(AmqpDown::LeftAlone)).is_none() && refusal.is_met());
        assert!(refusal.note(&Ok(())).is_none() && !refusal.is_met());
        assert!(refusal.note(&refused()).is_some(), "another one is told again");
    }

    #[test]
    fn a_refusal_that_nobody_meets_again_is_forgotten_where_others_may_try() {
        for (time, is_fresh) in [(Duration::from_secs(3600), true), (Duration::ZERO, false)] {
            let refusal = Refusal::that_counts_for(time);
            assert!(refusal.note(&refused()).is_some(), "the first one is told");
            assert_eq!(refusal.is_met(), is_fresh);
            assert_eq!(refusal.note(&refused()).is_none(), is_fresh, "it lasts, or it is another one");
        }
    }
}
