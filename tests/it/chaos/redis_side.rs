//! What can go wrong with Redis, as one server or as a master with a replica and sentinels.

use std::time::Duration;

use payonce::local::RedisServer;
use tokio::time::sleep;

use super::faults::Round;
use super::proxy::{Met, Proxy, Silence};
use crate::support::Chance;
use crate::support::servers::Watched;
use crate::support::stores::{fresh_redis, tell_redis};

/// Longer than a lock lives, and than sentinels wait for a master.
const STANDS_STILL: Duration = Duration::from_millis(1_200);

/// Longest that Redis is away, there and back each. The service waits less than both, so that some answers come in time and
/// others when nobody waits any more, and a lock runs out whose holder lives.
const FURTHEST_MICROS: u64 = 60_000;

const KILLED: &str = "Redis killed";
const EMPTIED: &str = "Redis emptied";
const STOOD_STILL: &str = "Redis stood still";
const FAILED_OVER: &str = "Redis failed over";
const FORGOT: &str = "Redis failed over and forgot";

const ANSWERS_LOST: &str = "answers of Redis to be lost";
const CUT: &str = "connections to Redis cut";
const SILENT: &str = "Redis silent";
const SILENT_ONE_WAY: &str = "Redis silent one way";
const TORN: &str = "Redis gone without a word";
const FAR_AWAY: &str = "Redis far away";
const PAUSED: &str = "Redis paused its clients";

/// The Redis that a shop runs on, and what happens to it next.
pub struct RedisSide {
    servers: Servers,
    losses: Round<&'static str>,
    stumbles: Round<&'static str>,
}

enum Servers {
    /// One server behind a wire that breaks.
    Alone { server: RedisServer, wire: Proxy },
    /// A master that another server replaces.
    Watched(Box<Watched>),
}

impl RedisSide {
    pub async fn alone() -> Self {
        let server = fresh_redis().await;
        let wire = Proxy::before(server.port()).await;
        Self {
            servers: Servers::Alone { server, wire },
            losses: Round::of(&[KILLED, EMPTIED, STOOD_STILL]),
            stumbles: Round::of(&[ANSWERS_LOST, CUT, SILENT, SILENT_ONE_WAY, TORN, FAR_AWAY]),
        }
    }

    pub async fn watched() -> Self {
        Self {
            servers: Servers::Watched(Box::new(Watched::start().await)),
            losses: Round::beginning_with(FORGOT, &[FORGOT, FAILED_OVER, STOOD_STILL, EMPTIED]),
            stumbles: Round::of(&[PAUSED, CUT]),
        }
    }

    /// For whoever looks on.
    pub fn url(&self) -> String {
        match &self.servers {
            Servers::Alone { server, .. } => server.url(),
            Servers::Watched(group) => group.url(),
        }
    }

    /// For the instances.
    pub fn url_through_the_wire(&self) -> String {
        match &self.servers {
            Servers::Alone { server, wire } => wire.before_url(&server.url(), server.port()),
            Servers::Watched(group) => group.url(),
        }
    }

    /// It loses what it knew, or its head; gives what happened.
    pub async fn lose(&mut self, chance: &mut Chance) -> &'static str {
        let what = self.losses.draw(chance);
        match &mut self.servers {
            Servers::Alone { server, .. } => lose_alone(server, what, chance).await,
            Servers::Watched(group) => lose_watched(group, what, chance).await,
        }
        what
    }

    /// A hiccup; gives what happened.
    pub async fn stumble(&mut self, chance: &mut Chance) -> &'static str {
        let what = self.stumbles.draw(chance);
        match &mut self.servers {
            Servers::Alone { wire, .. } => stumble_alone(wire, what, chance).await,
            Servers::Watched(group) => stumble_watched(group, what).await,
        }
        what
    }

    /// All that [`Self::lose`] gives in the end.
    pub fn losses(&self) -> &[&'static str] {
        self.losses.kinds()
    }

    /// All that [`Self::stumble`] gives in the end.
    pub fn stumbles(&self) -> &[&'static str] {
        self.stumbles.kinds()
    }

    /// The wire as it should be.
    pub fn heal(&self) {
        if let Servers::Alone { wire, .. } = &self.servers {
            wire.heal();
        }
    }

    /// What there was on the wire, if it has one.
    pub fn met(&self) -> Option<Met> {
        match &self.servers {
            Servers::Alone { wire, .. } => Some(wire.met()),
            Servers::Watched(_) => None,
        }
    }
}

async fn lose_alone(server: &mut RedisServer, what: &str, chance: &mut Chance) {
    match what {
        KILLED => {
            server.kill().await.expect("killed");
            sleep(chance.pause(2_000_000)).await;
            server.restart().await.expect("restarted");
        }
        EMPTIED => empty(server).await,
        STOOD_STILL => stand_still(server).await,
        other => panic!("one server cannot be lost so: {other}"),
    }
}

async fn lose_watched(group: &mut Watched, what: &str, chance: &mut Chance) {
    group.until_the_replica_follows().await;
    match what {
        FORGOT => {
            // What is locked from here on the new master does not know, and grants again.
            group.cut_the_replica_off().await;
            sleep(chance.pause(800_000)).await;
            group.fail_over().await;
        }
        FAILED_OVER => group.fail_over().await,
        // Mostly it is replaced meanwhile, and for a while believes to be the master still.
        STOOD_STILL => stand_still(&mut group.master).await,
        EMPTIED => empty(&group.master).await,
        other => panic!("a master cannot be lost so: {other}"),
    }
}

async fn stumble_alone(wire: &Proxy, what: &str, chance: &mut Chance) {
    match what {
        ANSWERS_LOST => wire.lose_answers(5),
        CUT => wire.cut(),
        SILENT => wire.be_silent(Silence::Both, chance).await,
        SILENT_ONE_WAY => wire.be_silent_one_way(chance).await,
        TORN => wire.be_torn(chance).await,
        FAR_AWAY => {
            let by = chance.pause(FURTHEST_MICROS);
            wire.be_far_away(by, chance).await;
        }
        other => panic!("one server cannot stumble so: {other}"),
    }
}

async fn stumble_watched(group: &mut Watched, what: &str) {
    let master = group.present_master().await.url();
    match what {
        PAUSED => {
            let _: String = tell_redis(&master, &["CLIENT", "PAUSE", "400"]).await;
        }
        CUT => {
            let words = ["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"];
            let _: i64 = tell_redis(&master, &words).await;
        }
        other => panic!("a master cannot stumble so: {other}"),
    }
}

async fn empty(server: &RedisServer) {
    let _: String = tell_redis(&server.url(), &["FLUSHALL"]).await;
}

async fn stand_still(server: &mut RedisServer) {
    server.pause().await.expect("paused");
    sleep(STANDS_STILL).await;
    server.resume().await.expect("resumed");
}
