//! The lock on one Redis: `SET NX PX`, released and renewed by scripts that compare the token first.

use std::sync::LazyLock;
use std::time::Duration;

use async_trait::async_trait;
use redis::Script;

use super::backend::{BackendUnavailable, LockBackend};
use crate::infra::redis::{Node, RedisDown};

static RELEASE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end",
    )
});

static RENEW: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) else return 0 end",
    )
});

/// Locks on one server, or on the present master of several. A master that replaces another may not have heard of
/// a lock yet and grant it again: the database decides then.
#[derive(Clone)]
pub struct RedisLock(pub Node);

impl From<RedisDown> for BackendUnavailable {
    fn from(error: RedisDown) -> Self {
        match error {
            RedisDown::BreakerOpen | RedisDown::NoMaster => Self::NotAsked(Box::new(error)),
            RedisDown::Failed(_) => Self::NoAnswer(Box::new(error)),
        }
    }
}

fn millis(ttl: Duration) -> u64 {
    u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX)
}

#[async_trait]
impl LockBackend for RedisLock {
    async fn try_acquire(&self, key: &str, token: &str, ttl: Duration) -> Result<bool, BackendUnavailable> {
        let mut set = redis::cmd("SET");
        set.arg(key).arg(token).arg("NX").arg("PX").arg(millis(ttl));
        let answer: Option<String> = self.0.run(&set).await?;
        Ok(answer.is_some())
    }

    async fn renew(&self, key: &str, token: &str, ttl: Duration) -> Result<bool, BackendUnavailable> {
        Ok(self.0.script(RENEW.key(key).arg(token).arg(millis(ttl))).await?)
    }

    async fn release(&self, key: &str, token: &str) -> Result<bool, BackendUnavailable> {
        Ok(self.0.script(RELEASE.key(key).arg(token)).await?)
    }
}
