//! Equal instances, which die and come back at the same addresses, by clocks that may be off.

use std::sync::Arc;
use std::time::Duration;

use super::clocks::{WallClock, clear_after};
use crate::support::service::{Service, Shop};

const INSTANCES: u16 = 3;
const FIRST_PORT: u16 = 8080;
/// Time that passes after a storm: more than any clock was ahead, so that all show a time that none has shown yet.
const PASSES: Duration = Duration::from_secs(75 * 60);

/// The instances of a shop, and the wires to their stores.
pub struct Instances {
    shop: Arc<Shop>,
    each: Vec<Instance>,
    database_url: String,
    redis_url: String,
    /// Seconds that have passed for everybody, beyond those of the machine.
    passed_secs: i64,
}

struct Instance {
    service: Option<Service>,
    clock: WallClock,
    is_off: bool,
}

impl Instances {
    /// All of them, ready.
    pub async fn start(shop: &Arc<Shop>, database_url: String, redis_url: String) -> Self {
        let mut each = Vec::new();
        for _ in 0..INSTANCES {
            each.push(Instance { service: None, clock: WallClock::new().await, is_off: false });
        }
        let mut instances = Self { shop: shop.clone(), each, database_url, redis_url, passed_secs: 0 };
        for index in 0..instances.len() {
            instances.serve_again(index).await;
        }
        instances
    }

    pub fn len(&self) -> usize {
        self.each.len()
    }

    pub fn urls(&self) -> Vec<String> {
        self.each.iter().filter_map(|one| one.service.as_ref()).map(|service| service.url.clone()).collect()
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

    pub async fn serve_again(&mut self, index: usize) {
        let one = &mut self.each[index];
        let mut command = one.clock.command(&self.shop);
        command.env("DATABASE_URL", &self.database_url).env("REDIS_URL", &self.redis_url);
        command.env("DATABASE_STATEMENT_MS", "2000");
        let port = FIRST_PORT + u16::try_from(index).expect("few");
        let service = self.shop.start_at(command, port).await;
        one.clock.assert_goes_by_it(&service).await;
        one.service = Some(service);
    }

    /// Whether another one's clock is right: a channel listens to nobody whose clock is far off, so somebody must keep
    /// the time for merchants to hear an answer at all.
    pub fn may_be_off(&self, index: usize) -> bool {
        self.each.iter().enumerate().any(|(other, one)| other != index && !one.is_off)
    }

    pub fn is_off(&self, index: usize) -> bool {
        self.each[index].is_off
    }

    /// Sets its clock so many seconds ahead of the right time, while it runs or before it does.
    pub fn set_clock(&mut self, index: usize, ahead_secs: i64) {
        let one = &mut self.each[index];
        one.clock.set(self.passed_secs + ahead_secs);
        one.is_off = ahead_secs != 0;
    }

    /// Every clock is right again, at a time that none has shown yet: all that was put off is due.
    pub fn let_time_pass(&mut self) {
        self.passed_secs += i64::try_from(PASSES.as_secs()).expect("short");
        self.shop.app.clock.advance(PASSES);
        for index in 0..self.len() {
            self.set_clock(index, 0);
        }
    }
}
