//! The statement's lines come in: in chunks, each committed with the place behind it, so that a kill costs one chunk.
//!
//! A channel's books go on at the place that its last page named. A file is read again from its beginning and what is
//! here already is passed over: reading costs little beside copying, and the sums at its end are then those of all of it.

use std::ops::ControlFlow;

use time::{Date, Duration, OffsetDateTime};
use tokio::sync::mpsc;

use super::begin::{Contents, Day};
use super::file::StoredFile;
use super::model::{DayEvent, DayStatus, Source};
use super::store::{self, Claimed};
use crate::app::App;
use crate::channels::bills::{self, BadStatement, EDGE, Fault, ReadError};
use crate::channels::{CallError, StatementLine};
use crate::exceptions::{self, ExceptionAction, ExceptionKind, NewException};
use crate::infra::crash::effect;
use crate::infra::db::{DbError, Tx};
use crate::infra::duty::{Batch, DutyError};

/// Lines of a chunk.
const CHUNK: usize = 10_000;
/// Chunks of a file between two looks at whether to stop: reading it again so often costs little.
const CHUNKS_OF_A_FILE: usize = 100;
/// Pages of a channel's books between two such looks.
const PAGES: usize = 200;
/// Chunks that wait to be copied at most, so that memory stays the same however long the file is.
const CHUNKS_READ_AHEAD: usize = 2;
/// Lines that are taken out at once.
const TAKEN_OUT: i64 = 50_000;
/// When a statement that was not ready is asked for again, at first; after so many tries twice as late, up to some five hours.
const ASKED_AGAIN: Duration = Duration::minutes(10);
const TRIES_AT_A_PACE: i64 = 6;
const SLOWER_AT_MOST: i64 = 5;
/// Tries to go on at one place, with pauses of five seconds, growing to twenty minutes.
const MAX_ATTEMPTS: i32 = 10;
/// How long after its day's end a statement may be late before a person is told.
const LATE_AFTER: Duration = Duration::hours(36);

/// Why fetching stopped.
#[derive(Debug)]
enum Stop {
    /// All of it is here.
    Complete,
    /// There is more; the day is ours for another turn.
    MoreWaiting,
    /// The channel gives no more for now; what is here stays.
    Silent(String),
    /// It is not to be used.
    Bad(BadStatement),
    /// Somebody else has the day.
    Lost,
}

/// Takes out what an earlier statement left, then begins to fetch.
pub(super) async fn clear(app: &App, run: &Claimed) -> Result<Batch, DutyError> {
    let mut tx = app.db.begin().await?;
    let cleared = store::delete_lines(&mut tx, run, TAKEN_OUT).await;
    let taken_out = effect!("reconciliation.clear", tx.finish(cleared).await)?;
    if i64::try_from(taken_out)? >= TAKEN_OUT {
        store::rest(&mut app.db.conn().await?, run, app.now(), false).await?;
        return Ok(Batch::MoreWaiting);
    }
    move_on(app, run, DayEvent::FetchBegun, None).await
}

/// Fetches a bounded part of the statement.
pub(super) async fn fetch(app: &App, mut run: Claimed) -> Result<Batch, DutyError> {
    let stop = match run.source {
        Source::Channel => fetch_pages(app, &mut run).await?,
        Source::Upload => fetch_file(app, &mut run).await?,
    };
    match stop {
        Stop::Complete => match fault_of(app, &run).await? {
            Some(bad) => move_on(app, &run, DayEvent::StatementRefused, Some(&bad)).await,
            None => move_on(app, &run, DayEvent::Fetched, None).await,
        },
        Stop::Bad(bad) => move_on(app, &run, DayEvent::StatementRefused, Some(&bad)).await,
        Stop::MoreWaiting => {
            store::rest(&mut app.db.conn().await?, &run, app.now(), false).await?;
            Ok(Batch::MoreWaiting)
        }
        Stop::Silent(why) => stumble(app, &run, &why).await,
        Stop::Lost => Ok(Batch::MoreWaiting),
    }
}

/// Lets a day rest that cannot go on, longer each time. In the end, what cannot be fetched is refused, and what cannot be
/// compared is tried on, while a person knows of it.
pub(super) async fn stumble(app: &App, run: &Claimed, why: &str) -> Result<Batch, DutyError> {
    let again_at = app.now() + Duration::seconds(5 << run.attempts.clamp(0, 8));
    let is_fetched = run.status.is_fetched();
    let mut tx = app.db.begin().await?;
    let rested = async {
        let count = store::rest(&mut tx, run, again_at, true).await?;
        let is_stuck = count.is_some_and(|count| count >= MAX_ATTEMPTS);
        if is_stuck && is_fetched {
            show_stuck_in_tx(app, &mut tx, run, why).await?;
        }
        Ok::<_, DbError>(is_stuck)
    }
    .await;
    let is_stuck = effect!("reconciliation.rest", tx.finish(rested).await)?;
    if !is_stuck || is_fetched {
        return Ok(Batch::Done);
    }
    let bad = BadStatement::new(Fault::Late, format!("it cannot be read: {why}"));
    move_on(app, run, DayEvent::StatementRefused, Some(&bad)).await
}

