//! `POST /settlements`: one commission for one order.
//!
//! Round trips of a first call: 2 to PostgreSQL (read, settle), 1 to Redis, and 1 to the source of rates where that is
//! an endpoint; commits: 1. A repeat: 1 round trip, no lock, no commit. Different orders share round trips and commits
//! (see [`crate::infra::gather`]).

use std::sync::OnceLock;

use time::OffsetDateTime;

use super::error::SettlementError;
use super::model::{Settlement, SettlementStatus};
use super::rates::{self, Question, Quote};
use super::store::{Facts, FindFacts, Settle};
use super::terms::Terms;
use crate::app::App;
use crate::idempotency::{self, Keep};
use crate::infra::crash::effect;
use crate::infra::gather::Unheard;
use crate::infra::lock::{LockBusy, LockGuard, Scene};
use crate::orders::{OrderKey, OrderKind, OrderStatus};

/// A settlement, and whether this call made it.
#[derive(Clone, Debug)]
pub struct Settled {
    /// As it stands.
    pub settlement: Settlement,
    /// `false` when it was there already.
    pub is_new: bool,
}

/// Rounds of "read, compute, write": a refund may succeed in between.
const MAX_ROUNDS: usize = 5;

/// What is asked for.
#[derive(Clone, Copy)]
struct Asked<'a> {
    key: &'a OrderKey,
    /// Where the answer is to be kept.
    keep: Option<&'a Keep<Settled>>,
    /// How this call dates what it writes.
    dated: &'a OnceLock<OffsetDateTime>,
    /// Whether what it wrote may stand although it did not hear so: only then does the date say whose a settlement is, as two
    /// calls may come in the same microsecond.
    unheard: &'a Unheard,
}

/// Settles an order, or gives back its settlement; keeps the answer where that is asked.
///
/// # Errors
/// [`SettlementError::OrderNotPaid`] and [`SettlementError::NotSettleable`] while nothing can be earned;
/// [`SettlementError::RatesUnavailable`] when the source of rates is silent, [`SettlementError::RatesUnusable`] when it
/// talks nonsense. Nothing was moved then.
pub async fn settle(
    app: &App,
    key: &OrderKey,
    keep: Option<&Keep<Settled>>,
) -> Result<Settled, SettlementError> {
    let (dated, unheard) = (OnceLock::new(), Unheard::default());
    let asked = Asked { key, keep, dated: &dated, unheard: &unheard };
    app.db.retrying(|| look_then_settle(app, asked)).await
}

async fn look_then_settle(app: &App, asked: Asked<'_>) -> Result<Settled, SettlementError> {
    let mut facts = look(app, asked.key).await?;
    if let Some(settlement) = facts.settlement {
        return give(app, asked, settlement).await;
    }
    check(&facts)?;
    let lock = match app.locks.acquire(Scene::Settle, &asked.key.lock_key()).await {
        Ok(lock) => lock,
        Err(busy) => return last_look(app, asked, busy).await,
    };
    if lock.has_waited() {
        facts = look(app, asked.key).await?;
    }
    for _ in 0..MAX_ROUNDS {
        if let Some(settlement) = facts.settlement {
            drop(lock);
            return give(app, asked, settlement).await;
        }
        if let Some(settled) = settle_once(app, &facts, asked, &lock).await? {
            return Ok(settled);
        }
        facts = look(app, asked.key).await?;
    }
    Err(SettlementError::Busy(LockBusy))
}

async fn look(app: &App, key: &OrderKey) -> Result<Facts, SettlementError> {
    app.db.gather(FindFacts(key.clone())).await?.ok_or(SettlementError::OrderNotFound)
}

/// The winner's answer is usually there.
async fn last_look(app: &App, asked: Asked<'_>, busy: LockBusy) -> Result<Settled, SettlementError> {
    match look(app, asked.key).await?.settlement {
        Some(settlement) => give(app, asked, settlement).await,
        None => Err(busy.into()),
    }
}

