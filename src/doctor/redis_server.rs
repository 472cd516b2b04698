//! Redis: reachable, new enough, and never dropping a lock in silence. Of several servers each is looked at.

use std::time::Duration;

use tokio::time::Instant;

use super::model::{Finding, Health};
use super::settings::Settings;
use crate::infra::redis::{Node, Redis, RedisFacts, RedisServers, Standing};

/// The oldest Redis that will do.
const OLDEST: (u32, u32) = (6, 2);
/// Longest wait until so many servers answer that a lock can be had; sentinels must name the master first.
const PATIENCE: Duration = Duration::from_secs(2);
/// Pause between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Checks of a server that answers.
type Checks = [Finding; 3];

pub(super) async fn examine(settings: &Settings) -> Vec<Finding> {
    let checks = ["redis.version", "redis.eviction", "redis.persistence"];
    let unknown = |why: Finding| {
        let rest = checks.map(|check| Finding::unknown(check, "Redis was not reached"));
        std::iter::once(why).chain(rest).collect()
    };
    let Some(config) = settings.with("REDIS_URL") else {
        return unknown(Finding::unknown("redis.reachable", "REDIS_URL is wrong"));
    };
    let servers = &config.redis.servers;
    let redis = match Redis::new(&config.redis) {
        Ok(redis) => redis,
        Err(error) => return unknown(not_reached(servers, &error.to_string())),
    };
    let reachable = reachable(servers, &standing(&redis).await);
    let mut seen: Option<Checks> = None;
    for node in redis.nodes() {
        let Ok(facts) = node.facts().await else { continue };
        let checks = [version(&facts), eviction(&facts, &client(servers, node)), persistence(&facts)];
        seen = Some(match seen {
            Some(others) => worse(others, checks),
            None => checks,
        });
    }
    match seen {
        Some(checks) => std::iter::once(reachable).chain(checks).collect(),
        None => unknown(reachable),
    }
}

/// How the servers stand, as soon as a lock can be had.
async fn standing(redis: &Redis) -> Standing {
    let give_up_at = Instant::now() + PATIENCE;
    loop {
        let standing = redis.standing().await;
        if standing.is_up() || Instant::now() >= give_up_at {
            return standing;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn reachable(servers: &RedisServers, standing: &Standing) -> Finding {
    let check = "redis.reachable";
    let down = standing.nodes.iter().filter(|node| !node.is_up).map(|node| node.name.as_str());
    let down: Vec<&str> = down.collect();
    match (standing.is_up(), down.as_slice(), servers) {
        (true, [], _) => Finding::fine(check, "it answers in time"),
        (true, down, _) => Finding::note(check, format!("a lock can be had without {}", down.join(", "))),
        (false, _, RedisServers::Sentinel(group)) => {
            not_reached(servers, &format!("the sentinels name no master {} that answers", group.master))
        }
        (false, down, _) => {
            not_reached(servers, &format!("no answer in time, or no writes taken, from {}", down.join(", ")))
        }
    }
}

fn not_reached(servers: &RedisServers, error: &str) -> Finding {
    let line = match servers {
        RedisServers::One(_) => "redis-cli -u \"$REDIS_URL\" PING".to_owned(),
        RedisServers::Quorum(_) => "redis-cli -u URL PING, with each URL of REDIS_URL".to_owned(),
        RedisServers::Sentinel(group) => {
            let (host, port) = group.sentinels.first().map_or(("HOST", 0), |(host, port)| (host, *port));
            format!("redis-cli -h {host} -p {port} SENTINEL CKQUORUM {}", group.master)
        }
    };
    let found = format!("{error}; all works without it, slower");
    Finding::wrong("redis.reachable", found, format!("start Redis, or set REDIS_URL; then: {line}"))
}

/// How a person speaks to that server.
fn client(servers: &RedisServers, node: &Node) -> String {
    match servers {
        RedisServers::One(_) => "redis-cli -u \"$REDIS_URL\"".to_owned(),
        // Behind sentinels the name of the master stands before its address.
        RedisServers::Quorum(_) | RedisServers::Sentinel(_) => {
            let name = node.name();
            format!("redis-cli -u redis://USER:PASSWORD@{}", name.rsplit(' ').next().unwrap_or_default())
        }
    }
}

/// What is wrong with one server is wrong with all of them.
fn worse(one: Checks, other: Checks) -> Checks {
    let mut others = other.into_iter();
    one.map(|finding| match others.next() {
        Some(other) if finding.health != Health::Wrong => other,
        _ => finding,
    })
}

fn version(facts: &RedisFacts) -> Finding {
    let mut numbers = facts.version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    let found = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if found >= OLDEST {
        return Finding::fine("redis.version", &facts.version);
    }
    let found = format!("{}; expected 6.2 or later", facts.version);
    Finding::wrong("redis.version", found, "apt-get install redis-server, of a newer release")
}

fn eviction(facts: &RedisFacts, client: &str) -> Finding {
    let policy = &facts.eviction_policy;
    if policy == "noeviction" {
        return Finding::fine("redis.eviction", policy);
    }
    let found = format!("{policy}: a full Redis would drop locks and timers in silence");
    let mend = format!("{client} CONFIG SET maxmemory-policy noeviction, and the same in redis.conf");
    Finding::wrong("redis.eviction", found, mend)
}

fn persistence(facts: &RedisFacts) -> Finding {
    let found = if facts.is_persistent {
        "it writes to disk, which is not needed: nothing that must survive is only there"
    } else {
        "it keeps nothing on disk, and need not: the timers are rebuilt from the database"
    };
    Finding::note("redis.persistence", found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Health;

    #[test]
    fn an_old_redis_is_told() {
        let of = |text: &str| RedisFacts { version: text.into(), ..RedisFacts::default() };
        for (text, health) in [
            ("6.0.16", Health::Wrong),
            ("5.2", Health::Wrong),
            ("6.2.0", Health::Fine),
            ("7.4.1", Health::Fine),
        ] {
            assert_eq!(version(&of(text)).health, health, "{text}");
        }
    }
}
