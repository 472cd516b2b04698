//! Two instances over one, on the same cores.

use std::sync::Arc;

use super::requests::{AHEAD_PER_SECOND, pay_url_request};
use crate::load::{self, Order};
use crate::stage::Stage;
use crate::table::{Sample, Target};
use crate::{Failure, seed};

/// Clients in all.
const CLIENTS: usize = 32;

/// Pay URLs from two instances, and from one of them, taking turns.
pub async fn two_over_one(stage: &mut Stage) -> Result<(), Failure> {
    let second = stage.another_instance().await?;
    let one = [stage.service.addr];
    let both = [stage.service.addr, second.addr];
    let count = i32::try_from(AHEAD_PER_SECOND * stage.settings.window.as_secs())?;
    let (mut with_two, mut with_one) = (Vec::new(), Vec::new());
    for round in 0..stage.settings.rounds {
        for (addrs, samples, name) in [(&both[..], &mut with_two, "two"), (&one[..], &mut with_one, "one")] {
            let prefix = format!("{name}{round}_");
            seed::fresh_orders(&stage.database_url, stage.clock.now(), &prefix, count).await?;
            seed::settle(&stage.database_url).await?;
            let requests = (1..=count).map(|number| pay_url_request(stage, &prefix, number)).collect();
            let run =
                load::fire(addrs, &Arc::new(requests), CLIENTS, stage.settings.window, Order::Once).await?;
            samples.push(Sample::from(&run));
        }
    }
    second.stop().await?;
    stage.table.ratio("two instances over one", CLIENTS, &with_two, &with_one, Target::Least(0.90));
    Ok(())
}