/// Answers with a settlement that stands already: made by somebody else, or by this call, whose commit's answer was lost.
/// There is no effect to keep that answer with.
async fn give(app: &App, asked: Asked<'_>, settlement: Settlement) -> Result<Settled, SettlementError> {
    let is_new = asked.unheard.is_noted() && asked.dated.get() == Some(&settlement.created_at);
    let settled = Settled { settlement, is_new };
    if let Some(keep) = asked.keep {
        let row = keep.row(settled.clone());
        let (mut conn, order_no) = (app.db.conn().await?, Some(asked.key.order_no.as_str()));
        effect!("settlement.keep", idempotency::insert(&mut conn, &row, order_no, app.now()).await)?;
    }
    Ok(settled)
}

/// Whether something can be earned by the order. Pure.
pub(super) fn check(facts: &Facts) -> Result<(), SettlementError> {
    match (facts.status, facts.kind) {
        (OrderStatus::Pending | OrderStatus::Closed, _) => Err(SettlementError::OrderNotPaid),
        (OrderStatus::Refunded, _) => Err(SettlementError::NotSettleable("all of its money went back")),
        (_, OrderKind::TopUp) => Err(SettlementError::NotSettleable("a top-up earns nothing")),
        // What is settled when that becomes known stays as it is, be it in the same moment: this is part of the guard only
        // where a source was asked meanwhile, which may take long.
        _ if facts.may_be_gone => Err(SettlementError::NotSettleable(
            "a refund of it that did not succeed was made after all, or may have been",
        )),
        (OrderStatus::Paid | OrderStatus::PartiallyRefunded, OrderKind::Sale) => Ok(()),
    }
}

/// Nothing when the order is not as it was read.
async fn settle_once(
    app: &App,
    facts: &Facts,
    asked: Asked<'_>,
    lock: &LockGuard,
) -> Result<Option<Settled>, SettlementError> {
    check(facts)?;
    let quotes = rates::source(app).quotes(&[question(facts)]).await?;
    let quote = quotes.into_iter().next();
    let quote = quote.ok_or_else(|| SettlementError::RatesUnusable("no quote".to_owned()))?;
    // The source may have taken long; whoever has the lock by now settles. Nothing was written.
    lock.still_held().map_err(|_| LockBusy)?;

    // Whatever is written again is dated as before: either may be the one that has committed.
    let now = *asked.dated.get_or_init(|| app.now());
    let mut settle = compute(facts, quote, rates::is_outside(app), now);
    let settled = Settled { settlement: settle.settlement.clone(), is_new: true };
    settle.kept = asked.keep.map(|keep| keep.row(settled.clone()));
    settle.unheard = asked.unheard.clone();
    let is_ours = effect!("settlement.settle", app.db.gather(settle).await)?;
    metrics::counter!("payonce_orders_settled_total", "source" => "request").increment(u64::from(is_ours));
    Ok(is_ours.then_some(settled))
}

/// What is asked about an order.
pub(super) fn question(facts: &Facts) -> Question {
    Question {
        order: facts.key.clone(),
        user_id: facts.earner.clone(),
        lines: facts.lines.clone(),
        listed: facts.listed.clone(),
    }
}

/// The settlement by these rates; the order's own goes before them. Pure.
pub(super) fn compute(facts: &Facts, quote: Quote, is_asked_for: bool, now: OffsetDateTime) -> Settle {
    let line_rates = match facts.own_rate {
        Some(own) => vec![own; facts.lines.len()],
        None => quote.rates,
    };
    let base_amount = facts.amount - facts.refunded_amount;
    let lines = facts.lines.iter().map(|line| line.amount).zip(line_rates.iter().copied());
    let terms = Terms::new(facts.amount, lines, quote.factor);
    let settlement = Settlement {
        merchant_id: facts.key.merchant_id.clone(),
        order_no: facts.key.order_no.clone(),
        user_id: facts.earner.clone(),
        base_amount,
        rate: terms.rate_floor(),
        factor: quote.factor,
        commission: terms.commission_floor(base_amount),
        clawed_back: 0,
        currency: facts.currency,
        status: SettlementStatus::Settled,
        created_at: now,
    };
    Settle {
        settlement,
        line_rates,
        refunded_seen: facts.refunded_amount,
        is_asked_for,
        kept: None,
        unheard: Unheard::default(),
    }
}
