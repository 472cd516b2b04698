//! `cargo bench`: the project's figures, as ratios.
//!
//! A private durable PostgreSQL and Redis, the release binary as a process of its own, and a load generator that
//! is cheap. For each figure the service and what PostgreSQL alone can do (pgbench over `benches/limits`) take
//! turns in the same run, because the figures of a shared machine mean nothing by themselves. A run in which any
//! request failed is void. At the end `payonce audit` looks at everything that was written.
//!
//! `cargo bench -- pay_url` runs the scenes whose name contains that. `PAYONCE_BENCH_SECONDS` (3) and
//! `PAYONCE_BENCH_ROUNDS` (3) set how long; `PAYONCE_FULL=1` lets 100,000 timeouts fall due in place of 10,000, and
//! the tables grow by ten million orders in place of a million. `PAYONCE_WRITE=1` puts all figures into
//! `docs/benchmarks.md`.

#![expect(clippy::float_arithmetic, reason = "rates and percentiles; no money is counted here")]
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "the table is the answer to a person at a terminal"
)]

use std::time::Duration;

mod insist;
mod load;
mod page;
mod pgbench;
mod profile;
mod scenes;
mod seed;
mod service;
mod stage;
mod table;

use stage::Stage;

/// Why there are no figures.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How long each side is measured in each round.
    pub window: Duration,
    /// How often the sides take turns.
    pub rounds: usize,
    /// Timeouts that fall due at once.
    pub timeouts: i32,
    /// Orders by which the tables grow.
    pub growth: i32,
}

impl Settings {
    fn read() -> Result<Self, Failure> {
        let number = |name: &str, default: u16| match std::env::var(name) {
            Ok(text) => text.parse::<u16>().map_err(|_| format!("{name}: expected a small number")),
            Err(_) => Ok(default),
        };
        let is_full = number("PAYONCE_FULL", 0)? > 0;
        Ok(Self {
            window: Duration::from_secs(number("PAYONCE_BENCH_SECONDS", 3)?.max(1).into()),
            rounds: number("PAYONCE_BENCH_ROUNDS", 3)?.max(1).into(),
            timeouts: if is_full { 100_000 } else { 10_000 },
            growth: if is_full { 10_000_000 } else { 1_000_000 },
        })
    }
}

// One thread: the load generator must leave the cores to what it measures.
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let (settings, is_wanted) = (Settings::read()?, |name: &str| scenes::is_wanted(&wanted, name));
    let mut stage = Stage::set(settings).await?;
    let outcome = scenes::play(&mut stage, &is_wanted).await;
    let mut table = stage.strike(outcome).await?;
    if is_wanted(scenes::GROWTH) {
        // In tables of its own: with what all others wrote beside it ten million orders take more than 90 GB.
        let mut stage = Stage::set(settings).await?;
        stage.table = table;
        let outcome = scenes::grow(&mut stage).await;
        table = stage.strike(outcome).await?;
    }
    let (figures, verdict) = (table.text(), table.verdict());
    println!("\n{figures}");
    if wanted.is_empty() {
        page::write(&figures)?;
    }
    verdict
}
