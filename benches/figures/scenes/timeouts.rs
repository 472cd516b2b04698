//! Timeouts: many that fall due at once, and how late a few are under light load.

use std::time::Duration;

use sqlx::{Connection, PgConnection};
use time::OffsetDateTime;

use crate::load::Client;
use crate::pgbench::BATCH_WINDOW;
use crate::profile::{Profile, Spent};
use crate::seed::{self, MERCHANT, Orders, SKUS};
use crate::stage::Stage;
use crate::table::{Sample, Standing, Target, median};
use crate::{Failure, load};

/// Clients of the batches on the other side, and orders of each batch.
const OTHER: (&str, usize, f64) = ("cancel_batch100", 4, 100.0);
/// Orders made ahead in a second, at the very least.
const SEEDED_PER_SECOND: i32 = 4_000;
/// Within which the tables have settled behind that, also where a million orders were just made before.
const SETTLED_WITHIN_SECS: i32 = 10;
/// How long before they fall due what was spent so far is looked at.
const LOOK_AHEAD: time::Duration = time::Duration::milliseconds(200);
/// Longest wait for the last of them to be closed.
const CLOSED_WITHIN: Duration = Duration::from_secs(120);
/// Orders of the light load: one every 25 ms.
const LIGHT: (i32, Duration) = (200, Duration::from_millis(25));

/// Closes many orders that are due at the same instant, prompted by Redis.
pub async fn all_at_once(stage: &mut Stage) -> Result<(), Failure> {
    let mut profile = Profile::default();
    let (ours, other) = rounds(stage, "due", &mut profile).await?;
    let figure = format!("{} timeouts due at once", stage.settings.timeouts);
    stage.table.ratio(&figure, 1, &ours, &other, Target::Least(0.30));
    stage.table.profile("timeouts due at once", 1, &profile);
    Ok(())
}

/// How their closing stands beside its equivalent.
pub async fn rate(stage: &mut Stage, prefix: &str) -> Result<Standing, Failure> {
    let (ours, other) = rounds(stage, &format!("{prefix}due"), &mut Profile::default()).await?;
    Ok(Standing::of(&ours, &other))
}

/// Our rates and those of the other side, in turns.
async fn rounds(
    stage: &mut Stage,
    prefix: &str,
    profile: &mut Profile,
) -> Result<(Vec<Sample>, Vec<Sample>), Failure> {
    let (mut ours, mut other) = (Vec::new(), Vec::new());
    for round in 0..stage.settings.rounds {
        let (prefix, count) = (format!("{prefix}{round}_"), stage.settings.timeouts);
        let due_at = stage.clock.now()
            + time::Duration::seconds((SETTLED_WITHIN_SECS + count / SEEDED_PER_SECOND).into());
        let orders = Orders { prefix: &prefix, count, expires_at: due_at, skus: SKUS, with_attempt: false };
        seed::orders(&stage.database_url, &orders).await?;
        schedule(stage, &orders).await?;
        seed::settle(&stage.database_url).await?;
        if stage.clock.now() >= due_at {
            return Err("timeouts: they fell due before all of them were made".into());
        }
        // Looked at just before, so that nothing of it is missed or disturbed.
        let look_at = due_at - LOOK_AHEAD;
        tokio::time::sleep((look_at - stage.clock.now()).max(time::Duration::ZERO).try_into()?).await;
        let before = Spent::so_far(stage).await?;
        let took = closed_after(stage, due_at).await?;
        profile.add(before, Spent::so_far(stage).await?, usize::try_from(count)?);
        ours.push(Sample::new(f64::from(count) / took.as_secs_f64(), &[]));
        other.push(stage.pgbench.run(OTHER.0, OTHER.1, BATCH_WINDOW).await?.times(OTHER.2));
    }
    Ok((ours, other))
}

/// Makes orders whose deadlines are far away.
pub async fn pend(stage: &Stage, count: i32) -> Result<(), Failure> {
    let expires_at = stage.clock.now() + seed::LIFE;
    let orders = Orders { prefix: "pending_", count, expires_at, skus: SKUS, with_attempt: false };
    seed::orders(&stage.database_url, &orders).await?;
    schedule(stage, &orders).await
}

/// Sets the timers in Redis, as the service does after each order.
async fn schedule(stage: &Stage, orders: &Orders<'_>) -> Result<(), Failure> {
    let client = redis::Client::open(stage.redis_url.as_str())?;
    let mut connection = client.get_multiplexed_async_connection().await?;
    let millis = orders.expires_at.unix_timestamp() * 1000 + i64::from(orders.expires_at.millisecond());
    let numbers: Vec<i32> = (1..=orders.count).collect();
    for chunk in numbers.chunks(1000) {
        let mut add = redis::cmd("ZADD");
        add.arg("delay:order_timeout");
        for number in chunk {
            add.arg(millis).arg(format!("{MERCHANT}:{}", seed::order_no(orders.prefix, *number)));
        }
        let _: i64 = add.query_async(&mut connection).await?;
    }
    Ok(())
}

/// How long after that instant the last order due then was closed.
async fn closed_after(stage: &Stage, due_at: OffsetDateTime) -> Result<Duration, Failure> {
    let mut connection = PgConnection::connect(&stage.database_url).await?;
    loop {
        tokio::time::sleep(Duration::from_millis(10)).await;
        let is_open = "SELECT EXISTS (SELECT 1 FROM orders WHERE status = 'PENDING' AND expires_at = $1)";
        let is_open: bool = sqlx::query_scalar(is_open).bind(due_at).fetch_one(&mut connection).await?;
        let took = stage.clock.now() - due_at;
        if !is_open {
            connection.close().await?;
            return Ok(took.try_into()?);
        }
        if took > CLOSED_WITHIN {
            return Err("timeouts: not all orders were closed in time".into());
        }
    }
}

/// Orders that live one to three seconds, made one after the other.
pub async fn lateness(stage: &mut Stage) -> Result<(), Failure> {
    let mut client = Client::connect(stage.service.addr).await?;
    for number in 1..=LIGHT.0 {
        let body = format!(
            r#"{{"order_no":"late_{number}","user_id":"u{number}","currency":"CNY","expires_in":{},"items":[{{"sku":"S{number}","quantity":1,"unit_price":1990}}]}}"#,
            1 + number % 3
        );
        let status = client.call(&load::post("/orders", &stage.authorization, &body)).await?;
        if status != 201 {
            return Err(format!("lateness: POST /orders answered {status}").into());
        }
        tokio::time::sleep(LIGHT.1).await;
    }
    tokio::time::sleep(Duration::from_secs(5)).await;

    let mut connection = PgConnection::connect(&stage.database_url).await?;
    let late: Vec<f64> = sqlx::query_scalar(
        "SELECT extract(epoch FROM updated_at - expires_at)::float8 * 1000
         FROM orders WHERE order_no LIKE 'late\\_%' AND status = 'CLOSED' ORDER BY 1",
    )
    .fetch_all(&mut connection)
    .await?;
    connection.close().await?;
    if late.len() != usize::try_from(LIGHT.0)? {
        return Err(format!("lateness: {} of {} orders were closed", late.len(), LIGHT.0).into());
    }
    let p99 = late.get(late.len() * 99 / 100).copied().unwrap_or(0.0);
    stage.table.value("lateness of a timeout under light load, p50", median(late), "ms", Target::Information);
    stage.table.value("lateness of a timeout under light load, p99", p99, "ms", Target::Most(1000.0));
    Ok(())
}
