//! `payonce reconcile`: compares a channel's day from here, with the workers or without them, and shows how far it is.
//! What is interrupted is gone on with by the workers, or by the next call.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use futures_util::stream::{self, Stream};
use time::Date;
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::worker::{Actor, Patience, bar, worker};
use super::{CliError, Output, reason, verdict};
use crate::app::App;
use crate::channels::bills::Format;
use crate::infra::duty::Batch;
use crate::reconciliation::model::{DayStatus, Reconciliation};
use crate::reconciliation::{self, NewReconciliation, NewUpload, Report};
use crate::run::Roles;

/// How often a day that somebody else is at is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Bytes that are read of a file at once.
const PIECE: usize = 256 * 1024;
/// Differences of one page of the CSV.
const CSV_PAGE: usize = 1_000;

/// What to compare.
#[derive(Debug, Args)]
pub(super) struct ReconcileArgs {
    /// Whose statement.
    #[arg(long)]
    channel: String,
    /// Which day of the channel's calendar, as YYYY-MM-DD.
    #[arg(long, value_parser = date)]
    date: Date,
    /// A statement as a file, in place of the channel's own.
    #[arg(long)]
    file: Option<PathBuf>,
    /// What the file looks like: sandbox, alipay, wechat or stripe; as the channel is called, by default.
    #[arg(long, requires = "file", value_parser = format)]
    format: Option<Format>,
    /// SHA-1 or SHA-256 of the file in hex, where its channel gives one.
    #[arg(long, requires = "file")]
    checksum: Option<String>,
    /// Compare the file also where it has no line, or payments of strangers alone, although something moved here: the channel
    /// truly has nothing of that day.
    #[arg(long, requires = "file")]
    accept_empty: bool,
    /// Write the differences there, as CSV.
    #[arg(long)]
    csv: Option<PathBuf>,
    /// Why, for the admin log.
    #[arg(long, value_parser = reason)]
    reason: String,
    /// The parts that `serve` runs here, for the channels that there are.
    #[arg(long, env = "PAYONCE_ROLES", default_value = "api,workers")]
    roles: Roles,
    /// Give up looking on after so many seconds in which nothing moved, and exit 3; the workers go on with it.
    #[arg(long, default_value_t = 300)]
    patience: u64,
    #[command(flatten)]
    actor: Actor,
}

fn date(text: &str) -> Result<Date, String> {
    reconciliation::read_day(text).ok_or_else(|| "expected a day as YYYY-MM-DD".to_owned())
}

fn format(text: &str) -> Result<Format, String> {
    let found = Format::ALL.iter().copied().find(|format| format.as_str() == text);
    found.ok_or_else(|| "expected sandbox, alipay, wechat or stripe".to_owned())
}

pub(super) async fn run(args: ReconcileArgs, output: Output) -> Result<ExitCode, CliError> {
    let app = worker(args.roles).await?;
    let begun = begin(&app, &args).await?;
    let run = follow(&app, begun, args.patience).await?;
    if let Some(path) = &args.csv {
        write_csv(&app, &run.reconciliation_id, path).await?;
    }
    app.db.close().await;
    let is_fine =
        run.status == DayStatus::Done && !run.differences.keys().any(|word| waits_for_a_person(word));
    let report = Report::from(run);
    output.show(&report, summary)?;
    Ok(verdict(is_fine))
}

fn waits_for_a_person(word: &str) -> bool {
    word.ends_with(" WAITING") || word.ends_with(" ESCALATED")
}

async fn begin(app: &App, args: &ReconcileArgs) -> Result<Reconciliation, CliError> {
    let entry = |action, target| args.actor.entry(app, action, target, args.reason.clone());
    let Some(path) = &args.file else {
        let new = NewReconciliation { channel: args.channel.clone(), day: args.date };
        let entry = entry("reconciliations.begin", format!("{} {}", new.channel, new.day));
        return Ok(reconciliation::begin(app, &new, Some(entry)).await?);
    };
    let format = args.format.or_else(|| Format::of_channel(&args.channel));
    let format = format.ok_or("the channel's name is no format; say --format")?;
    let (channel, checksum) = (args.channel.clone(), args.checksum.clone());
    let new = NewUpload { channel, day: args.date, format, checksum, accepts_empty: args.accept_empty };
    let entry = entry("reconciliations.upload", new.to_string());
    let file = File::open(path).await?;
    Ok(reconciliation::upload(app, &new, pieces(file), Some(entry)).await?.reconciliation)
}

