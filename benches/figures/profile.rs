//! Where a request goes: what the service, PostgreSQL and Redis spend on it.

use std::fs;
use std::ops::RangeInclusive;

use sqlx::{Connection, PgConnection};

use super::Failure;
use super::service::Service;
use super::stage::Stage;

/// Microseconds in a tick of processor time, as Linux counts it for programs.
const MICROS_PER_TICK: f64 = 10_000.0;

/// What is counted: processor time in microseconds of the service, of PostgreSQL with all its processes, of Redis, and
/// that which nobody on the machine wanted; transactions that PostgreSQL committed, also those that only read; waits until
/// its log was on the disk; bytes of its log; commands that Redis carried out.
pub const COUNTED: [&str; 8] =
    ["service", "PostgreSQL", "Redis", "idle", "commits", "flushes", "WAL B", "commands"];

/// Running totals, in the order of [`COUNTED`]; the difference of two is what was spent between them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spent([f64; COUNTED.len()]);

impl Spent {
    /// What was spent so far.
    pub async fn so_far(stage: &Stage) -> Result<Self, Failure> {
        Self::by(stage, &[&stage.service]).await
    }

    /// What was spent so far, with these instances as the service.
    pub async fn by(stage: &Stage, instances: &[&Service]) -> Result<Self, Failure> {
        let mut connection = PgConnection::connect(&stage.database_url).await?;
        let (commits, flushes, wal_bytes): (f64, f64, f64) = sqlx::query_as(
            "SELECT (SELECT sum(xact_commit)::float8 FROM pg_stat_database), wal_sync::float8, wal_bytes::float8
             FROM pg_stat_wal",
        )
        .fetch_one(&mut connection)
        .await?;
        connection.close().await?;
        let (postgres, redis) = stage.server_pids();
        let service = instances.iter().map(|instance| own_micros(instance.pid)).sum::<Result<f64, _>>()?;
        let (postgres, redis) = (family_micros(postgres)?, own_micros(redis)?);
        let commands = redis_commands(&stage.redis_url).await?;
        Ok(Self([service, postgres, redis, idle_micros()?, commits, flushes, wal_bytes, commands]))
    }
}

/// What was spent on the requests of some rounds.
#[derive(Debug, Default)]
pub struct Profile {
    spent: Spent,
    requests: usize,
}

impl Profile {
    /// Adds a round: what was spent between two moments, on so many requests.
    pub fn add(&mut self, before: Spent, after: Spent, requests: usize) {
        for (sum, (before, after)) in self.spent.0.iter_mut().zip(before.0.into_iter().zip(after.0)) {
            *sum += after - before;
        }
        self.requests += requests;
    }

    /// The share of each request.
    pub fn each(&self) -> [f64; COUNTED.len()] {
        let requests = f64::from(u32::try_from(self.requests.max(1)).unwrap_or(u32::MAX));
        self.spent.0.map(|total| total / requests)
    }
}

async fn redis_commands(url: &str) -> Result<f64, Failure> {
    let mut connection = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
    let info: redis::InfoDict = redis::cmd("INFO").arg("stats").query_async(&mut connection).await?;
    Ok(info.get("total_commands_processed").ok_or("Redis counts no commands")?)
}

/// Numbers of `/proc/<pid>/stat` after the name, which stands in brackets and may hold anything: the parent is
/// number 1, the ticks of the process are 11 and 12, those of its children that ended 13 and 14.
fn stat(pid: u32) -> Result<Vec<u64>, Failure> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let (_, rest) = stat.rsplit_once(") ").ok_or("an odd /proc/…/stat")?;
    Ok(rest.split(' ').map(|field| field.parse().unwrap_or(0)).collect())
}

fn micros(stat: &[u64], fields: RangeInclusive<usize>) -> Result<f64, Failure> {
    let ticks: u64 = stat.get(fields).ok_or("a short /proc/…/stat")?.iter().sum();
    Ok(f64::from(u32::try_from(ticks)?) * MICROS_PER_TICK)
}

/// Of all cores together, also while something waits for the disk: the fields behind the name are user, nice, system, idle,
/// iowait and more.
fn idle_micros() -> Result<f64, Failure> {
    let stat = fs::read_to_string("/proc/stat")?;
    let fields = stat.lines().next().unwrap_or_default().split_whitespace();
    let ticks: Vec<u64> = fields.skip(1).map(|field| field.parse().unwrap_or(0)).collect();
    micros(&ticks, 3..=4)
}

fn own_micros(pid: u32) -> Result<f64, Failure> {
    micros(&stat(pid)?, 11..=12)
}

/// Of a process, its children, and those of them that ended.
fn family_micros(pid: u32) -> Result<f64, Failure> {
    let mut sum = micros(&stat(pid)?, 11..=14)?;
    for entry in fs::read_dir("/proc")? {
        let Some(child) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // Gone meanwhile: its time is its parent's now, and a tick of it at most is lost.
        let Ok(stat) = stat(child) else { continue };
        if stat.get(1) == Some(&u64::from(pid)) {
            sum += micros(&stat, 11..=12)?;
        }
    }
    Ok(sum)
}
