//! Ours against theirs: their lines in the order of their keys, then our movements in the order of time. Each range is
//! one statement in the database, and commits what it found and counted with the place behind it; two are under way at
//! once.

use time::{Date, Duration, OffsetDateTime};

use super::fetch::move_on;
use super::listed;
use super::model::{DayEvent, Item, ItemEvent, Totals};
use super::store::{self, Beside, Claimed, Move, Neighbour, Walk};
use crate::app::App;
use crate::channels::bills::EDGE;
use crate::exceptions::{self, ExceptionAction};
use crate::infra::crash::effect;
use crate::infra::db::{DbError, Tx};
use crate::infra::duty::{Batch, DutyError};
use crate::infra::gather::Patience;

/// Lines of a range.
const LINES: i64 = 10_000;
/// Time of a range: some seven thousand movements, where a day has a million.
const STRETCH: Duration = Duration::minutes(10);
/// Ranges between two looks at whether to stop.
const RANGES: usize = 50;
/// How long after a day's end what is recorded still belongs to it.
pub(super) const RECORDED_FOR: Duration = Duration::days(2);
/// Items that are moved together.
const ITEMS: i64 = 500;
/// Items that are walked together, of which most may stay as they are.
const WALKED: i64 = 10_000;

/// Compares a bounded part.
pub(super) async fn compare(app: &App, mut run: Claimed) -> Result<Batch, DutyError> {
    let beside = Beside::of(app, &run).await?;
    let mut is_alone = false;
    for _ in 0..RANGES {
        let compared = match is_alone {
            true => one(app, &mut run, &beside).await,
            false => two_at_once(app, &mut run, &beside).await,
        };
        let is_over = match compared {
            // Both wanted to write the same difference: one after the other they do not wait for each other.
            Err(DbError::Contended(_)) if !is_alone => one(app, &mut run, &beside).await?,
            // There is no second connection, or it was closed because it waited too long for the first: the next ranges do
            // not try again. Where the database is away, one alone finds so too.
            Err(DbError::Unavailable(error)) if !is_alone => {
                tracing::debug!(%error, "ranges are compared one by one");
                is_alone = true;
                one(app, &mut run, &beside).await?
            }
            compared => compared?,
        };
        if is_over {
            return end(app, &run, &beside).await;
        }
    }
    store::rest(&mut app.db.conn().await?, &run, app.now(), false).await?;
    Ok(Batch::MoreWaiting)
}

/// Compares the next range. `true` behind the last one.
async fn one(app: &App, run: &mut Claimed, beside: &Beside) -> Result<bool, DbError> {
    let mut tx = app.db.begin().await?;
    let compared = compare_range(&mut tx, run, beside, app.now()).await;
    keep(app, tx, run, compared).await
}

/// Compares the next range and the one behind it, each on a connection of its own. The second commits behind the first,
/// which waits for it no longer than a moment.
async fn two_at_once(app: &App, run: &mut Claimed, beside: &Beside) -> Result<bool, DbError> {
    let Some(mut behind) = behind_next(app, run).await? else { return one(app, run, beside).await };
    let (mut first, mut second) = (app.db.begin().await?, app.db.begin().await?);
    let mut next = run.clone();
    let (kept, compared) = tokio::join!(
        async {
            first.limit_waiting(Patience::IN_LANE).await?;
            let compared = compare_range(&mut first, &mut next, beside, app.now()).await;
            keep(app, first, &next, compared).await
        },
        compare_range(&mut second, &mut behind, beside, app.now()),
    );
    // Dropped, the second one is rolled back.
    kept?;
    run.clone_from(&next);
    next.totals.add(&behind.totals);
    behind.totals = next.totals;
    let is_over = keep(app, second, &behind, compared).await?;
    *run = behind;
    Ok(is_over)
}

/// The day as it stands behind the next range, but for its totals; nothing where that may be the last one.
async fn behind_next(app: &App, run: &Claimed) -> Result<Option<Claimed>, DbError> {
    let mut behind = run.clone();
    behind.totals.0 = Totals::default();
    if run.is_walked {
        let until = walked_until(run) + STRETCH;
        behind.walked_until = Some(until);
        return Ok(Some(behind).filter(|_| until < recorded_until(run, app.now())));
    }
    let end = store::end_of_range(&mut app.db.conn().await?, run, LINES).await?;
    Ok(end.map(|(kind, channel_id, line_no)| {
        (behind.after_kind, behind.after_channel_id, behind.after_line_no) = (kind, channel_id, line_no);
        behind
    }))
}