fn pieces(file: File) -> impl Stream<Item = Result<Vec<u8>, std::io::Error>> {
    stream::try_unfold(file, |mut file| async move {
        let mut piece = vec![0; PIECE];
        let count = file.read(&mut piece).await?;
        piece.truncate(count);
        Ok((count > 0).then_some((piece, file)))
    })
}

/// Works on it, and shows how far it is, until it has come to its end, waits for another statement, or nothing moves for as
/// long as the patience lasts.
async fn follow(app: &App, mut run: Reconciliation, patience: u64) -> Result<Reconciliation, CliError> {
    let bar = bar(None, "{spinner} {msg} ({elapsed})");
    let seen = |run: &Reconciliation, batches| (run.status, run.lines, run.differences.clone(), batches);
    let mut batches = 0_u64;
    let mut patience = Patience::of(patience, seen(&run, batches));
    while run.status != DayStatus::Done && run.fault.is_none() {
        let outcomes = [reconciliation::run_due(app).await, reconciliation::act_due(app).await];
        run = reconciliation::find(app, &run.reconciliation_id).await?;
        let differences: i64 = run.differences.values().sum();
        bar.set_message(format!("{}, {} lines, {differences} differences", run.status, run.lines));
        bar.tick();
        let mut is_busy = false;
        for outcome in outcomes {
            match outcome {
                Ok(batch) => is_busy |= batch == Batch::MoreWaiting,
                Err(error) => tracing::warn!(%error, "a step failed, and is tried again"),
            }
        }
        batches += u64::from(is_busy);
        if patience.is_over(seen(&run, batches)) {
            break;
        }
        if !is_busy && run.status != DayStatus::Done {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
    bar.finish_and_clear();
    Ok(run)
}

async fn write_csv(app: &App, id: &str, path: &Path) -> Result<(), CliError> {
    let (mut file, mut after) = (File::create(path).await?, None);
    loop {
        let (text, next) = reconciliation::csv(app, id, after.as_deref(), CSV_PAGE).await?;
        file.write_all(text.as_bytes()).await?;
        if next.is_none() {
            return Ok(file.flush().await?);
        }
        after = next;
    }
}

/// The day for people: one line for each kind and currency, one for each class and state.
fn summary(report: &Report) -> String {
    let Report { channel, day, status, lines, fault, detail, .. } = report;
    let mut text = format!("{channel} {day}: {status}, {lines} lines ({})\n", report.reconciliation_id);
    if let (Some(fault), Some(detail)) = (fault, detail) {
        // Writing to a text cannot fail.
        let _ = writeln!(text, "the statement is not used, {fault}: {detail}");
    }
    if !report.totals.is_empty() {
        let head = ["kind", "cur", "ours", "theirs", "fees", "drift", "explained", "unexplained"];
        let [kind, currency, ours, theirs, fees, drift, explained, unexplained] = head;
        let _ = writeln!(
            text,
            "{kind:<16} {currency} {ours:>16} {theirs:>16} {fees:>12} {drift:>12} {explained:>12} {unexplained:>12}"
        );
    }
    for line in &report.totals {
        let (total, explained) = (&line.total, line.drift - line.unexplained);
        let _ = writeln!(
            text,
            "{:<16} {} {:>16} {:>16} {:>12} {:>12} {explained:>12} {:>12}",
            line.kind, line.currency, total.ours, total.theirs, total.fees, line.drift, line.unexplained
        );
    }
    for (word, count) in &report.differences {
        let _ = writeln!(text, "{count:>8}  {word}");
    }
    text
}
