//! The other side of each ratio: what PostgreSQL alone does, measured by pgbench on the schema of `benches/limits`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use super::table::Sample;
use super::{Failure, Settings};

/// Rows that one run may use up in a second; more than any machine at hand does.
const PER_SECOND: usize = 30_000;
/// Scenes of one kind, which share a range of rows.
const SCENES_OF_A_KIND: usize = 11;
/// As [`PER_SECOND`], for batches of a hundred.
const BATCHES_PER_SECOND: usize = 3_000;

/// How long batches are measured: they use up a hundred times the rows.
pub const BATCH_WINDOW: Duration = Duration::from_secs(1);

/// pgbench over a database of its own.
#[derive(Debug)]
pub struct Pgbench {
    program: PathBuf,
    psql: PathBuf,
    database: String,
    logs: PathBuf,
    /// Rows of each range.
    rows: usize,
    /// Where the next run of each kind begins: no run uses a row of another.
    used: HashMap<String, usize>,
}

fn seconds(window: Duration) -> usize {
    usize::try_from(window.as_secs()).unwrap_or(1).max(1)
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/limits").join(name).with_extension("sql")
}

impl Pgbench {
    /// Makes the minimal schema in a database that is there and empty.
    pub async fn prepare(
        psql: &Path,
        program: PathBuf,
        database: String,
        logs: PathBuf,
        settings: &Settings,
    ) -> Result<Self, Failure> {
        let singly = seconds(settings.window) * PER_SECOND * SCENES_OF_A_KIND;
        let in_batches = seconds(BATCH_WINDOW) * BATCHES_PER_SECOND * 100;
        let rows = settings.rounds * singly.max(in_batches);
        let mut new = Self { program, psql: psql.to_owned(), database, logs, rows, used: HashMap::new() };
        new.make().await?;
        Ok(new)
    }

    /// Makes the minimal schema, in place of one that is used up.
    async fn make(&mut self) -> Result<(), Failure> {
        self.used.clear();
        let rows = format!("n={}", self.rows);
        let mut making = Command::new(&self.psql);
        making.args(["-qX", "-v", "ON_ERROR_STOP=1", "-v", &rows, "-d", &self.database, "-f"]);
        let made = making.arg(script("schema")).stderr(Stdio::null()).status().await?;
        if made.success() { Ok(()) } else { Err("psql did not make the schema of benches/limits".into()) }
    }

    /// Runs a script with so many clients.
    pub async fn run(&mut self, name: &str, clients: usize, window: Duration) -> Result<Sample, Failure> {
        let _ = std::fs::remove_dir_all(&self.logs);
        std::fs::create_dir_all(&self.logs)?;
        let (base, stride) = match self.take_rows(name, clients, window) {
            Some(rows) => rows,
            None => {
                self.make().await?;
                self.take_rows(name, clients, window).ok_or_else(|| format!("{name} needs too many rows"))?
            }
        };
        let (duration, range) = (seconds(window).to_string(), self.rows);
        let mut command = Command::new(&self.program);
        command
            .args(["-n", "-M", "prepared", "-l", "-T", &duration, "-f"])
            .arg(script(name))
            .args(["-c", &clients.to_string(), "-j", &clients.min(2).to_string()])
            .arg(format!("--log-prefix={}/run", self.logs.display()))
            .args(["-D", "n=0", "-D", &format!("base={base}"), "-D", &format!("stride={stride}")])
            .args(["-D", &format!("range={range}"), &self.database]);
        let output = command.output().await?;
        let said = String::from_utf8_lossy(&output.stdout);
        let per_second =
            said.lines().find_map(|line| line.strip_prefix("tps = ")?.split(' ').next()?.parse().ok());
        let per_second: f64 = per_second
            .filter(|_| output.status.success())
            .ok_or_else(|| format!("pgbench {name}: {}", String::from_utf8_lossy(&output.stderr)))?;
        let latencies = self.latencies()?;
        if latencies.len() > stride * clients {
            return Err(format!("pgbench {name} used up its rows and went on with nothing to do").into());
        }
        Ok(Sample::new(per_second, &latencies))
    }

    /// Takes all settlements back: what is measured in batches walks the rows that were measured singly.
    pub async fn unsettle(&self) -> Result<(), Failure> {
        let mut telling = Command::new(&self.psql);
        telling.args(["-qX", "-v", "ON_ERROR_STOP=1", "-d", &self.database]);
        telling.args(["-c", "UPDATE b.orders SET settled = 0 WHERE settled = 1"]);
        telling.args([
            "-c",
            "DELETE FROM b.ledger WHERE kind = 2",
            "-c",
            "VACUUM ANALYZE",
            "-c",
            "CHECKPOINT",
        ]);
        if telling.stderr(Stdio::null()).status().await?.success() {
            Ok(())
        } else {
            Err("psql did not take the settlements back".into())
        }
    }

    /// Rows for a run, never those of an earlier one: the first, and how many each client has for itself. `None` when the
    /// schema is used up.
    fn take_rows(&mut self, name: &str, clients: usize, window: Duration) -> Option<(usize, usize)> {
        // Settlements are taken back between the two kinds of them, so each begins anew.
        let kind = if name.starts_with("settle_") { name } else { name.split('_').next().unwrap_or(name) };
        let inserts = matches!(kind, "payurl" | "usage");
        let (limit, per_second) = match name.ends_with("_batch100") {
            true => (self.rows / 100, BATCHES_PER_SECOND),
            false => (self.rows, PER_SECOND),
        };
        let wanted = per_second * seconds(window);
        let base = self.used.entry(kind.to_owned()).or_insert(if inserts { 1_000_000_000 } else { 0 });
        let first = *base;
        *base += if inserts { wanted * clients } else { wanted };
        let is_there = inserts || *base <= limit;
        is_there.then_some((first, if inserts { wanted } else { wanted / clients }))
    }

    /// The third column of every log line, in order of size.
    fn latencies(&self) -> Result<Vec<u32>, Failure> {
        let mut latencies = Vec::new();
        for file in std::fs::read_dir(&self.logs)? {
            let text = std::fs::read_to_string(file?.path())?;
            latencies.extend(text.lines().filter_map(|line| line.split(' ').nth(2)?.parse::<u32>().ok()));
        }
        latencies.sort_unstable();
        Ok(latencies)
    }
}
