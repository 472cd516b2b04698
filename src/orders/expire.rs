//! Timeouts: an order that nobody paid is closed at its deadline, its attempt at the channel first.
//!
//! Two duties. `orders.expire` claims from the delay queue what is due, promptly. `orders.sweep` finds in the
//! database whatever the queue missed, and rebuilds the timers when Redis was emptied. Both close in batches: 4 round trips
//! and 1 commit for up to [`BATCH`] orders without a live attempt. Those with one are left to tasks, which ask the channel:
//! the sweep writes the tasks at once, without a lock on any order, so that what is overdue has an owner in seconds however
//! much there is of it; when the owner comes to it is another matter.

use futures_util::future::join_all;
use time::{Duration, OffsetDateTime};
use tokio::time::Instant;

use super::close::close_with_lock;
use super::error::OrderError;
use super::model::{CloseReason, OrderKey};
use super::{deadlines, store};
use crate::app::App;
use crate::compensation::Drive;
use crate::infra::crash::effect;
use crate::infra::db::{DbError, Tx};
use crate::infra::duty::{Batch, DutyError, Within};
use crate::infra::lock::Scene;

/// Orders of one batch.
const BATCH: usize = 500;
/// Orders of one page of the sweep: most of them are driven by tasks while a backlog lasts, and only read past.
const PAGE: usize = 5_000;
/// The queue gets this long before the sweep takes over.
const GRACE: Duration = Duration::seconds(1);

/// Closes what the delay queue says is due.
///
/// # Errors
/// When the database cannot be reached; the queue brings the orders again.
pub async fn expire_due(app: &App) -> Result<Batch, DutyError> {
    let batches = join_all((0..deadlines::side_by_side(app)).map(|_| expire_batch(app))).await;
    let closed = batches.into_iter().collect::<Result<Vec<usize>, _>>()?;
    Ok(Batch::of(closed.into_iter().max().unwrap_or(0), BATCH))
}

/// Gives how many were claimed.
async fn expire_batch(app: &App) -> Result<usize, DutyError> {
    let claimed = match deadlines::claim(app, BATCH).await {
        Ok(claimed) => claimed,
        Err(error) => {
            // Readiness says so already; the sweep closes what is due meanwhile.
            tracing::debug!(%error, "no timers can be had");
            return Ok(0);
        }
    };
    carry_on(app, &claimed, Means::Close).await?;
    deadlines::forget(app, &claimed).await;
    Ok(claimed.len())
}

/// Gives Redis its timers back when it was emptied, and closes what the delay queue missed.
///
/// # Errors
/// When the database cannot be reached.
pub async fn sweep_due(app: &App) -> Result<Batch, DutyError> {
    // First: behind an outage the walk takes long, and what falls due meanwhile has its timer.
    if let Err(error) = rebuild_if_lost(app).await {
        tracing::debug!(%error, "the timers could not be looked after");
    }
    sweep_due_within(app, Within::ever()).await?;
    Ok(Batch::Done)
}

/// Closes what the delay queue missed, or writes the tasks that will, for about so long; at least a batch. `false` when it
/// was cut off. While merchants are served it works a quarter of the time.
///
/// One run walks all that is due, page by page, and meets each order once: while a channel is silent most of them
/// are driven by tasks already, and going back to the oldest for each batch would read those again and again.
///
/// # Errors
/// When the database cannot be reached.
pub async fn sweep_due_within(app: &App, within: Within) -> Result<bool, DutyError> {
    let (until, page_size) = (app.now() - GRACE, i64::try_from(PAGE)?);
    let mut after = OffsetDateTime::UNIX_EPOCH;
    loop {
        let (mut conn, since) = (app.db.conn().await?, Instant::now());
        let page = store::list_due_after(&mut conn, after, until, page_size).await?;
        drop(conn);
        let Some(last) = page.last else { return Ok(true) };
        after = last;
        if app.changes.is_over() {
            return Ok(false);
        }
        // Whose time is over still reads on to what is left alone, and rests no more.
        if !within.is_over() {
            app.served.rest_after(since.elapsed()).await;
        }
        let batches = page.with_attempt.chunks(BATCH).map(|keys| (keys, Means::Tasks));
        for (keys, means) in batches.chain(page.closable.chunks(BATCH).map(|keys| (keys, Means::Close))) {
            let since = Instant::now();
            carry_on(app, keys, means).await?;
            metrics::counter!("payonce_orders_swept_total").increment(u64::try_from(keys.len())?);
            // What tasks drive already is only read past, so that whoever goes on comes further.
            if within.is_over() || app.changes.is_over() {
                return Ok(false);
            }
            app.served.rest_after(since.elapsed()).await;
        }
    }
}

