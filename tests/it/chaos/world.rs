//! A world that things go wrong in, chapter by chapter: a storm, a calm in which all comes to its end, and a judgement.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::json;
use time::Date;
use tokio::time::timeout;

use super::client::Merchant;
use super::faults::{Faults, Turns};
use super::heard::Endpoint;
use super::judge::judge;
use super::life::Seller;
use super::redis_side::RedisSide;
use super::rest::{SHELF, unrest};
use super::told::{Kind, Thing, differences};
use super::{right_time, there};
use crate::support::service::{LIMIT, Shop};
use crate::support::statements::assert_explained;
use crate::support::{Chance, TestOptions, stores};

const SELLERS: usize = 8;
/// Everything that was put off for half an hour is due in the same moment, a crowd of orders that ran out among it.
const PATIENCE: Duration = Duration::from_secs(90);
/// Times that time passes until then.
const PASSES: u32 = 3;
/// Longest that a kill and what is broken with it may take on average: several times what a slow machine needs.
const A_KILL_WITHIN: Duration = Duration::from_secs(20);
/// Longest that those who sell take to end, once nothing breaks any more: each may be in the middle of several wishes.
const CALM_WITHIN: Duration = Duration::from_secs(300);
/// Answers that are asked for once more in the calm, and things that are looked at through the door. The books are asked
/// for all.
const LOOKED_AT: usize = 300;
/// Violations that are told in full.
const TOLD: usize = 5;

pub struct World {
    shop: Arc<Shop>,
    merchant: Arc<Merchant>,
    endpoint: Endpoint,
    faults: Faults,
    chance: Chance,
    chapters: usize,
    orders: usize,
    since: Instant,
    /// The first day, by the channel's clock.
    begun_on: Date,
}

impl World {
    pub async fn open(redis: RedisSide, turns: Turns) -> Self {
        let (mut chance, since) = (Chance::new(), Instant::now());
        let postgres = stores::private_postgres().await;
        right_time::keep(&postgres.socket_url()).await;
        let options = TestOptions {
            database_url: Some(postgres.url()),
            redis_url: Some(redis.url()),
            ..TestOptions::default()
        };
        let shop = Arc::new(Shop::over(options, Vec::new()).await);
        for (sku, stock) in SHELF {
            shop.app.stock(sku, stock).await;
        }
        let endpoint = Endpoint::start().await;
        shop.app.tell_at(Some(&endpoint.url)).await;
        shop.app.rebate_rule(None, "0.07").await;
        shop.app.sql("UPDATE merchants SET refund_approval_above = 1000 WHERE merchant_id = 'demo'").await;
        shop.app.tokens("3").await;
        let faults = Faults::around(shop.clone(), postgres, redis, chance.another(), turns).await;
        let merchant = Arc::new(Merchant::new(faults.instances.urls()));
        let begun_on = shop.app.clock.now().date();
        Self { shop, merchant, endpoint, faults, chance, chapters: 0, orders: 0, since, begun_on }
    }

    /// A storm with so many kills, and what becomes of it.
    pub async fn live_through(&mut self, kills: usize) {
        self.chapters += 1;
        let chapter = format!("C{}-", self.chapters);
        self.merchant.is_over.store(false, Ordering::Relaxed);
        self.endpoint.is_well(false);
        let sellers: Vec<_> = (0..SELLERS)
            .map(|name| {
                let (shop, merchant) = (self.shop.clone(), self.merchant.clone());
                let (name, chance) = (format!("{chapter}{name}"), self.chance.another());
                tokio::spawn(Seller { name, shop, merchant, chance, count: 0 }.go_on())
            })
            .collect();
        let storm = async {
            self.faults.rage(kills).await;
            self.faults.end().await;
        };
        let longest = 2 * LIMIT + A_KILL_WITHIN * u32::try_from(kills).expect("few");
        if timeout(longest, storm).await.is_err() {
            panic!("the storm does not end: {}", self.faults.so_far());
        }
        self.merchant.is_over.store(true, Ordering::Relaxed);
        for seller in timeout(CALM_WITHIN, join_all(sellers)).await.expect("all sellers ended") {
            self.orders += seller.expect("no seller failed");
        }
        self.come_to_rest().await;
        self.be_judged(&chapter).await;
    }

    /// Time passes, and everything comes to its end by what lives; then all is as it must be at rest.
    async fn come_to_rest(&mut self) {
        // Well before time passes: what failed once more behind that would not be due before this is over.
        self.endpoint.is_well(true);
        self.pass_time().await;
        let since = Instant::now();
        // Of a crowd that is due at once some are late again, and put off for longer than anybody looks on here.
        for _ in 1..PASSES {
            if timeout(PATIENCE / PASSES, self.shop.settle_within(PATIENCE, "in the middle")).await.is_ok() {
                break;
            }
            self.pass_time().await;
        }
        self.shop.settle_within(PATIENCE / PASSES, "after all that").await;
        println!("chapter {}: drained in {:?}", self.chapters, since.elapsed());
        let unrest = unrest(&mut self.shop.app.direct_connection().await).await;
        assert!(unrest.is_empty(), "{unrest:#?}");
        self.shop.app.assert_books_agree_both_ways().await;
        self.shop.app.assert_invariants().await;
    }

