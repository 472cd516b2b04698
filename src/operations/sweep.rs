//! The sweep: whatever is old and in the middle gets a task, in a lane of its own.
//!
//! It is done in slices, each well within the time of a request; the same call goes on where one was cut off.
//!
//! Every state in the middle has its task from the transaction that led to it, so there is nothing to find; this is
//! the net under that, and what brings back what a person took a task from.

use std::collections::VecDeque;

use serde::Serialize;
use time::Duration;

use super::store;
use crate::admin_log::{self, Entry};
use crate::app::App;
use crate::compensation::Lane;
use crate::infra::crash::effect;
use crate::infra::db::{DbError, Tx};
use crate::infra::duty::{Batch, DutyError, Within};
use crate::orders::{self, OrderKey};
use crate::pay;

/// Things of one batch.
const BATCH: i64 = 500;
/// How long each part of a slice may take, and a statement more: all of them end well before a request must.
pub const SLICE: std::time::Duration = std::time::Duration::from_secs(5);
/// How long a first look at one kind of things may take: all of them have theirs within a slice, whatever is under way of one.
const FIRST_LOOK: std::time::Duration = std::time::Duration::from_millis(800);
/// What moved so recently is in the hands of whoever moved it.
const GRACE: Duration = Duration::seconds(60);

/// Things in the middle that nothing drives.
#[derive(Clone, Debug, Serialize, sqlx::FromRow, utoipa::ToSchema)]
pub struct LeftAlone {
    /// What would be done with them.
    #[schema(value_type = crate::compensation::Action)]
    pub action: String,
    /// How many; counting stops at 100000.
    #[schema(example = 0)]
    pub count: i64,
}

/// What a sweep found, and did.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct Swept {
    /// What stood in the middle with nothing that drives it, as far as it could be counted in time.
    pub left_alone: Vec<LeftAlone>,
    /// Tasks that were written for it.
    #[schema(example = 0)]
    pub written: i64,
    /// Whether it was cut off before it had seen to all: the same call goes on.
    pub has_more: bool,
    /// Of what so much is under way that nobody could see in time whether any of it was left alone: the same call would not
    /// either.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<crate::compensation::Action>)]
    pub not_seen: Vec<&'static str>,
}

/// What a sweep would find.
///
/// # Errors
/// When the database cannot be reached.
pub async fn look_for_left_alone(app: &App) -> Result<Swept, DbError> {
    let (mut looks, mut left_alone) = (Looks::of_all(Within::of(SLICE)), Vec::new());
    while let Some(look) = looks.next() {
        let mut tx = app.db.begin_read().await?;
        look.limit(app, &mut tx).await?;
        let counted = store::count_left_alone(&mut tx, look.source, app.now() - GRACE).await;
        left_alone.extend(looks.learn(look, tx.finish(counted).await)?.flatten());
    }
    left_alone.sort_by(|one: &LeftAlone, other| one.action.cmp(&other.action));
    Ok(Swept { left_alone, written: 0, has_more: false, not_seen: looks.not_seen })
}

/// Closes what is due, and writes tasks for everything else that was left alone: a slice of it.
///
/// # Errors
/// When the database cannot be reached: what was swept stays so, and the same call goes on.
pub async fn sweep(app: &App, entry: &Entry) -> Result<Swept, DutyError> {
    admin_log::append(app, entry).await?;
    let Swept { left_alone, .. } = look_for_left_alone(app).await?;
    Ok(Swept { left_alone, ..sweep_slice(app, SLICE).await? })
}

/// A slice, each of whose parts takes about so long, and does at least a batch. It does not say what stood in the middle before.
///
/// # Errors
/// As [`sweep`].
pub async fn sweep_slice(app: &App, slice: std::time::Duration) -> Result<Swept, DutyError> {
    let has_all_orders = orders::sweep_due_within(app, Within::of(slice)).await?;
    let has_all_links = pay::sweep_dead_links_within(app, Within::of(slice)).await?;
    let Adopted { written, has_all, not_seen } = adopt_all(app, Within::of(slice)).await?;
    let has_more = !(has_all_orders && has_all_links && has_all);
    Ok(Swept { left_alone: Vec::new(), written, has_more, not_seen })
}

/// The same as a duty.
///
/// # Errors
/// When the database cannot be reached.
pub async fn sweep_left_alone(app: &App) -> Result<Batch, DutyError> {
    let Adopted { written, has_all, not_seen } = adopt_all(app, Within::of(SLICE)).await?;
    if written > 0 {
        tracing::warn!(written, "things in the middle had no task; they have one now");
    }
    metrics::counter!("payonce_tasks_adopted_total").increment(u64::try_from(written)?);
    if !not_seen.is_empty() {
        return Err(format!(
            "nobody can see in time whether any of these was left alone: {}",
            not_seen.join(", ")
        )
        .into());
    }
    Ok(if has_all { Batch::Done } else { Batch::MoreWaiting })
}

