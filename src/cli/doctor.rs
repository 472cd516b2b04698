//! `payonce doctor`.

use std::fmt::Write as _;
use std::process::ExitCode;

use clap::Args;

use super::{CliError, Output, verdict};
use crate::config::{Env, Strictness};
use crate::doctor::{self, Report};

#[derive(Debug, Args)]
pub(super) struct DoctorArgs {
    /// How many instances share the database.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    instances: u32,
}

pub(super) async fn run(args: DoctorArgs, output: Output) -> Result<ExitCode, CliError> {
    let env = Env::of_process(Strictness::Strict);
    let report = doctor::examine(&env, args.instances).await;
    output.show(&report, table)?;
    Ok(verdict(report.ok))
}

fn table(report: &Report) -> String {
    let mut text = String::new();
    for finding in &report.findings {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{:8} {:29}  {}", finding.health.as_str(), finding.check, finding.found);
        if let Some(mend) = &finding.mend {
            let _ = writeln!(text, "{:8} {:29}  mend: {mend}", "", "");
        }
    }
    text.push_str(if report.ok { "nothing is wrong" } else { "something is wrong: see what to mend" });
    text
}