/// Commits what a range came to with the place behind it. Where somebody else has the day, what was found here is
/// rolled back.
async fn keep<T>(app: &App, mut tx: Tx, run: &Claimed, compared: Result<T, DbError>) -> Result<T, DbError> {
    let kept = async {
        let outcome = compared?;
        let until = app.now() + app.config.task_lease;
        let is_ours = store::note_place(&mut tx, run, until).await?;
        if is_ours { Ok(outcome) } else { Err(DbError::UnexpectedRows(0)) }
    }
    .await;
    effect!("reconciliation.compare", tx.finish(kept).await)
}

impl Beside {
    async fn of(app: &App, run: &Claimed) -> Result<Self, DbError> {
        let mut conn = app.db.conn().await?;
        let days = store::neighbours(&mut conn, &run.channel, run.day).await?;
        let is_tomorrow_forgotten = store::is_next_forgotten(&mut conn, &run.channel, run.day).await?;
        let find = |day: Option<Date>| days.iter().find(|known| Some(known.day) == day);
        let (yesterday, tomorrow) = (find(run.day.previous_day()), find(run.day.next_day()));
        let answers_for = answers_for(run, yesterday, tomorrow, is_tomorrow_forgotten);
        let id = |known: &Neighbour| known.reconciliation_id.clone();
        let (yesterday, tomorrow) = (yesterday.map(id), tomorrow.map(id));
        let (earlier, later): (Vec<_>, Vec<_>) = days.into_iter().partition(|known| known.day < run.day);
        let ids = |days: Vec<Neighbour>| days.into_iter().map(|known| known.reconciliation_id).collect();
        Ok(Self { earlier: ids(earlier), later: ids(later), yesterday, tomorrow, answers_for })
    }
}

/// From when until when a movement that is missing there is missed by this day. A neighbour counts where its comparison began
/// before this one: what came meanwhile widens nothing of which a part is walked already, or what nobody looked at would count
/// as seen. Of two that are compared at the same time, the one that began later answers for the edge between them.
fn answers_for(
    run: &Claimed,
    yesterday: Option<&Neighbour>,
    tomorrow: Option<&Neighbour>,
    is_tomorrow_forgotten: bool,
) -> (OffsetDateTime, OffsetDateTime) {
    let was_there = |day: Option<&Neighbour>| day.is_some_and(|day| day.compared_at <= run.compared_at);
    let from = if was_there(yesterday) { run.begins_at - EDGE } else { run.begins_at };
    let is_last = was_there(tomorrow) || is_tomorrow_forgotten;
    (from, if is_last { run.ends_at } else { run.ends_at - EDGE })
}

async fn compare_range(
    tx: &mut Tx,
    run: &mut Claimed,
    beside: &Beside,
    now: OffsetDateTime,
) -> Result<bool, DbError> {
    if !run.is_walked {
        compare_lines(tx, run, beside, now).await?;
        return Ok(false);
    }
    walk_ours(tx, run, beside, now).await
}

async fn compare_lines(
    tx: &mut Tx,
    run: &mut Claimed,
    beside: &Beside,
    now: OffsetDateTime,
) -> Result<(), DbError> {
    let (compared_at, recorded_until) = (run.compared_at.unwrap_or(now), recorded_until(run, now));
    let compared = store::compare_lines(tx, run, LINES, compared_at, recorded_until, beside, now).await?;
    run.is_walked = compared.is_empty();
    for part in compared {
        let total = run.totals.of(part.kind, part.currency);
        total.their_count += part.lines;
        total.theirs += part.theirs;
        total.fees += part.fees;
        total.differences += part.differences;
        total.edges += part.edges;
        run.after_kind = part.last_kind;
        run.after_channel_id = part.last_channel_id;
        run.after_line_no = part.last_line_no;
    }
    Ok(())
}

/// What was recorded later belongs to no total of the day.
fn recorded_until(run: &Claimed, now: OffsetDateTime) -> OffsetDateTime {
    run.compared_at.unwrap_or(now).min(run.ends_at + RECORDED_FOR)
}

/// Until when our movements are compared.
fn walked_until(run: &Claimed) -> OffsetDateTime {
    run.walked_until.unwrap_or(run.begins_at - EDGE)
}

