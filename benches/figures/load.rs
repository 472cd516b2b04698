//! A load generator that takes little of the cores that it shares with what it measures: requests are bytes made
//! ahead, a client is one kept-alive connection, and of an answer only the status and the length are read.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::Failure;

/// Largest answer that is expected.
const MAX_ANSWER: usize = 16 * 1024;

/// What one run of clients came to.
#[derive(Debug, Default)]
pub struct Run {
    /// Requests answered, all of them with 200 or 201.
    pub done: usize,
    /// From the first request to the last answer.
    pub elapsed: Duration,
    /// Of each request, in microseconds, in order of size.
    pub latencies: Vec<u32>,
}

/// Which requests are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Each once; the run ends early when there are no more.
    Once,
    /// The first so many, again and again.
    Again(usize),
}

/// The bytes of a POST.
pub fn post(path: &str, headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n{headers}Content-Length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

/// The bytes of a GET.
pub fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: bench\r\n\r\n").into_bytes()
}

/// Sends requests from so many clients, spread over these instances, until the window closes. Any answer but 200 and
/// 201 spoils the run.
pub async fn fire(
    addrs: &[SocketAddr],
    requests: &Arc<Vec<Vec<u8>>>,
    clients: usize,
    window: Duration,
    order: Order,
) -> Result<Run, Failure> {
    let connected = connect(addrs, clients).await?;
    let next = Arc::new(AtomicUsize::new(0));
    let started = Instant::now();
    let closes = started + window;
    let running: Vec<_> = connected
        .into_iter()
        .map(|client| tokio::spawn(client.run(Arc::clone(requests), Arc::clone(&next), order, closes)))
        .collect();

    let mut latencies = Vec::new();
    for client in running {
        latencies.append(&mut client.await??);
    }
    let elapsed = started.elapsed();
    latencies.sort_unstable();
    Ok(Run { done: latencies.len(), elapsed, latencies })
}

/// So many clients, spread over these instances.
pub async fn connect(addrs: &[SocketAddr], clients: usize) -> io::Result<Vec<Client>> {
    let mut connected = Vec::with_capacity(clients);
    for addr in addrs.iter().cycle().take(clients) {
        connected.push(Client::connect(*addr).await?);
    }
    Ok(connected)
}

/// Sends the same request from so many clients at once; gives the latencies, in order of size. All of them must be
/// answered alike.
pub async fn storm(
    addrs: &[SocketAddr],
    request: &Arc<Vec<u8>>,
    clients: usize,
) -> Result<Vec<u32>, Failure> {
    let started = Arc::new(tokio::sync::Barrier::new(clients));
    let running: Vec<_> = connect(addrs, clients)
        .await?
        .into_iter()
        .map(|mut client| {
            let (request, started) = (Arc::clone(request), Arc::clone(&started));
            tokio::spawn(async move {
                started.wait().await;
                let since = Instant::now();
                let status = client.call(&request).await?;
                let took = u32::try_from(since.elapsed().as_micros()).unwrap_or(u32::MAX);
                io::Result::Ok((took, status, client.body().to_vec()))
            })
        })
        .collect();
    let (mut latencies, mut answers) = (Vec::new(), std::collections::HashSet::new());
    for client in running {
        let (took, status, body) = client.await??;
        latencies.push(took);
        answers.insert((status, body));
    }
    if answers.len() > 1 || answers.iter().any(|(status, _)| *status != 200) {
        return Err(format!("a storm got {} different answers: {answers:?}", answers.len()).into());
    }
    latencies.sort_unstable();
    Ok(latencies)
}

/// Sends one request on a connection of its own.
pub async fn call(addr: SocketAddr, request: &[u8]) -> io::Result<u16> {
    Client::connect(addr).await?.call(request).await
}

/// One kept-alive connection.
#[derive(Debug)]
pub struct Client {
    addr: SocketAddr,
    stream: TcpStream,
    answer: Vec<u8>,
    /// Bytes of the answer in all.
    filled: usize,
}

impl Client {
    /// Connects.
    pub async fn connect(addr: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(addr).await?;
        stream.set_nodelay(true)?;
        Ok(Self { addr, stream, answer: vec![0; MAX_ANSWER], filled: 0 })
    }

    async fn run(
        mut self,
        requests: Arc<Vec<Vec<u8>>>,
        next: Arc<AtomicUsize>,
        order: Order,
        closes: Instant,
    ) -> Result<Vec<u32>, Failure> {
        let mut latencies = Vec::with_capacity(64 * 1024);
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let index = match order {
                Order::Once => index,
                Order::Again(count) => index % count.max(1),
            };
            let (Some(request), started) = (requests.get(index), Instant::now()) else { break };
            if started >= closes {
                break;
            }
            let status = self.call(request).await?;
            if !matches!(status, 200 | 201) {
                let answer = String::from_utf8_lossy(&self.answer[..self.filled]);
                return Err(format!("answered {answer}").into());
            }
            latencies.push(u32::try_from(started.elapsed().as_micros()).unwrap_or(u32::MAX));
        }
        Ok(latencies)
    }

    /// Connects anew where the other end has closed meanwhile, as a pool does before it takes a connection.
    async fn revive(&mut self) -> io::Result<()> {
        if !matches!(self.stream.try_read(&mut [0]), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
        {
            self.stream = Self::connect(self.addr).await?.stream;
        }
        Ok(())
    }

    /// The same as [`Self::call`] after a rest: a connection that is closed in the very moment of the request is another
    /// reason to connect anew and to send it again.
    pub async fn call_after_rest(&mut self, request: &[u8]) -> io::Result<u16> {
        self.revive().await?;
        match self.call(request).await {
            Err(error)
                if matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset) =>
            {
                self.revive().await?;
                self.call(request).await
            }
            answered => answered,
        }
    }

    /// A header of the last answer; its name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let head = &self.answer[..self.filled];
        let head = std::str::from_utf8(head).ok()?.split("\r\n\r\n").next()?;
        head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    /// The body of the last answer.
    fn body(&self) -> &[u8] {
        let answer = &self.answer[..self.filled];
        answer.windows(4).position(|four| four == b"\r\n\r\n").map_or(answer, |head| &answer[head + 4..])
    }

    /// Sends a request and reads its whole answer; gives the status.
    pub async fn call(&mut self, request: &[u8]) -> io::Result<u16> {
        self.stream.write_all(request).await?;
        let mut filled = 0;
        loop {
            let count = self.stream.read(&mut self.answer[filled..]).await?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            filled += count;
            if let Some((status, length)) = read_head(&self.answer[..filled])
                && filled >= length
            {
                self.filled = filled;
                return Ok(status);
            }
        }
    }
}

/// The status of an answer and its length in bytes, once its head is whole.
fn read_head(answer: &[u8]) -> Option<(u16, usize)> {
    const LENGTH: &[u8] = b"content-length: ";
    let head = answer.windows(4).position(|four| four == b"\r\n\r\n")?;
    let status = std::str::from_utf8(answer.get(9..12)?).ok()?.parse().ok()?;
    let digits = answer[..head].windows(LENGTH.len()).position(|name| name == LENGTH)? + LENGTH.len();
    let end = digits + answer[digits..].iter().position(|byte| *byte == b'\r')?;
    let length: usize = std::str::from_utf8(&answer[digits..end]).ok()?.parse().ok()?;
    Some((status, head + 4 + length))
}
