//! `payonce admin …`: every action of the admin API as a command.
//!
//! The table in `table` gives each route its name; what a command takes is read from the route's description, and
//! the request goes through the same router, at an instance (`--url`) or in this process over the database. So
//! there is no second way to do anything: checks, roles, reasons and the admin log are the routes' own.

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{ArgMatches, Args, Command, FromArgMatches, Subcommand};
use secrecy::SecretString;
use serde_json::Value;
use serde_json::value::RawValue;

use super::output::print;
use super::{CliError, Output, verdict, worker};
use crate::http;
use crate::run::Roles;

mod call;
mod description;
mod show;
mod table;
mod target;

use description::{Description, Field};
use table::Deed;

/// How, and as whom.
#[derive(Clone, Debug, Args)]
pub(super) struct Options {
    /// A running instance to ask; without it the command works on the database itself, configured like `serve`.
    #[arg(long, env = "PAYONCE_URL", global = true)]
    pub(super) url: Option<String>,
    /// An operator's token there. Who lists the processes sees it: better in `PAYONCE_ADMIN_TOKEN`, or in a file that
    /// `PAYONCE_ADMIN_TOKEN_FILE` names.
    #[arg(long, global = true)]
    pub(super) token: Option<SecretString>,
    /// The name for the admin log, without --url; the user's own by default.
    #[arg(long = "as", value_name = "NAME", global = true)]
    pub(super) by: Option<String>,
    /// The parts that `serve` runs here, for the channels that there are.
    #[arg(long, env = "PAYONCE_ROLES", default_value = "api,workers", global = true)]
    pub(super) roles: Roles,
}

impl Options {
    fn actor(&self) -> String {
        worker::name_of(self.by.as_deref())
    }
}

/// A command with what was given to it.
#[derive(Clone, Debug)]
pub(super) struct Given {
    deed: Deed,
    values: Vec<(Field, String)>,
}

impl Given {
    /// A command put together by another one.
    pub(super) fn of(name: &str, values: &[(&str, Option<String>)]) -> Option<Self> {
        let deed = table::find(name)?;
        let fields = Description::new().fields(deed);
        let value = |field: Field| {
            let given = values.iter().find(|(name, _)| *name == field.name)?.1.clone()?;
            Some((field, given))
        };
        Some(Self { deed, values: fields.into_iter().filter_map(value).collect() })
    }

    fn value(&self, name: &str) -> Option<&str> {
        self.values.iter().find(|(field, _)| field.name == name).map(|(_, value)| value.as_str())
    }
}

impl FromArgMatches for Given {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let missing = || clap::Error::new(ErrorKind::MissingSubcommand);
        let (name, matches) = matches.subcommand().ok_or_else(missing)?;
        let deed = table::find(name).ok_or_else(missing)?;
        let value =
            |field: Field| matches.get_one::<String>(&field.name).cloned().map(|value| (field, value));
        Ok(Self { deed, values: Description::new().fields(deed).into_iter().filter_map(value).collect() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Subcommand for Given {
    fn augment_subcommands(command: Command) -> Command {
        let description = Description::new();
        let commands: Vec<_> = table::DEEDS.iter().map(|deed| description.command(*deed)).collect();
        command.subcommand_required(true).arg_required_else_help(true).subcommands(commands)
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        Self::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        table::find(name).is_some()
    }
}

/// `payonce admin`, put together only when it is called: the routes are described for it alone.
#[derive(Clone, Debug)]
pub(super) struct Admin {
    options: Options,
    given: Given,
}

impl FromArgMatches for Admin {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self { options: Options::from_arg_matches(matches)?, given: Given::from_arg_matches(matches)? })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for Admin {
    fn augment_args(command: Command) -> Command {
        command.defer(|command| Given::augment_subcommands(Options::augment_args(command)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

/// Carries a command out and shows its answer.
pub(super) async fn run(admin: Admin, output: Output) -> Result<ExitCode, CliError> {
    carry_out(&admin.options, &admin.given, output).await
}

/// The same for a command that another one stands for.
pub(super) async fn carry_out(
    options: &Options,
    given: &Given,
    output: Output,
) -> Result<ExitCode, CliError> {
    let (status, body) = call::call(options, given).await?;
    let answer = http::read_answer(&body);
    if !(200..300).contains(&status) {
        return Err(refusal(status, &answer).into());
    }
    match serde_json::from_slice::<&RawValue>(&body) {
        // As it came, numbers to their last digit.
        Ok(json) => output.show(&json, |_| show::table(&answer))?,
        // No JSON, as a file is: as it came.
        Err(_) => print(String::from_utf8_lossy(&body).trim_end())?,
    }
    let is_violated = answer["ok"] == false;
    Ok(verdict(!is_violated))
}

fn refusal(status: u16, answer: &Value) -> String {
    let text = |member: &str| answer[member].as_str().unwrap_or_default().to_owned();
    let fields = answer["errors"].as_array().into_iter().flatten();
    let fields: Vec<String> = fields
        .map(|error| {
            let text = |member: &str| error[member].as_str().unwrap_or_default().to_owned();
            format!("{}: {}", text("field"), text("detail"))
        })
        .collect();
    format!("{status} {}: {} {}", text("code"), text("detail"), fields.join("; ")).trim_end().to_owned()
}
