//! What a channel says of a trade, applied once: the same function for callbacks, for answers to queries, and for
//! closes that come too late.
//!
//! Read, decide, write. The write names what it was decided on; when it meets nothing, somebody else was faster
//! and everything is read again. Round trips of a first payment: 2, commits: 1, its booking among what they write; of
//! a repeat: 1 and none. Of an order that still waits for money, what does not pay it is read about once more, and where only
//! what came before speaks against that, written in vain first.

use time::OffsetDateTime;

use super::end;
use super::error::PayError;
use super::model::{Attempt, PayEvent, PayStatus};
use crate::app::App;
use crate::channels::{Payment, Refusal, TradeState};
use crate::exceptions::{self, ExceptionKind, NewException};
use crate::ids::Ids;
use crate::infra::crash::effect;
use crate::infra::db::{DbError, Tx};
use crate::infra::lock::{Scene, Turn};
use crate::infra::words::words;
use crate::ledger;
use crate::orders::{OrderKey, OrderKind};
use crate::outbox::Event;
use crate::refunds::{self, NewStray, StrayReason};

mod decide;
mod origin;
#[cfg(test)]
pub(crate) mod simulated;
mod store;

use decide::{Remedy, decide};
pub use origin::Origin;
use store::{Facts, FindFacts, Matched, Pay};

words! {
    /// What became of a report; stored with a callback, and given again to every repeat.
    pub enum Verdict {
        /// It paid its order.
        Applied = "APPLIED",
        /// The same money was there already.
        Repeated = "REPEATED",
        /// Money that the order does not accept.
        Stray = "STRAY",
        /// Money of another amount or currency than was asked.
        AmountMismatch = "AMOUNT_MISMATCH",
        /// It speaks for another account at the channel.
        WrongAccount = "WRONG_ACCOUNT",
        /// Noted; nothing had to move, or an attempt ended without money.
        Recorded = "RECORDED",
        /// No pay order of that id yet; looked for again for ten minutes.
        Unmatched = "UNMATCHED",
        /// Nobody ever knew that pay order.
        UnknownOrder = "UNKNOWN_ORDER",
    }
}

/// What a channel says of a trade.
#[derive(Clone, Debug)]
pub struct Report<'a> {
    /// Which channel.
    pub channel: &'a str,
    /// Which pay order, in the channel's words.
    pub pay_order_id: &'a str,
    /// What became of it.
    pub state: TradeState,
    /// How we know.
    pub origin: Origin<'a>,
}

impl<'a> Report<'a> {
    /// A report on an attempt of ours.
    #[must_use]
    pub fn of_attempt(attempt: &'a Attempt, state: TradeState, origin: Origin<'a>) -> Self {
        Self { channel: &attempt.channel, pay_order_id: attempt.pay_order_id.as_str(), state, origin }
    }

    /// All that decides over it.
    fn question(&self) -> FindFacts {
        FindFacts {
            channel: self.channel.to_owned(),
            pay_order_id: self.pay_order_id.to_owned(),
            transaction_id: self.payment().map(|payment| payment.transaction_id.clone()),
            event_id: self.origin.event_id().map(str::to_owned),
            own_event_id: match self.origin {
                Origin::Callback { event_id, .. } => {
                    self.payment().map(|payment| own_event_id(event_id, payment))
                }
                _ => None,
            },
            asks_all: true,
        }
    }

    /// Whether it is a callback that tells of money: nearly all of them pay their orders, and nothing came before.
    fn may_be_first(&self) -> bool {
        matches!(self.origin, Origin::Callback { .. }) && self.payment().is_some()
    }

    fn payment(&self) -> Option<&Payment> {
        match &self.state {
            TradeState::Paid(payment) => Some(payment),
            _ => None,
        }
    }
}

/// What a replay came to, or would come to.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// How the report is judged now.
    pub verdict: Verdict,
    /// What is done for it.
    pub remedy: &'static str,
    /// Whether that changes anything.
    pub moves: bool,
}

impl From<Remedy> for Outcome {
    fn from(remedy: Remedy) -> Self {
        Self { verdict: remedy.verdict(), remedy: remedy.as_str(), moves: remedy.moves() }
    }
}

/// Applies a report and says what was done for it.
///
/// # Errors
/// When the database cannot be reached: nothing was changed.
pub async fn replay(app: &App, report: &Report<'_>) -> Result<Outcome, PayError> {
    Ok(app.db.retrying(|| apply_with_races(app, report)).await?.into())
}

/// What [`replay`] would do now. Writes nothing.
///
/// # Errors
/// When the database cannot be reached.
pub async fn preview(app: &App, report: &Report<'_>) -> Result<Outcome, PayError> {
    let facts = app.db.gather(report.question()).await?;
    Ok(decide(&facts, report).into())
}

