//! `payonce demo`: plays the promises against a running instance, over HTTP alone, and says which held.
//!
//! A line may only say "held" for what was seen in the answers: every act counts what it asked for, what it got,
//! and what the instance says afterwards.

use std::process::ExitCode;

use clap::Args;
use secrecy::SecretString;
use serde::Serialize;

use super::{CliError, Format, Output, secret_of, verdict};
use crate::ids::Ids;
use crate::infra::clock::Clock;

mod acts;
mod client;
mod progress;

use client::Client;
use progress::Progress;

#[derive(Debug, Args)]
pub(super) struct DemoArgs {
    /// The instance to play against; it must run the roles api, workers and sandbox.
    #[arg(long, env = "PAYONCE_URL", default_value = "http://127.0.0.1:8080")]
    url: String,
    /// A secret key of the merchant whose orders are played; their numbers begin with `demo-`. Who lists the processes
    /// sees it: better in `PAYONCE_SECRET_KEY`, or in a file that `PAYONCE_SECRET_KEY_FILE` names [default: sk_test_demo].
    #[arg(long)]
    key: Option<SecretString>,
    /// A token for the admin routes; a viewer's will do. Better in `PAYONCE_ADMIN_TOKEN`, or in a file that
    /// `PAYONCE_ADMIN_TOKEN_FILE` names [default: dev-admin-token].
    #[arg(long)]
    token: Option<SecretString>,
    /// What the sandbox signs its callbacks with there. Better in `SANDBOX_SECRET`, or in a file that `SANDBOX_SECRET_FILE`
    /// names [default: dev-sandbox-secret].
    #[arg(long)]
    sandbox_secret: Option<SecretString>,
}

/// What one act came to.
#[derive(Clone, Debug, Serialize)]
struct Line {
    promise: &'static str,
    held: bool,
    /// With numbers.
    seen: String,
}

#[derive(Serialize)]
struct Played {
    ok: bool,
    lines: Vec<Line>,
}

pub(super) async fn run(args: DemoArgs, output: Output) -> Result<ExitCode, CliError> {
    let clock = Clock::system();
    let ids = Ids::random(clock.clone());
    let secret = |argument, variable, default: &str| {
        secret_of(argument, variable).map(|given| given.unwrap_or_else(|| default.into()))
    };
    let key = secret(args.key, "PAYONCE_SECRET_KEY", "sk_test_demo")?;
    let token = secret(args.token, "PAYONCE_ADMIN_TOKEN", "dev-admin-token")?;
    let sandbox_secret = secret(args.sandbox_secret, "SANDBOX_SECRET", "dev-sandbox-secret")?;
    let client = Client::new(&args.url, key, token, &sandbox_secret, clock, ids)?;
    let progress = Progress::new(acts::COUNT, output.0 == Format::Table);
    let lines = acts::play(&client, &progress).await;
    progress.end();
    let played = Played { ok: lines.iter().all(|line| line.held), lines };
    output.show(&played, table)?;
    Ok(verdict(played.ok))
}

fn table(played: &Played) -> String {
    let mut lines: Vec<String> = Vec::new();
    for Line { promise, held, seen } in &played.lines {
        let word = if *held { "held" } else { "DID NOT HOLD" };
        lines.push(format!("{word:12}  {promise}: {seen}"));
    }
    lines.push(if played.ok { "all of it held" } else { "not all of it held" }.to_owned());
    lines.join("\n")
}
