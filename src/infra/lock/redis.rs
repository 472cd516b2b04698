//! The lock on one Redis: `SET NX PX`, released and renewed by scripts that compare the token first.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use redis::Script;

use super::backend::{BackendUnavailable, LockBackend};
use crate::infra::redis::{Redis, RedisDown};

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

/// How often a lock that may be granted too late is looked for.
const LATE_EVERY: Duration = Duration::from_millis(250);

/// Locks on one Redis.
#[derive(Clone, Debug)]
pub struct RedisLock(pub Redis);

impl From<RedisDown> for BackendUnavailable {
    fn from(error: RedisDown) -> Self {
        match error {
            RedisDown::BreakerOpen => Self::NotAsked(Box::new(error)),
            RedisDown::Failed(_) => Self::NoAnswer(Box::new(error)),
        }
    }
}

impl RedisLock {
    /// Gives back a lock that Redis may still grant after its caller went on without it: a Redis that hung
    /// carries out what was sent to it. Otherwise that order would be "busy" until the lock dies by itself.
    fn give_back_late(&self, key: &str, token: &str, ttl: Duration) {
        let (lock, key, token) = (self.clone(), key.to_owned(), token.to_owned());
        tokio::spawn(async move {
            let give_up_at = Instant::now() + ttl;
            while Instant::now() < give_up_at {
                tokio::time::sleep(LATE_EVERY).await;
                if matches!(lock.release(&key, &token).await, Ok(true)) {
                    return;
                }
            }
        });
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
        match self.0.run::<Option<String>>(&set).await {
            Ok(answer) => Ok(answer.is_some()),
            Err(error) => {
                if matches!(error, RedisDown::Failed(_)) {
                    self.give_back_late(key, token, ttl);
                }
                Err(error.into())
            }
        }
    }

    async fn renew(&self, key: &str, token: &str, ttl: Duration) -> Result<bool, BackendUnavailable> {
        Ok(self.0.script(RENEW.key(key).arg(token).arg(millis(ttl))).await?)
    }

    async fn release(&self, key: &str, token: &str) -> Result<bool, BackendUnavailable> {
        Ok(self.0.script(RELEASE.key(key).arg(token)).await?)
    }
}
