//! Group commit: concurrent commands of one kind are carried out by one statement, in one commit.
//!
//! Always true: a command means what it means alone (one alone is a batch of one); commands of one order are never in
//! two batches at once, nor share one, and are taken up in the order in which they came; a caller that leaves changes
//! nothing. A command that spoils its batch, or must wait for a row that somebody else holds, spoils and delays only
//! itself, but for the moment in which that is found out: each command of such a batch is then carried out by itself,
//! beside the lane, which goes on, so that one may be overtaken by the next of its order: every write is guarded by what
//! it was decided on. However many want a row that somebody else holds, a quarter of the connections waits for it. Behind
//! a database that keeps silent nobody waits longer than for a statement: then they hear that nothing was tried for them.
//!
//! Nobody waits for a batch to fill: an idle lane takes what is there, and a batch forms by itself while the one
//! before it commits. A commit and a round trip are then shared by as many callers as are waiting. A second batch of a
//! kind sets out only beside a crowd: smaller ones would cost more than they bring.

use std::any::{Any, TypeId};
use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, Semaphore, SemaphorePermit, oneshot};

use super::db::{Conn, Db, DbError};

mod rows;

pub use rows::{array_text, column, in_places, met, places};

/// Something to read or to write that many callers ask for at once.
pub trait Command: Sized + Send + Sync + 'static {
    /// Its name in metrics and logs.
    const NAME: &'static str;
    /// Whether it appends what others wait for: [`Db::bell`] then rings behind its commit.
    const RINGS: bool = false;
    /// Batches under way at once, where many wait: more than one for what takes several statements, because the database
    /// has time for another one between them, or beside so large a crowd that two are still large.
    const AT_ONCE: usize = 1;
    /// Commands that must be waiting for another batch to set out beside the one that is under way.
    const CROWD: usize = 8;
    /// What a caller gets.
    type Outcome: Send + 'static;

    /// The order that it writes to, as the text that batches are sorted by: the lock rank of an order, where rows of many are
    /// locked. Nothing, for commands that may share a batch with any other.
    fn order(&self) -> Option<String>;

    /// Told where the database did not answer, to it or to the batch that it shared: what it writes may stand, and is then what
    /// its next run finds.
    fn went_unheard(&self) {}

    /// Carries a batch out with one statement or in one transaction: all of it or nothing. Gives one outcome for
    /// each command, in their order. What locks rows waits for them no longer than `patience`.
    fn carry_out(
        batch: &[Self],
        patience: Patience,
        conn: &mut Conn,
    ) -> impl Future<Output = Result<Vec<Self::Outcome>, DbError>> + Send;
}

/// How long a statement may wait for a row that somebody else holds: in a lane not as long as alone, because there it
/// makes others wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience(&'static str);

impl Patience {
    /// Of what makes others wait.
    pub const IN_LANE: Self = Self("50");
    /// Of what makes nobody wait but itself.
    pub const ALONE: Self = Self("2000");

    /// Whether others wait meanwhile.
    #[must_use]
    pub fn is_in_lane(self) -> bool {
        self == Self::IN_LANE
    }

    /// Milliseconds, for `set_config('lock_timeout', …, true)`.
    #[must_use]
    pub const fn millis(self) -> &'static str {
        self.0
    }
}

/// Whether a command went unheard: what it finds may then be its own. Clones are one.
#[derive(Clone, Debug, Default)]
pub struct Unheard(Arc<AtomicBool>);

impl Unheard {
    /// Notes that it did.
    pub fn note(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Whether it ever did.
    #[must_use]
    pub fn is_noted(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// Commands that may wait in one lane; whoever comes then is turned away, and nothing was written for them.
const MAX_WAITING: usize = 4096;
/// How long a place is waited for among those who wait for somebody else's row.
const PLACE_WITHIN: Duration = Duration::from_secs(2);
/// How long a batch waits for the end of the one beside it, which may have a row that it wants.
const BESIDE_WITHIN: Duration = Duration::from_millis(500);
/// How long a lane without work keeps its connection.
const LINGER: Duration = Duration::from_millis(20);

/// The lane of every kind of command. Cheap to clone.
#[derive(Clone)]
pub(super) struct Gatherer {
    lanes: Arc<RwLock<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>>,
    max_batch: usize,
    /// For those who wait for somebody else's row, each with a connection.
    waiting_room: Arc<Semaphore>,
}

impl fmt::Debug for Gatherer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gatherer").field("max_batch", &self.max_batch).finish_non_exhaustive()
    }
}

impl Gatherer {
    /// Batches of at most so many commands; with 1 every command is carried out alone. Of so many connections a
    /// quarter is for waiting.
    pub(super) fn new(max_batch: usize, pool_size: u32) -> Self {
        let waiting_room = Arc::new(Semaphore::new((pool_size / 4).max(1) as usize));
        Self { lanes: Arc::default(), max_batch: max_batch.max(1), waiting_room }
    }

