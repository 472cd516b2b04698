//! Compensation: tasks that fall due at once and whose things have come to their end meanwhile, as nearly all have.

use std::time::Duration;

use sqlx::{Connection, PgConnection};
use time::OffsetDateTime;

use crate::Failure;
use crate::seed::{self, MERCHANT};
use crate::stage::Stage;
use crate::table::{Sample, Standing, Target};

/// Clients of the updates on the other side.
const OTHER: (&str, usize) = ("floor_update1", 8);
/// Older than any order of another scene.
const AGE: time::Duration = time::Duration::days(50);
/// Tasks that are written in a second at least.
const WRITTEN_PER_SECOND: i32 = 20_000;
/// Longest wait for the last of them to be done.
const DONE_WITHIN: Duration = Duration::from_secs(120);

const TASKS: &str = "INSERT INTO compensations
        (kind, action, subject, merchant_id, order_no, due_at, attempts, created_at, updated_at)
    SELECT 'REDO_BUSINESS', 'DRIVE_PAY_ORDER', 'po_' || lpad($2 || g, 26, '0'), $1, $2 || g, $4, 1, now(), now()
    FROM generate_series(1, $3) AS g";

/// Drives many tasks to their ends.
pub async fn tasks_at_once(stage: &mut Stage) -> Result<(), Failure> {
    let (ours, other) = rounds(stage, "task").await?;
    stage.table.ratio("compensation tasks done", 1, &ours, &other, Target::Least(0.30));
    Ok(())
}

/// How the worker stands beside its equivalent.
pub async fn rate(stage: &mut Stage, prefix: &str) -> Result<Standing, Failure> {
    let (ours, other) = rounds(stage, prefix).await?;
    Ok(Standing::of(&ours, &other))
}

/// Our rates and those of the other side, in turns.
async fn rounds(stage: &mut Stage, prefix: &str) -> Result<(Vec<Sample>, Vec<Sample>), Failure> {
    let count = 3 * stage.settings.timeouts;
    let (mut ours, mut other) = (Vec::new(), Vec::new());
    for round in 0..stage.settings.rounds {
        let prefix = format!("{prefix}{round}_");
        seed::paid_orders(&stage.database_url, stage.clock.now() - AGE, &prefix, count).await?;
        let due_at = stage.clock.now() + time::Duration::seconds(3 + i64::from(count / WRITTEN_PER_SECOND));
        let mut connection = PgConnection::connect(&stage.database_url).await?;
        let written = sqlx::query(TASKS).bind(MERCHANT).bind(&prefix).bind(count).bind(due_at);
        written.execute(&mut connection).await?;
        connection.close().await?;
        if stage.clock.now() >= due_at {
            return Err("compensation: the tasks fell due before all of them were written".into());
        }
        let took = done_after(stage, due_at).await?;
        ours.push(Sample::new(f64::from(count) / took.as_secs_f64(), &[]));
        other.push(stage.pgbench.run(OTHER.0, OTHER.1, stage.settings.window).await?);
    }
    Ok((ours, other))
}

/// How long after that instant the last task due then was done.
async fn done_after(stage: &Stage, due_at: OffsetDateTime) -> Result<Duration, Failure> {
    let mut connection = PgConnection::connect(&stage.database_url).await?;
    loop {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let is_alive = "SELECT EXISTS (SELECT 1 FROM compensations
                        WHERE lane = 'REALTIME' AND status IN ('READY', 'RUNNING') AND action = 'DRIVE_PAY_ORDER')";
        let is_alive: bool = sqlx::query_scalar(is_alive).fetch_one(&mut connection).await?;
        let took = stage.clock.now() - due_at;
        if !is_alive {
            connection.close().await?;
            return Ok(took.try_into()?);
        }
        if took > DONE_WITHIN {
            return Err("compensation: not all tasks were done in time".into());
        }
    }
}
