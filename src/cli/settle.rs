//! `payonce settle`: settles all paid orders of some age from here, with the workers or without them, and shows how far
//! it is. What is interrupted is gone on with by the workers, or by the next call.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde::Serialize;

use super::output::tell;
use super::worker::{Actor, Patience, bar, worker};
use super::{CliError, Output, merchant_id, reason, verdict};
use crate::app::App;
use crate::ids::MerchantId;
use crate::infra::duty::Batch;
use crate::run::Roles;
use crate::settlement::{self, Begun, MAX_DAYS, NewRun, RunStatus, SettlementRun};

/// How often a run that somebody else is at is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// What to settle.
#[derive(Debug, Args)]
pub(super) struct SettleArgs {
    /// Orders that were paid so many days ago or earlier.
    #[arg(long, value_parser = clap::value_parser!(u32).range(0..=i64::from(MAX_DAYS)))]
    older_than_days: u32,
    /// Of one merchant; of all where none is named.
    #[arg(long, value_parser = merchant_id)]
    merchant_id: Option<MerchantId>,
    /// Say what there is to settle, and do nothing.
    #[arg(long)]
    dry_run: bool,
    /// Give up looking on after so many seconds in which nothing moved, and exit 3; the workers go on with it.
    #[arg(long, default_value_t = 300)]
    patience: u64,
    /// Why, for the admin log.
    #[arg(long, required_unless_present = "dry_run", value_parser = reason)]
    reason: Option<String>,
    #[command(flatten)]
    actor: Actor,
}

pub(super) async fn run(args: SettleArgs, output: Output) -> Result<ExitCode, CliError> {
    let app = worker(Roles { api: false, workers: true, sandbox: false }).await?;
    let SettleArgs { older_than_days, merchant_id, dry_run, patience, reason, actor } = args;
    let new = NewRun { merchant_id, older_than_days };
    let reason = reason.filter(|_| !dry_run);
    let entry = reason.map(|reason| actor.entry(&app, "settlements.run", new.to_string(), reason));
    let Begun { waiting, has_more, run, .. } = settlement::begin_run(&app, &new, entry).await?;
    let is_fine = match run {
        None => {
            if has_more {
                // What is shown is not all.
                tell("payonce: only the oldest million orders were looked at; there may be more to settle");
            }
            output.show(&waiting, |waiting| {
                if has_more && waiting.is_empty() {
                    return "nothing to settle among the oldest million orders".to_owned();
                }
                lines(waiting)
            })?;
            true
        }
        Some(run) => {
            let run = follow(&app, run, patience).await?;
            output.show(&run, |run| lines(std::slice::from_ref(run)))?;
            run.status == RunStatus::Done && run.skipped == 0
        }
    };
    app.db.close().await;
    Ok(verdict(is_fine))
}

/// Works on it, and shows how far it is, until it has come to its end, or nothing moves for as long as the patience lasts.
async fn follow(app: &App, mut run: SettlementRun, patience: u64) -> Result<SettlementRun, CliError> {
    let expected = run.expected.and_then(|expected| u64::try_from(expected).ok());
    let seen = |run: &SettlementRun, batches| (run.settled, run.skipped, batches);
    let mut batches = 0_u64;
    let bar = bar(expected, "{spinner} {pos}/{len} orders {wide_bar} {eta} {msg}");
    let mut patience = Patience::of(patience, seen(&run, batches));
    while run.status != RunStatus::Done {
        // What keeps it from going on stands in the run itself.
        let is_idle = !matches!(settlement::run_due(app).await, Ok(Batch::MoreWaiting));
        run = settlement::find_run(app, &run.run_id).await?;
        bar.set_position(u64::try_from(run.settled + run.skipped).unwrap_or(0));
        bar.set_message(run.last_error.clone().unwrap_or_else(|| run.commissions.to_string()));
        // Past others' orders it moves, too.
        batches += u64::from(!is_idle);
        if run.status != RunStatus::Done && patience.is_over(seen(&run, batches)) {
            tell("payonce: nothing moves any more; the workers go on with it");
            break;
        }
        if is_idle && run.status != RunStatus::Done {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
    bar.finish_and_clear();
    Ok(run)
}

/// One line of JSON each: what there is to say is figures.
fn lines(entries: &[impl Serialize]) -> String {
    let line = |entry| serde_json::to_string(entry).unwrap_or_default();
    if entries.is_empty() {
        return "nothing to settle".to_owned();
    }
    entries.iter().map(line).collect::<Vec<_>>().join("\n")
}
