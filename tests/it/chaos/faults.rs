//! What goes wrong around the shop, at random.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use payonce::channels::sandbox::{FaultKind, FaultOp};
use payonce::local::PostgresServer;
use serde_json::json;
use tokio::time::sleep;

use super::instances::Instances;
use super::proxy::Proxy;
use super::redis_side::RedisSide;
use crate::support::service::Shop;
use crate::support::{Chance, OPERATOR};

/// Kills after which it begins anew what is broken with them.
const TURN: usize = 20;
/// Furthest that a clock may be off for the channel to listen still.
const NEARLY_RIGHT_SECS: usize = 240;
/// Furthest that one is off at all.
const MOST_OFF_SECS: usize = 3_600;

/// At which kill of each turn a store is lost.
#[derive(Clone, Copy)]
pub struct Turns {
    pub postgres_crashes: usize,
    pub redis_is_lost: usize,
}

/// Everything that can go wrong, with the world that it goes wrong in.
pub struct Faults {
    pub shop: Arc<Shop>,
    pub instances: Instances,
    pub postgres: PostgresServer,
    pub before_postgres: Proxy,
    pub redis: RedisSide,
    pub chance: Chance,
    pub turns: Turns,
    /// Those that there were.
    pub kills: usize,
    pub counts: BTreeMap<&'static str, usize>,
}

impl Faults {
    /// Lets so many instances be killed, and other things go wrong in between.
    pub async fn rage(&mut self, kills: usize) {
        for _ in 0..kills {
            self.kills += 1;
            sleep(self.chance.pause(600_000)).await;
            let victim = self.chance.one_of(self.instances.len());
            self.instances.kill(victim).await;
            self.count("an instance killed");
            match self.kills % TURN {
                turn if turn == self.turns.postgres_crashes => self.crash_postgres().await,
                turn if turn == self.turns.redis_is_lost => {
                    let what = self.redis.lose(&mut self.chance).await;
                    self.count(what);
                }
                _ => self.something_small().await,
            }
            self.come_back_at_some_time(victim);
            self.instances.serve_again(victim).await;
        }
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    /// A clock that was off is mostly put right by a restart; one that was right may come back wrong.
    fn come_back_at_some_time(&mut self, index: usize) {
        if self.chance.one_of(3) > 0 {
            self.instances.set_clock(index, 0);
        } else {
            self.shift_clock(index, "came back with a clock that is off");
        }
    }

    /// Somewhere a clock jumps under whoever goes by it: away from the right time, or back to it.
    fn a_clock_jumps(&mut self) {
        let index = self.chance.one_of(self.instances.len());
        if self.instances.is_off(index) {
            self.count("a clock set right");
            self.instances.set_clock(index, 0);
        } else {
            self.shift_clock(index, "a clock jumped");
        }
    }

    fn shift_clock(&mut self, index: usize, what: &'static str) {
        let (furthest, sign) = (self.chance.one_of(3), self.chance.one_of(2));
        let furthest = if furthest == 0 { NEARLY_RIGHT_SECS } else { MOST_OFF_SECS };
        let by = i64::try_from(1 + self.chance.one_of(furthest)).expect("small");
        if self.instances.may_be_off(index) {
            self.count(what);
            self.instances.set_clock(index, if sign == 0 { by } else { -by });
        }
    }

    /// Ends PostgreSQL as a crash does.
    async fn crash_postgres(&mut self) {
        self.count("PostgreSQL crashed");
        self.postgres.kill().await.expect("killed");
        sleep(self.chance.pause(1_000_000)).await;
        self.postgres.restart().await.expect("restarted");
    }

    async fn something_small(&mut self) {
        match self.chance.one_of(12) {
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
            5 | 6 => {
                let what = self.redis.stumble(&mut self.chance).await;
                self.count(what);
            }
            7 | 8 => self.a_clock_jumps(),
            _ => self.channel_misbehaves().await,
        }
    }

    /// The channel acts and hangs, hangs without acting, refuses, loses callbacks, repeats and reorders them, and takes
    /// money before it has given the link away or after it has closed the trade.
    async fn channel_misbehaves(&mut self) {
        // None is dropped: of money that came behind a close, and was told of to nobody, only a statement tells.
        const FAULTS: [(FaultOp, FaultKind); 16] = [
            (FaultOp::Create, FaultKind::TimeoutAfter),
            (FaultOp::Create, FaultKind::TimeoutBefore),
            (FaultOp::Create, FaultKind::Refuse),
            (FaultOp::Create, FaultKind::Reorder),
            (FaultOp::Query, FaultKind::TimeoutBefore),
            (FaultOp::Close, FaultKind::TimeoutAfter),
            (FaultOp::Close, FaultKind::TimeoutBefore),
            (FaultOp::Close, FaultKind::PayAfterClose),
            (FaultOp::Refund, FaultKind::TimeoutAfter),
            (FaultOp::Refund, FaultKind::TimeoutBefore),
            (FaultOp::Refund, FaultKind::Refuse),
            (FaultOp::Payout, FaultKind::TimeoutAfter),
            (FaultOp::Payout, FaultKind::TimeoutBefore),
            (FaultOp::Payout, FaultKind::Refuse),
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
        self.redis.heal();
        for index in 0..self.instances.len() {
            self.instances.set_clock(index, 0);
        }
        self.shop.app.gateway.clear_faults().await.expect("no faults");
    }
}
