//! The `payonce` binary.

use std::process::ExitCode;

use clap::Parser;
use payonce::cli::{self, Cli};
use payonce::infra::crash;

fn main() -> ExitCode {
    let _armed = crash::arm();
    let cli = Cli::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    match runtime {
        Ok(runtime) => runtime.block_on(cli::run(cli)),
        Err(error) => cli::fail(&error),
    }
}