/// What came of a look for things without a task.
#[derive(Debug)]
struct Adopted {
    /// Tasks that were written.
    written: i64,
    /// Whether these were all that were found.
    has_all: bool,
    /// What could not be looked for: its backlog, all of it with tasks, takes longer than a statement may.
    not_seen: Vec<&'static str>,
}

/// A look for what was left alone of one kind.
#[derive(Clone, Copy)]
struct Look {
    source: &'static store::Source,
    /// How long it may take; nothing stands for as long as any statement.
    most: Option<std::time::Duration>,
    /// Whether the one before found more than it took.
    goes_on: bool,
}

impl Look {
    /// From here on no statement of a transaction takes longer.
    async fn limit(self, app: &App, tx: &mut Tx) -> Result<(), DbError> {
        match self.most {
            Some(most) => tx.limit_statements(most.min(app.config.database.statement_deadline)).await,
            None => Ok(()),
        }
    }
}

/// Whose turn it is: every kind for a moment first, and then those again that take longer, until the time is over.
struct Looks {
    next: VecDeque<Look>,
    within: Within,
    /// Whether it was over before all that was found was taken.
    has_more: bool,
    /// What could not be looked for.
    not_seen: Vec<&'static str>,
}

impl Looks {
    fn of_all(within: Within) -> Self {
        let look = |source| Look { source, most: Some(FIRST_LOOK), goes_on: false };
        let next = store::SOURCES.iter().map(look).collect();
        Self { next, within, has_more: false, not_seen: Vec::new() }
    }

    fn next(&mut self) -> Option<Look> {
        while let Some(look) = self.next.pop_front() {
            if look.most.is_some() || !self.within.is_over() {
                return Some(look);
            }
            if look.goes_on {
                self.has_more = true;
            } else {
                self.not_seen.push(look.source.action);
            }
        }
        None
    }

    fn again(&mut self, look: Look, goes_on: bool) {
        self.next.push_back(Look { most: None, goes_on, ..look });
    }

    /// What came of a look; nothing where it took too long, or somebody else was at the same things.
    fn learn<T>(&mut self, look: Look, outcome: Result<T, DbError>) -> Result<Option<T>, DbError> {
        match outcome {
            Err(error) if error.took_too_long() || matches!(error, DbError::Contended(_)) => {
                match look.most {
                    Some(_) => self.again(look, false),
                    None => self.not_seen.push(look.source.action),
                }
                Ok(None)
            }
            outcome => outcome.map(Some),
        }
    }
}

/// Writes tasks for what has none, for about so long: of each kind a batch, and then more.
async fn adopt_all(app: &App, within: Within) -> Result<Adopted, DbError> {
    let (mut looks, mut written) = (Looks::of_all(within), 0);
    while let Some(look) = looks.next() {
        let adopted = adopt(app, (look, None), Lane::Sweep, within, &mut written).await;
        if looks.learn(look, adopted)? == Some(false) {
            looks.again(look, true);
        }
    }
    if written > 0 {
        app.sweep_wake.notify_one();
    }
    Ok(Adopted { written, has_all: !looks.has_more, not_seen: looks.not_seen })
}

/// The same for what is of one order, which somebody waits for. Gives how many it wrote.
pub(super) async fn adopt_of_order(app: &App, order: &OrderKey) -> Result<i64, DbError> {
    let mut written = 0;
    for source in store::SOURCES.iter().filter(|source| source.is_of_orders()) {
        let look = Look { source, most: None, goes_on: false };
        adopt(app, (look, Some(order)), Lane::Realtime, Within::ever(), &mut written).await?;
    }
    Ok(written)
}

/// Writes tasks for what has none of one kind: a batch at a first look, and more as long as there is time. Gives whether these
/// were all.
async fn adopt(
    app: &App,
    (look, of): (Look, Option<&OrderKey>),
    lane: Lane,
    within: Within,
    written: &mut i64,
) -> Result<bool, DbError> {
    loop {
        let mut tx = app.db.begin().await?;
        look.limit(app, &mut tx).await?;
        let (now, grace) = (app.now(), if of.is_some() { Duration::ZERO } else { GRACE });
        let adopted =
            store::adopt_left_alone(&mut tx, (look.source, of), now - grace, lane, BATCH, now).await;
        let (found, adopted) = effect!("tasks.adopt", tx.finish(adopted).await)?;
        *written += adopted;
        if found < BATCH {
            return Ok(true);
        }
        if look.most.is_some() || within.is_over() {
            return Ok(false);
        }
    }
}
