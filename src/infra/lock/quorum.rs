//! The lock on a quorum of independent nodes (Redlock): who has the majority has the lock.
//!
//! All nodes are asked at once, each within its own deadline, and nobody waits for the slow ones once the
//! majority is known: they are seen to beside. A lock that took so long that nothing of its time to live is left,
//! drift of the clocks subtracted, is not held. Where the majority cannot be reached the backend counts as
//! away, and the work goes on without it. A node that was emptied, or whose clock jumped, may grant again what
//! another holds; like any lock in Redis this one only saves work.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use tokio::task::JoinSet;

use super::backend::{BackendUnavailable, LockBackend};
use super::redis::RedisLock;
use super::validity;

/// Locks on independent nodes.
#[derive(Clone)]
pub struct QuorumLock {
    nodes: Arc<[RedisLock]>,
}

type Answer = Result<bool, BackendUnavailable>;
/// The questions under way, each with the place of its node.
type Asked = JoinSet<(usize, Answer)>;

/// What the nodes said so far.
#[derive(Debug, Default)]
struct Votes {
    yes: Vec<usize>,
    no: usize,
    /// Left alone, so that nothing came of it there.
    not_asked: Option<BackendUnavailable>,
    /// Asked, with an unknown result.
    silent: Option<BackendUnavailable>,
}

impl Votes {
    fn count(&mut self, node: usize, answer: Answer) {
        match answer {
            Ok(true) => self.yes.push(node),
            Ok(false) => self.no += 1,
            Err(error @ BackendUnavailable::NotAsked(_)) => self.not_asked = Some(error),
            Err(error @ BackendUnavailable::NoAnswer(_)) => self.silent = Some(error),
        }
    }

    /// Yes or no from the majority, or no from so many that the majority cannot be had; `None` while it is open.
    fn verdict(&self, majority: usize, nodes: usize) -> Option<bool> {
        if self.yes.len() >= majority {
            return Some(true);
        }
        (self.no > nodes - majority).then_some(false)
    }

    /// What it comes to when every node has answered or run out of time. Votes that are split are a no:
    /// somebody else is there too.
    fn tally(self, majority: usize) -> Answer {
        let answered = self.yes.len() + self.no;
        match self.silent.or(self.not_asked) {
            Some(error) if answered < majority => Err(error),
            _ => Ok(self.yes.len() >= majority),
        }
    }
}

impl QuorumLock {
    /// Locks on these nodes.
    #[must_use]
    pub fn new(nodes: impl IntoIterator<Item = RedisLock>) -> Self {
        Self { nodes: nodes.into_iter().collect() }
    }

    fn majority(&self) -> usize {
        self.nodes.len() / 2 + 1
    }

    /// Asks every node at once. A question that was begun is brought to its end, also when nobody waits any more.
    fn ask<F>(&self, question: impl Fn(RedisLock) -> F) -> Asked
    where
        F: Future<Output = Answer> + Send + 'static,
    {
        let mut asked = JoinSet::new();
        for (place, node) in self.nodes.iter().enumerate() {
            let question = question(node.clone());
            asked.spawn(async move { (place, question.await) });
        }
        asked
    }

    /// Counts until the majority has spoken, or everybody has.
    async fn count(&self, asked: &mut Asked) -> (Votes, Option<bool>) {
        let mut votes = Votes::default();
        while let Some(answer) = asked.join_next().await {
            if let Ok((node, answer)) = answer {
                votes.count(node, answer);
            }
            let verdict = votes.verdict(self.majority(), self.nodes.len());
            if verdict.is_some() {
                return (votes, verdict);
            }
        }
        (votes, None)
    }

    /// What the majority says to a question whose answers leave nothing behind.
    async fn majority_of(&self, mut asked: Asked) -> Answer {
        let (votes, verdict) = self.count(&mut asked).await;
        asked.detach_all();
        verdict.map_or_else(|| votes.tally(self.majority()), Ok)
    }

