//! `payonce audit`.

use std::fmt::Write as _;
use std::process::ExitCode;

use super::{CliError, FOUND_PROBLEMS, Output, database};
use crate::audit::{self, AuditReport};
use crate::infra::clock::Clock;

pub(super) async fn run(output: Output) -> Result<ExitCode, CliError> {
    let db = database()?;
    let report = audit::audit(&db, Clock::system().now()).await?;
    db.close().await;
    output.show(&report, table)?;
    Ok(if report.ok { ExitCode::SUCCESS } else { ExitCode::from(FOUND_PROBLEMS) })
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
    text.push_str(if report.ok { "all invariants hold" } else { "some invariants are violated" });
    text
}
