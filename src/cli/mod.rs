//! Commands of the binary. Exit 0: fine; 1: failed; 2: usage; 3: found problems.

use std::error::Error;
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};
use secrecy::SecretString;

use crate::app::App;
use crate::config::{Config, ConfigError, DatabaseConfig, Env, LogConfig, Strictness};
use crate::http::{self, Reason};
use crate::ids::{Ids, MerchantId};
use crate::infra::clock::Clock;
use crate::infra::db::Db;
use crate::infra::telemetry;
use crate::run::{self, Roles, StopSignals};

mod admin;
mod audit;
mod demo;
mod dev;
mod doctor;
mod merchant;
mod output;
mod reconcile;
mod settle;
mod sweep;
mod worker;

use output::Output;

/// A payment service beside your shop: an order is paid once, settled once, refunded once, cancelled once and
/// reported once.
#[derive(Debug, Parser)]
#[command(name = "payonce", version)]
pub struct Cli {
    /// How results are printed.
    #[arg(short, long, global = true, value_enum, default_value_t = Format::Table)]
    output: Format,
    #[command(subcommand)]
    command: Command,
}

/// How results are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    Table,
    /// For programs.
    Json,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the service; configured by the environment, see .env.example.
    Serve {
        /// Which parts to run: api, workers, sandbox.
        #[arg(long, env = "PAYONCE_ROLES", default_value = "api,workers")]
        roles: Roles,
        /// Leave the schema alone; `payonce migrate` ran before.
        #[arg(long)]
        no_migrate: bool,
    },
    /// Run everything on this machine, with stores of its own, a demo merchant and the sandbox gateway.
    Dev,
    /// Bring the database's schema up to date.
    Migrate,
    /// Check every invariant in one snapshot of the database; exit 3 when one is violated.
    Audit,
    /// See and do what operators may: every action of the admin API.
    Admin(admin::Admin),
    /// Settle all paid orders of some age from here, and show how far it is; exit 3 when some could not be settled, or
    /// nothing moves any more.
    Settle(settle::SettleArgs),
    /// Compare a channel's day with its statement from here, and show how far it is; exit 3 when something waits for a
    /// person.
    Reconcile(reconcile::ReconcileArgs),
    /// Have whatever is old and in the middle worked off, and show how far it is; exit 3 when nothing
    /// moves any more and some of it is left.
    Sweep(sweep::SweepArgs),
    /// Name what is wrong with configuration, database, Redis and ports, with the line that mends it; exit 3 then.
    Doctor(doctor::DoctorArgs),
    /// Play the promises against a running instance and say which held; exit 3 when one did not.
    Demo(demo::DemoArgs),
    /// Merchants and their keys.
    #[command(subcommand)]
    Merchant(merchant::MerchantCommand),
    /// Print the OpenAPI document.
    Openapi,
}

/// The exit code that says: the command worked, and found problems.
const FOUND_PROBLEMS: u8 = 3;

/// The exit code of a command that worked.
fn verdict(is_fine: bool) -> ExitCode {
    if is_fine { ExitCode::SUCCESS } else { ExitCode::from(FOUND_PROBLEMS) }
}

/// A secret of a command: its argument, which whoever lists the processes sees, or else its variable or its file.
fn secret_of(
    argument: Option<SecretString>,
    variable: &'static str,
) -> Result<Option<SecretString>, ConfigError> {
    match argument {
        None => Env::of_process(Strictness::Strict).secret_of_command(variable),
        given => Ok(given),
    }
}

/// Failures of any command, with all that caused them.
pub(crate) type CliError = Box<dyn Error + Send + Sync>;

/// Whether the arguments ask for `dev`. It is private: a `.env` that lies there is of the service that a shop runs.
#[must_use]
pub fn wants_dev() -> bool {
    Cli::try_parse().is_ok_and(|cli| matches!(cli.command, Command::Dev))
}

/// Runs a command to its end.
pub async fn run(cli: Cli) -> ExitCode {
    let outcome = match cli.command {
        Command::Serve { roles, no_migrate } => serve(roles, !no_migrate).await,
        Command::Dev => dev::run().await,
        Command::Migrate => migrate().await,
        Command::Audit => audit::run(Output(cli.output)).await,
        Command::Admin(admin) => admin::run(admin, Output(cli.output)).await,
        Command::Settle(args) => settle::run(args, Output(cli.output)).await,
        Command::Reconcile(args) => reconcile::run(args, Output(cli.output)).await,
        Command::Sweep(args) => sweep::run(args, Output(cli.output)).await,
        Command::Doctor(args) => doctor::run(args, Output(cli.output)).await,
        Command::Demo(args) => demo::run(args, Output(cli.output)).await,
        Command::Merchant(command) => merchant::run(command, Output(cli.output)).await,
        Command::Openapi => openapi(),
    };
    outcome.unwrap_or_else(|error| fail(error.as_ref()))
}

/// Says what went wrong, and every reason behind it.
pub fn fail(error: &dyn Error) -> ExitCode {
    output::tell(&format!("payonce: {error}"));
    let mut source = error.source();
    while let Some(reason) = source {
        output::tell(&format!("  because: {reason}"));
        source = reason.source();
    }
    ExitCode::from(1)
}

async fn serve(roles: Roles, is_migrated: bool) -> Result<ExitCode, CliError> {
    let config = Config::read(&Env::of_process(Strictness::Strict))?;
    telemetry::init_log(&config.log);
    let ids = Ids::random(Clock::system());
    if is_migrated {
        Db::migrate(&config.database, ids.clone()).await?;
    }
    let stop = StopSignals::listen()?;
    let instance = run::start(config, roles, ids).await?;
    stop.received().await;
    instance.stop().await;
    Ok(ExitCode::SUCCESS)
}

/// The database alone, for commands that need no more, and the clock that goes by it.
async fn database() -> Result<(Db, Clock), CliError> {
    let env = Env::of_process(Strictness::Strict);
    telemetry::init_log(&LogConfig::of_command(&env)?);
    let config = DatabaseConfig::read(&env)?;
    let clock = Clock::system();
    let db = Db::new(&config, Ids::random(clock.clone()))?;
    db.know_time().await?;
    run::check_schema(&db).await?;
    Ok((db, clock))
}

/// The service's insides, for commands that ask its routes from here.
fn insides(config: Config, roles: Roles) -> Result<App, CliError> {
    let public_url = config.http.public_url.clone().unwrap_or_else(|| format!("http://{}", config.http.bind));
    let (app, _gateway) = run::assemble(config, roles, Ids::random(Clock::system()), &public_url)?;
    Ok(app)
}

async fn migrate() -> Result<ExitCode, CliError> {
    let env = Env::of_process(Strictness::Strict);
    telemetry::init_log(&LogConfig::read(&env)?);
    let config = DatabaseConfig::read(&env)?;
    Db::migrate(&config, Ids::random(Clock::system())).await?;
    Ok(ExitCode::SUCCESS)
}

fn openapi() -> Result<ExitCode, CliError> {
    output::print(&serde_json::to_string_pretty(&http::document())?)?;
    Ok(ExitCode::SUCCESS)
}

/// Why, as the routes want it.
fn reason(text: &str) -> Result<String, &'static str> {
    Reason::try_from(text.to_owned()).map(String::from)
}

fn merchant_id(text: &str) -> Result<MerchantId, String> {
    text.parse().map_err(|error: crate::ids::InvalidId| error.to_string())
}
