//! `payonce settle`: settles all paid orders of some age from here, with the workers or without them, and shows how far
//! it is. What is interrupted is gone on with by the workers, or by the next call.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use super::{CliError, Output, merchant_id, reason, verdict, worker};
use crate::admin_log::Entry;
use crate::app::App;
use crate::config::{Config, Env, Role, Strictness};
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
    /// Why, for the admin log.
    #[arg(long, required_unless_present = "dry_run", value_parser = reason)]
    reason: Option<String>,
}

pub(super) async fn run(args: SettleArgs, output: Output) -> Result<ExitCode, CliError> {
    let config = Config::read(&Env::of_process(Strictness::Strict))?;
    let roles = Roles { api: false, workers: true, sandbox: false };
    let app = worker(config, roles).await?;
    let SettleArgs { older_than_days, merchant_id, dry_run, reason } = args;
    let new = NewRun { merchant_id, older_than_days };
    let entry = reason.filter(|_| !dry_run).map(|reason| Entry {
        actor: std::env::var("USER").unwrap_or_else(|_| "unknown".to_owned()),
        role: Role::Operator,
        action: "settlements.run",
        target: new.to_string(),
        order: None,
        reason,
        request_id: app.ids.uuid().simple().to_string(),
    });
    let Begun { waiting, has_more, run, .. } = settlement::begin_run(&app, &new, entry).await?;
    let is_fine = match run {
        None => {
            if has_more {
                tell_of_more();
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
            let run = follow(&app, run).await?;
            output.show(&run, |run| lines(std::slice::from_ref(run)))?;
            run.skipped == 0
        }
    };
    app.db.close().await;
    Ok(verdict(is_fine))
}

/// What is shown is not all.
#[expect(clippy::print_stderr, reason = "for the person who asks; the result goes to standard output")]
fn tell_of_more() {
    eprintln!("payonce: only the oldest million orders were looked at; there may be more to settle");
}

/// Works on it, and shows how far it is, until it has come to its end.
async fn follow(app: &App, mut run: SettlementRun) -> Result<SettlementRun, CliError> {
    let bar = bar(&run);
    while run.status != RunStatus::Done {
        // What keeps it from going on stands in the run itself.
        let is_idle = !matches!(settlement::run_due(app).await, Ok(Batch::MoreWaiting));
        run = settlement::find_run(app, &run.run_id).await?;
        bar.set_position(u64::try_from(run.settled + run.skipped).unwrap_or(0));
        bar.set_message(run.last_error.clone().unwrap_or_else(|| run.commissions.to_string()));
        if is_idle && run.status != RunStatus::Done {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
    bar.finish_and_clear();
    Ok(run)
}

fn bar(run: &SettlementRun) -> ProgressBar {
    let expected = run.expected.and_then(|expected| u64::try_from(expected).ok());
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = expected.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
    match ProgressStyle::with_template("{spinner} {pos}/{len} orders {wide_bar} {eta} {msg}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// One line of JSON each: what there is to say is figures.
fn lines(entries: &[impl Serialize]) -> String {
    let line = |entry| serde_json::to_string(entry).unwrap_or_default();
    if entries.is_empty() {
        return "nothing to settle".to_owned();
    }
    entries.iter().map(line).collect::<Vec<_>>().join("\n")
}
