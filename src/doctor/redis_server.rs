//! Redis: reachable, new enough, and never dropping a lock in silence.

use super::model::Finding;
use super::settings::Settings;
use crate::infra::redis::{Redis, RedisFacts};

/// The oldest Redis that will do.
const OLDEST: (u32, u32) = (6, 2);

pub(super) async fn examine(settings: &Settings) -> Vec<Finding> {
    let checks = ["redis.version", "redis.eviction", "redis.persistence"];
    let unknown = |why: Finding| {
        let rest = checks.map(|check| Finding::unknown(check, "Redis was not reached"));
        std::iter::once(why).chain(rest).collect()
    };
    let Some(config) = settings.with("REDIS_URL") else {
        return unknown(Finding::unknown("redis.reachable", "REDIS_URL is wrong"));
    };
    let facts = match Redis::new(&config.redis) {
        Ok(redis) => redis.facts().await.map_err(|error| {
            std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string)
        }),
        Err(error) => Err(error.to_string()),
    };
    match facts {
        Ok(facts) => vec![
            Finding::fine("redis.reachable", "it answers in time"),
            version(&facts),
            eviction(&facts),
            persistence(&facts),
        ],
        Err(error) => {
            let mend = "start Redis, or set REDIS_URL; then: redis-cli -u \"$REDIS_URL\" PING";
            unknown(Finding::wrong("redis.reachable", format!("{error}; all works without it, slower"), mend))
        }
    }
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

fn eviction(facts: &RedisFacts) -> Finding {
    let policy = &facts.eviction_policy;
    if policy == "noeviction" {
        return Finding::fine("redis.eviction", policy);
    }
    let found = format!("{policy}: a full Redis would drop locks and timers in silence");
    let mend =
        "redis-cli -u \"$REDIS_URL\" CONFIG SET maxmemory-policy noeviction, and the same in redis.conf";
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
