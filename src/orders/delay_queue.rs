//! The delay queue beside what it stands for: the timers and the database's own pending orders.

use time::OffsetDateTime;

use super::deadlines::{self, Timers};
use super::model::OrderKey;
use super::store;
use crate::app::App;
use crate::infra::db::DbError;

/// The queue as it stands.
#[derive(Clone, Debug)]
pub struct DelayQueue {
    /// What keeps the timers.
    pub backend: &'static str,
    /// Whether it answered; without it the sweep closes what is due.
    pub is_up: bool,
    /// Whether all timers stand in it; otherwise the sweep is about to give them back.
    pub is_intact: bool,
    /// Timers that wait.
    pub waiting: i64,
    /// Timers in the hands of a worker.
    pub leased: i64,
    /// Timers that wait though their time has come.
    pub due: i64,
    /// The next timers, by deadline.
    pub next: Vec<(OrderKey, OffsetDateTime)>,
    /// Orders that the database knows to be pending, and those of them that are past their deadline.
    pub pending_orders: (i64, i64),
}

/// Looks at the queue without touching it.
///
/// # Errors
/// When the database cannot be reached; a queue that cannot be reached is part of the answer.
pub async fn delay_queue(app: &App, limit: usize) -> Result<DelayQueue, DbError> {
    let timers = deadlines::look(app, limit).await;
    let pending_orders = store::count_pending(&mut app.db.conn().await?, app.now()).await?;
    let is_up = timers.is_ok();
    let Timers { waiting, leased, due, is_intact, next } = timers.unwrap_or_default();
    let at = |millis: i64| OffsetDateTime::from_unix_timestamp_nanos(i128::from(millis) * 1_000_000);
    let next = next.into_iter().filter_map(|(key, millis)| Some((key, at(millis).ok()?))).collect();
    Ok(DelayQueue {
        backend: deadlines::backend(app),
        is_up,
        is_intact,
        waiting,
        leased,
        due,
        next,
        pending_orders,
    })
}
