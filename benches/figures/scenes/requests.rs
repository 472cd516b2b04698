//! Scenes made of requests: the service's rate over that of its equivalent, taking turns.

use std::sync::Arc;

use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use time::format_description::well_known::Rfc3339;

use crate::load::{self, Order};
use crate::profile::{Profile, Spent};
use crate::seed::{self, AMOUNT, LIFE, Orders, SKUS};
use crate::stage::Stage;
use crate::table::{Sample, Target};
use crate::{Failure, load::Run};

/// Requests made ahead for each second of a window: more than the service answers. A run that has sent them all
/// ends early and is no less true.
pub const AHEAD_PER_SECOND: u64 = 12_000;

/// What the requests ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// The pay URL of an order that is there.
    PayUrl,
    /// The pay URL of an order that is made on the way.
    PayUrlWithOrder,
    /// A success callback, of orders spread over so many things.
    Webhook(i32),
    /// The settlement of a paid order.
    Settle,
}

/// A figure, or two where repeats are measured too.
#[derive(Clone, Copy, Debug)]
pub struct Scene {
    /// The name to filter by, and of the figure.
    pub name: &'static str,
    work: Work,
    clients: usize,
    /// The script of the other side, and its clients.
    other: (&'static str, usize),
    target: Target,
    /// The target of repeats over first calls.
    repeats: Option<Target>,
    /// The target of the processor time that a request takes in the service itself, in microseconds.
    service: Option<Target>,
}

/// The pay URL.
pub const PAY_URL: Scene = Scene {
    name: "pay_url",
    work: Work::PayUrl,
    clients: 32,
    other: ("payurl_two", 32),
    target: Target::Least(0.60),
    repeats: Some(Target::Least(2.0)),
    // A bare skeleton takes 60 to 90, and the service may take half as much again.
    service: Some(Target::Most(135.0)),
};
/// The first callback of a payment.
pub const WEBHOOK: Scene = Scene {
    name: "webhook",
    work: Work::Webhook(SKUS),
    clients: 32,
    other: ("webhook_cte", 32),
    target: Target::Least(0.60),
    repeats: Some(Target::Least(2.0)),
    service: None,
};

/// The settlement of one order.
pub const SETTLE: Scene = Scene {
    name: "settlement",
    work: Work::Settle,
    clients: 32,
    other: ("settle_cte", 32),
    target: Target::Least(0.55),
    repeats: None,
    service: None,
};

const fn more(scene: Scene, name: &'static str, clients: usize, other_clients: usize) -> Scene {
    let other = (scene.other.0, other_clients);
    Scene { name, clients, other, target: Target::Information, repeats: None, service: None, ..scene }
}

/// All of them. With 256 clients the other side has 32, where it is at its best.
pub const SCENES: [Scene; 14] = [
    PAY_URL,
    more(PAY_URL, "pay_url at 8", 8, 8),
    more(PAY_URL, "pay_url at 64", 64, 64),
    Scene { target: Target::Least(1.2), ..more(PAY_URL, "pay_url at 256", 256, 32) },
    Scene { work: Work::PayUrlWithOrder, ..more(PAY_URL, "pay_url, order made on the way", 32, 32) },
    WEBHOOK,
    more(WEBHOOK, "webhook at 8", 8, 8),
    more(WEBHOOK, "webhook at 64", 64, 64),
    Scene { target: Target::Least(1.2), ..more(WEBHOOK, "webhook at 256", 256, 32) },
    Scene {
        work: Work::Webhook(1),
        other: ("hotacct_cte", 64),
        target: Target::Least(5.0),
        ..more(WEBHOOK, "webhook on one hot sku", 64, 64)
    },
    SETTLE,
    more(SETTLE, "settlement at 8", 8, 8),
    more(SETTLE, "settlement at 64", 64, 64),
    more(SETTLE, "settlement at 256", 256, 32),
];

/// Fills every table and connection a little, unmeasured, as in a service that has run for a while.
pub async fn warm_up(stage: &mut Stage) -> Result<(), Failure> {
    let scenes = [
        more(PAY_URL, "warm-up a", 32, 32),
        more(WEBHOOK, "warm-up b", 32, 32),
        more(SETTLE, "warm-up c", 32, 32),
    ];
    for scene in scenes {
        let requests = Arc::new(scene.prepare(stage, 0).await?);
        stage.fire(&requests, scene.clients, Order::Once).await?;
    }
    Ok(())
}

/// What a scene and its equivalent come to in each round, with orders of that name.
pub async fn samples(stage: &mut Stage, scene: &Scene, name: &str) -> Result<Vec<(Sample, Sample)>, Failure> {
    let mut samples = Vec::new();
    for round in 0..stage.settings.rounds {
        let requests = scene.prepare_as(stage, &format!("{name}{round}_")).await?;
        let requests = Arc::new(requests);
        seed::settle(&stage.database_url).await?;
        let run = stage.fire(&requests, scene.clients, Order::Once).await?;
        let other = stage.pgbench.run(scene.other.0, scene.other.1, stage.settings.window).await?;
        samples.push((Sample::from(&run), other));
    }
    Ok(samples)
}

impl Scene {
    /// Plays it and notes its figures.
    pub async fn play(&self, stage: &mut Stage) -> Result<(), Failure> {
        let mut rounds = Vec::new();
        for round in 0..stage.settings.rounds {
            rounds.push(self.prepare(stage, round).await?);
        }
        seed::settle(&stage.database_url).await?;

        let (mut first, mut repeated, mut other) = (Vec::new(), Vec::new(), Vec::new());
        let mut profile = Profile::default();
        for requests in rounds {
            let requests = Arc::new(requests);
            let before = Spent::so_far(stage).await?;
            let run: Run = stage.fire(&requests, self.clients, Order::Once).await?;
            profile.add(before, Spent::so_far(stage).await?, run.done);
            first.push(Sample::from(&run));
            other.push(stage.pgbench.run(self.other.0, self.other.1, stage.settings.window).await?);
            if self.repeats.is_some() {
                let run = stage.fire(&requests, self.clients, Order::Again(run.done)).await?;
                repeated.push(Sample::from(&run));
            }
        }
        stage.table.ratio(self.name, self.clients, &first, &other, self.target);
        if let Some(target) = self.repeats {
            let figure = format!("{}, repeated, over its first call", self.name);
            stage.table.ratio(&figure, self.clients, &repeated, &first, target);
        }
        stage.table.profile(self.name, self.clients, &profile);
        if let Some(target) = self.service {
            let figure = format!("{}: processor time in the service itself", self.name);
            stage.table.value(&figure, profile.each()[0], "us", target);
        }
        Ok(())
    }

