//! `payonce dev`: everything on this machine, with one command.

use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;

use super::CliError;
use super::output::print;
use crate::config::{Config, DatabaseConfig, Env, LogConfig, Strictness};
use crate::ids::{Ids, MerchantId, Sku};
use crate::infra::clock::Clock;
use crate::infra::db::Db;
use crate::infra::telemetry;
use crate::local::{LocalStores, Options};
use crate::merchants::{self, DEMO_NOTIFY_SECRET, NewStock};
use crate::run::{self, Roles, StopSignals};

/// Where the private stores keep their data.
const DATA_DIR: &str = ".dev";
/// The only merchant that a database for `dev` may have.
const DEMO: &str = "demo";
/// What the demo shop sells.
const DEMO_SKUS: [(&str, i64); 3] = [("TEA", 1_000), ("CUP", 100), ("LAST-ONE", 1)];

/// Runs until Ctrl-C.
pub(super) async fn run() -> Result<ExitCode, CliError> {
    let mut env = Env::of_process(Strictness::Dev);
    refuse_strangers(&env)?;
    telemetry::init_log(&LogConfig::read(&env)?);
    let stores = private_stores(&mut env).await?;
    let outcome = serve(&env).await;
    if let Some(stores) = stores {
        stores.stop().await?;
    }
    outcome
}

/// Starts a private PostgreSQL and Redis, unless both URLs are set.
async fn private_stores(env: &mut Env) -> Result<Option<LocalStores>, CliError> {
    match (env.is_set("DATABASE_URL"), env.is_set("REDIS_URL")) {
        (true, true) => return Ok(None),
        (false, false) => {}
        _ => return Err("set both DATABASE_URL and REDIS_URL to use your own, or neither".into()),
    }
    print("Starting a private PostgreSQL and Redis (data in .dev/) …")?;
    let stores = LocalStores::start(Path::new(DATA_DIR), &Options::default()).await?;
    env.set("DATABASE_URL", stores.postgres.socket_url());
    env.set("REDIS_URL", stores.redis.socket_url());
    Ok(Some(stores))
}

async fn serve(env: &Env) -> Result<ExitCode, CliError> {
    let config = Config::read(env)?;
    let ids = Ids::random(Clock::system());
    refuse_others(&config.database, ids.clone()).await?;
    Db::migrate(&config.database, ids.clone()).await?;
    let stop = StopSignals::listen()?;
    let instance = run::start(config, Roles { api: true, workers: true, sandbox: true }, ids).await?;
    let outcome = prepare_demo(&instance).await;
    if outcome.is_ok() {
        let operator = if env.is_set("ADMIN_TOKENS") { "as in ADMIN_TOKENS" } else { "dev-admin-token" };
        // It serves, also where nobody can be told so.
        let _ = print(&welcome(&format!("http://{}", instance.addr), operator));
        stop.received().await;
        let _ = print("Stopping …");
    }
    instance.stop().await;
    outcome.map(|()| ExitCode::SUCCESS)
}

/// Refuses to listen where others than this machine can ask: whoever knows the keys of `dev`, and everybody does, moves its
/// money.
fn refuse_strangers(env: &Env) -> Result<(), CliError> {
    let written = env.raw("BIND_ADDR").unwrap_or_default();
    // What is no address is refused where it is read.
    let address = written.parse::<SocketAddr>().ok();
    if address.is_none_or(|address| address.ip().to_canonical().is_loopback()) {
        return Ok(());
    }
    let problem = format!("BIND_ADDR is {written}, and dev has well-known keys");
    Err(format!("{problem}; expected an address of this machine alone, such as 127.0.0.1:8080; `payonce serve` listens anywhere").into())
}

/// Refuses a database that belongs to somebody else, before anything is written there or anybody can ask for it.
async fn refuse_others(config: &DatabaseConfig, ids: Ids) -> Result<(), CliError> {
    let db = Db::of_owner(config, ids)?;
    let other = merchants::find_other(&db, &DEMO.parse()?).await;
    db.close().await;
    other?.map_or(Ok(()), |other| {
        let problem = "DATABASE_URL names a database with another merchant than demo";
        Err(format!("{problem} ({other}); dev has well-known keys, so it refuses, and nothing was changed")
            .into())
    })
}

/// Makes the demo merchant and its stock.
async fn prepare_demo(instance: &run::Instance) -> Result<(), CliError> {
    let app = &instance.app;
    let merchant_id: MerchantId = DEMO.parse()?;
    merchants::ensure_demo(app, &merchant_id).await?;
    let known = merchants::list_skus(app, &merchant_id, None, 100).await?;
    for (name, stock) in DEMO_SKUS {
        let sku: Sku = name.parse()?;
        if !known.iter().any(|known| known.sku == name) {
            let wished = NewStock { stock, expected: None };
            merchants::set_stock(app, &merchant_id, &sku, wished, None).await?;
        }
    }
    Ok(())
}

fn welcome(url: &str, operator: &str) -> String {
    format!(
        r#"
Payonce is ready.

  API and its reader   {url}/docs
  Health               {url}/readyz
  Figures              {url}/metrics
  Merchant             demo, keys sk_test_demo and pk_test_demo
  Signs events with    {DEMO_NOTIFY_SECRET}
  Operator             {operator}

Order, open the pay_url of the answer in a browser, press Pay, look again:

  curl -s {url}/orders -H 'Authorization: Bearer sk_test_demo' -H 'Content-Type: application/json' \
    -d '{{"order_no":"A-1","user_id":"u1","currency":"CNY","items":[{{"sku":"TEA","quantity":1,"unit_price":1990}}]}}'

  curl -s {url}/pay/url -H 'Authorization: Bearer sk_test_demo' -H 'Content-Type: application/json' \
    -d '{{"order_no":"A-1","payer_id":"u1","channel":"sandbox"}}'

  curl -s {url}/orders/A-1 -H 'Authorization: Bearer sk_test_demo'

Ctrl-C stops everything.
"#
    )
}
