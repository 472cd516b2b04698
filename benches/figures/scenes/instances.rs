//! Two instances and four over one, on the same cores.

use std::net::SocketAddr;
use std::sync::Arc;

use super::requests::{PAY_URL, WEBHOOK};
use crate::load::{self, Order};
use crate::stage::Stage;
use crate::table::{Sample, Target};
use crate::{Failure, seed};

/// Clients in all.
const CLIENTS: usize = 32;
/// Instances, the first of them being what the others are measured by.
const CROWDS: [usize; 3] = [1, 2, 4];

/// Pay URLs and callbacks at so many instances, taking turns.
pub async fn more_over_one(stage: &mut Stage) -> Result<(), Failure> {
    let mut more = Vec::new();
    while more.len() < 3 {
        more.push(stage.another_instance().await?);
    }
    let addrs: Vec<SocketAddr> =
        [stage.service.addr].into_iter().chain(more.iter().map(|instance| instance.addr)).collect();
    for scene in [PAY_URL, WEBHOOK] {
        let mut samples: [Vec<Sample>; CROWDS.len()] = Default::default();
        for round in 0..stage.settings.rounds {
            for (instances, samples) in CROWDS.into_iter().zip(&mut samples) {
                let prefix = format!("{}by{instances}_{round}_", scene.name);
                let requests = Arc::new(scene.prepare_as(stage, &prefix).await?);
                seed::settle(&stage.database_url).await?;
                let (addrs, window) = (&addrs[..instances], stage.settings.window);
                let run = load::fire(addrs, &requests, CLIENTS, window, Order::Once).await?;
                samples.push(Sample::from(&run));
            }
        }
        let [one, two, four] = samples;
        let figure = |count| format!("{}: {count} instances over one", scene.name);
        stage.table.ratio(&figure("two"), CLIENTS, &two, &one, Target::Least(0.90));
        stage.table.ratio(&figure("four"), CLIENTS, &four, &one, Target::Information);
    }
    for instance in more {
        instance.stop().await?;
    }
    Ok(())
}
