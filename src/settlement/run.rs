//! The duty that carries runs out: one page of orders at a time, in batches side by side.
//!
//! Round trips of a page of [`PAGE`] orders: 3 (claim, list, advance), and 5 for each batch of [`BATCH`] (facts, BEGIN,
//! settle, count, COMMIT); as many again for orders of which a part was refunded in between. A batch counts what it
//! settled in its own transaction, and what is settled is in no later page: so whoever takes a run up again after a
//! death, or beside somebody who was thought dead, settles and counts nothing twice. No order's lock is taken: the
//! guarded statement decides.
//!
//! What can be settled stands in one index, in the order of payment: a run of one merchant passes over what is of others,
//! [`LOOK`] entries at a time. A page in which nothing is its own costs the same 3 round trips, and moves the run on.
//!
//! A page may take as long as the source of rates does: whoever carries it out keeps its lease meanwhile, so that it is
//! not begun anew by another before it comes to its end. A dead one renews nothing.

use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::{StreamExt, stream};

use super::model::{RunEvent, RunStatus};
use super::rates::{self, Question, Quote};
use super::settle::{check, compute, question};
use super::store::{self, Facts, FindFacts, Page, Position, Settle};
use crate::app::App;
use crate::ids::MerchantId;
use crate::infra::crash::effect;
use crate::infra::db::{DbError, Slowness, Tx};
use crate::infra::duty::{Batch, DutyError};
use crate::infra::gather::{Command, Patience};
use crate::infra::lease;
use crate::orders::OrderKey;

/// Orders of one transaction.
const BATCH: usize = 500;
/// Batches side by side.
const SIDE_BY_SIDE: usize = 4;
/// Orders of a page: twice as many, because at its end they wait for the last one.
const PAGE: usize = 2 * BATCH * SIDE_BY_SIDE;
/// Orders of everybody that are looked at for a page at most: one merchant's may be few among many. An entry of the index
/// each, so that a look stays far below the time of a statement.
const LOOK: i64 = 20_000;
/// Rounds of "read, compute, write": refunds may succeed while the source of rates is asked.
const MAX_ROUNDS: usize = 3;
/// How long a run rests that cannot go on.
const REST: time::Duration = time::Duration::seconds(5);
/// Behind so much of that the source of rates is asked about orders that are settled: where it speaks of one of them, it will
/// not speak of those that the run rests for.
const LONG: time::Duration = time::Duration::hours(1);
/// Orders that are settled, of those, at most: it may fall over one, or have forgotten it.
const SETTLED: i64 = 3;

/// Carries one page of an open run out, if there is one that nobody else is at.
///
/// # Errors
/// When the database cannot be reached, or the source of rates is silent: the run goes on later.
pub async fn run_due(app: &App) -> Result<Batch, DutyError> {
    let (now, mut conn) = (app.now(), app.db.conn().await?);
    let until = now + app.config.task_lease;
    let claimed = effect!("settlement.claim_run", store::claim(&mut conn, until, now).await)?;
    drop(conn);
    let Some(run) = claimed else { return Ok(Batch::Done) };
    // Side by side: the source of rates may be slow, and the lease does not wait for it.
    let outcome = tokio::select! {
        outcome = carry_out_page(app, &run) => outcome,
        never = lease::keep(app.config.task_lease, || renew(app, &run)) => match never {},
    };
    match outcome {
        Ok(()) => Ok(Batch::MoreWaiting),
        Err(error) => {
            let (until, mut conn) = (app.now() + REST, app.db.conn().await?);
            let why = error.to_string();
            // A death before it lets the lease run out: the run then goes on as well.
            store::note_error(&mut conn, &run, &why, until).await?;
            Err(error)
        }
    }
}

