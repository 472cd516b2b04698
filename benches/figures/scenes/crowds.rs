//! Crowds on one order: how they are answered, and what others notice.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use time::format_description::well_known::Rfc3339;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use super::requests::{callback, pay_url_request};
use crate::Failure;
use crate::load::{self, Client};
use crate::seed::{self, Orders, SKUS};
use crate::stage::Stage;
use crate::table::{Sample, Target, median};

/// Requests at once for one order.
const CROWD: usize = 500;
/// Instances that they are spread over.
const INSTANCES: usize = 4;
/// Storms of a round.
const STORMS: i32 = 5;
/// Requests on other orders in a round, and the pause before each.
const OTHERS: (i32, Duration) = (1000, Duration::from_millis(5));
/// Sockets that never come to the point.
const HALF_OPEN: usize = 5_000;
/// Requests on other orders while these are there, and a little longer: three seconds and more.
const MEANWHILE: i32 = 400;
/// Turns of that in a round.
const TURNS: usize = 5;
/// Pause between two storms beside them.
const STORM_EVERY: Duration = Duration::from_secs(1);

/// All of a crowd get the one link, and the one answer to their callback, from whichever instance.
pub async fn storm_on_one_order(stage: &mut Stage) -> Result<(), Failure> {
    let mut more = Vec::new();
    while more.len() < INSTANCES - 1 {
        more.push(stage.another_instance().await?);
    }
    let addrs: Vec<SocketAddr> =
        [stage.service.addr].into_iter().chain(more.iter().map(|instance| instance.addr)).collect();
    let (mut links, mut callbacks) = (Vec::new(), Vec::new());
    for round in 0..stage.settings.rounds {
        let prefix = format!("crowd{round}_");
        seed::fresh_orders(&stage.database_url, stage.clock.now(), &prefix, STORMS).await?;
        let paying = format!("paying{round}_");
        let expires_at = stage.clock.now() + seed::LIFE;
        let orders = Orders { prefix: &paying, count: STORMS, expires_at, skus: SKUS, with_attempt: true };
        seed::orders(&stage.database_url, &orders).await?;
        let paid_at = stage.clock.now().format(&Rfc3339)?;
        for number in 1..=STORMS {
            let request = Arc::new(pay_url_request(stage, &prefix, number));
            links.push(Sample::new(0.0, &load::storm(&addrs, &request, CROWD).await?));
            let request = Arc::new(callback(stage, &paying, number, &paid_at));
            callbacks.push(Sample::new(0.0, &load::storm(&addrs, &request, CROWD).await?));
        }
    }
    for instance in more {
        instance.stop().await?;
    }
    for (name, samples) in [("pay URLs", links), ("callbacks", callbacks)] {
        let figure = format!("storm of 500 equal {name} over 4 instances, answered alike");
        let p50 = median(samples.iter().map(|sample| sample.p50_ms));
        let p99 = median(samples.iter().map(|sample| sample.p99_ms));
        stage.table.value(&format!("{figure}, p50"), p50, "ms", Target::Information);
        stage.table.value(&format!("{figure}, p99"), p99, "ms", Target::Most(150.0));
    }
    Ok(())
}

/// Requests on other orders while thousands of sockets are open that never end their headers, until the last of them
/// has been closed, over the same without them; and how long the first of them waits, whose connection comes behind those
/// thousands, which came as fast as they could. The two take turns, each first as often as the other, because a disk of
/// its own accord makes one request of a hundred slow, more in one second than in the next.
pub async fn others_beside_half_open(stage: &mut Stage) -> Result<(), Failure> {
    let (mut beside, mut alone, mut newcomers) = (Vec::new(), Vec::new(), Vec::new());
    for turn in 0..stage.settings.rounds * TURNS {
        let prefixes = ["clear", "choked"].map(|side| format!("{side}{turn}_"));
        for prefix in &prefixes {
            seed::fresh_orders(&stage.database_url, stage.clock.now(), prefix, MEANWHILE).await?;
        }
        let [clear, choked] = &prefixes;
        if turn % 2 == 0 {
            alone.extend(others(stage, clear, MEANWHILE).await?);
        }
        let half_open = half_open(stage.service.addr).await?;
        let latencies = others(stage, choked, MEANWHILE).await?;
        drop(half_open);
        newcomers.extend(latencies.first());
        beside.extend(latencies);
        if turn % 2 == 1 {
            alone.extend(others(stage, clear, MEANWHILE).await?);
        }
    }
    let [beside, alone, newcomers] = [beside, alone, newcomers].map(sample);
    let figure = format!("of others beside {HALF_OPEN} half-open sockets, over none");
    let (p50, p99) = (beside.p50_ms / alone.p50_ms, beside.p99_ms / alone.p99_ms);
    stage.table.value(&format!("p50 {figure}"), p50, "times", Target::Information);
    stage.table.value(&format!("p99 {figure}"), p99, "times", Target::Most(1.2));
    let figure = format!("first answer on a connection behind {HALF_OPEN} that just came, p50");
    stage.table.value(&figure, newcomers.p50_ms, "ms", Target::Information);
    Ok(())
}

