//! The duty that takes differences up: each is decided over by `RECON_AUTO`, and carried out.
//!
//! A decision is a commit of its own, with the cap counted under its lock; what is carried out afterwards goes through
//! functions that act once for each trade and each refund. So whoever takes a difference up again after a death does
//! only what is missing.

use std::collections::BTreeSet;

use time::{Duration, OffsetDateTime, UtcOffset};

use super::carry_out::{Done, carry_out, moves_money};
use super::compare::resolve;
use super::model::{Item, ItemAction, ItemEvent, ItemStatus};
use super::store::{self, Move};
use crate::app::App;
use crate::config::ReconAuto;
use crate::exceptions::{self, ExceptionAction, ExceptionKind, NewException};
use crate::infra::crash::effect;
use crate::infra::db::{DbError, Tx};
use crate::infra::duty::{Batch, DutyError};

/// Differences that are taken up together: so few that they are done within the lease.
const ITEMS: i64 = 10;
/// Tries before a person is told, and the pauses between them: five seconds, growing to an hour.
const MAX_ATTEMPTS: i32 = 12;
/// What becomes of a difference that nobody here may decide over.
const WAITS: &str = "waits for a decision";

/// Takes up a batch of differences.
///
/// # Errors
/// When the database cannot be reached.
pub async fn act_due(app: &App) -> Result<Batch, DutyError> {
    let (now, mut conn) = (app.now(), app.db.conn().await?);
    let until = now + app.config.task_lease;
    let elsewhere = app.channels.elsewhere();
    let mut items = effect!(
        "reconciliation.take_up",
        store::claim_items(&mut conn, ITEMS, &elsewhere, until, now).await
    )?;
    drop(conn);
    let count = items.len();
    items.sort_by_key(|item| item.action.asks());
    let mut silent = BTreeSet::new();
    for item in items {
        // Whoever is not asked now, or not reached within the lease, is taken up again when it ends.
        if app.now() >= until {
            break;
        }
        if item.action.asks() && silent.contains(&item.channel) {
            continue;
        }
        let channel = item.channel.clone();
        if let Answer::Silence = take_up(app, item).await? {
            silent.insert(channel);
        }
    }
    if count > 0 {
        app.reconciliation_wake.notify_one();
    }
    Ok(Batch::of(count, usize::try_from(ITEMS)?))
}

/// What is to be known of an item that was taken up.
#[derive(Clone, Copy, Debug)]
enum Answer {
    /// Its channel did not answer: it is not asked about the others now.
    Silence,
    /// Nothing.
    None,
}

/// What follows a step.
enum Next {
    /// It was decided over, and goes on as it stands now.
    Decided(Box<Item>),
    /// Nothing now.
    Rest(Answer),
}

/// Takes an item as far as it goes now. What fails is tried again later, and is a person's to see to in the end.
async fn take_up(app: &App, mut item: Item) -> Result<Answer, DbError> {
    loop {
        match step(app, &item).await {
            Ok(Next::Decided(decided)) => item = *decided,
            Ok(Next::Rest(answer)) => return Ok(answer),
            Err(error) => {
                tracing::warn!(%error, item.id = %item.item_id, "a difference could not be carried out");
                leave(app, &item, &error.to_string()).await?;
                return Ok(Answer::None);
            }
        }
    }
}

async fn step(app: &App, item: &Item) -> Result<Next, DutyError> {
    // Its day was begun anew since it was taken up: what comes of that is known before anything is done.
    if !store::stands(&mut app.db.conn().await?, item).await? {
        return Ok(Next::Rest(Answer::None));
    }
    if item.status != ItemStatus::Applying {
        let item = &Item { moves_money: moves_money(app, item).await?, ..item.clone() };
        return Ok(decide_over(app, item, ItemEvent::Decided, None).await?);
    }
    let done = carry_out(app, item).await?;
    let answer = if matches!(done, Done::Silent(_)) { Answer::Silence } else { Answer::None };
    match done {
        Done::Applied(outcome) => end(app, item, ItemEvent::Applied, &outcome).await?,
        Done::Explained(outcome) => end(app, item, ItemEvent::Explained, &outcome).await?,
        Done::GivenUp(outcome) => end(app, item, ItemEvent::GivenUp, &outcome).await?,
        Done::Chargeable(why) => {
            let charge = Item { action: ItemAction::Charge, moves_money: true, ..item.clone() };
            return Ok(decide_over(app, &charge, ItemEvent::AnswerDecided, Some(&why)).await?);
        }
        Done::Stray(why) => {
            let stray = Item { moves_money: true, ..item.clone() };
            return Ok(decide_over(app, &stray, ItemEvent::AnswerDecided, Some(&why)).await?);
        }
        Done::Charged => count(item, ItemEvent::Applied),
        Done::Undecided(why) => {
            let item = Item { moves_money: true, ..item.clone() };
            end(app, &item, ItemEvent::LeftToAPerson, &format!("{why}: {WAITS}")).await?;
        }
        Done::Later(why) | Done::Silent(why) => leave(app, item, &why).await?,
    }
    Ok(Next::Rest(answer))
}

/// Leaves an item for another try, or to a person after the last one.
async fn leave(app: &App, item: &Item, why: &str) -> Result<(), DbError> {
    if item.attempts + 1 >= MAX_ATTEMPTS {
        let is_decided = item.status == ItemStatus::Applying;
        let event = if is_decided { ItemEvent::GivenUp } else { ItemEvent::LeftToAPerson };
        return end(app, item, event, why).await;
    }
    let pause = Duration::seconds(5 << item.attempts.clamp(0, 10)).min(Duration::HOUR);
    let mut conn = app.db.conn().await?;
    store::release(&mut conn, item, why, app.now() + pause).await
}

