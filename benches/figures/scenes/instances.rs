//! Two instances and four over one, on the same cores.

use std::net::SocketAddr;
use std::sync::Arc;

use super::requests::{AHEAD_PER_SECOND, pay_url_request};
use crate::load::{self, Order};
use crate::stage::Stage;
use crate::table::{Sample, Target};
use crate::{Failure, seed};

/// Clients in all.
const CLIENTS: usize = 32;
/// Instances, the first of them being what the others are measured by.
const CROWDS: [usize; 3] = [1, 2, 4];

/// Pay URLs from so many instances, taking turns.
pub async fn more_over_one(stage: &mut Stage) -> Result<(), Failure> {
    let mut more = Vec::new();
    while more.len() < 3 {
        more.push(stage.another_instance().await?);
    }
    let addrs: Vec<SocketAddr> =
        [stage.service.addr].into_iter().chain(more.iter().map(|instance| instance.addr)).collect();
    let count = i32::try_from(AHEAD_PER_SECOND * stage.settings.window.as_secs())?;
    let mut samples: [Vec<Sample>; CROWDS.len()] = Default::default();
    for round in 0..stage.settings.rounds {
        for (instances, samples) in CROWDS.into_iter().zip(&mut samples) {
            let prefix = format!("by{instances}_{round}_");
            seed::fresh_orders(&stage.database_url, stage.clock.now(), &prefix, count).await?;
            seed::settle(&stage.database_url).await?;
            let requests = (1..=count).map(|number| pay_url_request(stage, &prefix, number)).collect();
            let (requests, addrs) = (Arc::new(requests), &addrs[..instances]);
            let run = load::fire(addrs, &requests, CLIENTS, stage.settings.window, Order::Once).await?;
            samples.push(Sample::from(&run));
        }
    }
    for instance in more {
        instance.stop().await?;
    }
    let [one, two, four] = samples;
    stage.table.ratio("two instances over one", CLIENTS, &two, &one, Target::Least(0.90));
    stage.table.ratio("four instances over one", CLIENTS, &four, &one, Target::Information);
    Ok(())
}
