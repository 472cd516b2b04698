//! A TCP proxy between the service and a store: late, silent, cut, or losing the answer to what was done.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// How long the store may act on a request whose answer is lost.
const TO_ACT: Duration = Duration::from_millis(100);

/// How the wire behaves.
#[derive(Debug)]
struct Wire {
    is_silent: AtomicBool,
    delay_ms: AtomicU64,
    answers_to_lose: AtomicU32,
    /// Counts the cuts; every connection ends at the next one.
    cuts: watch::Sender<u32>,
}

/// The proxy, until it is dropped.
pub struct Proxy {
    port: u16,
    wire: Arc<Wire>,
    accepting: JoinHandle<()>,
}

impl Proxy {
    /// Stands before that port of this machine.
    pub async fn before(upstream: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let wire = Arc::new(Wire {
            is_silent: AtomicBool::new(false),
            delay_ms: AtomicU64::new(0),
            answers_to_lose: AtomicU32::new(0),
            cuts: watch::Sender::new(0),
        });
        let serving = wire.clone();
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(serving.clone().carry(client, upstream));
            }
        });
        Self { port, wire, accepting }
    }

    /// A URL of what is behind it, through it.
    pub fn before_url(&self, url: &str, upstream: u16) -> String {
        url.replace(&format!(":{upstream}/"), &format!(":{}/", self.port))
    }

    /// Every connection ends.
    pub fn cut(&self) {
        self.wire.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// Nothing passes either way; whoever connects is let in and hears nothing.
    pub fn silence(&self, is_silent: bool) {
        self.wire.is_silent.store(is_silent, Ordering::Relaxed);
    }

    /// What passes takes so much longer.
    pub fn delay(&self, by: Duration) {
        self.wire.delay_ms.store(u64::try_from(by.as_millis()).expect("short"), Ordering::Relaxed);
    }

    /// The next so many messages reach the store; their answers reach nobody, and the connection ends. Among them are
    /// statements that commit.
    pub fn lose_answers(&self, count: u32) {
        self.wire.answers_to_lose.store(count, Ordering::Relaxed);
    }

    /// As a wire should be.
    pub fn heal(&self) {
        self.silence(false);
        self.delay(Duration::ZERO);
        self.lose_answers(0);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.cut();
    }
}

impl Wire {
    async fn carry(self: Arc<Self>, mut client: TcpStream, upstream: u16) {
        let mut cuts = self.cuts.subscribe();
        let Ok(mut store) = TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], upstream))).await else {
            return;
        };
        client.set_nodelay(true).ok();
        store.set_nodelay(true).ok();
        let (mut asked, mut answered) = (vec![0; 64 * 1024], vec![0; 64 * 1024]);
        loop {
            tokio::select! {
                _ = cuts.changed() => return,
                read = client.read(&mut asked) => {
                    let Some(message) = some_of(read, &asked) else { return };
                    self.pass().await;
                    if store.write_all(message).await.is_err() {
                        return;
                    }
                    if self.loses_this_answer() {
                        return sleep(TO_ACT).await;
                    }
                }
                read = store.read(&mut answered) => {
                    let Some(message) = some_of(read, &answered) else { return };
                    self.pass().await;
                    if client.write_all(message).await.is_err() {
                        return;
                    }
                }
            }
        }
    }

    async fn pass(&self) {
        while self.is_silent.load(Ordering::Relaxed) {
            sleep(Duration::from_millis(20)).await;
        }
        match self.delay_ms.load(Ordering::Relaxed) {
            0 => {}
            delay => sleep(Duration::from_millis(delay)).await,
        }
    }

    fn loses_this_answer(&self) -> bool {
        self.answers_to_lose
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
            .is_ok()
    }
}

fn some_of(read: std::io::Result<usize>, buffer: &[u8]) -> Option<&[u8]> {
    read.ok().filter(|size| *size > 0).and_then(|size| buffer.get(..size))
}