async fn half_open(addr: SocketAddr) -> Result<Vec<TcpStream>, Failure> {
    let mut sockets = Vec::new();
    for _ in 0..HALF_OPEN {
        let mut socket = TcpStream::connect(addr).await?;
        socket.write_all(b"POST /pay/url HTTP/1.1\r\nHost: b").await?;
        sockets.push(socket);
    }
    Ok(sockets)
}

/// Requests on other orders while such crowds come, over the same without them.
pub async fn others_beside_a_storm(stage: &mut Stage) -> Result<(), Failure> {
    let (mut beside, mut alone) = (Vec::new(), Vec::new());
    for round in 0..stage.settings.rounds {
        let prefix = format!("calm{round}_");
        seed::fresh_orders(&stage.database_url, stage.clock.now(), &prefix, OTHERS.0).await?;
        alone.push(sample(others(stage, &prefix, OTHERS.0).await?));

        let prefix = format!("rough{round}_");
        seed::fresh_orders(&stage.database_url, stage.clock.now(), &prefix, 2 * OTHERS.0).await?;
        let storms = Storms::begin(
            stage.service.addr,
            (OTHERS.0 + 1..=2 * OTHERS.0).map(|number| pay_url_request(stage, &prefix, number)).collect(),
        );
        beside.push(sample(others(stage, &prefix, OTHERS.0).await?));
        storms.end()?;
    }
    let ratios = beside.iter().zip(&alone).map(|(beside, alone)| beside.p99_ms / alone.p99_ms);
    let ratio = median(ratios);
    stage.table.value("p99 of others beside storms of 500, over none", ratio, "times", Target::Most(1.2));
    Ok(())
}

/// Storms on a thread of their own: whoever shares one with 500 clients waits for these, and not for the service.
struct Storms {
    end: oneshot::Sender<()>,
    thread: JoinHandle<Result<(), Failure>>,
}

impl Storms {
    fn begin(addr: SocketAddr, requests: Vec<Vec<u8>>) -> Self {
        let (end, ended) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                tokio::select! {
                    failed = storms(addr, requests) => failed,
                    _ = ended => Ok(()),
                }
            })
        });
        Self { end, thread }
    }

    fn end(self) -> Result<(), Failure> {
        // One that failed is over already.
        self.end.send(()).ok();
        self.thread.join().map_err(|_| "the storms panicked")?
    }
}

async fn storms(addr: SocketAddr, requests: Vec<Vec<u8>>) -> Result<(), Failure> {
    for request in requests {
        load::storm(&[addr], &Arc::new(request), CROWD).await?;
        tokio::time::sleep(STORM_EVERY).await;
    }
    Ok(())
}

fn sample(mut latencies: Vec<u32>) -> Sample {
    latencies.sort_unstable();
    Sample::new(0.0, &latencies)
}

/// What so many requests on other orders took, each in microseconds.
async fn others(stage: &Stage, prefix: &str, count: i32) -> Result<Vec<u32>, Failure> {
    let mut client = Client::connect(stage.service.addr).await?;
    let mut latencies = Vec::new();
    for number in 1..=count {
        let request = pay_url_request(stage, prefix, number);
        tokio::time::sleep(OTHERS.1).await;
        let started = Instant::now();
        let status = client.call(&request).await?;
        if status != 200 {
            return Err(format!("a pay URL on another order was answered with {status}").into());
        }
        latencies.push(u32::try_from(started.elapsed().as_micros())?);
    }
    Ok(latencies)
}
