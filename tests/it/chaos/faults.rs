//! What goes wrong around the shop, at random.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use payonce::channels::sandbox::{FaultKind, FaultOp};
use payonce::local::{PostgresServer, RedisServer};
use serde_json::json;
use tokio::time::sleep;

use super::Instances;
use super::proxy::Proxy;
use crate::support::service::Shop;
use crate::support::stores::tell_redis;
use crate::support::{Chance, OPERATOR};

/// Everything that can go wrong, with the world that it goes wrong in.
pub struct Faults {
    pub shop: Arc<Shop>,
    pub instances: Instances,
    pub postgres: PostgresServer,
    pub redis: RedisServer,
    pub before_postgres: Proxy,
    pub before_redis: Proxy,
    pub chance: Chance,
    pub counts: BTreeMap<&'static str, usize>,
}

impl Faults {
    /// Lets so many instances be killed, and other things go wrong in between.
    pub async fn rage(&mut self, kills: usize) {
        for kill in 1..=kills {
            let pause = self.chance.pause(600_000);
            sleep(pause).await;
            let victim = self.chance.one_of(self.instances.len());
            self.instances.kill(victim).await;
            self.count("an instance killed");
            match kill % 20 {
                7 => self.crash_postgres().await,
                17 => self.lose_redis().await,
                _ => self.something_small().await,
            }
            self.instances.serve_again(&self.shop, victim).await;
        }
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    /// Ends PostgreSQL as a crash does.
    async fn crash_postgres(&mut self) {
        self.count("PostgreSQL crashed");
        self.postgres.kill().await.expect("killed");
        let pause = self.chance.pause(1_000_000);
        sleep(pause).await;
        self.postgres.restart().await.expect("restarted");
    }

    /// Redis dies with all that it knew, is emptied, or stands still for longer than a lock lives.
    async fn lose_redis(&mut self) {
        match self.chance.one_of(3) {
            0 => {
                self.count("Redis killed");
                self.redis.kill().await.expect("killed");
                let pause = self.chance.pause(2_000_000);
                sleep(pause).await;
                self.redis.restart().await.expect("restarted");
            }
            1 => {
                self.count("Redis emptied");
                let _: String = tell_redis(&self.redis.url(), &["FLUSHALL"]).await;
            }
            _ => {
                self.count("Redis stood still");
                self.redis.pause().await.expect("paused");
                sleep(Duration::from_millis(1_200)).await;
                self.redis.resume().await.expect("resumed");
            }
        }
    }

    async fn something_small(&mut self) {
        match self.chance.one_of(10) {
            0 => {
                self.count("answers of PostgreSQL lost");
                let count = 1 + u32::try_from(self.chance.one_of(6)).expect("small");
                self.before_postgres.lose_answers(count);
            }
            1 => {
                self.count("connections to PostgreSQL cut");
                self.before_postgres.cut();
            }
            2 => {
                self.count("PostgreSQL silent");
                self.before_postgres.silence(true);
                sleep(Duration::from_millis(1_500)).await;
                self.before_postgres.heal();
            }
            3 => {
                self.count("backends terminated");
                let end =
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()
                           AND backend_type = 'client backend'";
                let pool = self.shop.app.instance.app.db.pool();
                // It may end the connection that says so.
                drop(sqlx::query(end).execute(pool).await);
            }
            4 => {
                self.count("PostgreSQL far away");
                self.before_postgres.delay(Duration::from_millis(15));
                sleep(Duration::from_millis(400)).await;
                self.before_postgres.heal();
            }
            5 => {
                self.count("answers of Redis lost");
                self.before_redis.lose_answers(5);
            }
            6 => {
                self.count("connections to Redis cut");
                self.before_redis.cut();
            }
            _ => self.channel_misbehaves().await,
        }
    }

    /// The channel acts and hangs, hangs without acting, loses, repeats, reorders.
    async fn channel_misbehaves(&mut self) {
        const FAULTS: [(FaultOp, FaultKind); 11] = [
            (FaultOp::Create, FaultKind::TimeoutAfter),
            (FaultOp::Create, FaultKind::TimeoutBefore),
            (FaultOp::Query, FaultKind::TimeoutBefore),
            (FaultOp::Close, FaultKind::TimeoutAfter),
            (FaultOp::Close, FaultKind::TimeoutBefore),
            (FaultOp::Refund, FaultKind::TimeoutAfter),
            (FaultOp::Refund, FaultKind::TimeoutBefore),
            (FaultOp::Payout, FaultKind::TimeoutAfter),
            (FaultOp::Payout, FaultKind::TimeoutBefore),
            (FaultOp::Webhook, FaultKind::Repeat),
            (FaultOp::Webhook, FaultKind::Reorder),
        ];
        self.count("the channel misbehaved");
        let (op, fault) = FAULTS[self.chance.one_of(FAULTS.len())];
        let app = &self.shop.app;
        let body = json!({"op": op, "fault": fault, "times": 2, "ms": 1_000});
        // Its database may just be away: then it goes on to behave.
        let order = app.http.put(format!("{}/sandbox/faults", app.url)).bearer_auth(OPERATOR).json(&body);
        drop(order.send().await);
    }

    /// Everything as it should be again.
    pub async fn end(&mut self) {
        self.before_postgres.heal();
        self.before_redis.heal();
        self.shop.app.gateway.clear_faults().await.expect("no faults");
    }
}