/// Applies a report where it pays its order, or says what is known; `None` where it calls for anything else by now, and
/// nothing was done.
///
/// # Errors
/// When the database cannot be reached.
pub async fn pay_or_nothing(app: &App, report: &Report<'_>) -> Result<Option<Verdict>, PayError> {
    let remedy = app.db.retrying(|| apply_where(app, report, pays)).await?;
    Ok(Some(remedy).filter(pays).map(Remedy::verdict))
}

/// Whether a report would pay its order now, or tell what is known: nothing that could give money back.
///
/// # Errors
/// When the database cannot be reached.
pub async fn would_pay(app: &App, report: &Report<'_>) -> Result<bool, PayError> {
    let facts = app.db.gather(report.question()).await?;
    Ok(pays(&decide(&facts, report)))
}

const fn pays(remedy: &Remedy) -> bool {
    matches!(remedy, Remedy::Pay | Remedy::Repeat(_) | Remedy::Note(_))
}

/// Rounds of "read, decide, write": each lost race is one round, and so is a look that has not seen enough.
const MAX_ROUNDS: usize = 8;

/// Applies a report, once. Money that nobody knows under the id of another event is an event of its own.
///
/// # Errors
/// When the database cannot be reached: nothing was kept, and the channel must be made to repeat itself.
pub async fn apply(app: &App, report: &Report<'_>) -> Result<Verdict, PayError> {
    let mut own_id: Option<String> = None;
    // Each round but the last meets another event that the channel gave such an id.
    loop {
        let own;
        let report = match (&own_id, report.origin) {
            (Some(event_id), Origin::Callback { body, account_matches, .. }) => {
                own =
                    Report { origin: Origin::Callback { event_id, body, account_matches }, ..report.clone() };
                &own
            }
            _ => report,
        };
        let remedy = app.db.retrying(|| apply_with_races(app, report)).await?;
        let (Origin::Callback { event_id, body, .. }, Some(payment)) = (report.origin, report.payment())
        else {
            return Ok(remedy.verdict());
        };
        let is_another = match remedy {
            Remedy::Split => true,
            // What waits for its pay order says nothing of money that comes under its id in other words.
            Remedy::Repeat(Verdict::Unmatched) => {
                !app.db.retrying(|| is_kept(app, report.channel, event_id, body)).await?
            }
            _ => false,
        };
        if !is_another {
            return Ok(remedy.verdict());
        }
        own_id = Some(own_event_id(event_id, payment));
    }
}

/// Under which id money is kept that comes under the id of another event.
fn own_event_id(event_id: &str, payment: &Payment) -> String {
    format!("{event_id} {}", payment.transaction_id)
}

/// Whether a callback is kept in these very words.
async fn is_kept(app: &App, channel: &str, event_id: &str, body: &[u8]) -> Result<bool, PayError> {
    Ok(store::is_kept(&mut app.db.conn().await?, channel, event_id, body).await?)
}

async fn apply_with_races(app: &App, report: &Report<'_>) -> Result<Remedy, PayError> {
    apply_where(app, report, |_| true).await
}

