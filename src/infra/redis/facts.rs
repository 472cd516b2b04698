//! What a Redis says of itself.

use super::{Node, RedisDown};

/// What a Redis says of itself.
#[derive(Clone, Debug, Default)]
pub struct RedisFacts {
    /// Its version.
    pub version: String,
    /// What it drops when its memory is full.
    pub eviction_policy: String,
    /// Whether it writes to disk.
    pub is_persistent: bool,
}

impl Node {
    /// Asks a server about itself.
    ///
    /// # Errors
    /// As [`Node::run`].
    pub async fn facts(&self) -> Result<RedisFacts, RedisDown> {
        // The server, memory and persistence sections at once: a service of Redis may refuse `CONFIG GET`.
        let info: String = self.run(redis::cmd("INFO").arg("everything")).await?;
        let member = |name: &str| {
            let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.unwrap_or_default().trim().to_owned()
        };
        let saves: Result<Vec<String>, _> = self.run(redis::cmd("CONFIG").arg("GET").arg("save")).await;
        let saves = saves.ok().and_then(|answer| answer.get(1).cloned()).unwrap_or_default();
        Ok(RedisFacts {
            version: member("redis_version"),
            eviction_policy: member("maxmemory_policy"),
            is_persistent: member("aof_enabled") == "1" || !saves.is_empty(),
        })
    }
}
