//! The timers in a Redis ZSET.
//!
//! `delay:order_timeout` holds the orders by deadline. A claim *moves* due ones to
//! `delay:order_timeout:leased`, scored by the end of the lease, so that a crash between claim and commit loses
//! nothing: the next claim takes back what a dead worker held. A marker key tells when Redis was emptied.

use std::sync::LazyLock;

use redis::Script;
use time::{Duration, OffsetDateTime};

use super::super::model::OrderKey;
use crate::app::App;
use crate::infra::clock::{deadline_millis, unix_millis};
use crate::infra::crash::effect;
use crate::infra::redis::RedisDown;

const DUE: &str = "delay:order_timeout";
const LEASED: &str = "delay:order_timeout:leased";
const MARKER: &str = "delay:order_timeout:intact";

/// How long a worker may hold what it claimed.
const LEASE: Duration = Duration::seconds(15);

/// Takes back ended leases first, then moves up to `ARGV[3]` due members under a lease until `ARGV[2]`.
static CLAIM: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"local ended = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', ARGV[1], 'LIMIT', 0, ARGV[3])
          for _, member in ipairs(ended) do
              redis.call('ZREM', KEYS[2], member)
              redis.call('ZADD', KEYS[1], ARGV[1], member)
          end
          local due = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[1], 'LIMIT', 0, ARGV[3])
          for _, member in ipairs(due) do
              redis.call('ZREM', KEYS[1], member)
              redis.call('ZADD', KEYS[2], ARGV[2], member)
          end
          return due",
    )
});

/// Sets an order's timer.
pub(super) async fn schedule(app: &App, key: &OrderKey, expires_at: OffsetDateTime) -> Result<(), RedisDown> {
    let mut add = redis::cmd("ZADD");
    add.arg(DUE).arg(deadline_millis(expires_at)).arg(key.member());
    effect!("orders.timer", app.redis.run::<i64>(&add).await.map(drop))
}

/// Sets the timers of many orders.
pub(super) async fn schedule_all(app: &App, orders: &[(OrderKey, OffsetDateTime)]) -> Result<(), RedisDown> {
    let mut add = redis::cmd("ZADD");
    add.arg(DUE).arg("NX");
    for (key, expires_at) in orders {
        add.arg(deadline_millis(*expires_at)).arg(key.member());
    }
    effect!("orders.rebuild", app.redis.run(&add).await)
}

/// Claims up to `limit` orders that are due, under a lease.
pub(super) async fn claim(app: &App, limit: usize) -> Result<Vec<OrderKey>, RedisDown> {
    let now = app.now();
    let mut invocation = CLAIM.key(DUE);
    invocation.key(LEASED).arg(unix_millis(now)).arg(unix_millis(now + LEASE)).arg(limit);
    let members: Vec<String> = effect!("orders.claim", app.redis.script(&invocation).await)?;
    Ok(members.iter().filter_map(|member| OrderKey::from_member(member)).collect())
}

/// Forgets claimed orders whose end is committed, or owned by a task.
pub(super) async fn forget(app: &App, orders: &[OrderKey]) {
    let mut remove = redis::cmd("ZREM");
    remove.arg(LEASED).arg(orders.iter().map(OrderKey::member).collect::<Vec<_>>());
    if let Err(error) = effect!("orders.forget", app.redis.run::<i64>(&remove).await) {
        tracing::debug!(%error, "ended timers will be claimed once more, and found closed");
    }
}

/// Whether Redis was emptied since the timers were last rebuilt.
pub(super) async fn were_lost(app: &App) -> Result<bool, RedisDown> {
    let found: i64 = app.redis.run(redis::cmd("EXISTS").arg(MARKER)).await?;
    Ok(found == 0)
}

/// Notes that all timers stand in Redis.
pub(super) async fn mark_intact(app: &App) -> Result<(), RedisDown> {
    effect!("orders.intact", app.redis.run(redis::cmd("SET").arg(MARKER).arg(1)).await)
}

/// The timers as they stand.
#[derive(Clone, Debug, Default)]
pub(in crate::orders) struct Timers {
    pub(in crate::orders) waiting: i64,
    pub(in crate::orders) leased: i64,
    pub(in crate::orders) due: i64,
    pub(in crate::orders) is_intact: bool,
    /// The next ones, by deadline.
    pub(in crate::orders) next: Vec<(OrderKey, i64)>,
}

/// Looks at the timers without touching them.
pub(super) async fn look(app: &App, limit: usize) -> Result<Timers, RedisDown> {
    let count = |key: &str, max: String| {
        let mut count = redis::cmd("ZCOUNT");
        count.arg(key).arg("-inf").arg(max);
        count
    };
    let now = unix_millis(app.now()).to_string();
    let mut range = redis::cmd("ZRANGE");
    range.arg(DUE).arg(0).arg(limit.saturating_sub(1)).arg("WITHSCORES");
    let next: Vec<(String, i64)> = app.redis.run(&range).await?;
    Ok(Timers {
        waiting: app.redis.run(&count(DUE, "+inf".to_owned())).await?,
        leased: app.redis.run(&count(LEASED, "+inf".to_owned())).await?,
        due: app.redis.run(&count(DUE, now)).await?,
        is_intact: !were_lost(app).await?,
        next: next
            .into_iter()
            .filter_map(|(member, at)| Some((OrderKey::from_member(&member)?, at)))
            .collect(),
    })
}
