//! The timers: they make a timeout prompt; `orders.expires_at` is what decides.
//!
//! Two queues do the same work, chosen by `DELAY_QUEUE`: a ZSET in Redis, or a ladder of queues on RabbitMQ. Both
//! give an order out until it is forgotten, so a worker that dies loses nothing; neither is asked when a request
//! is answered; and whatever either has lost, the sweep over the database finds.

use time::OffsetDateTime;

use super::model::OrderKey;
use crate::app::App;
use crate::infra::amqp::{AmqpDown, Delays};
use crate::infra::clock::{deadline_millis, unix_millis};
use crate::infra::crash::effect;
use crate::infra::redis::RedisDown;

mod zset;

pub(super) use zset::Timers;

/// The queue cannot be had now.
#[derive(Debug, thiserror::Error)]
pub(super) enum QueueDown {
    #[error(transparent)]
    Redis(#[from] RedisDown),
    #[error(transparent)]
    Broker(#[from] AmqpDown),
}

/// Sets an order's timer without waiting for it: what is lost here is found by the sweep.
pub(super) fn schedule(app: &App, key: &OrderKey, expires_at: OffsetDateTime) {
    let (app, key) = (app.clone(), key.clone());
    app.tasks.clone().detach(async move {
        let (queue, outcome) = match &app.delays {
            None => ("redis", zset::schedule(&app, &key, expires_at).await.map_err(QueueDown::from)),
            Some(delays) => ("rabbitmq", put(&app, delays, &key, expires_at).await.map_err(QueueDown::from)),
        };
        if let Err(error) = outcome {
            metrics::counter!("payonce_timers_left_to_sweep_total", "queue" => queue).increment(1);
            tracing::debug!(%error, "a timer was left to the sweep");
        }
    });
}

async fn put(app: &App, delays: &Delays, key: &OrderKey, expires_at: OffsetDateTime) -> Result<(), AmqpDown> {
    let (due_at, now) = (deadline_millis(expires_at), unix_millis(app.now()));
    effect!("timers.put", delays.put(key.member(), due_at, now).await)
}

/// Batches to claim and close side by side: one is worked on while the other waits for its commit. RabbitMQ's worker
/// gives out the same ones until they are forgotten.
pub(super) fn side_by_side(app: &App) -> usize {
    if app.delays.is_some() { 1 } else { 2 }
}

/// Claims up to `limit` orders that are due. They come again unless they are forgotten.
pub(super) async fn claim(app: &App, limit: usize) -> Result<Vec<OrderKey>, QueueDown> {
    let Some(delays) = &app.delays else { return Ok(zset::claim(app, limit).await?) };
    let is_known = |member: &str| OrderKey::from_member(member).is_some();
    let members = effect!("timers.take", delays.take_due(unix_millis(app.now()), limit, is_known).await)?;
    Ok(members.iter().filter_map(|member| OrderKey::from_member(member)).collect())
}

/// Forgets claimed orders whose end is committed, or owned by a task.
pub(super) async fn forget(app: &App, orders: &[OrderKey]) {
    if orders.is_empty() {
        return;
    }
    match &app.delays {
        None => zset::forget(app, orders).await,
        Some(delays) => {
            let members: Vec<String> = orders.iter().map(OrderKey::member).collect();
            effect!("timers.done", delays.done(&members, unix_millis(app.now())).await);
        }
    }
}

/// Whether the timers were lost since they were last rebuilt. RabbitMQ keeps them on disk, and what it loses all the
/// same is closed by the sweep.
pub(super) async fn were_lost(app: &App) -> Result<bool, QueueDown> {
    if app.delays.is_some() { Ok(false) } else { Ok(zset::were_lost(app).await?) }
}

/// Sets the timers of many orders, after they were lost.
pub(super) async fn restore(app: &App, orders: &[(OrderKey, OffsetDateTime)]) -> Result<(), QueueDown> {
    if app.delays.is_none() && !orders.is_empty() {
        zset::schedule_all(app, orders).await?;
    }
    Ok(())
}

/// What keeps the timers.
pub(super) fn backend(app: &App) -> &'static str {
    if app.delays.is_some() { "rabbitmq" } else { "redis" }
}

/// Looks at the timers without touching them. RabbitMQ tells how many there are, and not which.
pub(super) async fn look(app: &App, limit: usize) -> Result<Timers, QueueDown> {
    let Some(delays) = &app.delays else { return Ok(zset::look(app, limit).await?) };
    let (waiting, due) = delays.count().await?;
    Ok(Timers { waiting: waiting + due, due, is_intact: true, ..Timers::default() })
}

/// Notes that all timers are set.
pub(super) async fn mark_intact(app: &App) -> Result<(), QueueDown> {
    if app.delays.is_none() {
        zset::mark_intact(app).await?;
    }
    Ok(())
}