async fn show_stuck_in_tx(app: &App, tx: &mut Tx, run: &Claimed, why: &str) -> Result<(), DbError> {
    let detail = format!("the statement of {} for {} cannot be compared: {why}", run.channel, run.day);
    let exception = NewException {
        kind: ExceptionKind::Reconciliation,
        merchant_id: None,
        order_no: None,
        subject: &run.reconciliation_id,
        detail: &detail,
    };
    exceptions::open_in_tx(tx, &app.ids, &exception, app.now()).await
}

/// What a page of a day's statement has that belongs into none of that day.
pub(super) fn fault_of_page(
    lines: &[StatementLine],
    day: Date,
    (begins_at, ends_at): (OffsetDateTime, OffsetDateTime),
) -> Option<BadStatement> {
    if let Some(line) = lines.iter().find(|line| line.at < begins_at - EDGE || line.at >= ends_at + EDGE) {
        let detail = format!("{} is of {}; expected the day {day}", line.channel_id, line.at);
        return Some(BadStatement::new(Fault::OtherDay, detail));
    }
    lines.iter().find_map(|line| bills::check_line(line).err())
}

async fn fetch_pages(app: &App, run: &mut Claimed) -> Result<Stop, DutyError> {
    let Some(channel) = app.channels.get(&run.channel) else {
        let detail = format!("there is no channel {} here", run.channel);
        return Ok(Stop::Bad(BadStatement::new(Fault::Late, detail)));
    };
    // The last page was kept by somebody who died before they could say so.
    if run.lines > 0 && run.next_page.is_none() {
        return Ok(Stop::Complete);
    }
    for _ in 0..PAGES {
        let page = match channel.statement(run.day, run.next_page.as_deref()).await {
            Ok(page) => page,
            // What is here stays: the channel is asked for the same page later.
            Err(error) if run.next_page.is_some() && !matches!(error, CallError::Refused(_)) => {
                return Ok(Stop::Silent(error.to_string()));
            }
            Err(error) => {
                return Ok(Stop::Bad(BadStatement::new(Fault::Late, error.to_string())));
            }
        };
        if let Some(bad) = fault_of_page(&page.lines, run.day, (run.begins_at, run.ends_at)) {
            return Ok(Stop::Bad(bad));
        }
        let is_last = page.next.is_none();
        run.next_page = page.next;
        if !keep(app, run, &page.lines).await? {
            return Ok(Stop::Lost);
        }
        if is_last {
            return Ok(Stop::Complete);
        }
    }
    Ok(Stop::MoreWaiting)
}

/// Copies a chunk and notes the place behind it, in one transaction. `false` when the day is somebody else's.
async fn keep(app: &App, run: &mut Claimed, lines: &[StatementLine]) -> Result<bool, DbError> {
    let first = run.lines + 1;
    run.lines += i64::try_from(lines.len()).unwrap_or(0);
    let until = app.now() + app.config.task_lease;
    let mut tx = app.db.begin().await?;
    let kept = async {
        let is_ours = store::note_place(&mut tx, run, until).await?;
        if is_ours && !lines.is_empty() {
            store::copy_lines(&mut tx, &run.reconciliation_id, first, lines).await?;
        }
        Ok::<_, DbError>(is_ours)
    }
    .await;
    effect!("reconciliation.chunk", tx.finish(kept).await)
}

/// Keeps the day while nothing new comes. `false` when it is somebody else's.
async fn renew(app: &App, run: &Claimed) -> Result<bool, DbError> {
    let until = app.now() + app.config.task_lease;
    Ok(store::rest(&mut app.db.conn().await?, run, until, false).await?.is_some())
}

/// Reads in a thread of its own, and copies what comes.
async fn fetch_file(app: &App, run: &mut Claimed) -> Result<Stop, DutyError> {
    let (Some(format), Some(file_id)) = (run.format, run.file_id.clone()) else {
        return Ok(Stop::Bad(BadStatement::new(Fault::Malformed, "its file is gone; bring it again")));
    };
    let file = StoredFile::open(app, &file_id).await?;
    let (sender, mut chunks) = mpsc::channel(CHUNKS_READ_AHEAD);
    let (day, known) = (run.day, usize::try_from(run.lines)?);
    let reading = tokio::task::spawn_blocking(move || {
        let mut chunk = Chunk { lines: Vec::with_capacity(CHUNK), known, sender };
        let outcome = bills::read_file(format, day, file, &mut |line| chunk.take(line));
        chunk.end(outcome)
    });
    let mut count = 0;
    while let Some(lines) = chunks.recv().await {
        let is_news = !lines.is_empty();
        let is_ours = if is_news { keep(app, run, &lines).await? } else { renew(app, run).await? };
        if !is_ours {
            return Ok(Stop::Lost);
        }
        count += usize::from(is_news);
        if count == CHUNKS_OF_A_FILE {
            return Ok(Stop::MoreWaiting);
        }
    }
    match reading.await? {
        Ok(()) => Ok(Stop::Complete),
        Err(ReadError::Bad(bad)) => Ok(Stop::Bad(bad)),
        Err(error) => Err(error.into()),
    }
}

