//! Metered work: a hold and then its confirm, over the two statements that are the least that could be right.

use std::sync::Arc;
use std::time::Duration;

use sqlx::{Connection, PgConnection};

use super::requests::AHEAD_PER_SECOND;
use crate::load::{self, Order, Run};
use crate::profile::{Profile, Spent};
use crate::service::Service;
use crate::stage::Stage;
use crate::table::{Sample, Standing, Target};
use crate::{Failure, seed};

/// Clients, and what is to be reached with them.
const CROWDS: [(usize, Target); 4] = [
    (32, Target::Least(0.55)),
    (1, Target::Information),
    (8, Target::Information),
    (64, Target::Information),
];
/// Users, as many as the equivalent has accounts.
const USERS: i32 = 100_000;
/// What is held and what is charged, as in the equivalent.
const UNITS: (i64, i64) = (500, 321);

/// Holds for many users, then confirms all of them.
pub async fn hold_and_confirm(stage: &mut Stage) -> Result<(), Failure> {
    prepare(stage).await?;
    for (clients, target) in CROWDS {
        let mut profile = Profile::default();
        let (ours, other) = rounds(stage, &format!("c{clients}r"), clients, &mut profile).await?;
        stage.table.ratio("usage: hold, then confirm", clients, &ours, &other, target);
        stage.table.profile("usage: a hold or a confirm", clients, &profile);
    }
    Ok(())
}

/// How pairs of 32 clients stand beside their equivalent.
pub async fn rate(stage: &mut Stage, prefix: &str) -> Result<Standing, Failure> {
    prepare(stage).await?;
    let (ours, other) = rounds(stage, prefix, CROWDS[0].0, &mut Profile::default()).await?;
    Ok(Standing::of(&ours, &other))
}

/// Users with money and what they spend it on, once.
pub async fn prepare(stage: &Stage) -> Result<(), Failure> {
    if !seed::has_product(&stage.database_url).await? {
        seed::wallets(&stage.database_url, stage.clock.now(), USERS).await?;
        seed::product(&stage.database_url).await?;
        // Unmeasured, as in a service that has run for a while.
        pairs(stage, &[&stage.service], "warm_", CROWDS[0].0, &mut Profile::default()).await?;
    }
    seed::settle(&stage.database_url).await
}

/// Our rates and those of the other side, in turns.
async fn rounds(
    stage: &mut Stage,
    prefix: &str,
    clients: usize,
    profile: &mut Profile,
) -> Result<(Vec<Sample>, Vec<Sample>), Failure> {
    let (mut ours, mut other) = (Vec::new(), Vec::new());
    for round in 0..stage.settings.rounds {
        let prefix = format!("{prefix}{round}_");
        ours.push(pairs(stage, &[&stage.service], &prefix, clients, profile).await?);
        other.push(stage.pgbench.run("usage_cte", clients, stage.settings.window).await?);
    }
    Ok((ours, other))
}

/// How many pairs of a hold and its confirm these instances do in a second.
pub async fn pairs(
    stage: &Stage,
    instances: &[&Service],
    prefix: &str,
    clients: usize,
    profile: &mut Profile,
) -> Result<Sample, Failure> {
    let ahead = AHEAD_PER_SECOND * stage.settings.window.as_secs();
    let holds = (1..=ahead).map(|number| hold(stage, prefix, number)).collect();
    let held = half(stage, instances, holds, clients, profile).await?;
    let confirms = hold_ids(stage, prefix).await?.into_iter().map(|id| confirm(stage, &id)).collect();
    let confirmed = half(stage, instances, confirms, clients, profile).await?;
    let each = |run: &Run| run.elapsed.div_f64(f64::from(u32::try_from(run.done).unwrap_or(u32::MAX)));
    let pair: Duration = each(&held) + each(&confirmed);
    let mut latencies: Vec<u32> = held.latencies.into_iter().chain(confirmed.latencies).collect();
    latencies.sort_unstable();
    Ok(Sample::new(1.0 / pair.as_secs_f64(), &latencies))
}

/// All the holds of a round, or all its confirms.
async fn half(
    stage: &Stage,
    instances: &[&Service],
    requests: Vec<Vec<u8>>,
    clients: usize,
    profile: &mut Profile,
) -> Result<Run, Failure> {
    let before = Spent::by(stage, instances).await?;
    let run = stage.fire_at(instances, &Arc::new(requests), clients, Order::Once).await?;
    profile.add(before, Spent::by(stage, instances).await?, run.done);
    Ok(run)
}

fn hold(stage: &Stage, prefix: &str, number: u64) -> Vec<u8> {
    // The equivalent takes accounts in no order, too.
    let user = number.wrapping_mul(7919) % USERS.unsigned_abs() as u64;
    let body = format!(
        r#"{{"request_id":"r","user_id":"u{user}","product_code":"tokens","idempotency_key":"{prefix}{number}","currency":"CNY","estimated_units":{}}}"#,
        UNITS.0
    );
    load::post("/usage/holds", &stage.authorization, &body)
}

fn confirm(stage: &Stage, hold_id: &str) -> Vec<u8> {
    let body = format!(r#"{{"units":{}}}"#, UNITS.1);
    load::post(&format!("/usage/holds/{hold_id}/confirm"), &stage.authorization, &body)
}

async fn hold_ids(stage: &Stage, prefix: &str) -> Result<Vec<String>, Failure> {
    let mut connection = PgConnection::connect(&stage.database_url).await?;
    let made = "SELECT hold_id FROM usage_holds WHERE starts_with(idempotency_key, $1)";
    let ids = sqlx::query_scalar(made).bind(prefix).fetch_all(&mut connection).await?;
    connection.close().await?;
    Ok(ids)
}
