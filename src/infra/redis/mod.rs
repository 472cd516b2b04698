//! Redis: fast when it is there, out of the way at once when it is not.
//!
//! Always true: a call ends within the answer deadline, and while a server is down it ends at once (the breaker).
//! Nothing that must survive is only here.
//!
//! Three ways, by [`RedisServers`]: one server; the master that sentinels name, followed when they name another;
//! independent nodes, of which each is a [`Node`] to the lock. What is not a lock (timers, marks) goes to the
//! first node of such a list that answers: a node that was away comes back without what was set meanwhile, and
//! the sweeps over the database find that.

use std::fmt;
use std::sync::Arc;

use redis::aio::ConnectionManagerConfig;
use redis::{Cmd, FromRedisValue, RedisError, ScriptInvocation};

use crate::config::RedisConfig;

mod breaker;
mod facts;
mod node;
mod sentinel;
mod servers;
mod stream;

pub use facts::RedisFacts;
pub use node::{Node, NodeState};
pub use servers::{RedisServers, SentinelGroup};
pub use stream::Stream;

/// Redis did not do what was asked; the work goes on without it.
#[derive(Debug, thiserror::Error)]
pub enum RedisDown {
    /// It failed a moment ago and is left alone for now.
    #[error("Redis is being left alone after repeated failures")]
    BreakerOpen,
    /// The sentinels have not named a master yet.
    #[error("no master of Redis is known")]
    NoMaster,
    /// It did not answer in time, or with an error.
    #[error("Redis failed")]
    Failed(#[from] RedisError),
}

/// The servers that the configuration names. Cheap to clone.
#[derive(Clone)]
pub struct Redis {
    nodes: Arc<[Node]>,
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.nodes.iter().map(Node::name)).finish()
    }
}

/// Which servers answer right now.
#[derive(Clone, Debug, Default)]
pub struct Standing {
    /// Each server; with sentinels only the present master.
    pub nodes: Vec<NodeState>,
}

impl Standing {
    /// Whether a lock can be had: the majority answers.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.nodes.iter().filter(|node| node.is_up).count() * 2 > self.nodes.len()
    }
}

impl Redis {
    /// Sets the clients up without waiting for a connection: a service without Redis starts, degraded.
    ///
    /// # Errors
    /// When an address cannot be used.
    pub fn new(config: &RedisConfig) -> Result<Self, RedisError> {
        // The defaults of the manager stall every command for 9.45 s while Redis is down.
        let settings = ConnectionManagerConfig::new()
            .set_number_of_retries(0)
            .set_connection_timeout(Some(node::CONNECT_WITHIN))
            .set_response_timeout(Some(config.answer_deadline));
        let nodes = match config.servers.clone() {
            RedisServers::One(server) => vec![Node::fixed(server, settings)?],
            RedisServers::Sentinel(group) => vec![Node::behind(group, settings)],
            RedisServers::Quorum(servers) => servers
                .into_iter()
                .map(|server| Node::fixed(server, settings.clone()))
                .collect::<Result<_, _>>()?,
        };
        Ok(Self { nodes: nodes.into() })
    }

    /// The servers: several only where they are a quorum.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Runs one command on the first server that answers.
    ///
    /// # Errors
    /// [`RedisDown`] when none can be reached, answers in time and accepts.
    pub async fn run<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, RedisDown> {
        let mut down = RedisDown::BreakerOpen;
        for node in self.nodes.iter() {
            match node.run(command).await {
                Ok(answer) => return Ok(answer),
                Err(error) => down = error,
            }
        }
        Err(down)
    }

    /// Runs a script on the first server that answers, loading it where it is not known yet.
    ///
    /// # Errors
    /// As [`Redis::run`].
    pub async fn script<T: FromRedisValue>(&self, invocation: &ScriptInvocation<'_>) -> Result<T, RedisDown> {
        let mut down = RedisDown::BreakerOpen;
        for node in self.nodes.iter() {
            match node.script(invocation).await {
                Ok(answer) => return Ok(answer),
                Err(error) => down = error,
            }
        }
        Err(down)
    }

    /// Marks a key for so long; `false` when it is marked already.
    ///
    /// # Errors
    /// As [`Redis::run`].
    pub async fn mark(&self, key: &str, life: std::time::Duration) -> Result<bool, RedisDown> {
        let mut set = redis::cmd("SET");
        set.arg(key).arg(1).arg("NX").arg("PX").arg(u64::try_from(life.as_millis()).unwrap_or(u64::MAX));
        Ok(self.run::<Option<String>>(&set).await?.is_some())
    }

    /// Which servers answer right now, all asked at once and past their breakers.
    pub async fn standing(&self) -> Standing {
        let asked = self.nodes.iter().map(Node::state);
        Standing { nodes: futures_util::future::join_all(asked).await }
    }
}