/// Lines on their way from the reader, without those that are here: for so many of them an empty chunk comes, by which the
/// day is kept.
struct Chunk {
    lines: Vec<StatementLine>,
    known: usize,
    sender: mpsc::Sender<Vec<StatementLine>>,
}

impl Chunk {
    fn take(&mut self, line: StatementLine) -> ControlFlow<()> {
        if self.known > 0 {
            self.known -= 1;
            return if self.known.is_multiple_of(CHUNK) { self.send() } else { ControlFlow::Continue(()) };
        }
        self.lines.push(line);
        if self.lines.len() < CHUNK {
            return ControlFlow::Continue(());
        }
        self.send()
    }

    fn send(&mut self) -> ControlFlow<()> {
        let full = std::mem::replace(&mut self.lines, Vec::with_capacity(CHUNK));
        match self.sender.blocking_send(full) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    }

    fn end(mut self, outcome: Result<(), ReadError>) -> Result<(), ReadError> {
        if outcome.is_ok() && !self.lines.is_empty() && self.send().is_break() {
            return Err(ReadError::Stopped);
        }
        outcome
    }
}

async fn fault_of(app: &App, run: &Claimed) -> Result<Option<BadStatement>, DutyError> {
    let day = Day { day: run.day, begins_at: run.begins_at };
    let limit = i64::try_from(Contents::PAYMENTS)?;
    let payments = store::list_payments(&mut app.db.conn().await?, run, limit).await?;
    // Of a file: an instance of an earlier version that begins the day anew by the channel does not take it back.
    let may_be_empty = run.accepts_empty && run.source == Source::Upload;
    let contents = Contents { lines: run.lines.unsigned_abs(), payments, may_be_empty };
    Ok(day.fault_of(app, &run.channel, &contents).await?)
}

/// Moves the day on. A refused statement of a channel is asked for again; a person is told when that takes long.
pub(super) async fn move_on(
    app: &App,
    run: &Claimed,
    event: DayEvent,
    bad: Option<&BadStatement>,
) -> Result<Batch, DutyError> {
    let Some(to) = run.status.after(event) else { return Ok(Batch::Done) };
    let now = app.now();
    if let Some(bad) = bad {
        tracing::warn!(channel.name = run.channel, day = %run.day, fault = %bad.fault,
            "the statement of {} for {} is not used: {bad}", run.channel, run.day);
    }
    let mut tx = app.db.begin().await?;
    let moved = async {
        let again_at = if bad.is_some() { now + pause_in_tx(&mut tx, run).await? } else { now };
        if store::set_status(&mut tx, run, to, event, bad, again_at, now).await? {
            tell_of_lateness(app, &mut tx, run, to, bad).await?;
        }
        Ok::<_, DbError>(())
    }
    .await;
    effect!("reconciliation.move_on", tx.finish(moved).await)?;
    Ok(if bad.is_some() { Batch::Done } else { Batch::MoreWaiting })
}

/// How long a day waits whose statement is refused, by how many were before this one. Whatever else was tried says nothing of
/// that, nor how far each of them came in.
async fn pause_in_tx(tx: &mut Tx, run: &Claimed) -> Result<Duration, DbError> {
    let refused = store::count_refused(tx, &run.reconciliation_id).await?;
    Ok(ASKED_AGAIN * (1_i32 << (refused / TRIES_AT_A_PACE).clamp(0, SLOWER_AT_MOST)))
}

async fn tell_of_lateness(
    app: &App,
    tx: &mut Tx,
    run: &Claimed,
    to: DayStatus,
    bad: Option<&BadStatement>,
) -> Result<(), DbError> {
    let (subject, now) = (&run.reconciliation_id, app.now());
    let Some(bad) = bad else {
        // It has its statement, or goes on where it could not.
        let goes_on = to != DayStatus::Fetching;
        return if goes_on {
            exceptions::settle_in_tx(tx, subject, None, ExceptionAction::None, now).await
        } else {
            Ok(())
        };
    };
    // Nobody brings another file before they know; a channel's statement comes late now and then, unless what an earlier
    // one showed waits for it.
    let is_told = run.source == Source::Upload
        || now > run.ends_at + LATE_AFTER
        || store::has_unfinished(tx, subject).await?;
    if !is_told {
        return Ok(());
    }
    let kind = ExceptionKind::LateStatement;
    // Whatever a person made of it: the same statement is still not there.
    let begun_at = store::begun_at(tx, subject).await?;
    if exceptions::was_shown_since(tx, subject, kind, begun_at).await? {
        return Ok(());
    }
    let detail = format!("{} gives no statement of {} that could be used: {bad}", run.channel, run.day);
    let exception = NewException { kind, merchant_id: None, order_no: None, subject, detail: &detail };
    exceptions::open_in_tx(tx, &app.ids, &exception, now).await
}