    /// All that was put off is due.
    async fn pass_time(&self) {
        right_time::pass(&self.shop.app, &self.faults.instances).await;
        // A channel that met dead services and clocks that were off takes its time; here it repeats itself at once.
        self.shop
            .app
            .sql(
                "UPDATE sandbox.deliveries SET due_at = now(), last_result = NULL
                 WHERE status = 'PENDING' AND attempts > 0",
            )
            .await;
    }

    /// Nothing of the log is kept afterwards.
    async fn be_judged(&mut self, chapter: &str) {
        self.ask_for_some_again().await;
        let there = there::all_of(&self.shop.app, chapter).await;
        self.look_at_some(&there).await;
        let log = std::mem::take(&mut *self.merchant.log.lock().expect("no panic"));
        let heard = self.endpoint.take();
        let violations = judge(&log, &heard, &there);
        let first = &violations[..violations.len().min(TOLD)];
        assert!(violations.is_empty(), "{} violations, among them {first:#?}", violations.len());
        let mut kinds = BTreeMap::<String, usize>::new();
        for told in &log {
            *kinds.entry(format!("{} {} {}", told.route(), told.status, told.code())).or_default() += 1;
        }
        println!("{} answers, {} calls, {} things; {kinds:?}", log.len(), heard.len(), there.len());
    }

    async fn ask_for_some_again(&mut self) {
        let log = self.merchant.log.lock().expect("no panic").clone();
        let kept: Vec<_> = log.iter().filter(|told| told.is_kept()).collect();
        for _ in 0..LOOKED_AT.min(kept.len()) {
            self.merchant.ask_again(kept[self.chance.one_of(kept.len())]).await;
        }
    }

    /// What is in the books is also what the door shows.
    async fn look_at_some(&mut self, there: &[Thing]) {
        for _ in 0..LOOKED_AT.min(there.len()) {
            let thing = &there[self.chance.one_of(there.len())];
            let Some(path) = path_of(thing) else { continue };
            let seen = self.merchant.get(&path).await;
            assert_eq!(
                (seen.status, differences(thing, &seen.body)),
                (200, Vec::new()),
                "{thing:#?}: {}",
                seen.text
            );
        }
    }

    /// Every day of it, compared with what the channel says of that day, shows no difference.
    async fn be_reconciled(&self) {
        let app = &self.shop.app;
        let mut day = self.begun_on;
        let morning = app.wait_for_ten();
        while day < morning {
            let run = app.reconcile(day).await;
            assert_eq!(
                (&run["status"], app.differences(&run).await),
                (&json!("DONE"), Vec::new()),
                "{run:#}"
            );
            assert_explained(&run);
            println!("{day}: {}", run["totals"]);
            day = day.next_day().expect("a day");
        }
    }

    pub async fn end(mut self) {
        println!(
            "{} orders in {:?}, {} times unknown",
            self.orders,
            self.since.elapsed(),
            self.merchant.unknown.load(Ordering::Relaxed),
        );
        self.faults.tell(self.merchant.granted_unheard.load(Ordering::Relaxed));
        self.faults.instances.kill_all().await;
        // Whoever looks on has nothing to finish.
        let unfinished = self.shop.unfinished().await;
        assert!(unfinished.is_empty(), "{unfinished:#?}");
        self.be_reconciled().await;
        let Self { shop, merchant, faults, .. } = self;
        let Faults { shop: one, instances, postgres, redis, .. } = faults;
        drop((one, instances, merchant));
        Arc::into_inner(shop).expect("nobody else has it").end().await;
        drop((postgres, redis));
    }
}

/// Where a merchant looks at it; money has no door of its own.
fn path_of(thing: &Thing) -> Option<String> {
    let (name, number) =
        (&thing.name, |field: &str| thing.fields[field].as_str().expect("a number").to_owned());
    Some(match thing.kind {
        Kind::Order => format!("/orders/{}", number("order_no")),
        Kind::Attempt => format!("/pay/{name}"),
        Kind::Refund | Kind::WayBack => format!("/refunds/{name}"),
        Kind::Settlement => format!("/settlements/{name}"),
        Kind::Withdrawal => format!("/withdrawals/{name}"),
        Kind::Hold => format!("/usage/holds/{}", number("hold_id")),
        Kind::Money | Kind::Stray => return None,
    })
}
