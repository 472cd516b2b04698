//! The figures, and the table in which they are printed.

use super::Failure;
use super::load::Run;
use super::profile::{COUNTED, Profile};

/// What one timed run came to.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Requests or transactions a second.
    pub per_second: f64,
    /// Milliseconds within which half of them were answered.
    pub p50_ms: f64,
    /// Milliseconds within which 99 of 100 were answered.
    pub p99_ms: f64,
}

impl Sample {
    /// A sample from latencies in microseconds, in order of size.
    pub fn new(per_second: f64, latencies: &[u32]) -> Self {
        Self { per_second, p50_ms: percentile_ms(latencies, 50), p99_ms: percentile_ms(latencies, 99) }
    }

    /// Of the same work in other units, such as batches of a hundred.
    pub fn times(self, units: f64) -> Self {
        Self { per_second: self.per_second * units, ..self }
    }
}

impl From<&Run> for Sample {
    fn from(run: &Run) -> Self {
        let done = f64::from(u32::try_from(run.done).unwrap_or(u32::MAX));
        Self::new(done / run.elapsed.as_secs_f64(), &run.latencies)
    }
}

/// Milliseconds within which so many of 100 were answered, from latencies in microseconds, in order of size.
pub fn percentile_ms(latencies: &[u32], percent: usize) -> f64 {
    let index = (latencies.len() * percent / 100).min(latencies.len().saturating_sub(1));
    latencies.get(index).map_or(0.0, |micros| f64::from(*micros) / 1000.0)
}

/// The median of some values.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// The median of our rates over those of the other side, round by round.
fn median_ratio(ours: &[Sample], other: &[Sample]) -> f64 {
    median(ours.iter().zip(other).map(|(ours, other)| ours.per_second / other.per_second))
}

/// How we stand beside the other side: the medians of both, in a second, and that of their ratios.
#[derive(Clone, Copy, Debug)]
pub struct Standing {
    pub ours: f64,
    pub other: f64,
    pub ratio: f64,
}

impl Standing {
    /// Of rounds of both.
    pub fn of(ours: &[Sample], other: &[Sample]) -> Self {
        let [of_ours, of_other] = [ours, other].map(|side| medians(side).per_second);
        Self { ours: of_ours, other: of_other, ratio: median_ratio(ours, other) }
    }
}

fn medians(samples: &[Sample]) -> Sample {
    let of = |value: fn(&Sample) -> f64| median(samples.iter().map(value));
    Sample { per_second: of(|s| s.per_second), p50_ms: of(|s| s.p50_ms), p99_ms: of(|s| s.p99_ms) }
}

/// What a figure is to reach.
#[derive(Clone, Copy, Debug)]
pub enum Target {
    /// At least.
    Least(f64),
    /// At most.
    Most(f64),
    /// Nothing yet.
    Information,
}

impl Target {
    fn words(self, value: f64) -> (String, &'static str) {
        let verdict = |is_reached: bool| if is_reached { "ok" } else { "MISSED" };
        match self {
            Self::Least(least) => (format!(">= {least}"), verdict(value >= least)),
            Self::Most(most) => (format!("<= {most}"), verdict(value <= most)),
            Self::Information => (String::new(), ""),
        }
    }
}

/// All figures of a run of the bench.
#[derive(Debug, Default)]
pub struct Table {
    ratios: Vec<String>,
    profiles: Vec<String>,
    values: Vec<String>,
    failures: Vec<String>,
}

impl Table {
    /// A rate of the service over that of its equivalent, from runs that took turns.
    pub fn ratio(&mut self, figure: &str, clients: usize, ours: &[Sample], other: &[Sample], target: Target) {
        // Round by round: both sides of a round had the same machine.
        let ratio = median_ratio(ours, other);
        let (ours, other) = (medians(ours), medians(other));
        let (wanted, verdict) = target.words(ratio);
        let line = format!(
            "{figure:<34} {clients:>4} {:>8.0} {:>8.0} {ratio:>6.2} {:>7.2} {:>7.2} {:>7.2} {:>7.2}  {wanted:<9} {verdict}",
            ours.per_second, other.per_second, ours.p50_ms, ours.p99_ms, other.p50_ms, other.p99_ms,
        );
        eprintln!("{}", line.trim_end());
        self.ratios.push(line);
    }

    /// What one request of a scene takes of each part.
    pub fn profile(&mut self, figure: &str, clients: usize, profile: &Profile) {
        let columns: String = profile.each().iter().map(|share| format!(" {share:>10.2}")).collect();
        let line = format!("{figure:<34} {clients:>4}{columns}");
        eprintln!("  where it goes: {line}");
        self.profiles.push(line);
    }

    /// A figure that stands alone.
    pub fn value(&mut self, figure: &str, value: f64, unit: &str, target: Target) {
        let (wanted, verdict) = target.words(value);
        let line = format!("{figure:<60} {value:>9.1} {unit:<9} {wanted:<9} {verdict}");
        eprintln!("{}", line.trim_end());
        self.values.push(line);
    }

    /// Names a scene that failed: its figures are not all there, and those behind it had what it left beside them.
    pub fn heard(&mut self, scene: &str, outcome: Result<(), Failure>) {
        if let Err(error) = outcome {
            eprintln!("FAILED: {scene}: {error}");
            self.failures.push(format!("FAILED: {scene}: {error}"));
        }
    }

    /// That every scene went through.
    pub fn verdict(&self) -> Result<(), Failure> {
        if self.failures.is_empty() { Ok(()) } else { Err(self.failures.join("; ").into()) }
    }

    /// All of it, in lines.
    pub fn text(&self) -> String {
        let mut lines = Vec::new();
        if !self.ratios.is_empty() {
            lines.push(format!(
                "{:<34} {:>4} {:>8} {:>8} {:>6} {:>7} {:>7} {:>7} {:>7}  {:<9}",
                "figure",
                "cl.",
                "ours/s",
                "other/s",
                "ratio",
                "p50 ms",
                "p99 ms",
                "p50 ms",
                "p99 ms",
                "target"
            ));
            lines.extend_from_slice(&self.ratios);
            lines.push(String::new());
        }
        if !self.profiles.is_empty() {
            let columns: String = COUNTED.iter().map(|name| format!(" {name:>10}")).collect();
            lines.push("processor time in microseconds, and what else one request takes".to_owned());
            lines.push(format!("{:<34} {:>4}{columns}", "figure", "cl."));
            lines.extend_from_slice(&self.profiles);
            lines.push(String::new());
        }
        lines.extend_from_slice(&self.values);
        lines.extend_from_slice(&self.failures);
        let lines: Vec<&str> = lines.iter().map(|line| line.trim_end()).collect();
        lines.join("\n")
    }
}
