//! A world that things go wrong in, chapter by chapter: a storm, a calm in which all comes to its end, and a judgement.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures_util::future::join_all;

use super::client::Merchant;
use super::faults::{Faults, Turns};
use super::instances::Instances;
use super::judge::{Kind, Thing, differences, judge};
use super::life::Seller;
use super::proxy::Proxy;
use super::redis_side::RedisSide;
use super::there;
use crate::support::service::Shop;
use crate::support::{Chance, TestOptions, stores};

const SELLERS: usize = 8;
/// Everything that was put off for an hour is due in the same moment, a crowd of orders that ran out among it.
const PATIENCE: Duration = Duration::from_secs(90);
/// Answers that are asked for once more in the calm, and things that are looked at through the door. The books are asked
/// for all.
const LOOKED_AT: usize = 300;
/// Violations that are told in full.
const TOLD: usize = 5;

pub struct World {
    shop: Arc<Shop>,
    merchant: Arc<Merchant>,
    faults: Faults,
    chance: Chance,
    chapters: usize,
    orders: usize,
    since: Instant,
}

impl World {
    pub async fn open(redis: RedisSide, turns: Turns) -> Self {
        let (mut chance, since) = (Chance::new(), Instant::now());
        let postgres = stores::private_postgres().await;
        let wire = Proxy::before(postgres.port()).await;
        let options = TestOptions {
            database_url: Some(postgres.url()),
            redis_url: Some(redis.url()),
            ..TestOptions::default()
        };
        let shop = Arc::new(Shop::over(options, Vec::new()).await);
        shop.app.stock("RARE", 40).await;
        shop.app.rebate_rule(None, "0.07").await;
        shop.app.tokens("3").await;
        let database_url = wire.before_url(&postgres.url(), postgres.port());
        let instances = Instances::start(&shop, database_url, redis.url_through_the_wire()).await;
        let merchant = Arc::new(Merchant::new(instances.urls()));
        let faults = Faults {
            shop: shop.clone(),
            instances,
            postgres,
            before_postgres: wire,
            redis,
            chance: chance.another(),
            turns,
            kills: 0,
            counts: BTreeMap::new(),
        };
        Self { shop, merchant, faults, chance, chapters: 0, orders: 0, since }
    }

    /// A storm with so many kills, and what becomes of it.
    pub async fn live_through(&mut self, kills: usize) {
        self.chapters += 1;
        let chapter = format!("C{}-", self.chapters);
        self.merchant.is_over.store(false, Ordering::Relaxed);
        let sellers: Vec<_> = (0..SELLERS)
            .map(|name| {
                let (shop, merchant) = (self.shop.clone(), self.merchant.clone());
                let (name, chance) = (format!("{chapter}{name}"), self.chance.another());
                tokio::spawn(Seller { name, shop, merchant, chance, count: 0 }.go_on())
            })
            .collect();
        self.faults.rage(kills).await;
        self.faults.end().await;
        self.merchant.is_over.store(true, Ordering::Relaxed);
        for seller in join_all(sellers).await {
            self.orders += seller.expect("no seller failed");
        }
        self.come_to_rest().await;
        self.be_judged(&chapter).await;
    }

    /// Time passes, and everything comes to its end by itself.
    async fn come_to_rest(&mut self) {
        self.faults.instances.let_time_pass();
        // A channel that met dead services and clocks that were off takes its time; here it repeats itself at once.
        self.shop
            .app
            .sql(
                "UPDATE sandbox.deliveries SET due_at = now(), last_result = NULL
                 WHERE status = 'PENDING' AND attempts > 0",
            )
            .await;
        let drained = self.shop.settle_within(PATIENCE, "after all that").await;
        println!("chapter {}: drained in {drained:?}", self.chapters);
    }

    /// Nothing of the log is kept afterwards.
    async fn be_judged(&mut self, chapter: &str) {
        self.ask_for_some_again().await;
        let log = std::mem::take(&mut *self.merchant.log.lock().expect("no panic"));
        let there = there::all_of(&self.shop.app, chapter).await;
        let violations = judge(&log, &there);
        let first = &violations[..violations.len().min(TOLD)];
        assert!(violations.is_empty(), "{} violations, among them {first:#?}", violations.len());
        self.look_at_some(&there).await;
        let mut kinds = BTreeMap::<String, usize>::new();
        for told in &log {
            *kinds.entry(format!("{} {} {}", told.route(), told.status, told.code())).or_default() += 1;
        }
        println!("{} answers, {} things; {kinds:?}", log.len(), there.len());
    }

    async fn ask_for_some_again(&mut self) {
        let log = self.merchant.log.lock().expect("no panic").clone();
        let done: Vec<_> = log.iter().filter(|told| told.is_done()).collect();
        for _ in 0..LOOKED_AT.min(done.len()) {
            self.merchant.ask_again(done[self.chance.one_of(done.len())]).await;
        }
    }

    /// What is in the books is also what the door shows.
    async fn look_at_some(&mut self, there: &[Thing]) {
        for _ in 0..LOOKED_AT.min(there.len()) {
            let thing = &there[self.chance.one_of(there.len())];
            let seen = self.merchant.get(&path_of(thing)).await;
            assert_eq!(
                (seen.status, differences(thing, &seen.body)),
                (200, Vec::new()),
                "{thing:#?}: {}",
                seen.text
            );
        }
    }

    pub async fn end(mut self) {
        println!(
            "{} orders in {:?}, {} times unknown: {:?}",
            self.orders,
            self.since.elapsed(),
            self.merchant.unknown.load(Ordering::Relaxed),
            self.faults.counts,
        );
        self.faults.instances.kill_all().await;
        let Self { shop, merchant, faults, .. } = self;
        let Faults { shop: one, instances, postgres, redis, .. } = faults;
        drop((one, instances, merchant));
        Arc::into_inner(shop).expect("nobody else has it").end().await;
        drop((postgres, redis));
    }
}

/// Where a merchant looks at it.
fn path_of(thing: &Thing) -> String {
    let (name, number) =
        (&thing.name, |field: &str| thing.fields[field].as_str().expect("a number").to_owned());
    match thing.kind {
        Kind::Order => format!("/orders/{}", number("order_no")),
        Kind::Attempt => format!("/pay/{name}"),
        Kind::Refund => format!("/refunds/{name}"),
        Kind::Settlement => format!("/settlements/{name}"),
        Kind::Withdrawal => format!("/withdrawals/{name}"),
        Kind::Hold => format!("/usage/holds/{}", number("hold_id")),
    }
}
