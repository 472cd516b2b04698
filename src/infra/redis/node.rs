//! One server: a connection that reconnects by itself, behind a breaker. Which server it is may change where
//! sentinels say so.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::time::Duration;

use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{
    Client, Cmd, ConnectionInfo, ErrorKind, FromRedisValue, RedisError, ScriptInvocation, ServerErrorKind,
};

use super::breaker::Breaker;
use super::servers::{SentinelGroup, name_of};
use super::{RedisDown, sentinel};

/// How long a connection may take.
pub(super) const CONNECT_WITHIN: Duration = Duration::from_millis(100);
/// Pause between two rounds of asking the sentinels.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// What is written to see whether writes are taken; it is gone a millisecond later.
const PROBE: &str = "lock:READYZ";

/// One server, or the present master of several. Cheap to clone.
#[derive(Clone)]
pub struct Node(Arc<Inside>);

struct Inside {
    breaker: Breaker,
    settings: ConnectionManagerConfig,
    /// `None` until the sentinels have named a master.
    server: RwLock<Option<Arc<Server>>>,
    /// Whom to ask for the master; `None` where the server stays what it is.
    sentinels: Option<SentinelGroup>,
    is_looking: AtomicBool,
}

/// A connection to a server; one that was made anew is another one.
struct Server {
    name: String,
    client: Client,
    manager: ConnectionManager,
}

/// How a server stands.
#[derive(Clone, Debug)]
pub struct NodeState {
    /// Its address; with sentinels also the master's name. No password.
    pub name: String,
    /// Whether it answers, and takes writes.
    pub is_up: bool,
}

impl Server {
    fn connect(client: Client, settings: &ConnectionManagerConfig) -> Result<Arc<Self>, RedisError> {
        let name = name_of(client.get_connection_info().addr());
        let manager = ConnectionManager::new_lazy_with_config(client.clone(), settings.clone())?;
        Ok(Arc::new(Self { name, client, manager }))
    }
}

impl Node {
    /// A server that stays where it is.
    pub(super) fn fixed(info: ConnectionInfo, settings: ConnectionManagerConfig) -> Result<Self, RedisError> {
        let server = Server::connect(Client::open(info)?, &settings)?;
        Ok(Self::new(Some(server), None, settings))
    }

    /// The master that these sentinels name; they are asked at once, and nobody waits for it.
    pub(super) fn behind(group: SentinelGroup, settings: ConnectionManagerConfig) -> Self {
        let node = Self::new(None, Some(group), settings);
        node.look_for_the_master();
        node
    }

    fn new(
        server: Option<Arc<Server>>,
        sentinels: Option<SentinelGroup>,
        settings: ConnectionManagerConfig,
    ) -> Self {
        let (breaker, is_looking) = (Breaker::default(), AtomicBool::new(false));
        Self(Arc::new(Inside { breaker, settings, server: RwLock::new(server), sentinels, is_looking }))
    }

    /// What people call it.
    #[must_use]
    pub fn name(&self) -> String {
        match (&self.0.sentinels, self.0.server()) {
            (None, server) => server.map(|server| server.name.clone()).unwrap_or_default(),
            (Some(group), Some(server)) => format!("{} at {}", group.master, server.name),
            (Some(group), None) => group.master.clone(),
        }
    }

    /// Runs one command.
    ///
    /// # Errors
    /// [`RedisDown`] when it cannot be reached, does not answer in time, or refuses.
    pub async fn run<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, RedisDown> {
        let server = self.admit()?;
        self.judge(&server, command.query_async(&mut server.manager.clone()).await)
    }

    /// Runs a script, loading it where the server does not know it yet.
    ///
    /// # Errors
    /// As [`Node::run`].
    pub async fn script<T: FromRedisValue>(&self, invocation: &ScriptInvocation<'_>) -> Result<T, RedisDown> {
        let server = self.admit()?;
        self.judge(&server, invocation.invoke_async(&mut server.manager.clone()).await)
    }

