//! Two instances and four over one, on the same cores.

use std::sync::Arc;

use super::requests::{PAY_URL, SETTLE, Scene, WEBHOOK};
use super::{refunds, usage};
use crate::load::Order;
use crate::profile::{Profile, Spent};
use crate::service::Service;
use crate::stage::Stage;
use crate::table::{Sample, Target};
use crate::{Failure, seed};

/// Clients in all.
const CLIENTS: usize = 32;
/// Instances, the first of them being what the others are measured by.
const CROWDS: [usize; 3] = [1, 2, 4];

/// What is asked of them, and what two of them must reach.
#[derive(Clone, Copy, Debug)]
enum Figure {
    Requests(Scene),
    Usage,
    Refunds,
}

const FIGURES: [(Figure, Target); 5] = [
    (Figure::Requests(PAY_URL), Target::Least(0.90)),
    (Figure::Requests(WEBHOOK), Target::Least(0.90)),
    (Figure::Requests(SETTLE), Target::Information),
    (Figure::Usage, Target::Information),
    (Figure::Refunds, Target::Information),
];

/// Each figure at so many instances, taking turns.
pub async fn more_over_one(stage: &mut Stage) -> Result<(), Failure> {
    let mut more = Vec::new();
    while more.len() < 3 {
        more.push(stage.another_instance().await?);
    }
    for (figure, target) in FIGURES {
        let mut rounds: [(Vec<Sample>, Profile); CROWDS.len()] = Default::default();
        for round in 0..stage.settings.rounds {
            for (instances, (samples, profile)) in CROWDS.into_iter().zip(&mut rounds) {
                let prefix = format!("{}by{instances}_{round}_", figure.name());
                let by: Vec<&Service> = [&stage.service].into_iter().chain(&more).take(instances).collect();
                samples.push(figure.sample(stage, &by, &prefix, profile).await?);
            }
        }
        for (instances, (_, profile)) in CROWDS.into_iter().zip(&rounds) {
            let row = format!("{}: instances {instances}", figure.name());
            stage.table.profile(&row, CLIENTS, profile);
        }
        let [one, two, four] = rounds.map(|(samples, _)| samples);
        let row = |count| format!("{}: {count} instances over one", figure.name());
        stage.table.ratio(&row("two"), CLIENTS, &two, &one, target);
        stage.table.ratio(&row("four"), CLIENTS, &four, &one, Target::Information);
    }
    for instance in more {
        instance.stop().await?;
    }
    Ok(())
}

impl Figure {
    const fn name(self) -> &'static str {
        match self {
            Self::Requests(scene) => scene.name,
            Self::Usage => "usage",
            Self::Refunds => "refunds",
        }
    }

    /// One round of it, by these instances.
    async fn sample(
        self,
        stage: &Stage,
        instances: &[&Service],
        prefix: &str,
        profile: &mut Profile,
    ) -> Result<Sample, Failure> {
        match self {
            Self::Requests(scene) => {
                let requests = Arc::new(scene.prepare_as(stage, prefix).await?);
                seed::settle(&stage.database_url).await?;
                let before = Spent::by(stage, instances).await?;
                let run = stage.fire_at(instances, &requests, CLIENTS, Order::Once).await?;
                profile.add(before, Spent::by(stage, instances).await?, run.done);
                Ok(Sample::from(&run))
            }
            Self::Usage => {
                usage::prepare(stage).await?;
                usage::pairs(stage, instances, prefix, CLIENTS, profile).await
            }
            Self::Refunds => refunds::asked(stage, instances, prefix, profile).await,
        }
    }
}