/// Moves a difference on where the service may carry it out by itself, and leaves it to a person where it may not.
async fn decide_over(app: &App, item: &Item, event: ItemEvent, why: Option<&str>) -> Result<Next, DbError> {
    let now = app.now();
    let mut tx = app.db.begin().await?;
    let decided = async {
        // The day first, as by whoever ends its comparison. Where it was begun anew since this was read, what comes of that is
        // known before anything is decided; where it was not, nobody begins it anew before the decision is there to be seen.
        if store::lock_standing(&mut tx, &item.item_id).await?.as_ref() != Some(&item.reconciliation_id) {
            return Ok(None);
        }
        // Whoever let it be asked about has not let anybody be charged.
        let is_persons = item.status == ItemStatus::Applying && item.decided_by.is_some();
        if !is_persons && may_go(app, &mut tx, item, now).await? {
            let step = Move { event, decided_by: None, outcome: why };
            let Some(to) = item.status.after(event) else { return Ok(None) };
            let is_moved = store::move_item(&mut tx, item, to, step, now).await?;
            let decided = Item { status: to, version: item.version + 1, attempts: 0, ..item.clone() };
            return Ok(is_moved.then_some(decided));
        }
        let event = ItemEvent::LeftToAPerson;
        let Some(to) = item.status.after(event) else { return Ok(None) };
        let step = Move { event, decided_by: None, outcome: why };
        if store::move_item(&mut tx, item, to, step, now).await? {
            let detail = why.map_or_else(|| WAITS.to_owned(), |why| format!("{why}: {WAITS}"));
            show_in_tx(app, &mut tx, item, &detail).await?;
        }
        Ok::<_, DbError>(None)
    }
    .await;
    let decided = effect!("reconciliation.decide", tx.finish(decided).await)?;
    Ok(decided.map_or(Next::Rest(Answer::None), |item| Next::Decided(Box::new(item))))
}

/// Whether the service may carry it out by itself.
async fn may_go(app: &App, tx: &mut Tx, item: &Item, now: OffsetDateTime) -> Result<bool, DbError> {
    let recon = &app.config.reconciliation;
    match recon.auto {
        ReconAuto::Off => Ok(false),
        ReconAuto::Safe => Ok(!item.moves_money),
        ReconAuto::All if !item.moves_money => Ok(true),
        ReconAuto::All => {
            let cap = recon.daily_cap.get(&item.currency).copied().unwrap_or(0);
            let today = now.to_offset(UtcOffset::UTC).date().midnight().assume_utc();
            let spent = store::spent(tx, item.currency, today).await?;
            Ok(spent + item.theirs.or(item.ours).unwrap_or(0) <= cap)
        }
    }
}

/// The end of a difference.
async fn end(app: &App, item: &Item, event: ItemEvent, outcome: &str) -> Result<(), DbError> {
    let mut tx = app.db.begin().await?;
    let ended = end_in_tx(app, &mut tx, item, event, outcome, app.now()).await;
    if effect!("reconciliation.end", tx.finish(ended).await)? {
        count(item, event);
    }
    Ok(())
}

/// Writes the end of a difference down, with what that means for what a person was shown. `false` where somebody else
/// has it by now: nothing was written.
pub(super) async fn end_in_tx(
    app: &App,
    tx: &mut Tx,
    item: &Item,
    event: ItemEvent,
    outcome: &str,
    now: OffsetDateTime,
) -> Result<bool, DbError> {
    if event == ItemEvent::Explained {
        return resolve(tx, item, outcome, now).await;
    }
    let Some(to) = item.status.after(event) else { return Ok(false) };
    let step = Move { event, decided_by: None, outcome: Some(outcome) };
    if !store::move_item(tx, item, to, step, now).await? {
        return Ok(false);
    }
    match event {
        ItemEvent::GivenUp | ItemEvent::LeftToAPerson => show_in_tx(app, tx, item, outcome).await?,
        _ => exceptions::settle_in_tx(tx, &item.item_id, None, ExceptionAction::None, now).await?,
    }
    Ok(true)
}

fn count(item: &Item, event: ItemEvent) {
    metrics::counter!("payonce_reconciliation_actions_total",
        "class" => item.class.as_str(), "outcome" => event.as_str())
    .increment(1);
}

/// Shows a difference to a person.
pub(super) async fn show_in_tx(app: &App, tx: &mut Tx, item: &Item, why: &str) -> Result<(), DbError> {
    let Item { class, kind, channel, our_id, channel_id, currency, .. } = item;
    let amount = |minor: Option<i64>| minor.map_or("nothing".to_owned(), |minor| minor.to_string());
    let detail = format!(
        "{class}: {kind} {our_id} (at {channel} {channel_id}) is {} here and {} there, in {currency} (minor units): {why}",
        amount(item.ours),
        amount(item.theirs),
    );
    let exception = NewException {
        kind: ExceptionKind::Reconciliation,
        merchant_id: item.merchant_id.as_deref(),
        order_no: item.order_no.as_deref(),
        subject: &item.item_id,
        detail: &detail,
    };
    // What was shown before may tell of other amounts.
    exceptions::settle_in_tx(tx, &item.item_id, Some(exception.kind), ExceptionAction::None, app.now())
        .await?;
    exceptions::open_in_tx(tx, &app.ids, &exception, app.now()).await
}
