//! Settlements in batch: everything of an age, by the workers.

use std::time::{Duration, Instant};

use sqlx::{Connection, PgConnection};

use crate::load::{self, Client};
use crate::pgbench::BATCH_WINDOW;
use crate::profile::{Profile, Spent};
use crate::service::ADMIN_TOKEN;
use crate::stage::Stage;
use crate::table::{Sample, Target};
use crate::{Failure, seed};

/// Clients of the batches on the other side, and orders of each batch.
const OTHER: (&str, usize, f64) = ("settle_batch100", 4, 100.0);
/// Longest wait for the last order to be settled.
const SETTLED_WITHIN: Duration = Duration::from_secs(120);
/// Older than any order of another scene.
const AGE: time::Duration = time::Duration::days(40);

/// Settles many orders by one run.
pub async fn in_batch(stage: &mut Stage) -> Result<(), Failure> {
    let count = 3 * stage.settings.timeouts;
    stage.pgbench.unsettle().await?;
    let (mut ours, mut other) = (Vec::new(), Vec::new());
    let mut profile = Profile::default();
    for round in 0..stage.settings.rounds {
        let prefix = format!("batch{round}_");
        seed::paid_orders(&stage.database_url, stage.clock.now() - AGE, &prefix, count).await?;
        seed::settle(&stage.database_url).await?;
        let before = Spent::so_far(stage).await?;
        let took = settled_after(stage).await?;
        profile.add(before, Spent::so_far(stage).await?, usize::try_from(count)?);
        ours.push(Sample::new(f64::from(count) / took.as_secs_f64(), &[]));
        other.push(stage.pgbench.run(OTHER.0, OTHER.1, BATCH_WINDOW).await?.times(OTHER.2));
    }
    stage.table.ratio("settlement in batch", 1, &ours, &other, Target::Least(0.40));
    stage.table.profile("settlement in batch", 1, &profile);
    Ok(())
}

/// How long a run takes for all that waits.
async fn settled_after(stage: &Stage) -> Result<Duration, Failure> {
    let mut client = Client::connect(stage.service.addr).await?;
    let authorization = format!("Authorization: Bearer {ADMIN_TOKEN}\r\n");
    let body = r#"{"older_than_days":30,"reason":"a figure"}"#;
    let begun = Instant::now();
    let status = client.call(&load::post("/admin/settlements/run", &authorization, body)).await?;
    if status != 200 {
        return Err(format!("settlement in batch: the run was answered with {status}").into());
    }
    let mut connection = PgConnection::connect(&stage.database_url).await?;
    loop {
        tokio::time::sleep(Duration::from_millis(10)).await;
        let is_running = "SELECT EXISTS (SELECT 1 FROM settlement_runs WHERE status = 'RUNNING')";
        let is_running: bool = sqlx::query_scalar(is_running).fetch_one(&mut connection).await?;
        if !is_running {
            connection.close().await?;
            return Ok(begun.elapsed());
        }
        if begun.elapsed() > SETTLED_WITHIN {
            return Err("settlement in batch: not all orders were settled in time".into());
        }
    }
}
