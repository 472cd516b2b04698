//! Orders that got stuck by the thousands: what customers notice while they are given their tasks, and while they are
//! swept, over the same while the sweep is paused.

use std::time::{Duration, Instant};

use sqlx::{Connection, PgConnection};

use super::requests::PAY_URL_WITH_ORDER;
use crate::Failure;
use crate::load::{self, Client};
use crate::seed::{self, Orders};
use crate::service::ADMIN_TOKEN;
use crate::stage::Stage;
use crate::table::{Sample, Target, median};

const STUCK: i32 = 100_000;
const PREFIX: &str = "stuck_";
/// They were due so long ago.
const OVERDUE: time::Duration = time::Duration::seconds(90);
/// Customers come one after the other, with a pause between two: so many of them, each with a new order.
const CUSTOMERS: (usize, Duration) = (400, Duration::from_millis(5));
/// Longest wait for the last task to be written.
const WRITTEN_WITHIN: Duration = Duration::from_secs(60);
/// What was begun when the lane was paused, or let go on, has come to its end by then.
const SETTLED_AFTER: Duration = Duration::from_secs(1);

const GIVEN: &str =
    "SELECT count(*) FROM compensations WHERE action = 'EXPIRE_ORDER' AND starts_with(order_no, $1)";
const SWEPT: &str = "SELECT count(*) FROM orders WHERE status = 'CLOSED' AND starts_with(order_no, $1)";
/// They would be beside whatever is measured next.
const GONE: &str = "WITH tasks AS (DELETE FROM compensations WHERE starts_with(order_no, $1)),
         attempts AS (DELETE FROM pay_orders WHERE starts_with(order_no, $1)),
         history AS (DELETE FROM order_history WHERE starts_with(order_no, $1)),
         events AS (DELETE FROM outbox WHERE starts_with(order_no, $1))
    DELETE FROM orders WHERE starts_with(order_no, $1)";

/// New orders beside old ones.
pub async fn old_orders_beside_new_ones(stage: &mut Stage) -> Result<(), Failure> {
    let expires_at = stage.clock.now() - OVERDUE;
    let orders = Orders { prefix: PREFIX, count: STUCK, expires_at, skus: 0, with_attempt: true };
    seed::orders(&stage.database_url, &orders).await?;
    let begun = Instant::now();
    let given = customers(stage, "given_").await?;
    while count(stage, GIVEN).await? < STUCK.into() {
        if begun.elapsed() > WRITTEN_WITHIN {
            return Err("stuck: not all of them were given their tasks in time".into());
        }
        // Somebody is being served all the time.
        customers(stage, &format!("more{}_", begun.elapsed().as_millis())).await?;
    }
    let after = begun.elapsed().as_secs_f64();

    let (mut p50, mut p99, mut swept) = (Vec::new(), Vec::new(), Vec::new());
    let mut calm = Vec::new();
    for round in 0..stage.settings.rounds {
        lane(stage, "pause").await?;
        let paused = customers(stage, &format!("paused{round}_")).await?;
        lane(stage, "resume").await?;
        let (before, since) = (count(stage, SWEPT).await?, Instant::now());
        let beside = customers(stage, &format!("swept{round}_")).await?;
        let closed = u32::try_from(count(stage, SWEPT).await? - before)?;
        if closed == 0 {
            return Err("stuck: nothing was swept".into());
        }
        swept.push(f64::from(closed) / since.elapsed().as_secs_f64());
        p50.push(beside.p50_ms / paused.p50_ms);
        p99.push(beside.p99_ms / paused.p99_ms);
        calm.push(paused);
    }
    let table = &mut stage.table;
    let name = "100,000 stuck orders";
    let calm_p50 = median(calm.iter().map(|calm| calm.p50_ms));
    table.value(&format!("{name}: all have their tasks after"), after, "s", Target::Most(60.0));
    let ratio = given.p50_ms / calm_p50;
    table.value(
        &format!("{name}: p50 of new ones meanwhile, over calm"),
        ratio,
        "times",
        Target::Information,
    );
    table.value(
        &format!("{name}: p50 of new ones beside the sweep"),
        median(p50),
        "times",
        Target::Most(1.2),
    );
    table.value(
        &format!("{name}: p99 of new ones beside the sweep"),
        median(p99),
        "times",
        Target::Most(1.2),
    );
    table.value(&format!("{name}: swept beside them"), median(swept), "a second", Target::Information);
    gone(stage).await
}

/// Pauses the lane of what is old, or lets it go on.
async fn lane(stage: &Stage, deed: &str) -> Result<(), Failure> {
    let authorization = format!("Authorization: Bearer {ADMIN_TOKEN}\r\n");
    let path = format!("/admin/lanes/SWEEP/{deed}");
    let request = load::post(&path, &authorization, r#"{"reason":"a figure"}"#);
    match load::call(stage.service.addr, &request).await? {
        200 => Ok(tokio::time::sleep(SETTLED_AFTER).await),
        status => Err(format!("stuck: {path} was answered with {status}").into()),
    }
}

/// How long each of some customers waits for the link of a new order.
async fn customers(stage: &Stage, prefix: &str) -> Result<Sample, Failure> {
    let requests = PAY_URL_WITH_ORDER.prepare_as(stage, prefix).await?;
    let mut client = Client::connect(stage.service.addr).await?;
    let mut latencies = Vec::new();
    for request in requests.iter().take(CUSTOMERS.0) {
        tokio::time::sleep(CUSTOMERS.1).await;
        let started = Instant::now();
        let status = client.call(request).await?;
        if !matches!(status, 200 | 201) {
            return Err(format!("stuck: a pay URL was answered with {status}").into());
        }
        latencies.push(u32::try_from(started.elapsed().as_micros())?);
    }
    latencies.sort_unstable();
    Ok(Sample::new(0.0, &latencies))
}

async fn count(stage: &Stage, question: &'static str) -> Result<i64, Failure> {
    let mut connection = PgConnection::connect(&stage.database_url).await?;
    let count = sqlx::query_scalar(question).bind(PREFIX).fetch_one(&mut connection).await?;
    connection.close().await?;
    Ok(count)
}

async fn gone(stage: &Stage) -> Result<(), Failure> {
    lane(stage, "pause").await?;
    let mut connection = PgConnection::connect(&stage.database_url).await?;
    sqlx::query(GONE).bind(PREFIX).execute(&mut connection).await?;
    connection.close().await?;
    lane(stage, "resume").await
}
