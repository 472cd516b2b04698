//! The `payonce` binary.

use std::process::ExitCode;

use clap::Parser;
use payonce::cli::{self, Cli};
use payonce::config;
use payonce::infra::crash;

/// A request is some hundred small allocations: with the C library's allocator a quarter of the service's
/// processor time went there, much of it into waiting for its locks.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let _armed = crash::arm();
    // First: arguments have variables, too.
    if !cli::wants_dev()
        && let Err(error) = config::add_file()
    {
        return cli::fail(&error);
    }
    let cli = Cli::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    match runtime {
        Ok(runtime) => {
            let code = runtime.block_on(cli::run(cli));
            // All that matters has ended: a name that is still being looked up may take half a minute.
            runtime.shutdown_background();
            code
        }
        Err(error) => cli::fail(&error),
    }
}
