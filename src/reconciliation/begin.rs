//! A channel's day is begun: by an operator, by an upload, or by itself once a day.

use std::sync::OnceLock;

use time::{Date, Duration, OffsetDateTime, UtcOffset};

use super::compare::RECORDED_FOR;
use super::error::ReconciliationError;
use super::fetch::fault_of_page;
use super::find;
use super::model::{DayEvent, Reconciliation, Source};
use super::store::{self, Daily, ListedPayment, NewFile, NewRun, OtherCurrencies};
use super::upload::check_wholly;
use crate::admin_log::{self, Entry};
use crate::app::App;
use crate::channels::bills::{BadStatement, EDGE, Fault};
use crate::channels::{CallError, StatementKind, StatementLine};
use crate::infra::crash::effect;
use crate::infra::db::{DbError, Tx};
use crate::infra::duty::{Batch, DutyError, Within};

/// Days that are made up for after the service was away, at most: what lies beside them is kept for as long.
const MAX_MISSED: i64 = 31;
/// Pages without a line that are looked at before a statement is replaced, at most: a channel may begin one for each kind of
/// movement.
const PAGES_LOOKED_AT: usize = 8;
/// And for how long: somebody waits for the answer.
const LOOKED_AT_FOR: std::time::Duration = std::time::Duration::from_secs(15);

/// What is to be compared.
#[derive(Clone, Debug)]
pub struct NewReconciliation {
    /// Whose statement.
    pub channel: String,
    /// Of which day of the channel's.
    pub day: Date,
}

/// Begins a channel's day, or begins it again: the workers carry it out.
///
/// # Errors
/// [`ReconciliationError::UnknownChannel`], [`ReconciliationError::DayNotOver`]; where the day has a statement, also
/// [`ReconciliationError::NotGiven`], [`ReconciliationError::Statement`]: nothing was begun.
pub async fn begin(
    app: &App,
    new: &NewReconciliation,
    entry: Option<Entry>,
) -> Result<Reconciliation, ReconciliationError> {
    let channel = app.channels.get(&new.channel);
    let channel = channel.ok_or_else(|| ReconciliationError::UnknownChannel(new.channel.clone()))?;
    let day = Day::of(new.day, channel.day_offset());
    let id = begin_day(app, &new.channel, day, Wish::ByChannel { is_checked: false }, entry).await?;
    find::find(app, &id).await
}

/// What a day is begun for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wish<'a> {
    /// Its time has come: nothing to do where anybody began it.
    Daily,
    /// Somebody wants it compared, also anew, with what the channel says.
    ByChannel {
        /// Whether the channel was asked, and has something to say.
        is_checked: bool,
    },
    /// The same by a file.
    ByFile {
        /// Which one.
        file: NewFile<'a>,
        /// Whether it was read to its end, and can be used.
        is_checked: bool,
    },
}

impl Wish<'_> {
    /// Looks at what is to take the place of a day's statement: whatever is no statement does not.
    async fn checked(self, app: &App, channel: &str, day: Day) -> Result<Self, ReconciliationError> {
        Ok(match self {
            Self::ByFile { file, .. } => {
                check_wholly(app, channel, day, file).await?;
                Self::ByFile { file, is_checked: true }
            }
            Self::ByChannel { .. } => {
                ask_first(app, channel, day).await?;
                Self::ByChannel { is_checked: true }
            }
            Self::Daily => self,
        })
    }
}

/// What came of beginning a day.
#[derive(Debug)]
enum Begun {
    /// It is there: its id.
    Day(String),
    /// It has its statement, and nothing was begun: what takes the place of that is looked at first.
    NotChecked,
}

/// What a statement has.
#[derive(Debug, Default)]
pub(super) struct Contents {
    pub(super) lines: u64,
    /// Some of its payments.
    pub(super) payments: Vec<ListedPayment>,
    /// Whether somebody says that it may have nothing of ours although something moved here.
    pub(super) may_be_empty: bool,
}

impl Contents {
    /// Payments that are looked at, at most: where a file is in another currency, all of them are.
    pub(super) const PAYMENTS: usize = 10_000;
    /// Of fewer, all may be lost here, or others' who share the account.
    const STRANGERS: usize = 5;

    pub(super) fn add(&mut self, line: StatementLine) {
        self.lines += 1;
        if line.kind == StatementKind::Payment && self.payments.len() < Self::PAYMENTS {
            let StatementLine { channel_id, our_id, currency, .. } = line;
            self.payments.push(ListedPayment { channel_id, our_id, currency });
        }
    }
}

/// A day of a channel's calendar.
#[derive(Clone, Copy, Debug)]
pub(super) struct Day {
    pub(super) day: Date,
    pub(super) begins_at: OffsetDateTime,
}