    fn lane<C: Command>(&self) -> Arc<Lane<C>> {
        let kind = TypeId::of::<C>();
        let known = self.lanes.read().unwrap_or_else(PoisonError::into_inner).get(&kind).cloned();
        let lane = known.unwrap_or_else(|| {
            let mut lanes = self.lanes.write().unwrap_or_else(PoisonError::into_inner);
            lanes.entry(kind).or_insert_with(|| Arc::new(Lane::<C>::new(self.max_batch))).clone()
        });
        // The map is keyed by the very type, so this never makes a lane that nobody shares.
        lane.downcast().unwrap_or_else(|_| Arc::new(Lane::new(self.max_batch)))
    }
}

impl Db {
    /// Carries a command out together with whatever others of its kind are waiting.
    ///
    /// # Errors
    /// The command's own; [`DbError::Unavailable`] when too many are waiting, or when the database is away.
    pub async fn gather<C: Command>(&self, command: C) -> Result<C::Outcome, DbError> {
        let lane = self.gatherer().lane::<C>();
        let (answer, outcome) = oneshot::channel();
        match lane.admit(Waiting { order: command.order(), command, answer, since: Instant::now() }) {
            Admission::Full => return Err(DbError::Unavailable(sqlx::Error::PoolTimedOut)),
            Admission::Starts => drop(tokio::spawn(lane.run(self.clone()))),
            Admission::Joins => {}
        }
        // A lane that panics drops its answers.
        outcome.await.unwrap_or(Err(DbError::Unavailable(sqlx::Error::WorkerCrashed)))
    }

    /// A place among those who may have to wait for somebody else's row, be they few or many: a quarter of the connections is
    /// for them.
    ///
    /// # Errors
    /// [`DbError::Unavailable`] when there is none within two seconds: nothing was tried.
    pub async fn place(&self) -> Result<SemaphorePermit<'_>, DbError> {
        let place = self.gatherer().waiting_room.acquire();
        match tokio::time::timeout(PLACE_WITHIN, place).await {
            Ok(Ok(place)) => Ok(place),
            Ok(Err(_)) | Err(_) => Err(DbError::Unavailable(sqlx::Error::PoolTimedOut)),
        }
    }
}

struct Waiting<C: Command> {
    command: C,
    order: Option<String>,
    answer: Answer<C>,
    since: Instant,
}

type Answer<C> = oneshot::Sender<Result<<C as Command>::Outcome, DbError>>;

enum Admission {
    /// The lane was idle: its caller sets it going.
    Starts,
    /// The lane is under way and will come to it.
    Joins,
    /// It was not let in.
    Full,
}

struct Lane<C: Command> {
    queue: Mutex<Queue<C>>,
    arrived: Notify,
    /// Rings when a batch has come to its end.
    ended: Notify,
    max_batch: usize,
}

struct Queue<C: Command> {
    waiting: VecDeque<Waiting<C>>,
    runs: usize,
    /// Batches under way.
    batches: usize,
    /// The orders of their commands.
    in_hand: HashSet<String>,
    /// Whether one of them waits for the end of the other.
    one_waits: bool,
    /// Batches that have come to their ends.
    ends: u64,
}

impl<C: Command> Lane<C> {
    fn new(max_batch: usize) -> Self {
        let (waiting, in_hand) = (VecDeque::new(), HashSet::new());
        let queue = Mutex::new(Queue { waiting, runs: 0, batches: 0, in_hand, one_waits: false, ends: 0 });
        Self { queue, arrived: Notify::new(), ended: Notify::new(), max_batch }
    }

