//! Clients who insist: whoever is turned away asks for the same again, until the window closes.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::time::Instant;

use super::Failure;
use super::load::{self, Client};

/// The clients of a rush come one after another within so long: no two customers ask in the same microsecond.
const GATHERS_WITHIN: Duration = Duration::from_secs(1);

/// When those who are turned away come again.
#[derive(Clone, Copy, Debug)]
pub enum Manner {
    /// When they are told to, and up to half as long again after that, as clients do that spread themselves.
    AsTold,
    /// So soon, whatever they are told.
    After(Duration),
}

/// What became of a rush.
#[derive(Debug, Default)]
pub struct Rush {
    /// Of each request that was answered before the window closed, in microseconds, in order of size; of those that were
    /// turned away before, from the last time they were sent.
    pub served: Vec<u32>,
    /// Of each that was turned away.
    pub turned_away: Vec<u32>,
    /// How late the clients' own side is: between the time when a timer was due and the time when it was noticed.
    pub late: Vec<u32>,
}

/// What the clients of a rush share.
#[derive(Debug)]
struct Work {
    requests: Vec<Vec<u8>>,
    next: AtomicUsize,
    closes: Instant,
    manner: Manner,
}

/// As [`load::fire`], each request once, from more clients than there are places.
pub async fn rush(
    addr: std::net::SocketAddr,
    requests: Vec<Vec<u8>>,
    clients: usize,
    window: Duration,
    manner: Manner,
) -> Result<Rush, Failure> {
    let connected = load::connect(&[addr], clients).await?;
    let work = Work { requests, next: AtomicUsize::new(0), closes: Instant::now() + window, manner };
    let work = Arc::new(work);
    let insist = |(seed, client)| tokio::spawn(insist(client, Arc::clone(&work), seed));
    let running: Vec<_> = (0..).zip(connected).map(insist).collect();
    let late = tokio::spawn(late_until(work.closes));
    let mut rush = Rush::default();
    for client in running {
        let Rush { mut served, mut turned_away, .. } = client.await??;
        rush.served.append(&mut served);
        rush.turned_away.append(&mut turned_away);
    }
    rush.late = late.await??;
    rush.served.sort_unstable();
    rush.turned_away.sort_unstable();
    Ok(rush)
}

/// This thread, which is all there is of the clients, goes ahead of what it shares the cores with: they stand for machines
/// of their own, and would wait for what they measure.
pub struct Ahead;

impl Ahead {
    /// Until this is dropped.
    pub fn go() -> Self {
        set_niceness("-10");
        Self
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        set_niceness("0");
    }
}

/// As far as that is allowed: how late the clients are is told beside what they measured.
fn set_niceness(niceness: &str) {
    let process = std::process::id().to_string();
    let output = Command::new("renice").args(["-n", niceness, "-p", &process]).output();
    if !output.is_ok_and(|output| output.status.success()) {
        eprintln!("the clients of the rush have no priority of their own");
    }
}

/// How late this side is, every few milliseconds, in order of size; a moment that was slept through counts as late as it
/// was noticed.
async fn late_until(closes: Instant) -> Result<Vec<u32>, Failure> {
    let (mut due, mut late) = (Instant::now(), Vec::new());
    while due < closes {
        due += Duration::from_millis(5);
        tokio::time::sleep_until(due).await;
        late.push(u32::try_from(due.elapsed().as_micros())?);
    }
    late.sort_unstable();
    Ok(late)
}

async fn insist(mut client: Client, work: Arc<Work>, seed: u64) -> Result<Rush, Failure> {
    let (mut rush, mut chance) = (Rush::default(), StdRng::seed_from_u64(seed));
    tokio::time::sleep(GATHERS_WITHIN.mul_f64(chance.random_range(0.0..1.0))).await;
    let mut has_rested = true;
    while let Some(request) = work.requests.get(work.next.fetch_add(1, Ordering::Relaxed)) {
        loop {
            let started = Instant::now();
            if started >= work.closes {
                return Ok(rush);
            }
            let status = if has_rested {
                client.call_after_rest(request).await?
            } else {
                client.call(request).await?
            };
            let took = u32::try_from(started.elapsed().as_micros()).unwrap_or(u32::MAX);
            has_rested = status == 503;
            match status {
                // It came too late to count as served within the window.
                200 if work.closes <= Instant::now() => return Ok(rush),
                200 => break rush.served.push(took),
                503 => rush.turned_away.push(took),
                other => return Err(format!("in a rush: answered with {other}").into()),
            }
            let pause = match work.manner {
                Manner::After(pause) => pause,
                Manner::AsTold => {
                    let told = client.header("retry-after").ok_or("not told when to come again")?.parse()?;
                    Duration::from_secs(told).mul_f64(chance.random_range(1.0..1.5))
                }
            };
            tokio::time::sleep_until(work.closes.min(Instant::now() + pause)).await;
        }
    }
    Err("all requests were sent before the window closed".into())
}
