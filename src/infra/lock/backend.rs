//! What a lock needs from the outside.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::{QuorumLock, RedisLock};
use crate::infra::redis::Redis;

/// Why a backend did not do what was asked.
type Cause = Box<dyn std::error::Error + Send + Sync>;

/// The backend did not answer, so nobody knows who holds the lock.
#[derive(Debug, thiserror::Error)]
pub enum BackendUnavailable {
    /// It was left alone, so nothing came of it.
    #[error("the lock's backend is being left alone")]
    NotAsked(#[source] Cause),
    /// It was asked, and may have done it, or do it yet.
    #[error("the lock's backend did not answer")]
    NoAnswer(#[source] Cause),
}

/// One Redis, Redis behind Sentinel, or a quorum of independent nodes.
#[async_trait]
pub trait LockBackend: Send + Sync {
    /// Takes the key for `token` unless somebody else has it.
    async fn try_acquire(&self, key: &str, token: &str, ttl: Duration) -> Result<bool, BackendUnavailable>;

    /// Sets the key's life back to `ttl` if `token` still has it; `false` when it has not.
    async fn renew(&self, key: &str, token: &str, ttl: Duration) -> Result<bool, BackendUnavailable>;

    /// Gives the key back if `token` still has it; `false` when it has not.
    async fn release(&self, key: &str, token: &str) -> Result<bool, BackendUnavailable>;
}

/// The backend for these servers: a quorum where there are several, otherwise the one that there is.
#[must_use]
pub fn backend_on(redis: &Redis) -> Arc<dyn LockBackend> {
    match redis.nodes() {
        [one] => Arc::new(RedisLock(one.clone())),
        nodes => Arc::new(QuorumLock::new(nodes.iter().cloned().map(RedisLock))),
    }
}