/// Keeps a run while its page is carried out.
async fn renew(app: &App, run: &Position) {
    let until = app.now() + app.config.task_lease;
    let kept = async {
        let mut conn = app.db.conn().await?;
        effect!("settlement.renew", store::renew(&mut conn, run, until).await)
    };
    match kept.await {
        Ok(true) => {}
        Ok(false) => tracing::debug!(run.id = %run.run_id, "somebody else has taken the run meanwhile"),
        // The next one may be in time; otherwise somebody takes the run over.
        Err(error) => tracing::debug!(%error, run.id = %run.run_id, "its lease could not be renewed"),
    }
}

async fn carry_out_page(app: &App, run: &Position) -> Result<(), DutyError> {
    let page = store::list_page(&mut app.db.conn().await?, run, PAGE, LOOK).await?;
    let Page { mut orders, last, has_more } = page;
    let event = if has_more { RunEvent::PageSettled } else { RunEvent::Finished };
    let Some(to) = run.status.after(event) else { return Ok(()) };
    orders.sort_by_cached_key(OrderKey::lock_rank);
    let has_failed = AtomicBool::new(false);
    let batches: Vec<_> =
        orders.chunks(BATCH).map(|keys| settle_unless(&has_failed, app, run, keys)).collect();
    // Those under way come to their ends.
    let left: Vec<_> = stream::iter(batches).buffer_unordered(SIDE_BY_SIDE).collect().await;
    let skipped = left.into_iter().sum::<Result<usize, DutyError>>()?;

    let (now, skipped, mut conn) = (app.now(), i64::try_from(skipped)?, app.db.conn().await?);
    let is_ours =
        effect!("settlement.advance", store::advance(&mut conn, run, last.as_ref(), skipped, to, now).await)?;
    if is_ours && to == RunStatus::Done {
        tracing::info!(run.id = %run.run_id, "the settlement run {} has come to its end", run.run_id);
    }
    Ok(())
}

/// Settles these orders, unless another batch of the page has failed: the whole page is then taken up again.
async fn settle_unless(
    has_failed: &AtomicBool,
    app: &App,
    run: &Position,
    keys: &[OrderKey],
) -> Result<usize, DutyError> {
    if has_failed.load(Ordering::Relaxed) {
        return Ok(0);
    }
    let left = settle_all(app, run, keys).await;
    if left.is_err() {
        has_failed.store(true, Ordering::Relaxed);
    }
    left
}

/// Settles these orders, those that were not as they had been read once more. Gives how many were left as they are.
async fn settle_all(app: &App, run: &Position, keys: &[OrderKey]) -> Result<usize, DutyError> {
    let (mut asked, mut settled) = (keys.to_vec(), 0);
    for _ in 0..MAX_ROUNDS {
        let commands = commands(app, run, &asked).await?;
        let done = commit_all(app, run, &commands).await?;
        settled += done;
        if done == commands.len() {
            break;
        }
        // Without those that the source is wrong about: it would be asked by halves once more.
        asked = commands.iter().map(Settle::key).collect();
    }
    if settled == keys.len() {
        return Ok(0);
    }
    // What somebody else settled meanwhile was not skipped, nor what has gone back as a whole: nothing is earned by it.
    let is_left_out = |facts: &Facts| is_due(facts) || facts.settlement.is_none() && facts.may_be_gone;
    Ok(facts(app, keys).await?.into_iter().filter(is_left_out).count())
}

/// Whether there is something left to settle.
fn is_due(facts: &Facts) -> bool {
    facts.settlement.is_none() && check(facts).is_ok()
}

async fn facts(app: &App, keys: &[OrderKey]) -> Result<Vec<Facts>, DbError> {
    let asked: Vec<FindFacts> = keys.iter().cloned().map(FindFacts).collect();
    let found = FindFacts::carry_out(&asked, Patience::ALONE, &mut app.db.conn().await?).await?;
    Ok(found.into_iter().flatten().collect())
}

/// What is to be written for those that can be settled; the rates are asked for outside of any transaction.
async fn commands(app: &App, run: &Position, keys: &[OrderKey]) -> Result<Vec<Settle>, DutyError> {
    let mut facts = facts(app, keys).await?;
    facts.retain(is_due);
    let quoted = quoted(app, run, facts).await?;
    let (is_asked_for, now) = (rates::is_outside(app), app.now());
    Ok(quoted.into_iter().map(|(facts, quote)| compute(&facts, quote, is_asked_for, now)).collect())
}

