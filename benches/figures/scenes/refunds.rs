//! Refunds: asked for by many at once, while the same process drives them to their ends.
//!
//! Every request asks for the whole of an order of its own. The task of each is worked off beside the requests: the
//! embedded sandbox gives the money back and posts its signed callback to the service itself. Two rates come of it:
//! that of `POST /refunds` as long as the clients ask, and that at which refunds came to `SUCCEEDED`, from the first
//! request to the last end.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use sqlx::{Connection, PgConnection};

use super::requests::AHEAD_PER_SECOND;
use crate::load::{self, Order, Run};
use crate::profile::{Profile, Spent};
use crate::service::Service;
use crate::stage::Stage;
use crate::table::{Sample, Standing, Target};
use crate::{Failure, seed};

const CLIENTS: usize = 32;
/// The script of the other side.
const OTHER: &str = "webhook_cte";
/// Longest wait for the last refund to end, and for the last callback about one to be taken in.
const ENDED_WITHIN: Duration = Duration::from_secs(120);

const UNFINISHED: &str = "SELECT EXISTS (SELECT 1 FROM refunds
    WHERE status IN ('AWAITING_APPROVAL', 'PENDING', 'PROCESSING'))";
const UNTOLD: &str = "SELECT EXISTS (SELECT 1 FROM sandbox.deliveries WHERE status = 'PENDING')";
const SUCCEEDED: &str =
    "SELECT count(*) FROM refunds WHERE status = 'SUCCEEDED' AND starts_with(refund_no, $1)";

/// What rounds came to: refunds that were asked for, those that came to their ends, and the other side.
#[derive(Default)]
struct Rounds {
    asked: Vec<Sample>,
    ended: Vec<Sample>,
    other: Vec<Sample>,
    profile: Profile,
}

/// Asks for refunds for a window, and waits for their ends.
pub async fn driven(stage: &mut Stage) -> Result<(), Failure> {
    let Rounds { asked, ended, other, profile } = rounds(stage, "back").await?;
    stage.table.ratio("refunds", CLIENTS, &asked, &other, Target::Least(0.45));
    stage.table.ratio("refunds, driven to their ends", CLIENTS, &ended, &other, Target::Information);
    stage.table.profile("refunds, driven to their ends", CLIENTS, &profile);
    Ok(())
}

/// How those that are asked for stand beside their equivalent.
pub async fn rate(stage: &mut Stage, prefix: &str) -> Result<Standing, Failure> {
    let Rounds { asked, other, .. } = rounds(stage, prefix).await?;
    Ok(Standing::of(&asked, &other))
}

/// How many are asked of these instances in a second, while they drive them to their ends.
pub async fn asked(
    stage: &Stage,
    instances: &[&Service],
    prefix: &str,
    profile: &mut Profile,
) -> Result<Sample, Failure> {
    let requests = prepare(stage, prefix).await?;
    seed::settle(&stage.database_url).await?;
    let (run, _) = until_ended(stage, instances, requests, profile).await?;
    until_none(stage, UNTOLD).await?;
    Ok(Sample::from(&run))
}

async fn rounds(stage: &mut Stage, prefix: &str) -> Result<Rounds, Failure> {
    // Unmeasured, as in a service that has run for a while.
    let requests = prepare(stage, &format!("{prefix}warm_")).await?;
    stage.fire(&Arc::new(requests), CLIENTS, Order::Once).await?;
    until_none(stage, UNFINISHED).await?;
    until_none(stage, UNTOLD).await?;
    let mut ahead = Vec::new();
    for round in 0..stage.settings.rounds {
        let prefix = format!("{prefix}{round}_");
        ahead.push((prepare(stage, &prefix).await?, prefix));
    }
    seed::settle(&stage.database_url).await?;
    let mut rounds = Rounds::default();
    for (requests, prefix) in ahead {
        let (run, took) = until_ended(stage, &[&stage.service], requests, &mut rounds.profile).await?;
        // The other side must have the machine to itself.
        until_none(stage, UNTOLD).await?;
        let succeeded = succeeded(stage, &prefix).await?;
        if succeeded != run.done {
            return Err(format!("refunds: {succeeded} of {} succeeded", run.done).into());
        }
        rounds.asked.push(Sample::from(&run));
        rounds.ended.push(Sample::new(f64::from(u32::try_from(succeeded)?) / took.as_secs_f64(), &[]));
        rounds.other.push(stage.pgbench.run(OTHER, CLIENTS, stage.settings.window).await?);
    }
    Ok(rounds)
}

/// What asking for a window came to, and how long it took until the last of them had its end.
async fn until_ended(
    stage: &Stage,
    instances: &[&Service],
    requests: Vec<Vec<u8>>,
    profile: &mut Profile,
) -> Result<(Run, Duration), Failure> {
    let before = Spent::by(stage, instances).await?;
    let begun = Instant::now();
    let run = stage.fire_at(instances, &Arc::new(requests), CLIENTS, Order::Once).await?;
    until_none(stage, UNFINISHED).await?;
    let took = begun.elapsed();
    profile.add(before, Spent::by(stage, instances).await?, run.done);
    Ok((run, took))
}

/// Requests of a round, and in the tables, also in the sandbox's, what they speak of.
async fn prepare(stage: &Stage, prefix: &str) -> Result<Vec<Vec<u8>>, Failure> {
    let count = i32::try_from(AHEAD_PER_SECOND * stage.settings.window.as_secs())?;
    let paid_at = stage.clock.now();
    seed::paid_orders(&stage.database_url, paid_at, prefix, count).await?;
    let notify_url = format!("http://{}/webhooks/sandbox", stage.service.addr);
    seed::sandbox_payments(&stage.database_url, &notify_url, paid_at, prefix, count).await?;
    let mut numbers: Vec<i32> = (1..=count).collect();
    // The equivalent walks its orders in no order, too.
    numbers.shuffle(&mut StdRng::seed_from_u64(7));
    let request = |number| {
        let order_no = seed::order_no(prefix, number);
        let body = format!(r#"{{"refund_no":"{order_no}","order_no":"{order_no}"}}"#);
        load::post("/refunds", &stage.authorization, &body)
    };
    Ok(numbers.into_iter().map(request).collect())
}

async fn until_none(stage: &Stage, question: &'static str) -> Result<(), Failure> {
    let mut connection = PgConnection::connect(&stage.database_url).await?;
    let begun = Instant::now();
    while sqlx::query_scalar::<_, bool>(question).fetch_one(&mut connection).await? {
        if begun.elapsed() > ENDED_WITHIN {
            return Err("refunds: not all of them came to their ends in time".into());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(connection.close().await?)
}

async fn succeeded(stage: &Stage, prefix: &str) -> Result<usize, Failure> {
    let mut connection = PgConnection::connect(&stage.database_url).await?;
    let count: i64 = sqlx::query_scalar(SUCCEEDED).bind(prefix).fetch_one(&mut connection).await?;
    connection.close().await?;
    Ok(usize::try_from(count)?)
}
