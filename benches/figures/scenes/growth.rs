//! Growth: what tables that are large, timers that wait and work that is done take of the rate.
//!
//! Both sides are measured before and after, in turns, and the ratios compared: what the machine is slower by at the
//! end of a long run is no loss of the service. The service makes no audits meanwhile: one of large tables takes
//! minutes, and would be beside the one or the other.

use sqlx::{Connection, PgConnection};

use crate::stage::Stage;
use crate::table::{Standing, Target};
use crate::{Failure, seed};

use super::requests::{self, PAY_URL, SETTLE, WEBHOOK};
use super::{compensation, events, refunds, timeouts, usage};

/// Rows of a kind that are made in one transaction.
const CHUNK: i32 = 500_000;
/// Timers that wait.
const TIMEOUTS: i32 = 1_000_000;

/// How the service stands, by the name of the work.
type Rates = Vec<(&'static str, Standing)>;

/// The rates with so many paid orders in the tables, and what a shop has beside them, over those without them.
pub async fn of_tables(stage: &mut Stage) -> Result<(), Failure> {
    let turn = take_turn_of_audits(stage).await?;
    let before = rates(stage, "small_").await?;
    let (count, paid_at) = (stage.settings.growth, stage.clock.now() - time::Duration::hours(1));
    let url = &stage.database_url;
    let make = async |(prefix, count): (String, i32)| {
        seed::paid_orders(url, paid_at, &prefix, count).await?;
        seed::lived(url, paid_at, &prefix, count).await
    };
    in_twos(chunks(count, "old")?, make).await?;
    let after = rates(stage, "large_").await?;
    note(stage, &format!("with {count} orders in the tables"), before, &after, Target::Least(0.85));
    Ok(turn.close().await?)
}

/// The rates while so many orders wait for their deadlines, over those without them.
pub async fn of_timeouts(stage: &mut Stage) -> Result<(), Failure> {
    let turn = take_turn_of_audits(stage).await?;
    let before = rates(stage, "calm_").await?;
    timeouts::pend(stage, TIMEOUTS).await?;
    let after = rates(stage, "waiting_").await?;
    note(stage, &format!("with {TIMEOUTS} pending timeouts"), before, &after, Target::Information);
    Ok(turn.close().await?)
}

/// The rates of events and tasks with so many that are told and done in the tables, over those without them.
pub async fn of_what_is_done(stage: &mut Stage) -> Result<(), Failure> {
    let turn = take_turn_of_audits(stage).await?;
    let before = background_rates(stage, "few_").await?;
    let (count, done_at) = (stage.settings.growth, stage.clock.now() - time::Duration::days(1));
    let url = &stage.database_url;
    let make = async |(prefix, count): (String, i32)| seed::done(url, done_at, &prefix, count).await;
    in_twos(chunks(count, "done")?, make).await?;
    let after = background_rates(stage, "many_").await?;
    note(stage, &format!("with {count} done ones"), before, &after, Target::Least(0.85));
    // Ten million of each are 13 GB, and the audit has nothing to see in them.
    seed::forget_done(&stage.database_url).await?;
    Ok(turn.close().await?)
}

/// The rates of events and tasks beside a snapshot that stays open, as that of an audit or a backup does, over those
/// without one: what is taken from a queue meanwhile stays in its tables.
pub async fn of_a_long_look(stage: &mut Stage) -> Result<(), Failure> {
    let turn = take_turn_of_audits(stage).await?;
    let before = background_rates(stage, "free_").await?;
    let mut looking = PgConnection::connect(&stage.database_url).await?;
    let look = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM orders";
    sqlx::raw_sql(look).execute(&mut looking).await?;
    let after = background_rates(stage, "beside_").await?;
    sqlx::raw_sql("COMMIT").execute(&mut looking).await?;
    looking.close().await?;
    note(stage, "beside a long look", before, &after, Target::Information);
    Ok(turn.close().await?)
}

/// Waits for an audit under way; as long as the connection stays open the service makes no other.
async fn take_turn_of_audits(stage: &Stage) -> Result<PgConnection, Failure> {
    let mut turn = PgConnection::connect(&stage.database_url).await?;
    sqlx::query("SELECT pg_advisory_lock(hashtext('audit'))").execute(&mut turn).await?;
    Ok(turn)
}

/// The parts that so many are made in, each with its prefix.
fn chunks(count: i32, name: &str) -> Result<impl Iterator<Item = (String, i32)>, Failure> {
    let begins = (0..count).step_by(usize::try_from(CHUNK)?).enumerate();
    Ok(begins.map(move |(number, begin)| (format!("{name}{number}_"), CHUNK.min(count - begin))))
}

/// Makes parts, two at a time; the first one alone, because it makes what all of them share.
async fn in_twos(
    mut chunks: impl Iterator<Item = (String, i32)>,
    make: impl AsyncFn((String, i32)) -> Result<(), Failure>,
) -> Result<(), Failure> {
    if let Some(first) = chunks.next() {
        make(first).await?;
    }
    while let Some(one) = chunks.next() {
        match chunks.next() {
            Some(other) => drop(tokio::try_join!(make(one), make(other))?),
            None => make(one).await?,
        }
    }
    Ok(())
}

fn note(stage: &mut Stage, what: &str, before: Rates, after: &Rates, target: Target) {
    for ((name, before), (_, after)) in before.into_iter().zip(after) {
        println!(
            "  {name}: {:.0} a second beside {:.0}, and {what} {:.0} beside {:.0}",
            before.ours, before.other, after.ours, after.other
        );
        stage.table.value(&format!("{name} {what}"), after.ratio / before.ratio, "times", target);
    }
}

/// How the service stands beside its equivalents, with each kind of work.
async fn rates(stage: &mut Stage, prefix: &str) -> Result<Rates, Failure> {
    let mut rates = Vec::new();
    for scene in [PAY_URL, WEBHOOK, SETTLE] {
        let samples = requests::samples(stage, &scene, &format!("{prefix}{}_", scene.name)).await?;
        let (ours, other): (Vec<_>, Vec<_>) = samples.into_iter().unzip();
        rates.push((scene.name, Standing::of(&ours, &other)));
    }
    rates.push(("usage", usage::rate(stage, prefix).await?));
    rates.push(("refunds", refunds::rate(stage, prefix).await?));
    rates.push(("timeouts at once", timeouts::rate(stage, prefix).await?));
    Ok(rates)
}

/// How events and tasks stand beside their equivalents.
async fn background_rates(stage: &mut Stage, prefix: &str) -> Result<Rates, Failure> {
    let events = events::rate(stage, prefix).await?;
    Ok(vec![("events", events), ("compensation tasks", compensation::rate(stage, prefix).await?)])
}
