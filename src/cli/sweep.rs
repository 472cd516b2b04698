//! `payonce sweep`: has whatever is old and in the middle worked off, and shows how far it is. The workers carry it out;
//! what is interrupted here goes on there.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use indicatif::ProgressBar;
use serde::Serialize;

use super::worker::{Actor, Patience, bar, worker};
use super::{CliError, Output, reason, verdict};
use crate::admin_log::Entry;
use crate::app::App;
use crate::compensation::{Lane, LaneStand};
use crate::operations::{self, LeftAlone, Swept};
use crate::run::Roles;

/// How often it is looked how far the workers are.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// What to do.
#[derive(Debug, Args)]
pub(super) struct SweepArgs {
    /// Say what there is to sweep, and do nothing.
    #[arg(long)]
    dry_run: bool,
    /// Write the tasks and leave them to the workers, without looking on.
    #[arg(long)]
    no_wait: bool,
    /// Give up looking on after so many seconds in which nothing moved, and exit 3; the tasks stay.
    #[arg(long, default_value_t = 30)]
    patience: u64,
    /// Why, for the admin log.
    #[arg(long, required_unless_present = "dry_run", value_parser = reason)]
    reason: Option<String>,
    #[command(flatten)]
    actor: Actor,
}

/// What came of it.
#[derive(Debug, Serialize)]
struct Outcome {
    left_alone: Vec<LeftAlone>,
    written: i64,
    /// Tasks that were in the lane of the sweep, and those that still are.
    waiting: i64,
    left: i64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    not_seen: Vec<&'static str>,
}

pub(super) async fn run(args: SweepArgs, output: Output) -> Result<ExitCode, CliError> {
    let app = worker(Roles { api: false, workers: true, sandbox: false }).await?;
    let SweepArgs { dry_run, no_wait, patience, reason, actor } = args;
    let Swept { left_alone, written, not_seen, .. } = match reason.filter(|_| !dry_run) {
        None => operations::look_for_left_alone(&app).await?,
        Some(reason) => find_all(&app, &actor.entry(&app, "sweep", "all".to_owned(), reason)).await?,
    };
    let waiting = living(&app).await?;
    let left = follow(&app, waiting, if dry_run || no_wait { 0 } else { patience }).await?;
    let is_whole = not_seen.is_empty();
    let outcome = Outcome { left_alone, written, waiting, left, not_seen };
    output.show(&outcome, in_words)?;
    app.db.close().await;
    // Where nobody looks on, nobody expects it to be worked off.
    let is_stuck = left > 0 && !dry_run && !no_wait;
    Ok(verdict(is_whole && !is_stuck))
}

/// Sweeps slice by slice until nothing is left alone, and says how much it has found.
async fn find_all(app: &App, entry: &Entry) -> Result<Swept, CliError> {
    let spinner =
        if std::io::stderr().is_terminal() { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
    let mut all = operations::sweep(app, entry).await?;
    while all.has_more {
        spinner.set_message(format!("{} tasks written", all.written));
        spinner.tick();
        let slice = operations::sweep_slice(app, operations::SLICE).await?;
        all = Swept { written: all.written + slice.written, left_alone: all.left_alone, ..slice };
    }
    spinner.finish_and_clear();
    Ok(all)
}

/// Living tasks of the sweep's lane.
async fn living(app: &App) -> Result<i64, CliError> {
    let lanes = operations::lanes(app).await?;
    let is_sweep = |stand: &&LaneStand| stand.lane == Lane::Sweep;
    Ok(lanes.iter().find(is_sweep).map_or(0, |stand| stand.living))
}

/// Looks on until the lane is empty, or nothing moves for as long as the patience lasts. Gives what is left.
async fn follow(app: &App, waiting: i64, patience: u64) -> Result<i64, CliError> {
    let bar = bar(u64::try_from(waiting).ok(), "{spinner} {pos}/{len} tasks {wide_bar} {per_sec} {eta}");
    let (mut left, mut patience) = (waiting, Patience::of(patience, waiting));
    while left > 0 && !patience.is_over(left) {
        tokio::time::sleep(LOOK_EVERY).await;
        left = living(app).await?;
        bar.set_position(u64::try_from((waiting - left).max(0))?);
    }
    bar.finish_and_clear();
    Ok(left)
}

fn in_words(outcome: &Outcome) -> String {
    let found = outcome.left_alone.iter().map(|left| format!("{} of {}", left.count, left.action));
    let found = found.collect::<Vec<_>>().join(", ");
    let found =
        if found.is_empty() { "nothing was left alone".to_owned() } else { format!("left alone: {found}") };
    let Outcome { written, waiting, left, not_seen, .. } = outcome;
    let not_seen = match not_seen.as_slice() {
        [] => String::new(),
        actions => format!(
            "\nso much is under way that nobody could see in time what was left alone of {}",
            actions.join(", ")
        ),
    };
    format!("{found}\n{written} tasks written; {waiting} in the lane of the sweep, {left} left{not_seen}")
}
