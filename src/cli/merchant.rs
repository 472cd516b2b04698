//! `payonce merchant create|key`: short for two commands of `payonce admin`.

use std::process::ExitCode;

use clap::Subcommand;

use super::admin::{self, Given, Options};
use super::{CliError, Output, merchant_id};
use crate::ids::MerchantId;

#[derive(Debug, Subcommand)]
pub(super) enum MerchantCommand {
    /// Create a merchant and print its secrets, this once.
    Create {
        /// Its id: 1 to 64 of 0-9 A-Z a-z _ . -
        #[arg(value_parser = merchant_id)]
        merchant_id: MerchantId,
        /// Its name; its id by default.
        #[arg(long)]
        name: Option<String>,
        /// Keep stray money for a person's decision, in place of giving it back at once.
        #[arg(long)]
        hold_stray_money: bool,
        /// Why, for the admin log.
        #[arg(long)]
        reason: Option<String>,
        #[command(flatten)]
        options: Options,
    },
    /// Give a merchant new keys; the old ones go on working for a while.
    Key {
        /// The merchant.
        #[arg(value_parser = merchant_id)]
        merchant_id: MerchantId,
        /// Which kind, SECRET or PUBLISHABLE; both by default.
        #[arg(long)]
        kind: Option<String>,
        /// How long the old keys go on working, in seconds.
        #[arg(long, default_value_t = 86_400, value_parser = clap::value_parser!(i64).range(0..=2_592_000))]
        overlap: i64,
        /// Why, for the admin log.
        #[arg(long)]
        reason: String,
        #[command(flatten)]
        options: Options,
    },
}

pub(super) async fn run(command: MerchantCommand, output: Output) -> Result<ExitCode, CliError> {
    let (options, given) = match command {
        MerchantCommand::Create { merchant_id, name, hold_stray_money, reason, options } => {
            let values = [
                ("name", Some(name.unwrap_or_else(|| merchant_id.to_string()))),
                ("merchant_id", Some(merchant_id.to_string())),
                ("stray_money", hold_stray_money.then(|| "hold".to_owned())),
                ("reason", reason),
            ];
            (options, Given::of("create-merchant", &values))
        }
        MerchantCommand::Key { merchant_id, kind, overlap, reason, options } => {
            let values = [
                ("merchant_id", Some(merchant_id.to_string())),
                ("kind", kind),
                ("overlap_seconds", Some(overlap.to_string())),
                ("reason", Some(reason)),
            ];
            (options, Given::of("rotate-keys", &values))
        }
    };
    let given = given.ok_or("the command is missing from the table")?;
    admin::carry_out(&options, &given, output).await
}