/// The orders with their rates, in their order. Those that the source says nothing of use about are left out: the others must
/// not wait for them.
async fn quoted(app: &App, run: &Position, facts: Vec<Facts>) -> Result<Vec<(Facts, Quote)>, DutyError> {
    let questions: Vec<Question> = facts.iter().map(question).collect();
    let is_stuck = app.now() - run.moved_at >= LONG;
    let settled = match questions.first().filter(|_| is_stuck) {
        Some(first) => questions_before(app, &first.order.merchant_id).await?,
        None => Vec::new(),
    };
    let quotes = rates::ask_by_halves(&*rates::source(app), &questions, &settled).await?;
    Ok(facts.into_iter().zip(quotes).filter_map(|(facts, quote)| Some((facts, quote?))).collect())
}

/// What the source of rates was asked about a merchant's orders before, or about anybody's where none of them is settled yet, and
/// answered.
async fn questions_before(app: &App, merchant_id: &MerchantId) -> Result<Vec<Question>, DbError> {
    let mut conn = app.db.conn().await?;
    let mut settled = store::list_settled(&mut conn, merchant_id, SETTLED).await?;
    if settled.is_empty() {
        settled.extend(store::find_settled(&mut conn).await?);
    }
    drop(conn);
    Ok(facts(app, &settled).await?.iter().map(question).collect())
}

/// In one transaction, and each alone when that fails: one that cannot be settled (its figures are wrong, somebody holds
/// it) must not keep the others from it. Gives how many were settled.
async fn commit_all(app: &App, run: &Position, commands: &[Settle]) -> Result<usize, DbError> {
    let settled = match commit(app, run, commands).await {
        Err(error) if error.is_away() => return Err(error),
        Err(error) => {
            tracing::warn!(%error, orders = commands.len(), "a batch of settlements is carried out one by one");
            commit_each(app, run, commands).await?
        }
        Ok(settled) => settled,
    };
    metrics::counter!("payonce_orders_settled_total", "source" => "run")
        .increment(u64::try_from(settled).unwrap_or(0));
    Ok(settled)
}

/// Gives how many were settled.
async fn commit(app: &App, run: &Position, commands: &[Settle]) -> Result<usize, DbError> {
    if commands.is_empty() {
        return Ok(0);
    }
    app.db
        .retrying(|| async {
            let mut tx = app.db.begin().await?;
            let settled = settle_in_tx(&mut tx, run, commands).await;
            effect!("settlement.batch", tx.finish(settled).await)
        })
        .await
}

async fn commit_each(app: &App, run: &Position, commands: &[Settle]) -> Result<usize, DbError> {
    let (mut settled, mut slowness) = (0, Slowness::default());
    for command in commands {
        let outcome = commit(app, run, std::slice::from_ref(command)).await;
        let is_general = slowness.is_general(outcome.as_ref().err());
        match outcome {
            Ok(count) => settled += count,
            Err(error) if is_general || error.is_away() => return Err(error),
            Err(error) => {
                let order_no = &command.settlement.order_no;
                tracing::warn!(%error, order.no = %order_no, "the order {order_no} was not settled by a run");
            }
        }
    }
    Ok(settled)
}

async fn settle_in_tx(tx: &mut Tx, run: &Position, commands: &[Settle]) -> Result<usize, DbError> {
    tx.ring_after_commit();
    let is_settled = Settle::carry_out(commands, Patience::ALONE, tx).await?;
    let settled = commands.iter().zip(&is_settled).filter(|(_, is_settled)| **is_settled);
    store::add_settled(tx, run, settled.map(|(command, _)| &command.settlement)).await?;
    Ok(is_settled.into_iter().filter(|is_settled| *is_settled).count())
}
