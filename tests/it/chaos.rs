//! Chaos: three instances behind wires that break, over stores that crash, with a channel that hangs, and merchants who
//! ask until they know. Afterwards everything comes to its end by itself, every invariant holds, the channel's books
//! and ours agree both ways, and what the merchants were told is so.
//!
//! Twenty kills by default, with a crash of PostgreSQL and a loss of Redis; `PAYONCE_KILLS=…` any other number, each
//! twenty with one of both. `SEED=…` throws the same dice again; what meets what is for the scheduler to say.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use futures_util::future::join_all;
use serde_json::Value;

mod client;
mod faults;
mod life;
mod proxy;

use self::client::{Merchant, Told};
use self::faults::Faults;
use self::life::Seller;
use self::proxy::Proxy;
use crate::support::service::{Service, Shop, is_full};
use crate::support::{Chance, TestOptions, stores};

const INSTANCES: usize = 3;
const SELLERS: usize = 12;

fn kills() -> usize {
    let wanted = std::env::var("PAYONCE_KILLS").ok().and_then(|count| count.parse().ok());
    wanted.unwrap_or(if is_full() { 1_000 } else { 20 })
}

/// Equal instances, which die and come back at the same addresses.
pub struct Instances {
    running: Vec<Option<Service>>,
    database_url: String,
    redis_url: String,
}

impl Instances {
    fn len(&self) -> usize {
        self.running.len()
    }

    async fn kill(&mut self, index: usize) {
        if let Some(service) = self.running[index].take() {
            service.kill().await;
        }
    }

    async fn serve_again(&mut self, shop: &Shop, index: usize) {
        let mut command = shop.command("");
        command.env("DATABASE_URL", &self.database_url).env("REDIS_URL", &self.redis_url);
        command.env("DATABASE_STATEMENT_MS", "2000");
        self.running[index] = Some(shop.start_at(command, port(index)).await);
    }
}

fn port(index: usize) -> u16 {
    8080 + u16::try_from(index).expect("few")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_breaks_what_was_told_is_so() {
    let (mut chance, started) = (Chance::new(), Instant::now());
    let (postgres, redis) = (stores::private_postgres().await, stores::fresh_redis().await);
    let (before_postgres, before_redis) =
        (Proxy::before(postgres.port()).await, Proxy::before(redis.port()).await);
    let options = TestOptions {
        database_url: Some(postgres.url()),
        redis_url: Some(redis.url()),
        ..TestOptions::default()
    };
    let shop = Arc::new(Shop::over(options, Vec::new()).await);
    shop.app.stock("RARE", 40).await;
    shop.app.rebate_rule(None, "0.07").await;
    let through = |url: String, from: u16, to: u16| url.replace(&format!(":{from}/"), &format!(":{to}/"));
    let mut instances = Instances {
        running: (0..INSTANCES).map(|_| None).collect(),
        database_url: through(postgres.url(), postgres.port(), before_postgres.port),
        redis_url: through(redis.url(), redis.port(), before_redis.port),
    };
    for index in 0..INSTANCES {
        instances.serve_again(&shop, index).await;
    }
    let urls = instances.running.iter().flatten().map(|service| service.url.clone()).collect();
    let merchant = Arc::new(Merchant::new(urls));
    let sellers: Vec<_> = (0..SELLERS)
        .map(|name| {
            let (shop, merchant) = (shop.clone(), merchant.clone());
            let chance = chance.another();
            tokio::spawn(Seller { name, shop, merchant, chance, count: 0 }.go_on())
        })
        .collect();

    let counts = BTreeMap::new();
    let mut faults = Faults {
        shop: shop.clone(),
        instances,
        postgres,
        redis,
        before_postgres,
        before_redis,
        chance,
        counts,
    };
    faults.rage(kills()).await;
    faults.end().await;
    merchant.is_over.store(true, Ordering::Relaxed);
    let mut orders = 0;
    for seller in join_all(sellers).await {
        orders += seller.expect("no seller was told two things");
    }
    assert_all_is_well(&shop, &merchant).await;
    println!("{:?} in {:?}, {orders} orders", faults.counts, started.elapsed());
    for index in 0..INSTANCES {
        faults.instances.kill(index).await;
    }
    let Faults { shop: last, postgres, redis, .. } = faults;
    drop((last, merchant));
    Arc::into_inner(shop).expect("nobody else has it").end().await;
    drop((postgres, redis));
}

/// It comes to its end by itself, and what was told is so.
async fn assert_all_is_well(shop: &Shop, merchant: &Merchant) {
    // A channel that met a dead service again and again takes its time; here it repeats itself at once.
    shop.app
        .sql("UPDATE sandbox.deliveries SET due_at = now() WHERE status = 'PENDING' AND attempts > 0")
        .await;
    let drained = shop.settle("after all that").await;
    let told = assert_told_is_so(merchant).await;
    println!(
        "{} answers, {} times unknown; drained in {drained:?}; told again alike: {}; {told:?}",
        merchant.log.lock().expect("no panic").len(),
        merchant.unknown.load(Ordering::Relaxed),
        merchant.repeats.load(Ordering::Relaxed),
    );
}

/// Every answer is there still: what was done is there, what was refused is not, and a key says what it said. Gives how
/// often each was told.
async fn assert_told_is_so(merchant: &Merchant) -> BTreeMap<String, usize> {
    let log = merchant.log.lock().expect("no panic").clone();
    let mut kinds = BTreeMap::<String, usize>::new();
    for told in &log {
        let kind = told.path.split('/').find(|part| !part.is_empty() && !part.starts_with("C-"));
        *kinds.entry(format!("{} {} {}", kind.unwrap_or_default(), told.status, told.code())).or_default() +=
            1;
        if told.is_done() {
            merchant.repeat(told).await;
        }
        look_at(merchant, told).await;
    }
    kinds
}

async fn look_at(merchant: &Merchant, told: &Told) {
    let number = |field: &str| told.body[field].as_str().unwrap_or_default().to_owned();
    let path = match told.path.as_str() {
        "/orders" => format!("/orders/{}", number("order_no")),
        "/refunds" => format!("/refunds/{}", number("refund_no")),
        "/withdrawals" => format!("/withdrawals/{}", number("withdrawal_no")),
        "/settlements" => format!("/settlements/{}", number("order_no")),
        _ => return,
    };
    let there = merchant.get(&path).await;
    // What is refused leaves nothing behind, and moved no money.
    assert_eq!(there.status, if told.is_done() { 200 } else { 404 }, "{told:#?}: {}", there.text);
    if told.is_done() {
        let answer: Value = serde_json::from_str(&told.answer).expect("json");
        for field in ["amount", "currency", "user_id", "order_no", "commission", "base_amount"] {
            assert_eq!(there.body[field], answer[field], "{field} of {path}: {}", there.text);
        }
    }
}