    /// Requests of a round, and in the tables what they speak of.
    async fn prepare(&self, stage: &Stage, round: usize) -> Result<Vec<Vec<u8>>, Failure> {
        // No two scenes and rounds share an order.
        let initial =
            self.name.bytes().fold(0u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
        self.prepare_as(stage, &format!("{initial:x}_{round}_")).await
    }

    /// The same for orders of that name.
    pub async fn prepare_as(&self, stage: &Stage, prefix: &str) -> Result<Vec<Vec<u8>>, Failure> {
        let count = i32::try_from(AHEAD_PER_SECOND * stage.settings.window.as_secs())?;
        let skus = if let Work::Webhook(skus) = self.work { skus } else { 0 };
        if self.work == Work::Settle {
            seed::paid_orders(&stage.database_url, stage.clock.now(), prefix, count).await?;
        } else if self.work != Work::PayUrlWithOrder {
            let with_attempt = skus > 0;
            let expires_at = stage.clock.now() + LIFE;
            let orders = Orders { prefix, count, expires_at, skus, with_attempt };
            seed::orders(&stage.database_url, &orders).await?;
        }
        let paid_at = stage.clock.now().format(&Rfc3339)?;
        let mut numbers: Vec<i32> = (1..=count).collect();
        if skus > 0 || self.work == Work::Settle {
            // The equivalent walks its orders in no order, too.
            numbers.shuffle(&mut StdRng::seed_from_u64(7));
        }
        Ok(numbers.into_iter().map(|number| self.request(stage, prefix, number, &paid_at)).collect())
    }

    fn request(&self, stage: &Stage, prefix: &str, number: i32, paid_at: &str) -> Vec<u8> {
        let order_no = seed::order_no(prefix, number);
        match self.work {
            Work::PayUrl => pay_url_request(stage, prefix, number),
            Work::PayUrlWithOrder => {
                let more = format!(r#","amount":{AMOUNT},"currency":"CNY""#);
                load::post("/pay/url", &stage.authorization, &pay_url_body(prefix, number, &more))
            }
            Work::Settle => {
                let body = format!(r#"{{"order_no":"{order_no}"}}"#);
                load::post("/settlements", &stage.authorization, &body)
            }
            Work::Webhook(_) => callback(stage, prefix, number, paid_at),
        }
    }
}

/// The success callback of a seeded order.
pub fn callback(stage: &Stage, prefix: &str, number: i32, paid_at: &str) -> Vec<u8> {
    let (order_no, pay_order_id) = (seed::order_no(prefix, number), seed::pay_order_id(prefix, number));
    let body = format!(
        r#"{{"event_id":"evt_{order_no}","transaction_id":"txn_{order_no}","out_trade_no":"{pay_order_id}","total_fee":{AMOUNT},"currency":"CNY","trade_status":"SUCCESS","paid_at":"{paid_at}"}}"#
    );
    let signature = stage.keys.sign(body.as_bytes(), stage.clock.now());
    load::post("/webhooks/sandbox", &format!("X-Sandbox-Signature: {signature}\r\n"), &body)
}

/// The pay URL of a seeded order.
pub fn pay_url_request(stage: &Stage, prefix: &str, number: i32) -> Vec<u8> {
    load::post("/pay/url", &stage.authorization, &pay_url_body(prefix, number, ""))
}

/// The same with an idempotency key of its own.
pub fn pay_url_request_with_key(stage: &Stage, prefix: &str, number: i32) -> Vec<u8> {
    let headers = format!("{}Idempotency-Key: key-{prefix}{number}\r\n", stage.authorization);
    load::post("/pay/url", &headers, &pay_url_body(prefix, number, ""))
}

fn pay_url_body(prefix: &str, number: i32, more: &str) -> String {
    let (order_no, payer) = (seed::order_no(prefix, number), number % 100_000);
    format!(r#"{{"order_no":"{order_no}","payer_id":"u{payer}","channel":"sandbox"{more}}}"#)
}
