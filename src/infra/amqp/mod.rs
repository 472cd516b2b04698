//! RabbitMQ: one shared connection that is made anew when it broke, with a pause that grows while it fails.
//!
//! Always true: asking for a channel ends within `CONNECT_WITHIN`, and while the broker is away it ends at
//! once. Nothing that must survive is only there: what cannot be sent is found by a sweep over the database.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lapin::uri::AMQPUri;
use lapin::{Channel, Connection, ConnectionProperties};
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::Mutex;

mod delays;
mod inbox;
mod ladder;

pub use delays::Delays;

/// Longest wait for a connection, its channel included.
const CONNECT_WITHIN: Duration = Duration::from_secs(2);
/// Seconds between two signs of life, unless `AMQP_URL` says otherwise: a broker that fell silent is noticed soon.
const HEARTBEAT_SECS: u16 = 5;
/// First pause after a failure; each further one doubles it.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// How often it doubles at most: 4 s.
const MOST_DOUBLINGS: u32 = 4;

/// The broker did not do what was asked; the work goes on without it.
#[derive(Debug, thiserror::Error)]
pub enum AmqpDown {
    /// It failed a moment ago and is left alone for now.
    #[error("RabbitMQ is being left alone after a failure")]
    LeftAlone,
    /// It did not answer in time.
    #[error("RabbitMQ did not answer in time")]
    Silent,
    /// It did not take the message in.
    #[error("RabbitMQ did not accept the message")]
    Refused,
    /// The connection failed.
    #[error("RabbitMQ failed")]
    Failed(#[from] lapin::Error),
}

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

#[derive(Default)]
struct Link {
    connection: Option<Connection>,
    failures: u32,
    left_alone_until: Option<Instant>,
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
        Ok(Self(Arc::new(Inside { uri, link: Mutex::default() })))
    }

    /// A channel of its own on the shared connection.
    ///
    /// # Errors
    /// [`AmqpDown`] when the broker cannot be had now.
    pub async fn channel(&self) -> Result<Channel, AmqpDown> {
        let mut link = self.0.link.lock().await;
        if link.left_alone_until.is_some_and(|until| Instant::now() < until) {
            return Err(AmqpDown::LeftAlone);
        }
        let opened = tokio::time::timeout(CONNECT_WITHIN, link.open_channel(&self.0.uri)).await;
        let outcome = opened.unwrap_or(Err(AmqpDown::Silent));
        link.judge(&outcome);
        outcome
    }

    /// Whether the broker answers right now.
    pub async fn answers(&self) -> bool {
        match self.channel().await {
            // Dropping it closes it.
            Ok(channel) => channel.status().connected(),
            Err(_) => false,
        }
    }

    /// Gives up a connection on which nothing is answered any more.
    async fn hang_up(&self) {
        let mut link = self.0.link.lock().await;
        link.judge::<()>(&Err(AmqpDown::Silent));
    }
}

impl Link {
    async fn open_channel(&mut self, uri: &AMQPUri) -> Result<Channel, AmqpDown> {
        let connection = match self.connection.take().filter(|connection| connection.status().connected()) {
            Some(connection) => connection,
            None => Connection::connect_uri(uri.clone(), ConnectionProperties::default()).await?,
        };
        Ok(self.connection.insert(connection).create_channel().await?)
    }

    /// Says once that the broker went away, and once that it is back.
    fn judge<T>(&mut self, outcome: &Result<T, AmqpDown>) {
        match outcome {
            Ok(_) => {
                if self.failures > 0 {
                    tracing::info!("RabbitMQ is back");
                }
                (self.failures, self.left_alone_until) = (0, None);
            }
            Err(error) => {
                if self.failures == 0 {
                    tracing::warn!(%error, "RabbitMQ is away; the database is swept for what it would have brought");
                }
                metrics::counter!("payonce_broker_failures_total").increment(1);
                self.connection = None;
                self.left_alone_until =
                    Some(Instant::now() + FIRST_PAUSE * 2_u32.pow(self.failures.min(MOST_DOUBLINGS)));
                self.failures = self.failures.saturating_add(1);
            }
        }
    }
}
