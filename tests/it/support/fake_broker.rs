//! A broker of AMQP 0-9-1 that a story makes slow, full, or dumb: just enough frames for the delay queue, and no
//! heartbeats.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::OwnedWriteHalf;
use tokio::net::{TcpListener, TcpStream};

/// How it behaves.
#[derive(Clone, Debug, Default)]
pub struct Manner {
    /// It takes connections and says nothing.
    pub is_dumb: bool,
    /// How long a message waits for its confirm; `None` is for ever, and the connection is told to be blocked.
    pub confirm_after: Option<Duration>,
    /// What each consumer is given.
    pub delivery: Option<String>,
}

/// What it saw.
#[derive(Debug, Default)]
pub struct Seen {
    pub connections: AtomicU32,
    /// Those of them that are open, and that ever were at the same time.
    pub open: AtomicU32,
    pub most_open: AtomicU32,
    pub publishes: AtomicU32,
    pub acks: AtomicU32,
    pub nacks: AtomicU32,
}

impl Seen {
    pub fn count(counter: &AtomicU32) -> u32 {
        counter.load(Ordering::SeqCst)
    }
}

pub struct FakeBroker {
    pub seen: Arc<Seen>,
    manner: Arc<Mutex<Manner>>,
    addr: SocketAddr,
}

impl FakeBroker {
    pub async fn start(manner: Manner) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let addr = listener.local_addr().expect("an address");
        let (seen, manner) = (Arc::new(Seen::default()), Arc::new(Mutex::new(manner)));
        let broker = Self { seen: seen.clone(), manner: manner.clone(), addr };
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                seen.connections.fetch_add(1, Ordering::SeqCst);
                let (seen, manner) = (seen.clone(), manner.lock().expect("no panic").clone());
                tokio::spawn(async move {
                    let open = seen.open.fetch_add(1, Ordering::SeqCst) + 1;
                    seen.most_open.fetch_max(open, Ordering::SeqCst);
                    // A client that goes away in the middle is no failure of the story.
                    serve(stream, &seen, &manner).await.ok();
                    seen.open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        broker
    }

    /// From the next connection on.
    pub fn behaves(&self, manner: Manner) {
        *self.manner.lock().expect("no panic") = manner;
    }

    /// The variables that put an instance's timers there.
    pub fn vars(&self) -> Vec<(&'static str, String)> {
        vec![("DELAY_QUEUE", "rabbitmq".to_owned()), ("AMQP_URL", self.url())]
    }

    pub fn url(&self) -> String {
        format!("amqp://guest:guest@{}/%2f?heartbeat=0", self.addr)
    }
}

async fn serve(stream: TcpStream, seen: &Seen, manner: &Manner) -> std::io::Result<()> {
    let (mut hears, mut says) = stream.into_split();
    if manner.is_dumb {
        tokio::io::copy(&mut hears, &mut tokio::io::sink()).await?;
        return Ok(());
    }
    hears.read_exact(&mut [0; 8]).await?;
    let start = [&[0, 9, 0, 0, 0, 0], &long("PLAIN")[..], &long("en_US")].concat();
    method(&mut says, 0, (10, 10), &start).await?;
    let mut tags = 0_u64;
    loop {
        let (kind, channel, payload) = frame(&mut hears).await?;
        // Headers and bodies of messages, and signs of life.
        if kind != 1 {
            continue;
        }
        let name = (number(&payload[..2]), number(&payload[2..4]));
        let answer: Option<((u16, u16), Vec<u8>)> = match name {
            (10, 11) => Some(((10, 30), [&[0; 2][..], &131_072_u32.to_be_bytes(), &[0; 2]].concat())),
            (10, 40) => Some(((10, 41), short(""))),
            (10, 50) => Some(((10, 51), Vec::new())),
            (20, 10) => Some(((20, 11), long(""))),
            (20, 40) => Some(((20, 41), Vec::new())),
            (40, 10) => Some(((40, 11), Vec::new())),
            (50, 10) => Some(((50, 11), [&short("q")[..], &[0; 8]].concat())),
            (50, 20) => Some(((50, 21), Vec::new())),
            (60, 10) => Some(((60, 11), Vec::new())),
            (60, 20) => Some(((60, 21), short("c"))),
            (85, 10) => Some(((85, 11), Vec::new())),
            _ => None,
        };
        if let Some((name, arguments)) = answer {
            method(&mut says, channel, name, &arguments).await?;
        }
        match name {
            (60, 20) => deliver(&mut says, channel, manner).await?,
            (60, 40) => {
                tags += 1;
                seen.publishes.fetch_add(1, Ordering::SeqCst);
                confirm(&mut says, channel, tags, manner).await?;
            }
            (60, 80) => drop(seen.acks.fetch_add(1, Ordering::SeqCst)),
            (60, 120) => drop(seen.nacks.fetch_add(1, Ordering::SeqCst)),
            _ => {}
        }
    }
}

async fn deliver(says: &mut OwnedWriteHalf, channel: u16, manner: &Manner) -> std::io::Result<()> {
    let Some(body) = &manner.delivery else { return Ok(()) };
    let head = [&short("c")[..], &1_u64.to_be_bytes(), &[0], &short("x"), &short("due")].concat();
    method(says, channel, (60, 60), &head).await?;
    let length = (body.len() as u64).to_be_bytes();
    send(says, 2, channel, &[&[0, 60, 0, 0][..], &length, &[0, 0]].concat()).await?;
    send(says, 3, channel, body.as_bytes()).await
}

/// Nothing else is heard meanwhile, as on a slow disk.
async fn confirm(says: &mut OwnedWriteHalf, channel: u16, tag: u64, manner: &Manner) -> std::io::Result<()> {
    match manner.confirm_after {
        None => method(says, 0, (10, 60), &short("low on disk")).await,
        Some(pause) => {
            tokio::time::sleep(pause).await;
            method(says, channel, (60, 80), &[&tag.to_be_bytes()[..], &[0]].concat()).await
        }
    }
}

fn number(bytes: &[u8]) -> u16 {
    u16::from_be_bytes(bytes.try_into().expect("two bytes"))
}

fn short(text: &str) -> Vec<u8> {
    [&[u8::try_from(text.len()).expect("short")], text.as_bytes()].concat()
}

fn long(text: &str) -> Vec<u8> {
    [&u32::try_from(text.len()).expect("short").to_be_bytes()[..], text.as_bytes()].concat()
}

async fn frame(hears: &mut (impl AsyncReadExt + Unpin)) -> std::io::Result<(u8, u16, Vec<u8>)> {
    let (kind, channel, size) = (hears.read_u8().await?, hears.read_u16().await?, hears.read_u32().await?);
    let mut payload = vec![0; size as usize + 1];
    hears.read_exact(&mut payload).await?;
    payload.pop();
    Ok((kind, channel, payload))
}

async fn method(
    says: &mut OwnedWriteHalf,
    channel: u16,
    name: (u16, u16),
    arguments: &[u8],
) -> std::io::Result<()> {
    let payload = [&name.0.to_be_bytes()[..], &name.1.to_be_bytes(), arguments].concat();
    send(says, 1, channel, &payload).await
}

async fn send(says: &mut OwnedWriteHalf, kind: u8, channel: u16, payload: &[u8]) -> std::io::Result<()> {
    let size = u32::try_from(payload.len()).expect("small").to_be_bytes();
    let head = [&[kind][..], &channel.to_be_bytes(), &size].concat();
    says.write_all(&[&head, payload, &[0xCE]].concat()).await
}
