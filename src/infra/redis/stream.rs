//! A stream in Redis for what must not be lost at once when the database is away: put, taken, and only then removed.
//!
//! No groups of consumers: whoever takes gets what is there, so two may get the same; what they do with it must bear
//! that. What is put beyond [`MOST`] pushes the oldest out.

use redis::Value;

use super::{Redis, RedisDown};

/// Entries that a stream keeps.
const MOST: usize = 100_000;

/// One stream.
#[derive(Clone, Copy, Debug)]
pub struct Stream<'a> {
    redis: &'a Redis,
    key: &'static str,
}

impl<'a> Stream<'a> {
    /// The stream of that key.
    #[must_use]
    pub const fn new(redis: &'a Redis, key: &'static str) -> Self {
        Self { redis, key }
    }

    /// Puts an entry at the end.
    ///
    /// # Errors
    /// [`RedisDown`]: it may have been put all the same.
    pub async fn put(&self, text: &str) -> Result<(), RedisDown> {
        let mut add = redis::cmd("XADD");
        add.arg(self.key).arg("MAXLEN").arg("~").arg(MOST).arg("*").arg("entry").arg(text);
        self.redis.run::<String>(&add).await.map(drop)
    }

    /// The oldest entries, behind one where that is given, each with the id that removes it. They stay until they are removed.
    /// What is no text of ours comes as an empty one.
    ///
    /// # Errors
    /// [`RedisDown`].
    pub async fn oldest(
        &self,
        behind: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(String, String)>, RedisDown> {
        let mut range = redis::cmd("XRANGE");
        // From that one on: servers before 6.2 leave none out.
        range.arg(self.key).arg(behind.unwrap_or("-")).arg("+").arg("COUNT").arg(limit + 1);
        let mut entries: Vec<(String, Vec<Value>)> = self.redis.run(&range).await?;
        entries.retain(|(id, _)| Some(id.as_str()) != behind);
        entries.truncate(limit);
        let text = |fields: Vec<Value>| match fields.into_iter().nth(1) {
            Some(Value::BulkString(bytes)) => String::from_utf8(bytes).unwrap_or_default(),
            _ => String::new(),
        };
        Ok(entries.into_iter().map(|(id, fields)| (id, text(fields))).collect())
    }

    /// Removes entries whose effect is committed.
    ///
    /// # Errors
    /// [`RedisDown`]: they come again.
    pub async fn done(&self, ids: &[&str]) -> Result<(), RedisDown> {
        let mut delete = redis::cmd("XDEL");
        delete.arg(self.key).arg(ids);
        self.redis.run::<i64>(&delete).await.map(drop)
    }
}