impl Day {
    pub(super) fn of(day: Date, offset: UtcOffset) -> Self {
        Self { day, begins_at: day.midnight().assume_offset(offset).to_offset(UtcOffset::UTC) }
    }

    fn ends_at(self) -> OffsetDateTime {
        self.begins_at + Duration::DAY
    }

    /// What is wrong with a statement that adds up, beside what is ours: it has no line, or payments of strangers alone, although
    /// something moved here, and nobody says that this is right; or what both have is in another currency throughout.
    pub(super) async fn fault_of(
        self,
        app: &App,
        channel: &str,
        contents: &Contents,
    ) -> Result<Option<BadStatement>, DbError> {
        if contents.lines == 0 {
            return if contents.may_be_empty { Ok(None) } else { self.emptiness(app, channel).await };
        }
        if let Some(bad) = self.strangeness(app, channel, contents).await? {
            return Ok(Some(bad));
        }
        let mut conn = app.db.conn().await?;
        let other = store::find_other_currencies(&mut conn, channel, &contents.payments).await?;
        Ok(other.map(|OtherCurrencies { ours, theirs }| {
            let detail =
                format!("it has payments in {theirs}; expected {ours}, in which they were made here");
            BadStatement::new(Fault::Currency, detail)
        }))
    }

    /// What is wrong with one of which nothing is known here, though this is no channel's first day.
    async fn strangeness(
        self,
        app: &App,
        channel: &str,
        contents: &Contents,
    ) -> Result<Option<BadStatement>, DbError> {
        if contents.may_be_empty || contents.payments.len() < Contents::STRANGERS {
            return Ok(None);
        }
        let (mut conn, (from, until)) = (app.db.conn().await?, self.inside());
        let is_ours = store::knows_any(&mut conn, channel, &contents.payments).await?;
        if is_ours || !store::has_payments(&mut conn, channel, from, until, self.recorded_until()).await? {
            return Ok(None);
        }
        let detail = format!(
            "none of its payments is known here, and others were made here on {}; expected the statement of our own \
             account, or, where it truly has none of ours, the same with accept_empty",
            self.day
        );
        Ok(Some(BadStatement::new(Fault::OtherAccount, detail)))
    }

    /// The time of it that no other day's statement has.
    fn inside(self) -> (OffsetDateTime, OffsetDateTime) {
        (self.begins_at + EDGE, self.ends_at() - EDGE)
    }

    fn recorded_until(self) -> OffsetDateTime {
        self.ends_at() + RECORDED_FOR
    }

    async fn emptiness(self, app: &App, channel: &str) -> Result<Option<BadStatement>, DbError> {
        let (mut conn, (from, until)) = (app.db.conn().await?, self.inside());
        if !store::has_payments(&mut conn, channel, from, until, self.recorded_until()).await?
            && !store::has_sent_out(&mut conn, (channel, self.day), from, until).await?
        {
            return Ok(None);
        }
        let detail = format!(
            "it has no line, and here something moved on {}; expected its lines, or, where the channel truly \
             has none, its empty file with accept_empty",
            self.day
        );
        Ok(Some(BadStatement::new(Fault::Empty, detail)))
    }
}

/// Asks a channel for the beginning of a statement that is to take the place of the one that its day has: for its pages up to
/// the first that has a line.
async fn ask_first(app: &App, name: &str, day: Day) -> Result<(), ReconciliationError> {
    let channel = app.channels.get(name);
    let channel = channel.ok_or_else(|| ReconciliationError::UnknownChannel(name.to_owned()))?;
    let (mut contents, mut from) = (Contents::default(), None);
    let within = Within::of(LOOKED_AT_FOR);
    for _ in 0..PAGES_LOOKED_AT {
        let page = channel.statement(day.day, from.as_deref()).await.map_err(|error| match error {
            CallError::Refused(_) => BadStatement::new(Fault::Late, error.to_string()).into(),
            error => ReconciliationError::NotGiven(error.to_string()),
        })?;
        if let Some(bad) = fault_of_page(&page.lines, day.day, (day.begins_at, day.ends_at())) {
            return Err(bad.into());
        }
        page.lines.into_iter().for_each(|line| contents.add(line));
        if page.next.is_none() {
            return day.fault_of(app, name, &contents).await?.map_or(Ok(()), |bad| Err(bad.into()));
        }
        // Of a part that has something nobody can say whether all of it is right.
        if contents.lines > 0 || within.is_over() {
            return Ok(());
        }
        from = page.next;
    }
    Ok(())
}