    /// Whether it answers right now and takes writes, asked past the breaker.
    pub async fn state(&self) -> NodeState {
        let is_up = match self.0.server() {
            Some(server) => {
                // A replica answers a PING as well, and grants no lock.
                let mut write = redis::cmd("SET");
                write.arg(PROBE).arg(1).arg("PX").arg(1);
                let written = write.query_async::<String>(&mut server.manager.clone()).await;
                self.judge(&server, written).is_ok()
            }
            None => {
                self.look_for_the_master();
                false
            }
        };
        NodeState { name: self.name(), is_up }
    }

    fn admit(&self) -> Result<Arc<Server>, RedisDown> {
        let Some(server) = self.0.server() else {
            self.look_for_the_master();
            return Err(RedisDown::NoMaster);
        };
        if self.0.breaker.admits() { Ok(server) } else { Err(RedisDown::BreakerOpen) }
    }

    fn judge<T>(&self, server: &Arc<Server>, outcome: Result<T, RedisError>) -> Result<T, RedisDown> {
        match outcome {
            Ok(value) => {
                self.0.breaker.succeeded();
                Ok(value)
            }
            Err(error) => {
                self.0.failed(server, &error);
                metrics::counter!("payonce_redis_failures_total").increment(1);
                // READONLY, a broken connection or silence: perhaps another one is the master by now.
                self.look_for_the_master();
                Err(RedisDown::Failed(error))
            }
        }
    }

    /// Asks the sentinels until they name a master that answers as one, beside all calls. One look at a time.
    fn look_for_the_master(&self) {
        if self.0.sentinels.is_some() && !self.0.is_looking.swap(true, Ordering::AcqRel) {
            tokio::spawn(look(Arc::downgrade(&self.0)));
        }
    }
}

impl Inside {
    fn server(&self) -> Option<Arc<Server>> {
        self.server.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Counts a failure, and connects anew where silence opens the breaker: of a machine that is gone, or behind a wall
    /// that has forgotten the connection, nothing else tells. So it does at once where no writes are taken: a master that
    /// was demoted keeps its connections, and its name may lead to another one by now. A connection that is closed mends
    /// itself, and one that was replaced meanwhile says nothing of the present one.
    fn failed(&self, server: &Arc<Server>, error: &RedisError) {
        let is_it =
            |present: &Option<Arc<Server>>| present.as_ref().is_some_and(|it| Arc::ptr_eq(it, server));
        if !is_it(&self.server()) {
            return;
        }
        let is_left_alone = self.breaker.failed();
        let is_demoted = error.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly);
        if !(is_demoted || is_left_alone && error.is_timeout()) {
            return;
        }
        let fresh = match Server::connect(server.client.clone(), &self.settings) {
            Ok(fresh) => fresh,
            Err(error) => return tracing::debug!(%error, "no fresh connection to Redis"),
        };
        let mut present = self.server.write().unwrap_or_else(PoisonError::into_inner);
        if is_it(&present) {
            *present = Some(fresh);
        }
    }

    /// Goes over to this master, unless it is the one that is in use: that connection mends itself.
    fn follow(&self, client: Client) -> Result<(), RedisError> {
        let name = name_of(client.get_connection_info().addr());
        if self.server().is_some_and(|server| server.name == name) {
            return Ok(());
        }
        let server = Server::connect(client, &self.settings)?;
        *self.server.write().unwrap_or_else(PoisonError::into_inner) = Some(server);
        self.breaker.succeeded();
        metrics::counter!("payonce_redis_masters_total").increment(1);
        tracing::info!(redis.master = %name, "the sentinels name {name} as the master of Redis");
        Ok(())
    }
}

/// Ends when a master is found, or nobody uses the node any more.
async fn look(node: Weak<Inside>) {
    while let Some(inside) = node.upgrade() {
        let Some(group) = &inside.sentinels else { return };
        match sentinel::find_master(group).await.and_then(|client| inside.follow(client)) {
            Ok(()) => {
                inside.is_looking.store(false, Ordering::Release);
                return;
            }
            Err(error) => tracing::debug!(%error, "the sentinels name no master that answers"),
        }
        drop(inside);
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