    fn queue(&self) -> MutexGuard<'_, Queue<C>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn admit(&self, newcomer: Waiting<C>) -> Admission {
        let mut queue = self.queue();
        if queue.waiting.len() >= MAX_WAITING {
            return Admission::Full;
        }
        queue.waiting.push_back(newcomer);
        // Beside what is under way: what has not set out yet takes them along.
        let is_crowd =
            queue.waiting.len() >= C::CROWD && queue.runs == queue.batches && queue.runs < self.at_once();
        if queue.runs > 0 && !is_crowd {
            drop(queue);
            self.arrived.notify_one();
            return Admission::Joins;
        }
        queue.runs += 1;
        Admission::Starts
    }

    /// Works until nothing has come for a while, or until one run is enough again.
    async fn run(self: Arc<Self>, db: Db) {
        let _heir = HeirOnPanic { lane: &self, db: &db };
        let mut conn = None;
        loop {
            self.let_others_arrive().await;
            let mut batch = self.take_batch(db.statement_deadline());
            if !batch.is_empty() {
                metrics::histogram!("payonce_batch_size", "kind" => C::NAME).record(batch.len() as f64);
                let _under_way = UnderWay::of(&self, &mut batch);
                settle(&self, &db, &mut conn, batch).await;
            } else if self.leave_to_others(true)
                || tokio::time::timeout(LINGER, self.arrived.notified()).await.is_err() && self.rest()
            {
                return;
            }
            if self.leave_to_others(false) {
                return;
            }
        }
    }

    /// Commands that are to be carried out one after the other are not carried out two at once.
    fn at_once(&self) -> usize {
        if self.max_batch == 1 { 1 } else { C::AT_ONCE }
    }

    /// Ends a run beside another one, which is enough for so few, or where it finds nothing that it could take: all of that is of
    /// orders which the other has in hand.
    fn leave_to_others(&self, found_nothing: bool) -> bool {
        let mut queue = self.queue();
        if queue.runs == 1 || (queue.waiting.len() >= C::CROWD && !found_nothing) {
            return false;
        }
        queue.runs -= 1;
        drop(queue);
        self.arrived.notify_one();
        true
    }

    /// Whether a batch beside this one has come to its end since there were so many ends, or does within a while. `false` where
    /// there is none, or where it waits for this one: then somebody else has what both want.
    async fn other_ends(&self, since: u64) -> bool {
        let ended = self.ended.notified();
        {
            let mut queue = self.queue();
            if queue.ends != since {
                return true;
            }
            if queue.batches < 2 || queue.one_waits {
                return false;
            }
            queue.one_waits = true;
        }
        let has_ended = tokio::time::timeout(BESIDE_WITHIN, ended).await.is_ok();
        self.queue().one_waits = false;
        has_ended
    }

    /// Lets tasks that can run do so, as long as that brings more commands: a batch taken too early leaves them a
    /// statement of their own. It waits for no clock, so it costs next to nothing when there is nobody else.
    async fn let_others_arrive(&self) {
        let mut waiting = 0;
        loop {
            let now_waiting = self.queue().waiting.len();
            if now_waiting == waiting || now_waiting >= self.max_batch {
                return;
            }
            waiting = now_waiting;
            tokio::task::yield_now().await;
        }
    }

    /// The commands that come next, but for those whose order is in hand already: their turn comes after it. Those that waited
    /// for too long are turned away.
    fn take_batch(&self, longest_wait: Duration) -> Vec<Waiting<C>> {
        let mut queue = self.queue();
        let mut batch: Vec<Waiting<C>> = Vec::new();
        let mut passed_over = VecDeque::new();
        while batch.len() < self.max_batch
            && let Some(next) = queue.waiting.pop_front()
        {
            if next.since.elapsed() > longest_wait {
                next.answer.send(Err(DbError::Unavailable(sqlx::Error::PoolTimedOut))).ok();
            } else if next.order.as_ref().is_none_or(|order| queue.in_hand.insert(order.clone())) {
                batch.push(next);
            } else {
                passed_over.push_back(next);
            }
        }
        // Back to the front, as they stood.
        passed_over.append(&mut queue.waiting);
        queue.waiting = passed_over;
        queue.batches += usize::from(!batch.is_empty());
        drop(queue);
        // Statements that write to many orders lock them in the order of these texts, so that no two can deadlock.
        batch.sort_by(|one, other| one.order.cmp(&other.order));
        batch
    }

    /// Ends the run, unless something came in the last moment.
    fn rest(&self) -> bool {
        let mut queue = self.queue();
        let is_over = queue.waiting.is_empty();
        queue.runs -= usize::from(is_over);
        is_over
    }
}

/// A batch, until it has come to its end, be it by a panic.
struct UnderWay<'a, C: Command> {
    lane: &'a Lane<C>,
    orders: Vec<String>,
}

impl<'a, C: Command> UnderWay<'a, C> {
    fn of(lane: &'a Lane<C>, batch: &mut [Waiting<C>]) -> Self {
        Self { lane, orders: batch.iter_mut().filter_map(|waiting| waiting.order.take()).collect() }
    }
}

impl<C: Command> Drop for UnderWay<'_, C> {
    fn drop(&mut self) {
        let mut queue = self.lane.queue();
        queue.batches -= 1;
        queue.ends += 1;
        for order in &self.orders {
            queue.in_hand.remove(order);
        }
        drop(queue);
        self.lane.ended.notify_waiters();
    }
}

/// A panic takes only its own batch along: whoever waits is served by another run.
struct HeirOnPanic<'a, C: Command> {
    lane: &'a Arc<Lane<C>>,
    db: &'a Db,
}