/// Writes the day's row, or begins it again, with what stands in the admin log. What was mistaken for a statement, or is not
/// given, takes the place of none.
pub(super) async fn begin_day(
    app: &App,
    channel: &str,
    day: Day,
    wish: Wish<'_>,
    entry: Option<Entry>,
) -> Result<String, ReconciliationError> {
    if day.ends_at() > app.now() {
        return Err(ReconciliationError::DayNotOver(day.day));
    }
    let reconciliation_id = app.ids.reconciliation();
    let file = if let Wish::ByFile { file, .. } = wish { Some(file) } else { None };
    let new = NewRun {
        reconciliation_id: reconciliation_id.as_str(),
        channel,
        day: day.day,
        begins_at: day.begins_at,
        ends_at: day.ends_at(),
        source: if file.is_some() { Source::Upload } else { Source::Channel },
        file,
    };
    let round = OnceLock::new();
    let begun = app.db.retrying(|| async {
        let mut tx = app.db.begin().await?;
        let written = begin_in_tx(&mut tx, &new, wish, &round, entry.as_ref(), app.now()).await;
        effect!("reconciliation.begin", tx.finish(written).await)
    });
    let begun = match begun.await {
        // Somebody else began the same day in the same moment: it is there now.
        Err(ReconciliationError::Db(error)) if error.constraint() == Some("reconciliations_day_once") => {
            return Box::pin(begin_day(app, channel, day, wish, entry)).await;
        }
        outcome => outcome?,
    };
    match begun {
        Begun::Day(id) => {
            app.reconciliation_wake.notify_one();
            Ok(id)
        }
        Begun::NotChecked => {
            let wish = wish.checked(app, channel, day).await?;
            Box::pin(begin_day(app, channel, day, wish, entry)).await
        }
    }
}

/// `round` is that in which the first try of a call found the day.
async fn begin_in_tx(
    tx: &mut Tx,
    new: &NewRun<'_>,
    wish: Wish<'_>,
    round: &OnceLock<i32>,
    entry: Option<&Entry>,
    now: OffsetDateTime,
) -> Result<Begun, ReconciliationError> {
    let id = match store::find_of_day(tx, new.channel, new.day).await? {
        None => {
            store::insert(tx, new, now).await?;
            new.reconciliation_id.to_owned()
        }
        // A first try of this call began it, whose answer was lost.
        Some(known) if known.reconciliation_id == new.reconciliation_id => {
            return Ok(Begun::Day(known.reconciliation_id));
        }
        Some(known) => {
            let (Wish::ByFile { is_checked, .. } | Wish::ByChannel { is_checked }) = wish else {
                return Ok(Begun::Day(known.reconciliation_id));
            };
            // The same of one that was there.
            if known.round == round.get_or_init(|| known.round) + 1 && known.is_by(new) {
                return Ok(Begun::Day(known.reconciliation_id));
            }
            if known.status.is_fetched() && !is_checked {
                return Ok(Begun::NotChecked);
            }
            // Also by the same file: what came here since is compared with it, and nothing is done twice.
            let (id, from) = (known.reconciliation_id, known.status);
            if let Some(to) = from.after(DayEvent::BegunAgain) {
                store::begin_again(tx, &id, new, from, to, now).await?;
            }
            id
        }
    };
    if let Some(entry) = entry {
        let entry = Entry { target: format!("{id}: {}", entry.target), ..entry.clone() };
        admin_log::append_in_tx(tx, &entry, now).await?;
    }
    Ok(Begun::Day(id))
}

/// Begins each channel's day at the first `RECON_AT` behind its end, and what was missed of the last days. Never one that
/// somebody began already, another instance or a person.
///
/// # Errors
/// When the database cannot be reached, or does not know the time zone.
pub async fn begin_daily(app: &App) -> Result<Batch, DutyError> {
    let recon = &app.config.reconciliation;
    let Some(at) = recon.at else { return Ok(Batch::Done) };
    let (now, daily) = (app.now(), Daily { at, time_zone: &recon.time_zone });
    for name in app.channels.names() {
        let Some(channel) = app.channels.get(name) else { continue };
        let offset = channel.day_offset();
        let today = now.to_offset(offset).date();
        let days = (1..=MAX_MISSED).map(|ago| Day::of(today - Duration::days(ago), offset));
        let (days, ends): (Vec<Date>, Vec<OffsetDateTime>) = days.map(|day| (day.day, day.ends_at())).unzip();
        let mut conn = app.db.conn().await?;
        let due = store::due_days(&mut conn, name, (&days, &ends), daily, now).await?;
        drop(conn);
        for day in due {
            begin_day(app, name, Day::of(day, offset), Wish::Daily, None).await?;
        }
    }
    Ok(Batch::Done)
}
