//! RabbitMQ: one shared connection that is made anew when it broke, with a pause that grows while it fails.
//!
//! Always true: asking for a channel ends within twice `CHANNEL_WITHIN`, and while the broker is away it ends at
//! once; every other exchange has a deadline too. However long a broker keeps silent, it costs one connection.
//! Nothing that must survive is only there: what cannot be sent is found by a sweep over the database.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use lapin::Channel;
use lapin::uri::AMQPUri;
use reqwest::Url;
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::Mutex;

mod delays;
mod events;
mod inbox;
mod ladder;
mod link;
mod mailbox;
mod refusal;

pub use delays::Delays;
pub use events::{EventMessage, Events};
use link::Link;
pub use mailbox::{Fate, Letter, Mailbox};
use refusal::Refusal;

/// Longest wait for a channel, its connection included.
const CHANNEL_WITHIN: Duration = Duration::from_secs(2);
/// Longest wait for any other answer of the broker.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// Seconds between two signs of life, unless `AMQP_URL` says otherwise: a broker that fell silent is noticed soon.
const HEARTBEAT_SECS: u16 = 5;

/// The broker did not do what was asked; the work goes on without it.
#[derive(Debug, thiserror::Error)]
pub enum AmqpDown {
    /// It failed a moment ago and is left alone for now.
    #[error("RabbitMQ is being left alone after a failure")]
    LeftAlone,
    /// It did not answer in time, on this connection if there was one.
    #[error("RabbitMQ did not answer in time")]
    Silent(Option<ConnectionNo>),
    /// It takes nothing in until it has memory and disk again, and says so.
    #[error("RabbitMQ takes nothing in for want of memory or disk")]
    Blocked,
    /// It did not take the message in.
    #[error("RabbitMQ did not accept the message")]
    Refused,
    /// The connection failed.
    #[error("RabbitMQ failed")]
    Failed(#[from] lapin::Error),
}

impl AmqpDown {
    /// Whether the broker is there and refuses what it is asked for: a person has to see to that.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Failed(error) if error.is_amqp_soft_error())
    }
}

/// Tells connections apart that were made one after another: a silence is held against the one that it was met on,
/// also when somebody hears of it only after there is another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionNo(u64);

/// `AMQP_URL` cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("expected amqp://user:password@host:5672/vhost ({0})")]
pub struct BadAddress(String);

/// The shared connection. Cheap to clone.
#[derive(Clone)]
pub struct Amqp(Arc<Inside>);

struct Inside {
    uri: AMQPUri,
    link: Mutex<Link>,
}

impl fmt::Debug for Amqp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Amqp").field("host", &self.0.uri.authority.host).finish_non_exhaustive()
    }
}

impl Amqp {
    /// Sets the client up without connecting yet: a service without its broker starts, degraded.
    ///
    /// # Errors
    /// When the URL cannot be read.
    pub fn new(url: &SecretString) -> Result<Self, BadAddress> {
        let mut uri: AMQPUri = url.expose_secret().parse().map_err(BadAddress)?;
        uri.query.heartbeat.get_or_insert(HEARTBEAT_SECS);
        // The parser takes an address of IPv6 for none, and would go to this machine.
        let known = Url::parse(url.expose_secret()).ok();
        let literal = known.as_ref().and_then(Url::host_str).and_then(|host| host.strip_prefix('['));
        if let Some(address) = literal.and_then(|literal| literal.strip_suffix(']')) {
            address.clone_into(&mut uri.authority.host);
        }
        Ok(Self(Arc::new(Inside { uri, link: Mutex::default() })))
    }

    /// Asks the broker for a channel, and leaves it at that.
    ///
    /// # Errors
    /// [`AmqpDown`] when the broker cannot be had now.
    pub async fn reach(&self) -> Result<(), AmqpDown> {
        // Dropping the channel closes it.
        self.channel().await.map(drop)
    }

    /// A channel of its own on the shared connection.
    async fn channel(&self) -> Result<Line, AmqpDown> {
        // Whoever has it may need as long for a channel of their own.
        let turn = tokio::time::timeout(CHANNEL_WITHIN, self.0.link.lock()).await;
        let mut link = turn.map_err(|_| AmqpDown::Silent(None))?;
        if link.is_left_alone() {
            return Err(AmqpDown::LeftAlone);
        }
        let outcome = answered(CHANNEL_WITHIN, None, link.open_channel(&self.0.uri)).await;
        link.judge(&outcome);
        outcome
    }

    /// Whether the broker answers right now. Whoever asks may leave: the asking comes to its end.
    pub async fn answers(&self) -> bool {
        let amqp = self.clone();
        let asking = tokio::spawn(async move { amqp.reach().await.is_ok() });
        asking.await.unwrap_or(false)
    }

    /// After a silence a new connection must be had first.
    async fn hang_up_after(&self, failure: Option<&AmqpDown>) {
        if let Some(AmqpDown::Silent(Some(connection))) = failure {
            self.hang_up(*connection).await;
        }
    }

    /// Gives up the connection on which nothing is answered any more, unless somebody did so before.
    async fn hang_up(&self, connection: ConnectionNo) {
        let mut link = self.0.link.lock().await;
        if link.is_on(connection) && !link.is_left_alone() {
            link.judge::<()>(&Err(AmqpDown::Silent(Some(connection))));
        }
    }
}

/// A channel, and the connection that it is on.
#[derive(Clone, Debug)]
struct Line {
    channel: Channel,
    connection: ConnectionNo,
}

impl Deref for Line {
    type Target = Channel;

    fn deref(&self) -> &Channel {
        &self.channel
    }
}

impl Line {
    /// Numbers of channels begin anew with each connection.
    fn is(&self, other: &Self) -> bool {
        (self.connection, self.channel.id()) == (other.connection, other.channel.id())
    }

    /// What the broker answers on this channel, unless it takes longer.
    async fn answered<T, E>(
        &self,
        within: Duration,
        exchange: impl Future<Output = Result<T, E>>,
    ) -> Result<T, AmqpDown>
    where
        AmqpDown: From<E>,
    {
        answered(within, Some(self.connection), exchange).await
    }
}

/// What the broker answers, unless it takes longer.
async fn answered<T, E>(
    within: Duration,
    connection: Option<ConnectionNo>,
    exchange: impl Future<Output = Result<T, E>>,
) -> Result<T, AmqpDown>
where
    AmqpDown: From<E>,
{
    Ok(tokio::time::timeout(within, exchange).await.map_err(|_| AmqpDown::Silent(connection))??)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broker_is_looked_for_where_its_url_says() {
        for (url, host) in [
            ("amqp://user:password@[fd00::5]:5673/vhost", "fd00::5"),
            ("amqps://user:password@192.0.2.5:5673/vhost", "192.0.2.5"),
            ("amqp://user:password@broker.example:5673", "broker.example"),
        ] {
            let amqp = Amqp::new(&url.into()).unwrap();
            let authority = &amqp.0.uri.authority;
            assert_eq!((authority.host.as_str(), authority.port), (host, 5673), "{url}");
        }
    }
}
