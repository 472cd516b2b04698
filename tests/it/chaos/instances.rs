//! Instances of one shop, which die and come back at the same addresses, by clocks that may be off: some answer merchants,
//! over wires that break, and may work besides, one only works.

use std::sync::Arc;

use futures_util::future::join_all;

use super::proxy::{Met, Proxy};
use crate::support::clocks::{WallClock, clear_after};
use crate::support::service::{Service, Shop};

/// Those that answer merchants. Behind them is one that only works, so that somebody does whatever the others come back as.
const ANSWERING: usize = 3;
const INSTANCES: usize = ANSWERING + 1;
const FIRST_PORT: u16 = 8080;

/// The instances of a shop, and the wires to their stores.
pub struct Instances {
    shop: Arc<Shop>,
    each: Vec<Instance>,
    database_url: String,
    redis_url: String,
}

struct Instance {
    service: Option<Service>,
    clock: WallClock,
    is_off: bool,
    /// Over which it answers merchants, operators and the channel, if it does.
    wire: Option<Proxy>,
    works: bool,
}

impl Instance {
    fn roles(&self) -> &'static str {
        match (self.wire.is_some(), self.works) {
            (true, true) => "api,workers",
            (true, false) => "api",
            (false, _) => "workers",
        }
    }
}

impl Instances {
    /// All of them, ready.
    pub async fn start(shop: &Arc<Shop>, database_url: String, redis_url: String) -> Self {
        let mut each = Vec::new();
        for index in 0..INSTANCES {
            let wire = match index {
                0..ANSWERING => Some(Proxy::before_service(shop.address_at(port(index))).await),
                _ => None,
            };
            let clock = WallClock::new().await;
            each.push(Instance { service: None, clock, is_off: false, wire, works: true });
        }
        let mut instances = Self { shop: shop.clone(), each, database_url, redis_url };
        let all: Vec<_> = (0..instances.len()).collect();
        instances.serve_again(&all).await;
        instances
    }

    pub fn len(&self) -> usize {
        self.each.len()
    }

    /// Where merchants are answered.
    pub fn urls(&self) -> Vec<String> {
        self.wires().map(Proxy::url).collect()
    }

    /// Between those that answer and whoever asks them.
    pub fn wires(&self) -> impl Iterator<Item = &Proxy> {
        self.each.iter().filter_map(|one| one.wire.as_ref())
    }

    /// Those behind which somebody lives.
    pub fn wires_to_the_living(&self) -> Vec<&Proxy> {
        self.each.iter().filter(|one| one.service.is_some()).filter_map(|one| one.wire.as_ref()).collect()
    }

    pub fn living(&self) -> impl Iterator<Item = &Service> {
        self.each.iter().filter_map(|one| one.service.as_ref())
    }

    /// What there was on all of them.
    pub fn met(&self) -> Met {
        self.wires().map(Proxy::met).sum()
    }

    pub fn answers(&self, index: usize) -> bool {
        self.each[index].wire.is_some()
    }

    pub fn those_that_answer(&self) -> Vec<usize> {
        (0..self.len()).filter(|&index| self.answers(index)).collect()
    }

    pub fn those_that_work(&self) -> Vec<usize> {
        (0..self.len()).filter(|&index| self.each[index].works).collect()
    }

    /// From its next start on one that answers works besides, or leaves that to others.
    pub fn let_work(&mut self, index: usize, works: bool) {
        assert!(self.answers(index), "{index} has nothing else to do");
        self.each[index].works = works;
    }

    pub async fn kill(&mut self, index: usize) {
        if let Some(service) = self.each[index].service.take() {
            let process = service.id();
            service.kill().await;
            clear_after(process);
        }
    }

    pub async fn kill_all(&mut self) {
        for index in 0..self.len() {
            self.kill(index).await;
        }
    }

    /// Starts those that are dead; they get ready side by side.
    pub async fn serve_again(&mut self, indexes: &[usize]) {
        let started = join_all(indexes.iter().map(|&index| self.serve(index))).await;
        for (&index, service) in indexes.iter().zip(started) {
            self.each[index].service = Some(service);
        }
    }

    async fn serve(&self, index: usize) -> Service {
        let one = &self.each[index];
        // The channel tells those that answer: whoever only works gives the address of the first of them.
        let told_at = one.wire.iter().chain(self.wires()).next().expect("one that answers").url();
        let mut command = one.clock.command(&self.shop, &format!("export PUBLIC_URL='{told_at}'"));
        command.env("PAYONCE_ROLES", one.roles());
        command.env("DATABASE_URL", &self.database_url).env("REDIS_URL", &self.redis_url);
        command.env("DATABASE_STATEMENT_MS", "2000");
        let service = self.shop.start_at(command, port(index)).await;
        one.clock.assert_goes_by_it(&service).await;
        service
    }

    pub fn is_off(&self, index: usize) -> bool {
        self.each[index].is_off
    }

    /// Sets its machine's clock so many seconds ahead of the right time, while it runs or before it does.
    pub fn set_clock(&mut self, index: usize, ahead_secs: i64) {
        let one = &mut self.each[index];
        one.clock.set(ahead_secs);
        one.is_off = ahead_secs != 0;
    }
}

fn port(index: usize) -> u16 {
    FIRST_PORT + u16::try_from(index).expect("few")
}