/// Writes what is called for where that may be; where it may not, says what it is and writes nothing.
async fn apply_where(
    app: &App,
    report: &Report<'_>,
    may_be: fn(&Remedy) -> bool,
) -> Result<Remedy, PayError> {
    let mut lock = None;
    for round in 0..MAX_ROUNDS {
        let asks_all = round > 0 || !report.may_be_first();
        let facts = app.db.gather(FindFacts { asks_all, ..report.question() }).await?;
        let remedy = decide(&facts, report);
        if !facts.is_whole && remedy != Remedy::Pay {
            continue;
        }
        if !may_be(&remedy) {
            return Ok(remedy);
        }
        if lock.is_none() {
            match lock_for(app, report, &facts, &remedy).await {
                Some(Turn::Ours(guard)) => lock = Some(guard),
                Some(Turn::Settled(remedy)) => {
                    announce(app, report, &facts, &remedy);
                    return Ok(remedy);
                }
                None => {}
            }
        }
        match write(app, report, &facts, &remedy).await {
            Ok(true) => {
                announce(app, report, &facts, &remedy);
                return Ok(remedy);
            }
            Ok(false) => {}
            // The same event, or the same trade, was written by somebody else between the read and the write.
            Err(error) if matches!(error.constraint(), Some(c) if LOST_RACES.contains(&c)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(PayError::Db(DbError::Contended(sqlx::Error::RowNotFound)))
}

/// A callback takes the order's lock before it writes, and goes on without it when it cannot be had: the write is
/// guarded either way. One that was taken in meanwhile, by another instance, is a repeat. Whoever asks the channel
/// holds the lock already.
async fn lock_for(app: &App, report: &Report<'_>, facts: &Facts, remedy: &Remedy) -> Option<Turn<Remedy>> {
    if report.origin.is_answer() || matches!(remedy, Remedy::Repeat(_) | Remedy::Split) {
        return None;
    }
    let key = facts.matched.as_ref()?.key.lock_key();
    let look = || async {
        let facts = app.db.gather(report.question()).await.ok()?;
        Some(decide(&facts, report)).filter(|remedy| matches!(remedy, Remedy::Repeat(_)))
    };
    app.locks.acquire_unless(Scene::Webhook, &key, look).await.ok()
}

const LOST_RACES: [&str; 3] = ["webhook_inbox_pkey", "trades_pkey", "stray_payments_trade_once"];

/// Writes what was decided; `false` when the state that it was decided on is gone.
async fn write(app: &App, report: &Report<'_>, facts: &Facts, remedy: &Remedy) -> Result<bool, DbError> {
    let now = app.now();
    match remedy {
        Remedy::Repeat(_) | Remedy::Split => Ok(true),
        Remedy::Pay => {
            let (Some(matched), Some(payment)) = (&facts.matched, report.payment()) else { return Ok(false) };
            effect!("report.pay", app.db.gather(pay(matched, report, payment, now)).await)
        }
        // An answer to a question of ours that moves nothing leaves no row, and a replay the row as it is.
        Remedy::Note(_) if !matches!(report.origin, Origin::Callback { .. } | Origin::Rematch { .. }) => {
            Ok(true)
        }
        // Boxed: what an ordinary payment does not need takes no room in its future.
        _ => {
            Box::pin(async {
                let mut tx = app.db.begin().await?;
                let written = write_in_tx(app, &mut tx, report, facts, remedy, now).await;
                effect!("report.write", tx.finish(written).await)
            })
            .await
        }
    }
}

async fn write_in_tx(
    app: &App,
    tx: &mut Tx,
    report: &Report<'_>,
    facts: &Facts,
    remedy: &Remedy,
    now: OffsetDateTime,
) -> Result<bool, DbError> {
    if let Some(matched) = &facts.matched
        && !store::lock_as_read(tx, matched).await?
    {
        return Ok(false);
    }
    if !store::record_callback(tx, report, facts, remedy.verdict(), now).await? {
        return Ok(false);
    }
    match remedy {
        Remedy::Stray { reason, event } => {
            move_attempt(tx, report, facts, *event, now).await?;
            hold_stray(app, tx, report, facts, *reason, now).await?;
        }
        Remedy::End(event) => {
            move_attempt(tx, report, facts, Some(*event), now).await?;
            close_again_if_unopened(app, tx, report, facts, now).await?;
            tell_contradiction(app, tx, report, facts, now).await?;
        }
        Remedy::Unmatched => store::append_rematch(tx, report, now).await?,
        Remedy::GiveUpMatching => hold_stray(app, tx, report, facts, StrayReason::UnknownOrder, now).await?,
        Remedy::WrongAccount => {
            let about = (report.origin.event_id().unwrap_or_default(), report.pay_order_id);
            open_wrong_account_in_tx(&app.ids, tx, about, facts.order_key(), now).await?;
        }
        Remedy::Note(_) => tell_contradiction(app, tx, report, facts, now).await?,
        Remedy::Repeat(_) | Remedy::Split | Remedy::Pay => {}
    }
    Ok(true)
}

async fn move_attempt(
    tx: &mut Tx,
    report: &Report<'_>,
    facts: &Facts,
    event: Option<PayEvent>,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    let (Some(matched), Some(event)) = (&facts.matched, event) else { return Ok(()) };
    let Some(to) = matched.attempt_status.after(event) else { return Ok(()) };
    let refusal: Option<&Refusal> = match &report.state {
        TradeState::Failed(refusal) => Some(refusal),
        _ => None,
    };
    let payment = report.payment().filter(|_| event == PayEvent::PaymentConfirmed);
    store::move_attempt(tx, matched, to, event, payment, refusal, now).await
}

/// The trade of an attempt without a link, which its channel has not seen, may come to stand yet.
async fn close_again_if_unopened(
    app: &App,
    tx: &mut Tx,
    report: &Report<'_>,
    facts: &Facts,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    match &facts.matched {
        Some(Matched { key, attempt_status: PayStatus::Init, .. }) if report.state == TradeState::Unseen => {
            end::close_again_in_tx(app, tx, report.pay_order_id, key, now).await
        }
        _ => Ok(()),
    }
}

async fn hold_stray(
    app: &App,
    tx: &mut Tx,
    report: &Report<'_>,
    facts: &Facts,
    reason: StrayReason,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    let Some(payment) = report.payment() else { return Ok(()) };
    let stray = NewStray {
        channel: report.channel,
        out_trade_no: report.pay_order_id,
        order: facts.order_key(),
        payment,
        reason,
        policy: facts.matched.as_ref().map(|matched| matched.stray_money),
    };
    refunds::hold_stray_in_tx(app, tx, &stray, now).await
}

/// Money that we know, told of another pay order or of another amount than before: one of both cannot be true.
async fn tell_contradiction(
    app: &App,
    tx: &mut Tx,
    report: &Report<'_>,
    facts: &Facts,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    let Some(payment) = report.payment() else { return Ok(()) };
    let Some(known) = store::find_other_story(tx, report, payment).await? else { return Ok(()) };
    let detail = format!(
        "{} says that trade {} is {} for {}; it had said {known}",
        report.channel, payment.transaction_id, payment.money, report.pay_order_id
    );
    let order = facts.order_key();
    let exception = NewException {
        kind: ExceptionKind::Contradiction,
        merchant_id: order.map(|key| key.merchant_id.as_str()),
        order_no: order.map(|key| key.order_no.as_str()),
        subject: &format!("{}/{}", report.channel, payment.transaction_id),
        detail: &detail,
    };
    exceptions::open_in_tx(tx, &app.ids, &exception, now).await
}

/// Shows a person that a callback about `subject`, a pay order or a refund of that order, is not for us.
pub(crate) async fn open_wrong_account_in_tx(
    ids: &Ids,
    tx: &mut Tx,
    (event_id, subject): (&str, &str),
    order: Option<&OrderKey>,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    let detail = format!(
        "a correctly signed callback ({event_id}) speaks for another account at the channel than the configured one: where that \
         is wrong, set it right and have the callback replayed"
    );
    let exception = NewException {
        kind: ExceptionKind::WrongAccount,
        merchant_id: order.map(|key| key.merchant_id.as_str()),
        order_no: order.map(|key| key.order_no.as_str()),
        subject,
        detail: &detail,
    };
    // Each of them is to be replayed: what is open tells of all.
    exceptions::tell_in_tx(tx, ids, &exception, now).await
}

fn pay(matched: &Matched, report: &Report<'_>, payment: &Payment, now: OffsetDateTime) -> Pay {
    // By its age an order is settled, whatever the channel's clock says: it was not paid before it was made, nor after this.
    let paid_at = payment.paid_at.max(matched.order_made_at).min(now);
    let announcement = Event::OrderPaid {
        order_no: matched.key.order_no.to_string(),
        user_id: matched.user_id.clone(),
        amount: matched.order_money.0,
        currency: matched.order_money.1,
        pay_order_id: report.pay_order_id.to_owned(),
        channel: report.channel.to_owned(),
        transaction_id: payment.transaction_id.clone(),
        paid_at,
    };
    let topped_up = (matched.order_kind == OrderKind::TopUp).then_some(matched.user_id.as_str());
    let (merchant_id, currency) = (matched.key.merchant_id.as_str(), payment.money.currency);
    let (debit, credit) = ledger::payment_accounts(report.channel, merchant_id, topped_up, currency);
    let body = if let Origin::Callback { body, .. } = report.origin { Some(body.to_vec()) } else { None };
    Pay {
        channel: report.channel.to_owned(),
        matched: matched.clone(),
        payment: payment.clone(),
        paid_at,
        debit,
        credit,
        announcement,
        event_id: report.origin.event_id().map(str::to_owned),
        body,
        now,
    }
}

/// After the commit: wakes who waits, counts, and says it once.
fn announce(app: &App, report: &Report<'_>, facts: &Facts, remedy: &Remedy) {
    let verdict = remedy.verdict();
    metrics::counter!("payonce_reports_total",
        "channel" => report.channel.to_owned(), "verdict" => verdict.as_str())
    .increment(1);
    if !remedy.moves() {
        return;
    }
    let key = facts.order_key();
    if let Some(key) = key {
        app.changes.announce(&key.member());
    }
    // The first attempt of an order has no others to be closed.
    let is_alone = facts.matched.as_ref().is_some_and(|matched| matched.order_attempts == 1);
    if !matches!(remedy, Remedy::Pay) || !is_alone {
        app.compensation_wake.notify_one();
    }
    let order_no = key.map(|key| key.order_no.as_str()).unwrap_or_default();
    tracing::info!(
        order.no = order_no, channel.name = report.channel, pay_order = report.pay_order_id, verdict = %verdict,
        "{} reported {}: {verdict}", report.channel, report.pay_order_id
    );
}
