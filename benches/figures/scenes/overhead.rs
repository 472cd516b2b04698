//! What the lock and an idempotency key add, for one client: the same requests at an instance that goes on without
//! Redis and is given no key.

use std::time::{Duration, Instant};

use super::requests::{pay_url_request, pay_url_request_with_key};
use crate::load::Client;
use crate::stage::Stage;
use crate::table::{Sample, Target, median};
use crate::{Failure, seed};

/// Requests on either side in a round, taking turns: the slowest hundred decide.
const REQUESTS: i32 = 10_000;
/// The instance has learnt by then that Redis is away.
const SETTLED_AFTER: Duration = Duration::from_secs(1);

/// Pay URLs with both, and without.
pub async fn of_lock_and_key(stage: &mut Stage) -> Result<(), Failure> {
    let without = stage.instance_without_redis().await?;
    tokio::time::sleep(SETTLED_AFTER).await;
    let (mut p50, mut p99) = (Vec::new(), Vec::new());
    for round in 0..stage.settings.rounds {
        let prefix = format!("add{round}_");
        seed::fresh_orders(&stage.database_url, stage.clock.now(), &prefix, 2 * REQUESTS).await?;
        seed::settle(&stage.database_url).await?;
        let (mut plain, mut full) =
            (Client::connect(without.addr).await?, Client::connect(stage.service.addr).await?);
        let (mut without_both, mut with_both) = (Vec::new(), Vec::new());
        for number in 1..=REQUESTS {
            let request = pay_url_request(stage, &prefix, number);
            without_both.push(timed(&mut plain, &request).await?);
            let request = pay_url_request_with_key(stage, &prefix, REQUESTS + number);
            with_both.push(timed(&mut full, &request).await?);
        }
        without_both.sort_unstable();
        with_both.sort_unstable();
        let (with_both, without_both) = (Sample::new(0.0, &with_both), Sample::new(0.0, &without_both));
        p50.push(with_both.p50_ms - without_both.p50_ms);
        p99.push(with_both.p99_ms - without_both.p99_ms);
    }
    without.stop().await?;
    stage.table.value("overhead of lock and idempotency key, p50", median(p50), "ms", Target::Information);
    stage.table.value("overhead of lock and idempotency key, p99", median(p99), "ms", Target::Most(1.0));
    Ok(())
}

async fn timed(client: &mut Client, request: &[u8]) -> Result<u32, Failure> {
    let started = Instant::now();
    match client.call(request).await? {
        200 => Ok(u32::try_from(started.elapsed().as_micros())?),
        status => Err(format!("overhead: a pay URL was answered with {status}").into()),
    }
}