impl<C: Command> Drop for HeirOnPanic<'_, C> {
    fn drop(&mut self) {
        if std::thread::panicking() && !self.lane.rest() {
            tokio::spawn(Arc::clone(self.lane).run(self.db.clone()));
        }
    }
}

/// Carries a batch out, and when that fails each command by itself, so that every caller gets its own outcome.
/// That a caller left and cannot be told is no failure. After one the lane's connection is given up: the next batch
/// takes another.
async fn settle<C: Command>(lane: &Lane<C>, db: &Db, conn: &mut Option<Conn>, batch: Vec<Waiting<C>>) {
    let (mut commands, answers): (Vec<_>, Vec<_>) =
        batch.into_iter().map(|waiting| (waiting.command, waiting.answer)).unzip();
    let in_use = match conn.take() {
        Some(kept) => Ok(kept),
        None => db.conn().await,
    };
    let mut in_use = match in_use {
        Ok(in_use) => in_use,
        // Nothing was tried, and each by itself would only wait for one more connection.
        Err(error) => {
            tracing::debug!(kind = C::NAME, size = commands.len(), %error, "a batch got no connection");
            for answer in answers {
                answer.send(Err(DbError::Unavailable(sqlx::Error::PoolTimedOut))).ok();
            }
            return;
        }
    };
    let (started, ends) = (Instant::now(), lane.queue().ends);
    let mut carried_out = carry_out(&commands, Patience::IN_LANE, &mut in_use).await;
    // The row may be wanted by the batch beside it, which holds it no longer than its commit takes.
    let is_contended = commands.len() > 1 && matches!(carried_out, Err(DbError::Contended(_)));
    if is_contended && lane.other_ends(ends).await {
        carried_out = carry_out(&commands, Patience::IN_LANE, &mut in_use).await;
    }
    metrics::histogram!("payonce_batch_seconds", "kind" => C::NAME).record(started.elapsed());
    match carried_out {
        Ok(outcomes) => {
            // One lane after the other may never come to rest, and there are more of them than places.
            *conn = Some(in_use).filter(Conn::may_stay);
            ring::<C>(db);
            for (answer, outcome) in answers.into_iter().zip(outcomes) {
                answer.send(Ok(outcome)).ok();
            }
        }
        // Alone already, and not because of somebody else: trying again would end alike.
        Err(error) if answers.len() == 1 && !matches!(error, DbError::Contended(_)) => {
            answers.into_iter().zip([error]).for_each(|(answer, error)| drop(answer.send(Err(error))));
        }
        Err(error) => {
            tracing::debug!(kind = C::NAME, size = commands.len(), %error, "a batch is carried out one by one");
            metrics::counter!("payonce_batches_split_total", "kind" => C::NAME).increment(1);
            for (command, answer) in commands.drain(..).zip(answers) {
                tokio::spawn(answer_alone(db.clone(), command, answer));
            }
        }
    }
}

async fn answer_alone<C: Command>(db: Db, command: C, answer: Answer<C>) {
    answer.send(carry_out_alone(&db, command).await).ok();
}

/// Whoever has to wait for somebody else's row waits where places are few: a row that many want would otherwise take
/// every connection, and make all wait who want another.
async fn carry_out_alone<C: Command>(db: &Db, command: C) -> Result<C::Outcome, DbError> {
    match try_alone(db, &command, Patience::IN_LANE).await {
        Err(lost @ DbError::Contended(_)) => {
            let Ok(_place) = db.place().await else { return Err(lost) };
            try_alone(db, &command, Patience::ALONE).await
        }
        outcome => outcome,
    }
}

async fn try_alone<C: Command>(db: &Db, command: &C, patience: Patience) -> Result<C::Outcome, DbError> {
    let mut conn = db.conn().await?;
    let outcomes = carry_out(std::slice::from_ref(command), patience, &mut conn).await?;
    ring::<C>(db);
    outcomes.into_iter().next().ok_or(DbError::UnexpectedRows(0))
}

fn ring<C: Command>(db: &Db) {
    if C::RINGS {
        db.bell().notify_one();
    }
}

/// One outcome for each command, or none at all.
async fn carry_out<C: Command>(
    batch: &[C],
    patience: Patience,
    conn: &mut Conn,
) -> Result<Vec<C::Outcome>, DbError> {
    let outcomes = C::carry_out(batch, patience, conn).await;
    if matches!(outcomes, Err(DbError::Unavailable(_))) {
        batch.iter().for_each(C::went_unheard);
    }
    let outcomes = outcomes?;
    match outcomes.len() == batch.len() {
        true => Ok(outcomes),
        false => Err(DbError::UnexpectedRows(outcomes.len() as u64)),
    }
}
