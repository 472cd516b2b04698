//! `payonce merchant create|key`.

use std::process::ExitCode;

use clap::Subcommand;
use secrecy::ExposeSecret;
use serde::Serialize;
use time::Duration;

use super::{CliError, Output, merchant_id};
use crate::app::App;
use crate::channels::Channels;
use crate::config::{Config, Env, Strictness};
use crate::ids::{Ids, MerchantId};
use crate::infra::clock::Clock;
use crate::infra::db::Db;
use crate::merchants::{self, NewMerchant};
use crate::refunds::StrayPolicy;

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
    },
    /// Give a merchant new keys; the old ones go on working for a while.
    Key {
        /// The merchant.
        #[arg(value_parser = merchant_id)]
        merchant_id: MerchantId,
        /// How long the old keys go on working, in seconds.
        #[arg(long, default_value_t = 86_400, value_parser = clap::value_parser!(i64).range(0..=2_592_000))]
        overlap: i64,
    },
}

#[derive(Serialize)]
struct Secrets {
    merchant_id: String,
    secret_key: String,
    publishable_key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    notify_secret: Option<String>,
}

fn table(secrets: &Secrets) -> String {
    let Secrets { merchant_id, secret_key, publishable_key, notify_secret } = secrets;
    let notify =
        notify_secret.as_ref().map(|secret| format!("notify_secret    {secret}\n")).unwrap_or_default();
    format!(
        "merchant_id      {merchant_id}\nsecret_key       {secret_key}\npublishable_key  {publishable_key}\n{notify}\
         These are shown this once; keep them in a safe place."
    )
}

fn app() -> Result<App, CliError> {
    let config = Config::read(&Env::of_process(Strictness::Strict))?;
    let clock = Clock::system();
    let ids = Ids::random(clock.clone());
    let db = Db::new(&config.database, ids.clone())?;
    Ok(App::new(config, clock, ids, db, Channels::default())?)
}

pub(super) async fn run(command: MerchantCommand, output: Output) -> Result<ExitCode, CliError> {
    let app = app()?;
    let secrets = match command {
        MerchantCommand::Create { merchant_id, name, hold_stray_money } => {
            let new = NewMerchant {
                name: name.unwrap_or_else(|| merchant_id.to_string()),
                merchant_id,
                stray_money: if hold_stray_money { StrayPolicy::Hold } else { StrayPolicy::AutoRefund },
                notify_url: None,
                refund_approval_above: None,
            };
            let (merchant, keys, secret) = merchants::create(&app, &new).await?;
            Secrets {
                merchant_id: merchant.merchant_id.into(),
                secret_key: keys.secret_key.expose_secret().to_owned(),
                publishable_key: keys.publishable_key,
                notify_secret: Some(secret.expose_secret().to_owned()),
            }
        }
        MerchantCommand::Key { merchant_id, overlap } => {
            let keys = merchants::add_keys(&app, &merchant_id, Duration::seconds(overlap)).await?;
            Secrets {
                merchant_id: merchant_id.into(),
                secret_key: keys.secret_key.expose_secret().to_owned(),
                publishable_key: keys.publishable_key,
                notify_secret: None,
            }
        }
    };
    app.db.close().await;
    output.show(&secrets, table)?;
    Ok(ExitCode::SUCCESS)
}
