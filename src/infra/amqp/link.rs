//! The one connection: how it is made, when it is given up, and how long the broker is left alone then.
//!
//! The client crate gives each connection a thread that ends with its socket, not with the future that asked for
//! it. So there is one attempt at a time, nobody drops it, and what is given up has its socket shut.

use std::io;
use std::net::Shutdown;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_compat::Compat;
use lapin::tcp::{AsyncTcpStream, TLSConfig};
use lapin::uri::{AMQPScheme, AMQPUri};
use lapin::{Connection, ConnectionProperties};
use socket2::{SockRef, Socket};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use super::{AmqpDown, ConnectionNo, Line};
use crate::infra::causes::with_causes;

/// Longest wait for a socket.
const DIAL_WITHIN: Duration = Duration::from_millis(1000);
/// Longest life of an attempt to connect; less than anybody waits for its channel.
const CONNECT_WITHIN: Duration = Duration::from_millis(1500);
/// First pause after a failure; each further one doubles it.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// How often it doubles at most: 4 s.
const MOST_DOUBLINGS: u32 = 4;
/// A failure counts as the first one again when all went well for so long. That a connection is made does not
/// count: a broker may take connections, and nothing else.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(30);

#[derive(Default)]
pub(super) struct Link {
    wire: Option<Wire>,
    connecting: Option<JoinHandle<Result<Wire, AmqpDown>>>,
    /// Of the latest connection.
    number: ConnectionNo,
    is_away: bool,
    failures: u32,
    left_alone_until: Option<Instant>,
}

impl Link {
    pub(super) fn is_left_alone(&self) -> bool {
        self.left_alone_until.is_some_and(|until| Instant::now() < until)
    }

    /// Whether this is the connection that there is now.
    pub(super) fn is_on(&self, connection: ConnectionNo) -> bool {
        self.wire.is_some() && self.number == connection
    }

    /// May be cancelled: an attempt that is under way is waited for by the next who asks.
    pub(super) async fn open_channel(&mut self, uri: &AMQPUri) -> Result<Line, AmqpDown> {
        self.wire.take_if(|wire| !wire.connection.status().connected());
        let wire = match self.wire.take() {
            Some(wire) => wire,
            None => {
                let connecting = self.connecting.get_or_insert_with(|| tokio::spawn(connect(uri.clone())));
                let made = connecting.await;
                self.connecting = None;
                let made = made.map_err(|_| AmqpDown::Silent(None))??;
                self.number.0 += 1;
                made
            }
        };
        let wire = self.wire.insert(wire);
        if wire.connection.status().blocked() {
            return Err(AmqpDown::Blocked);
        }
        let channel = wire.connection.create_channel().await?;
        Ok(Line { channel, connection: self.number })
    }

    /// Says once that the broker went away, and once that it is back.
    pub(super) fn judge<T>(&mut self, outcome: &Result<T, AmqpDown>) {
        let Err(error) = outcome else {
            if std::mem::take(&mut self.is_away) {
                tracing::info!("RabbitMQ is back");
            }
            return;
        };
        if !std::mem::replace(&mut self.is_away, true) {
            let error = with_causes(error);
            tracing::warn!(error, "RabbitMQ is away; the database is swept for what it would have brought");
        }
        metrics::counter!("payonce_broker_failures_total").increment(1);
        // A blocked one goes on when the broker has room again; a new one would be blocked as well.
        if let Some(wire) = self.wire.take_if(|wire| !wire.connection.status().blocked()) {
            cut(&wire.socket);
        }
        if self.left_alone_until.is_none_or(|until| until.elapsed() > FORGOTTEN_AFTER) {
            self.failures = 0;
        }
        let pause = FIRST_PAUSE * 2_u32.pow(self.failures.min(MOST_DOUBLINGS));
        self.left_alone_until = Some(Instant::now() + pause);
        self.failures = self.failures.saturating_add(1);
    }
}

/// A connection, and a hand on its socket.
struct Wire {
    connection: Connection,
    socket: Arc<Mutex<Option<Socket>>>,
}

/// Ends a connection without another word: nobody may be listening.
fn cut(socket: &Mutex<Option<Socket>>) {
    let socket = socket.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(Err(error)) = socket.as_ref().map(|socket| socket.shutdown(Shutdown::Both)) {
        tracing::debug!(%error, "a connection to RabbitMQ had ended already");
    }
}

/// Connects; an attempt that takes too long ends because its socket is shut.
async fn connect(uri: AMQPUri) -> Result<Wire, AmqpDown> {
    let socket: Arc<Mutex<Option<Socket>>> = Arc::default();
    let kept = Arc::clone(&socket);
    let dial = async move |uri: AMQPUri, _runtime| {
        let dialled = tokio::time::timeout(DIAL_WITHIN, dial(&uri, &kept)).await;
        dialled.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())).map_err(lapin::Error::from)
    };
    let runtime = lapin::runtime::default_runtime()?;
    let connecting = Connection::connector(uri, runtime, dial, ConnectionProperties::default());
    let mut connecting = std::pin::pin!(connecting);
    let connection = match tokio::time::timeout(CONNECT_WITHIN, connecting.as_mut()).await {
        Ok(connection) => connection?,
        Err(_) => {
            cut(&socket);
            connecting.await?
        }
    };
    Ok(Wire { connection, socket })
}

/// The socket, with TLS where the address says so.
async fn dial(uri: &AMQPUri, kept: &Mutex<Option<Socket>>) -> io::Result<AsyncTcpStream<Compat<TcpStream>>> {
    let (host, port) = (uri.authority.host.as_str(), uri.authority.port);
    let stream = TcpStream::connect((host, port)).await?;
    stream.set_nodelay(true)?;
    *kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(SockRef::from(&stream).try_clone()?);
    let stream = AsyncTcpStream::Plain(Compat::new(stream));
    match uri.scheme {
        AMQPScheme::AMQP => Ok(stream),
        AMQPScheme::AMQPS => stream.into_tls(host, TLSConfig::default()).await,
    }
}
