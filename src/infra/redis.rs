//! Redis: fast when it is there, out of the way at once when it is not.
//!
//! Always true: a call ends within the answer deadline, and while Redis is down it ends at once (the breaker).
//! Nothing that must survive is only here.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{Cmd, FromRedisValue, RedisError, ScriptInvocation};
use secrecy::ExposeSecret;

use crate::config::RedisConfig;

/// Redis did not do what was asked; the work goes on without it.
#[derive(Debug, thiserror::Error)]
pub enum RedisDown {
    /// It failed a moment ago and is left alone for now.
    #[error("Redis is being left alone after repeated failures")]
    BreakerOpen,
    /// It did not answer in time, or with an error.
    #[error("Redis failed")]
    Failed(#[from] RedisError),
}

/// Failures in a row after which Redis is left alone.
const FAILURES_TO_OPEN: u32 = 3;
/// How long it is left alone; then one call tries again.
const OPEN_FOR: Duration = Duration::from_millis(500);

/// One multiplexed connection that reconnects by itself. Cheap to clone.
#[derive(Clone)]
pub struct Redis {
    manager: ConnectionManager,
    breaker: Arc<Breaker>,
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis").field("breaker", &self.breaker).finish_non_exhaustive()
    }
}

impl Redis {
    /// Sets the client up without connecting yet: a service without Redis starts, degraded.
    ///
    /// # Errors
    /// When the URL cannot be read.
    pub fn new(config: &RedisConfig) -> Result<Self, RedisError> {
        let client = redis::Client::open(config.url.expose_secret())?;
        // The defaults of the manager stall every command for 9.45 s while Redis is down.
        let settings = ConnectionManagerConfig::new()
            .set_number_of_retries(0)
            .set_connection_timeout(Some(Duration::from_millis(100)))
            .set_response_timeout(Some(config.answer_deadline));
        let manager = ConnectionManager::new_lazy_with_config(client, settings)?;
        Ok(Self { manager, breaker: Arc::default() })
    }

    /// Runs one command.
    ///
    /// # Errors
    /// [`RedisDown`] when it cannot be reached, does not answer in time, or refuses.
    pub async fn run<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, RedisDown> {
        self.breaker.admit()?;
        let mut manager = self.manager.clone();
        self.judge(command.query_async(&mut manager).await)
    }

    /// Runs a script, loading it where the server does not know it yet.
    ///
    /// # Errors
    /// As [`Redis::run`].
    pub async fn script<T: FromRedisValue>(&self, invocation: &ScriptInvocation<'_>) -> Result<T, RedisDown> {
        self.breaker.admit()?;
        let mut manager = self.manager.clone();
        self.judge(invocation.invoke_async(&mut manager).await)
    }

    /// Whether Redis answers right now, asked past the breaker.
    pub async fn answers(&self) -> bool {
        let mut manager = self.manager.clone();
        redis::cmd("PING").query_async::<String>(&mut manager).await.is_ok()
    }

    fn judge<T>(&self, outcome: Result<T, RedisError>) -> Result<T, RedisDown> {
        match outcome {
            Ok(value) => {
                self.breaker.succeeded();
                Ok(value)
            }
            Err(error) => {
                self.breaker.failed();
                metrics::counter!("payonce_redis_failures_total").increment(1);
                Err(RedisDown::Failed(error))
            }
        }
    }
}

/// What a Redis says of itself.
#[derive(Clone, Debug, Default)]
pub struct RedisFacts {
    /// Its version.
    pub version: String,
    /// What it drops when its memory is full.
    pub eviction_policy: String,
    /// Whether it writes to disk.
    pub is_persistent: bool,
}

impl Redis {
    /// Asks Redis about itself.
    ///
    /// # Errors
    /// As [`Redis::run`].
    pub async fn facts(&self) -> Result<RedisFacts, RedisDown> {
        // The server, memory and persistence sections at once: a service of Redis may refuse `CONFIG GET`.
        let info: String = self.run(redis::cmd("INFO").arg("everything")).await?;
        let member = |name: &str| {
            let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.unwrap_or_default().trim().to_owned()
        };
        let saves: Result<Vec<String>, _> = self.run(redis::cmd("CONFIG").arg("GET").arg("save")).await;
        let saves = saves.ok().and_then(|answer| answer.get(1).cloned()).unwrap_or_default();
        Ok(RedisFacts {
            version: member("redis_version"),
            eviction_policy: member("maxmemory_policy"),
            is_persistent: member("aof_enabled") == "1" || !saves.is_empty(),
        })
    }
}

/// Counts failures in a row and shuts the door for a while.
#[derive(Debug)]
struct Breaker {
    born: Instant,
    failures: AtomicU32,
    shut_until_millis: AtomicU64,
}

impl Default for Breaker {
    fn default() -> Self {
        Self { born: Instant::now(), failures: AtomicU32::new(0), shut_until_millis: AtomicU64::new(0) }
    }
}

impl Breaker {
    fn elapsed_millis(&self) -> u64 {
        u64::try_from(self.born.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn admit(&self) -> Result<(), RedisDown> {
        let shut_until = self.shut_until_millis.load(Ordering::Relaxed);
        if shut_until == 0 {
            return Ok(());
        }
        let now = self.elapsed_millis();
        let next = now + u64::try_from(OPEN_FOR.as_millis()).unwrap_or(0);
        // The one caller who moves the mark goes through and tries; the others stay outside.
        let is_first = now >= shut_until
            && self
                .shut_until_millis
                .compare_exchange(shut_until, next, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if is_first { Ok(()) } else { Err(RedisDown::BreakerOpen) }
    }

    fn succeeded(&self) {
        // Either mark alone must go: a failure that is being counted elsewhere may set the second one late.
        let is_marked =
            self.failures.load(Ordering::Relaxed) != 0 || self.shut_until_millis.load(Ordering::Relaxed) != 0;
        if is_marked {
            self.failures.store(0, Ordering::Relaxed);
            self.shut_until_millis.store(0, Ordering::Relaxed);
        }
    }

    fn failed(&self) {
        if self.failures.fetch_add(1, Ordering::Relaxed) + 1 >= FAILURES_TO_OPEN {
            let until = self.elapsed_millis() + u64::try_from(OPEN_FOR.as_millis()).unwrap_or(0);
            self.shut_until_millis.store(until.max(1), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_breaker_opens_after_three_failures_and_lets_one_try() {
        let breaker = Breaker::default();
        for _ in 0..FAILURES_TO_OPEN {
            assert!(breaker.admit().is_ok());
            breaker.failed();
        }
        assert!(breaker.admit().is_err());

        std::thread::sleep(OPEN_FOR + Duration::from_millis(20));
        assert!(breaker.admit().is_ok(), "one may try again");
        assert!(breaker.admit().is_err(), "the others wait for its result");

        breaker.succeeded();
        assert!(breaker.admit().is_ok());
    }
}
