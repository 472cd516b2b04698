//! `payonce audit`.

use std::fmt::Write as _;
use std::process::ExitCode;

use super::{CliError, Output, database, verdict};
use crate::audit::{self, AuditReport};

pub(super) async fn run(output: Output) -> Result<ExitCode, CliError> {
    let (db, clock) = database().await?;
    let report = audit::audit(&db, clock.now()).await?;
    db.close().await;
    output.show(&report, table)?;
    Ok(verdict(report.ok))
}

fn table(report: &AuditReport) -> String {
    let mut text = String::new();
    for check in &report.checks {
        let mark = if check.violations == 0 { "ok" } else { "VIOLATED" };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{mark:8} {:>8}  {}  {}", check.violations, check.id, check.title);
        for sample in &check.sample {
            let _ = writeln!(text, "                   {sample}");
        }
    }
    for failed in &report.failed {
        let _ = writeln!(text, "{:8} {:>8}  {}  {}", "FAILED", "?", failed.id, failed.reason);
    }
    text.push_str(match (report.ok, report.failed.is_empty()) {
        (true, _) => "all invariants hold",
        (false, true) => "some invariants are violated",
        (false, false) => "not all of it could be looked at",
    });
    text
}
