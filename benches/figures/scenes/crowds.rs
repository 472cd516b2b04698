//! Crowds on one order: how they are answered, and what others notice.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::requests::pay_url_request;
use crate::load::{self, Client};
use crate::stage::Stage;
use crate::table::{Sample, Target, median};
use crate::{Failure, seed};

/// Requests at once for one order.
const CROWD: usize = 500;
/// Instances that they are spread over.
const INSTANCES: usize = 4;
/// Storms of a round.
const STORMS: i32 = 5;
/// Requests on other orders in a round, and the pause before each.
const OTHERS: (i32, Duration) = (1000, Duration::from_millis(5));
/// Pause between two storms beside them.
const STORM_EVERY: Duration = Duration::from_secs(1);

/// All of a crowd get the one link, from whichever instance.
pub async fn storm_on_one_order(stage: &mut Stage) -> Result<(), Failure> {
    let mut more = Vec::new();
    while more.len() < INSTANCES - 1 {
        more.push(stage.another_instance().await?);
    }
    let addrs: Vec<SocketAddr> =
        [stage.service.addr].into_iter().chain(more.iter().map(|instance| instance.addr)).collect();
    let (mut p50, mut p99) = (Vec::new(), Vec::new());
    for round in 0..stage.settings.rounds {
        let prefix = format!("crowd{round}_");
        seed::fresh_orders(&stage.database_url, stage.clock.now(), &prefix, STORMS).await?;
        for number in 1..=STORMS {
            let request = Arc::new(pay_url_request(stage, &prefix, number));
            let sample = Sample::new(0.0, &load::storm(&addrs, &request, CROWD).await?);
            p50.push(sample.p50_ms);
            p99.push(sample.p99_ms);
        }
    }
    for instance in more {
        instance.stop().await?;
    }
    let figure = "storm of 500 on one order over 4 instances, answered alike";
    stage.table.value(&format!("{figure}, p50"), median(p50), "ms", Target::Information);
    stage.table.value(&format!("{figure}, p99"), median(p99), "ms", Target::Most(150.0));
    Ok(())
}

/// Requests on other orders while such crowds come, over the same without them.
pub async fn others_beside_a_storm(stage: &mut Stage) -> Result<(), Failure> {
    let (mut beside, mut alone) = (Vec::new(), Vec::new());
    for round in 0..stage.settings.rounds {
        let prefix = format!("calm{round}_");
        seed::fresh_orders(&stage.database_url, stage.clock.now(), &prefix, OTHERS.0).await?;
        alone.push(others(stage, &prefix).await?);

        let prefix = format!("rough{round}_");
        seed::fresh_orders(&stage.database_url, stage.clock.now(), &prefix, 2 * OTHERS.0).await?;
        let storms = tokio::spawn(storms(
            stage.service.addr,
            (OTHERS.0 + 1..=2 * OTHERS.0).map(|number| pay_url_request(stage, &prefix, number)).collect(),
        ));
        beside.push(others(stage, &prefix).await?);
        storms.abort();
    }
    let ratios = beside.iter().zip(&alone).map(|(beside, alone)| beside.p99_ms / alone.p99_ms);
    let ratio = median(ratios);
    stage.table.value("p99 of others beside storms of 500, over none", ratio, "times", Target::Most(1.2));
    Ok(())
}

async fn storms(addr: SocketAddr, requests: Vec<Vec<u8>>) -> Result<(), Failure> {
    for request in requests {
        load::storm(&[addr], &Arc::new(request), CROWD).await?;
        tokio::time::sleep(STORM_EVERY).await;
    }
    Ok(())
}

async fn others(stage: &Stage, prefix: &str) -> Result<Sample, Failure> {
    let mut client = Client::connect(stage.service.addr).await?;
    let mut latencies = Vec::new();
    for number in 1..=OTHERS.0 {
        let request = pay_url_request(stage, prefix, number);
        tokio::time::sleep(OTHERS.1).await;
        let started = Instant::now();
        let status = client.call(&request).await?;
        if status != 200 {
            return Err(format!("beside a storm: a pay URL was answered with {status}").into());
        }
        latencies.push(u32::try_from(started.elapsed().as_micros())?);
    }
    latencies.sort_unstable();
    Ok(Sample::new(0.0, &latencies))
}
