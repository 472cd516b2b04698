//! The doctor: what is wrong around the service, and the line that mends it. Looks, and changes nothing.

mod database;
mod model;
mod network;
mod redis_server;
mod settings;
mod store;

pub use model::{Finding, Health, Report};

use crate::config::Env;

/// Looks at everything that the service will need, as this environment describes it.
pub async fn examine(env: &Env, instances: u32) -> Report {
    let (config, mut findings) = settings::examine(env);
    findings.extend(database::examine(&config, instances).await);
    findings.extend(redis_server::examine(&config).await);
    findings.extend(network::examine(&config).await);
    Report::of(findings)
}