async fn rebuild_if_lost(app: &App) -> Result<(), DutyError> {
    const PAGE: i64 = 1000;
    if !deadlines::were_lost(app).await? {
        return Ok(());
    }
    // What was due before is walked behind this, and needs no timer any more.
    let mut after = (app.now() - GRACE, String::new(), String::new());
    loop {
        let page = store::list_pending_after(&mut app.db.conn().await?, &after, PAGE).await?;
        deadlines::restore(app, &page).await?;
        if app.changes.is_over() {
            return Ok(());
        }
        let Some((key, expires_at)) = page.last() else { break };
        after = (*expires_at, key.merchant_id.to_string(), key.order_no.to_string());
    }
    // Only now: a rebuild that was cut off begins again.
    deadlines::mark_intact(app).await?;
    tracing::info!("the timers in Redis were rebuilt from the database");
    Ok(())
}

/// Closes these orders if they are due, and leaves those with a live attempt to a task, which asks the channel:
/// a silent channel must not hold up the orders of the others. Nor must one that cannot be closed (somebody holds its
/// stock, or its figures are wrong), or too much at once for a statement's time: the batch then is left to tasks, of which
/// only that one's goes on failing.
async fn carry_on(app: &App, keys: &[OrderKey], means: Means) -> Result<(), DbError> {
    if keys.is_empty() {
        return Ok(());
    }
    let closed = match commit(app, keys, means).await {
        Err(error) if matches!(means, Means::Close) && !error.is_away() => {
            tracing::warn!(%error, orders = keys.len(), "a batch of due orders is left to tasks, one for each");
            commit(app, keys, Means::Tasks).await?
        }
        closed => closed?,
    };
    for key in &closed {
        app.changes.announce(&key.member());
    }
    metrics::counter!("payonce_orders_closed_total", "reason" => CloseReason::Timeout.as_str())
        .increment(u64::try_from(closed.len()).unwrap_or(0));
    if closed.len() < keys.len() {
        app.compensation_wake.notify_one();
        app.sweep_wake.notify_one();
    }
    Ok(())
}

/// How a batch of due orders is carried on.
#[derive(Clone, Copy)]
enum Means {
    /// Closed, but for what has a live attempt.
    Close,
    /// Left to tasks.
    Tasks,
}

/// Gives what was closed.
async fn commit(app: &App, keys: &[OrderKey], means: Means) -> Result<Vec<OrderKey>, DbError> {
    app.db
        .retrying(|| async {
            let (mut tx, now) = (app.db.begin().await?, app.now());
            let outcome = match means {
                Means::Close => close_batch_in_tx(&mut tx, keys, now).await,
                Means::Tasks => store::leave_to_tasks(&mut tx, keys, now).await.map(|()| Vec::new()),
            };
            effect!("orders.expire", tx.finish(outcome).await)
        })
        .await
}

/// What is not locked here was closed or paid already, is not due after all, or is being worked on; the sweep
/// looks at all of these again.
async fn close_batch_in_tx(
    tx: &mut Tx,
    keys: &[OrderKey],
    now: OffsetDateTime,
) -> Result<Vec<OrderKey>, DbError> {
    let due = store::lock_due(tx, keys, now).await?;
    let closed = store::close_locked(tx, &due, CloseReason::Timeout, now).await?;
    if closed.len() < due.len() {
        let still_open: Vec<OrderKey> =
            due.into_iter().map(|order| order.key).filter(|key| !closed.contains(key)).collect();
        store::leave_to_tasks(tx, &still_open, now).await?;
    }
    Ok(closed)
}

/// Drives one due order to its end: closed, or paid after all.
///
/// # Errors
/// When the lock is busy, the channel silent or the database away: the task tries again.
pub async fn expire_one(app: &App, key: &OrderKey) -> Result<Drive, OrderError> {
    let lock = app.locks.acquire(Scene::Close, &key.lock_key()).await?;
    let order = store::find(&mut app.db.conn().await?, key).await?;
    if order.is_none_or(|order| order.expires_at > app.now()) {
        return Ok(Drive::Done);
    }
    match app.db.retrying(|| close_with_lock(app, key, CloseReason::Timeout, None, Some(&lock))).await {
        Ok(_) | Err(OrderError::AlreadyPaid) => Ok(Drive::Done),
        Err(OrderError::ChannelUnavailable(why)) => Ok(Drive::Again(why)),
        Err(error) => Err(error),
    }
}