    /// Gives back what a failed try was granted, so that neither the next try nor anybody else meets it. Nodes
    /// that are still silent are seen to when they have answered.
    async fn take_back(&self, key: &str, token: &str, granted: &[usize], mut open: Asked) {
        let granted = granted.iter().filter_map(|place| self.nodes.get(*place));
        futures_util::future::join_all(granted.map(|node| node.release(key, token))).await;

        let (nodes, key, token) = (self.nodes.clone(), key.to_owned(), token.to_owned());
        tokio::spawn(async move {
            while let Some(answer) = open.join_next().await {
                if let Ok((place, Ok(true) | Err(BackendUnavailable::NoAnswer(_)))) = answer
                    && let Some(node) = nodes.get(place)
                    && let Err(error) = node.release(&key, &token).await
                {
                    tracing::debug!(%error, "a node keeps a lock that nobody has until it expires");
                }
            }
        });
    }
}

#[async_trait]
impl LockBackend for QuorumLock {
    async fn try_acquire(&self, key: &str, token: &str, ttl: Duration) -> Answer {
        let asked_at = Instant::now();
        let words = (key.to_owned(), token.to_owned());
        let mut asked = self.ask(|node| {
            let (key, token) = words.clone();
            async move { node.try_acquire(&key, &token, ttl).await }
        });
        let (votes, verdict) = self.count(&mut asked).await;
        if verdict == Some(true) {
            if validity::left(ttl, asked_at.elapsed()).is_some() {
                asked.detach_all();
                return Ok(true);
            }
            self.take_back(key, token, &votes.yes, asked).await;
            return Err(BackendUnavailable::NoAnswer("the grants came too late to be of use".into()));
        }
        self.take_back(key, token, &votes.yes, asked).await;
        verdict.map_or_else(|| votes.tally(self.majority()), Ok)
    }

    async fn renew(&self, key: &str, token: &str, ttl: Duration) -> Answer {
        let words = (key.to_owned(), token.to_owned());
        let asked = self.ask(|node| {
            let (key, token) = words.clone();
            async move { node.renew(&key, &token, ttl).await }
        });
        self.majority_of(asked).await
    }

    async fn release(&self, key: &str, token: &str) -> Answer {
        let words = (key.to_owned(), token.to_owned());
        let asked = self.ask(|node| {
            let (key, token) = words.clone();
            async move { node.release(&key, &token).await }
        });
        self.majority_of(asked).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn votes(yes: usize, no: usize, not_asked: bool, silent: bool) -> Votes {
        let why = || "away".into();
        Votes {
            yes: (0..yes).collect(),
            no,
            not_asked: not_asked.then(|| BackendUnavailable::NotAsked(why())),
            silent: silent.then(|| BackendUnavailable::NoAnswer(why())),
        }
    }

    #[test]
    fn the_majority_decides_as_soon_as_it_is_known() {
        assert_eq!(votes(3, 0, false, false).verdict(3, 5), Some(true));
        assert_eq!(votes(2, 2, false, false).verdict(3, 5), None);
        assert_eq!(votes(0, 3, false, false).verdict(3, 5), Some(false));
        assert_eq!(votes(1, 2, false, false).verdict(3, 4), Some(false), "a split of four is nobody's");
        assert_eq!(
            votes(2, 0, true, false).verdict(2, 3),
            Some(true),
            "a minority that is away says nothing"
        );
    }

    #[test]
    fn without_a_majority_that_answers_the_backend_is_away() {
        assert!(matches!(votes(2, 0, true, false).tally(3), Err(BackendUnavailable::NotAsked(_))));
        assert!(matches!(votes(2, 0, true, true).tally(3), Err(BackendUnavailable::NoAnswer(_))));
        assert!(matches!(votes(2, 1, true, true).tally(3), Ok(false)), "three answered, and one is held");
    }
}