/// A movement at the very edge of the day may stand on the statement of the next one. So whichever of two days is compared
/// later answers for the edge between them ([`answers_for`]). One that is forgotten answers for nothing any more: then each day
/// answers for its own.
async fn walk_ours(
    tx: &mut Tx,
    run: &mut Claimed,
    beside: &Beside,
    now: OffsetDateTime,
) -> Result<bool, DbError> {
    let last = recorded_until(run, now);
    let from = walked_until(run);
    if from >= last {
        return Ok(true);
    }
    let until = (from + STRETCH).min(last);
    let (answers_from, answers_until) = beside.answers_for;
    let others = [beside.earlier.as_slice(), &beside.later].concat();
    let walk = Walk { from, until, answers_from, answers_until, others: &others };
    for part in store::walk_ours(tx, run, walk, now).await? {
        let total = run.totals.of(part.kind, part.currency);
        total.our_count += part.our_count;
        total.ours += part.ours;
        total.differences += part.differences;
        total.edges += part.edges;
    }
    run.walked_until = Some(until);
    Ok(false)
}

/// What is left to be said once all is compared.
enum Left {
    /// What the day says of charges.
    Charges,
    /// What an earlier round found and this one did not is no difference any more: behind this one.
    Differences(String),
    /// Nothing.
    Nothing,
}

/// Says what is left. Where somebody begins the day again meanwhile, this round says nothing more.
async fn end(app: &App, run: &Claimed, beside: &Beside) -> Result<Batch, DutyError> {
    let mut left = Left::Charges;
    while !matches!(left, Left::Nothing) {
        let mut tx = app.db.begin().await?;
        let ended = end_in_tx(app, &mut tx, run, beside, left).await;
        let Some(rest) = effect!("reconciliation.resolve", tx.finish(ended).await)? else {
            return Ok(Batch::MoreWaiting);
        };
        left = rest;
    }
    let unexplained: i64 = run.totals.0.0.values().map(|total| total.unexplained().abs()).sum();
    tracing::info!(channel.name = run.channel, day = %run.day, lines = run.lines, unexplained,
        "the statement of {} for {} is compared", run.channel, run.day);
    move_on(app, run, DayEvent::Matched, None).await
}

async fn end_in_tx(
    app: &App,
    tx: &mut Tx,
    run: &Claimed,
    beside: &Beside,
    left: Left,
) -> Result<Option<Left>, DbError> {
    let now = app.now();
    // Locks the day: until this commits, nobody begins it again.
    if !store::note_place(tx, run, now + app.config.task_lease).await? {
        return Ok(None);
    }
    Ok(Some(match left {
        Left::Charges => match listed::note_in_tx(app, tx, run, ITEMS, now).await? {
            0 => Left::Differences(String::new()),
            _ => Left::Charges,
        },
        Left::Differences(after) => match resolve_unseen(tx, run, beside, &after, now).await? {
            Some(last) => Left::Differences(last),
            None => Left::Nothing,
        },
        Left::Nothing => Left::Nothing,
    }))
}

/// Walks the next differences of the day. Gives the last one; nothing where there are no more.
async fn resolve_unseen(
    tx: &mut Tx,
    run: &Claimed,
    beside: &Beside,
    after: &str,
    now: OffsetDateTime,
) -> Result<Option<String>, DbError> {
    let Some(last) = store::end_of_items(tx, run, after, WALKED).await? else { return Ok(None) };
    let unseen = store::lock_unseen(tx, run, beside, (after, &last), ITEMS).await?;
    for item in &unseen {
        resolve(tx, item, "a later comparison finds no difference", now).await?;
    }
    // As many as there may be: more may follow before the last one.
    let is_cut = i64::try_from(unseen.len()).is_ok_and(|count| count >= ITEMS);
    Ok(unseen.into_iter().next_back().filter(|_| is_cut).map(|item| item.item_id).or(Some(last)))
}

/// A difference that is none any more, and what was open about it.
pub(super) async fn resolve(
    tx: &mut Tx,
    item: &Item,
    why: &str,
    now: OffsetDateTime,
) -> Result<bool, DbError> {
    let event = ItemEvent::Explained;
    let Some(to) = item.status.after(event) else { return Ok(false) };
    let step = Move { event, decided_by: None, outcome: Some(why) };
    let is_moved = store::move_item(tx, item, to, step, now).await?;
    if is_moved {
        exceptions::settle_in_tx(tx, &item.item_id, None, ExceptionAction::None, now).await?;
    }
    Ok(is_moved)
}
