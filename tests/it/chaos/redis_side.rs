//! What can go wrong with Redis, as one server or as a master with a replica and sentinels.

use std::time::Duration;

use payonce::local::RedisServer;
use tokio::time::sleep;

use super::proxy::Proxy;
use crate::support::Chance;
use crate::support::servers::Watched;
use crate::support::stores::{fresh_redis, tell_redis};

/// Longer than a lock lives, and than sentinels wait for a master.
const STANDS_STILL: Duration = Duration::from_millis(1_200);

/// The Redis that a shop runs on.
pub enum RedisSide {
    /// One server behind a wire that breaks.
    Alone { server: RedisServer, wire: Proxy },
    /// A master that another server replaces.
    Watched { group: Box<Watched>, has_failed_over: bool },
}

impl RedisSide {
    pub async fn alone() -> Self {
        let server = fresh_redis().await;
        let wire = Proxy::before(server.port()).await;
        Self::Alone { server, wire }
    }

    pub async fn watched() -> Self {
        Self::Watched { group: Box::new(Watched::start().await), has_failed_over: false }
    }

    /// For whoever looks on.
    pub fn url(&self) -> String {
        match self {
            Self::Alone { server, .. } => server.url(),
            Self::Watched { group, .. } => group.url(),
        }
    }

    /// For the instances.
    pub fn url_through_the_wire(&self) -> String {
        match self {
            Self::Alone { server, wire } => wire.before_url(&server.url(), server.port()),
            Self::Watched { group, .. } => group.url(),
        }
    }

    /// It loses what it knew, or its head; gives what happened.
    pub async fn lose(&mut self, chance: &mut Chance) -> &'static str {
        match self {
            Self::Alone { server, .. } => lose_alone(server, chance).await,
            Self::Watched { group, has_failed_over } => {
                // At least once, whatever the dice say.
                let dice = if *has_failed_over { chance.one_of(4) } else { 0 };
                *has_failed_over = true;
                lose_watched(group, dice, chance).await
            }
        }
    }

    /// A hiccup; gives what happened.
    pub async fn stumble(&mut self, chance: &mut Chance) -> &'static str {
        match (self, chance.one_of(2)) {
            (Self::Alone { wire, .. }, 0) => {
                wire.lose_answers(5);
                "answers of Redis lost"
            }
            (Self::Alone { wire, .. }, _) => {
                wire.cut();
                "connections to Redis cut"
            }
            (Self::Watched { group, .. }, 0) => {
                let _: String =
                    tell_redis(&group.present_master().await.url(), &["CLIENT", "PAUSE", "400"]).await;
                "Redis paused its clients"
            }
            (Self::Watched { group, .. }, _) => {
                let words = ["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"];
                let _: i64 = tell_redis(&group.present_master().await.url(), &words).await;
                "connections to Redis cut"
            }
        }
    }

    /// The wire as it should be.
    pub fn heal(&self) {
        if let Self::Alone { wire, .. } = self {
            wire.heal();
        }
    }
}

async fn lose_alone(server: &mut RedisServer, chance: &mut Chance) -> &'static str {
    match chance.one_of(3) {
        0 => {
            server.kill().await.expect("killed");
            sleep(chance.pause(2_000_000)).await;
            server.restart().await.expect("restarted");
            "Redis killed"
        }
        1 => {
            let _: String = tell_redis(&server.url(), &["FLUSHALL"]).await;
            "Redis emptied"
        }
        _ => {
            stand_still(server).await;
            "Redis stood still"
        }
    }
}

async fn lose_watched(group: &mut Watched, dice: usize, chance: &mut Chance) -> &'static str {
    group.until_the_replica_follows().await;
    match dice {
        0 => {
            // What is locked from here on the new master does not know, and grants again.
            group.cut_the_replica_off().await;
            sleep(chance.pause(800_000)).await;
            group.fail_over().await;
            "Redis failed over and forgot"
        }
        1 => {
            group.fail_over().await;
            "Redis failed over"
        }
        2 => {
            // Mostly it is replaced meanwhile, and for a while believes to be the master still.
            stand_still(&mut group.master).await;
            "the master of Redis stood still"
        }
        _ => {
            let _: String = tell_redis(&group.master.url(), &["FLUSHALL"]).await;
            "Redis emptied"
        }
    }
}

async fn stand_still(server: &mut RedisServer) {
    server.pause().await.expect("paused");
    sleep(STANDS_STILL).await;
    server.resume().await.expect("resumed");
}
