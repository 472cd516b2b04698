//! Group commit: what many callers ask for at once is done by one statement, and means what it means alone.

use std::collections::HashMap;
use std::ops::{Range, RangeInclusive};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use payonce::config::DatabaseConfig;
use payonce::ids::Ids;
use payonce::infra::clock::Clock;
use payonce::infra::db::{Conn, Db, DbError};
use payonce::infra::gather::{Command, Patience, column};
use sqlx::{Connection, PgConnection};

use crate::support::{stores, until_waiting_there};

/// What a note does to its batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    Fine,
    /// Takes its time.
    Slow,
    /// Has what others want, until it is let go, by a [`Held`].
    Held,
    /// Wants it, and waits for it as long as it may.
    Wants,
    /// Ends the connection in the middle.
    Deadly,
    /// A defect.
    Panics,
}

/// Counts its order up and leaves a note; an id that is taken spoils the statement.
#[derive(Clone, Debug)]
struct Note {
    id: i64,
    order: Option<String>,
    mood: Mood,
}

impl Note {
    fn new(id: i64) -> Self {
        Self { id, order: Some(format!("order-{id}")), mood: Mood::Fine }
    }

    fn of_order(id: i64, order: &str) -> Self {
        Self { order: Some(order.to_owned()), ..Self::new(id) }
    }

    fn in_mood(id: i64, mood: Mood) -> Self {
        Self { mood, ..Self::new(id) }
    }
}

/// What a note's caller hears.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Noted {
    id: i64,
    /// How often its order was counted up, this time included.
    count: i64,
    /// Notes of its batch.
    batch: usize,
}

impl Command for Note {
    const NAME: &'static str = "test.note";
    type Outcome = Noted;

    fn order(&self) -> Option<String> {
        self.order.clone()
    }

    async fn carry_out(batch: &[Self], patience: Patience, conn: &mut Conn) -> Result<Vec<Noted>, DbError> {
        assert!(batch.iter().all(|note| note.mood != Mood::Panics), "a defect, on purpose");
        if batch.iter().any(|note| note.mood == Mood::Slow) {
            sqlx::query("SELECT pg_sleep(1)").execute(&mut *conn).await?;
        }
        if batch.iter().any(|note| note.mood == Mood::Held) {
            sqlx::query("SET lock_timeout = 0").execute(&mut *conn).await?;
            let both = "SELECT pg_advisory_xact_lock(2), pg_advisory_xact_lock(1)";
            sqlx::query(both).execute(&mut *conn).await?;
        }
        if batch.iter().any(|note| note.mood == Mood::Wants) {
            let wait = "SELECT set_config('lock_timeout', $1, false)";
            sqlx::query(wait).bind(patience.millis()).execute(&mut *conn).await?;
            sqlx::query("SELECT pg_advisory_xact_lock(2)").execute(&mut *conn).await?;
        }
        if batch.iter().any(|note| note.mood == Mood::Deadly) {
            sqlx::query("SELECT pg_terminate_backend(pg_backend_pid())").execute(&mut *conn).await?;
        }
        let counts: Vec<(i64, i64)> = sqlx::query_as(
            "WITH new AS (
                 INSERT INTO notes SELECT * FROM unnest($1::bigint[], $2::text[]) RETURNING id, name
             ), counted AS (
                 -- Two of one order in one statement would be counted once.
                 INSERT INTO counters SELECT DISTINCT name, 1 FROM new
                 ON CONFLICT (name) DO UPDATE SET count = counters.count + 1
                 RETURNING name, count
             )
             SELECT id, count FROM new JOIN counted USING (name)",
        )
        .bind(column(batch, |note| note.id))
        .bind(column(batch, |note| note.order.clone().unwrap_or_default()))
        .fetch_all(conn)
        .await?;
        Ok(column(batch, |note| Noted {
            id: note.id,
            count: counts.iter().find(|(id, _)| *id == note.id).expect("counted").1,
            batch: batch.len(),
        }))
    }
}

/// A note of which two batches may be under way.
#[derive(Debug)]
struct Beside(Note);

impl Command for Beside {
    const NAME: &'static str = "test.beside";
    const AT_ONCE: usize = 2;
    type Outcome = Noted;

    fn order(&self) -> Option<String> {
        self.0.order()
    }

    async fn carry_out(batch: &[Self], patience: Patience, conn: &mut Conn) -> Result<Vec<Noted>, DbError> {
        let notes: Vec<Note> = batch.iter().map(|beside| beside.0.clone()).collect();
        Note::carry_out(&notes, patience, conn).await
    }
}

async fn db(max_batch: usize) -> (Db, String) {
    let url = stores::fresh_database().await;
    let statement_deadline = Duration::from_secs(5);
    let config = DatabaseConfig { max_batch, statement_deadline, ..stores::database_config(&url) };
    (with_tables(config, &url).await, url)
}

async fn with_tables(config: DatabaseConfig, url: &str) -> Db {
    let db = Db::new(&config, Ids::random(Clock::system())).expect("a pool");
    for table in [
        "CREATE TABLE notes (id bigint PRIMARY KEY, name text NOT NULL)",
        "CREATE TABLE counters (name text PRIMARY KEY, count bigint NOT NULL)",
    ] {
        stores::as_owner(url, table).await;
    }
    db
}

/// What stands in the table, seen from outside.
async fn ids(url: &str) -> Vec<i64> {
    let mut outside = PgConnection::connect(url).await.expect("connect");
    sqlx::query_scalar("SELECT id FROM notes ORDER BY id").fetch_all(&mut outside).await.expect("ids")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_that_wait_together_share_a_commit() {
    for (max_batch, largest) in [(1, 1..=1), (16, 2..=16), (128, 2..=128)] {
        let (db, url) = db(max_batch).await;
        let noted = join_all((0..500).map(|id| db.gather(Note::new(id)))).await;
        let noted: Vec<Noted> = noted.into_iter().map(|noted| noted.expect("noted")).collect();

        assert!(noted.iter().zip(0..).all(|(noted, id)| noted.id == id), "each its own outcome");
        let batch = noted.iter().map(|noted| noted.batch).max().expect("some");
        assert!(largest.contains(&batch), "batches of up to {max_batch}: {batch}");
        assert_eq!(ids(&url).await, (0..500).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn a_command_alone_waits_for_nobody() {
    let (db, _) = db(128).await;
    for id in 0..3 {
        let noted = db.gather(Note::new(id)).await.expect("noted");
        assert_eq!(noted, Noted { id, count: 1, batch: 1 });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_of_one_order_keep_their_turn() {
    for max_batch in [1, 128] {
        let (db, _) = db(max_batch).await;
        let notes = (0..300).map(|id| Note::of_order(id, &order_of(id)));
        assert_turns(join_all(notes.map(|note| db.gather(note))).await);
        // Of so many orders two batches are under way.
        let notes = (300..1_500).map(|id| Note::of_order(id, &order_of(id)));
        assert_turns(join_all(notes.map(|note| db.gather(Beside(note)))).await);
    }
}

/// Those of one order were counted in the order in which they came.
fn assert_turns(noted: Vec<Result<Noted, DbError>>) {
    let mut turns = HashMap::new();
    for noted in noted {
        let noted = noted.expect("noted");
        let turn = turns.entry(order_of(noted.id)).or_insert(0);
        *turn += 1;
        assert_eq!(noted.count, *turn, "the order in which they came: {noted:?}");
    }
}

fn order_of(id: i64) -> String {
    match id {
        300.. => format!("c{}", id * 7 % 60),
        _ if id % 3 == 0 => "a".to_owned(),
        _ => "b".to_owned(),
    }
}

/// A batch that is under way until it is [let go](Self::let_go).
struct Held {
    holder: PgConnection,
    noted: tokio::task::JoinHandle<Noted>,
}

impl Held {
    async fn begin(db: &Db, url: &str, id: i64) -> Self {
        let mut holder = PgConnection::connect(url).await.expect("connect");
        sqlx::query("SELECT pg_advisory_lock(1)").execute(&mut holder).await.expect("the lock");
        let db = db.clone();
        let held = async move { db.gather(Beside(Note::in_mood(id, Mood::Held))).await.expect("noted") };
        let noted = tokio::spawn(held);
        until_waiting_there(&mut holder, 1).await;
        Self { holder, noted }
    }

    async fn let_go(self) -> Noted {
        self.holder.close().await.expect("closed");
        self.noted.await.expect("no panic")
    }
}

/// Whoever comes while a batch is under way, up to when they wait for it.
async fn comes<F: Future<Output = Vec<Noted>> + Send + 'static>(
    crowd: F,
) -> tokio::task::JoinHandle<Vec<Noted>> {
    let crowd = tokio::spawn(crowd);
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!crowd.is_finished(), "it waits");
    crowd
}

/// Notes of these ids, asked for at once.
fn crowd(db: &Db, ids: RangeInclusive<i64>) -> impl Future<Output = Vec<Noted>> + Send + 'static {
    let db = db.clone();
    async move {
        let noted = join_all(ids.map(|id| db.gather(Beside(Note::new(id))))).await;
        noted.into_iter().map(|noted| noted.expect("noted")).collect()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_does_not_wait_for_the_batch_under_way_and_a_few_do() {
    let (db, url) = db(128).await;
    let held = Held::begin(&db, &url, 0).await;
    // Ends while the held one is under way.
    let beside = crowd(&db, 1..=20).await;
    assert!(beside.into_iter().zip(1..).all(|(noted, id)| noted.id == id));
    assert_eq!(held.let_go().await.batch, 1);

    // One batch with all of them costs less than two.
    let held = Held::begin(&db, &url, 100).await;
    let few = comes(crowd(&db, 101..=104)).await;
    held.let_go().await;
    let few = few.await.expect("no panic");
    assert!(few.iter().all(|noted| noted.batch == 4), "together, behind the held one: {few:?}");

    let (alone, url) = self::db(1).await;
    let held = Held::begin(&alone, &url, 0).await;
    let one_by_one = comes(crowd(&alone, 1..=20)).await;
    held.let_go().await;
    let one_by_one = one_by_one.await.expect("no panic");
    assert!(one_by_one.iter().all(|noted| noted.batch == 1), "one after the other: {one_by_one:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_in_hand_is_waited_for_by_its_own_alone() {
    let (db, url) = db(128).await;
    let held = Held::begin(&db, &url, 0).await;
    let asks = |id| {
        let db = db.clone();
        async move { vec![db.gather(Beside(Note::of_order(id, "order-0"))).await.expect("noted")] }
    };
    let second = comes(asks(1)).await;
    let third = comes(asks(2)).await;
    let beside = tokio::spawn(crowd(&db, 3..=42));
    // Some of them, at least: of the last few it may be that they wait, too.
    while ids(&url).await.is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(!second.is_finished() && !third.is_finished(), "they wait");
    assert_eq!(held.let_go().await.count, 1);
    assert!(beside.await.expect("no panic").iter().all(|noted| noted.count == 1));
    let counts = (second.await.expect("no panic")[0].count, third.await.expect("no panic")[0].count);
    assert_eq!(counts, (2, 3), "in the order in which they came");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_batch_beside_has_is_waited_for_together() {
    let (db, url) = db(128).await;
    let held = Held::begin(&db, &url, 0).await;
    let wanted = {
        let db = db.clone();
        async move {
            let wanted = (1..=40).map(|id| db.gather(Beside(Note::in_mood(id, Mood::Wants))));
            join_all(wanted).await.into_iter().map(|noted| noted.expect("noted")).collect()
        }
    };
    // Far longer than a batch waits for a row.
    let wanted = comes(wanted).await;
    held.let_go().await;
    let wanted = wanted.await.expect("no panic");
    assert!(wanted.iter().filter(|noted| noted.batch > 1).count() >= 8, "not one by one: {wanted:?}");
}

/// How long two batches take that want what somebody else has for a tenth of a second.
async fn both_want(db: &Db, url: &str, first: i64) -> Duration {
    let mut somebody = PgConnection::connect(url).await.expect("connect");
    sqlx::query("SELECT pg_advisory_lock(2)").execute(&mut somebody).await.expect("the lock");
    let began = Instant::now();
    let wanted = |ids: Range<i64>| join_all(ids.map(|id| db.gather(Beside(Note::in_mood(id, Mood::Wants)))));
    // While the first batch waits, those of another one come.
    let others = async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        wanted(first + 16..first + 32).await
    };
    let let_go = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        somebody.close().await.expect("closed");
    };
    let (noted, others, ()) = tokio::join!(wanted(first..first + 16), others, let_go);
    assert!(noted.iter().chain(&others).all(Result::is_ok), "each had it in the end: {noted:?} {others:?}");
    began.elapsed()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_batches_that_want_what_somebody_has_do_not_wait_for_each_other() {
    let (db, url) = db(16).await;
    let mut took = Vec::new();
    for first in [0, 100, 200] {
        took.push(both_want(&db, &url, first).await);
    }
    // The machine may be busy, once or twice.
    assert!(took.iter().any(|took| *took < Duration::from_millis(500)), "{took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_batches_at_once_lose_nobody_and_rest_when_all_is_done() {
    for max_batch in [4, 16] {
        let (db, url) = db(max_batch).await;
        for lap in 0..3 {
            let noted = join_all((0..600).map(|id| db.gather(Beside(Note::new(600 * lap + id))))).await;
            let noted: Vec<Noted> = noted.into_iter().map(|noted| noted.expect("noted")).collect();
            assert!(noted.iter().zip(600 * lap..).all(|(noted, id)| noted.id == id), "each its own outcome");
            // Longer than a lane lingers.
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(ids(&url).await, (0..1800).collect::<Vec<_>>());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_beside_another_batch_takes_only_its_own_along() {
    let (db, _) = db(4).await;
    let mood = |id| if id == 50 { Mood::Panics } else { Mood::Fine };
    let noted = join_all((0..100).map(|id| db.gather(Beside(Note::in_mood(id, mood(id)))))).await;
    let failed = noted.iter().filter(|noted| noted.is_err()).count();
    assert!((1..=4).contains(&failed), "its batch and no more: {failed}");
    // Of the same orders.
    let after = (100..200).map(|id| Note::of_order(id, &format!("order-{}", id - 100)));
    let after = join_all(after.map(|note| db.gather(Beside(note)))).await;
    assert!(after.iter().all(Result::is_ok), "the lane goes on");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_command_spoils_only_itself() {
    let (db, url) = db(128).await;
    db.gather(Note::new(77)).await.expect("noted");
    let noted = join_all((0..200).map(|id| db.gather(Note::new(id)))).await;
    for (noted, id) in noted.into_iter().zip(0..) {
        match noted {
            Ok(noted) => assert_eq!(noted.id, id),
            Err(error) => {
                assert_eq!((id, error.constraint()), (77, Some("notes_pkey")));
                assert!(ids(&url).await.contains(&77), "by the first of that id");
            }
        }
    }
    assert_eq!(ids(&url).await, (0..200).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_dies_under_a_batch_takes_nobody_along() {
    let (db, url) = db(128).await;
    let moods = (0..100).map(|id| if id == 50 { Mood::Deadly } else { Mood::Fine });
    let noted = join_all(moods.zip(0..).map(|(mood, id)| db.gather(Note::in_mood(id, mood)))).await;
    let failed: Vec<usize> = noted.iter().enumerate().filter(|(_, n)| n.is_err()).map(|(id, _)| id).collect();
    assert_eq!(failed, [50], "{:?}", noted[50]);
    assert_eq!(ids(&url).await.len(), 99);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_is_answered_and_the_lane_goes_on() {
    let (db, _) = db(1).await;
    let panicked = db.gather(Note::in_mood(1, Mood::Panics)).await;
    assert!(matches!(panicked, Err(DbError::Unavailable(_))), "{panicked:?}");
    for id in 2..20 {
        assert!(db.gather(Note::new(id)).await.is_ok(), "every lane is well");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_leaves_changes_nothing() {
    let (db, url) = db(128).await;
    let left = tokio::time::timeout(Duration::from_millis(50), db.gather(Note::in_mood(1, Mood::Slow))).await;
    assert!(left.is_err(), "it left");
    // Behind it in the same lane, because it is of the same order.
    assert_eq!(db.gather(Note::of_order(2, "order-1")).await.expect("noted").count, 2);
    assert_eq!(ids(&url).await, [1, 2]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_comes_when_too_many_wait_is_turned_away_at_once() {
    let (db, url) = db(128).await;
    // One order keeps to one lane, whose first command takes its time.
    let slow = tokio::spawn({
        let db = db.clone();
        async move {
            db.gather(Note { mood: Mood::Slow, ..Note::of_order(0, "o") }).await.expect("noted");
            Instant::now()
        }
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    let mut others = tokio::task::JoinSet::new();
    for id in 1..=12_000 {
        let db = db.clone();
        others.spawn(async move { (db.gather(Note::new(id)).await, Instant::now()) });
    }
    let (mut written, mut turned_away) = (1, Vec::new());
    while let Some(other) = others.join_next().await {
        match other.expect("no panic") {
            (Ok(_), _) => written += 1,
            (Err(DbError::Unavailable(_)), at) => turned_away.push(at),
            (Err(error), _) => panic!("{error:?}"),
        }
    }
    let slow_ended = slow.await.expect("no panic");
    assert!(turned_away.iter().any(|at| *at < slow_ended), "some were turned away while it went on");
    assert_eq!(ids(&url).await.len(), written, "what was turned away was not written");
}

#[tokio::test]
async fn lanes_that_are_always_busy_leave_room_for_others() {
    let url = stores::fresh_database().await;
    let acquire_deadline = Duration::from_secs(1);
    let config = DatabaseConfig { pool_size: 2, acquire_deadline, ..stores::database_config(&url) };
    let db = with_tables(config, &url).await;
    let next = AtomicI64::new(0);
    let next_note = || Note::new(next.fetch_add(1, Ordering::Relaxed));
    let is_over = AtomicBool::new(false);
    // Each lane has a place for itself, and never comes to rest.
    let one = async {
        while !is_over.load(Ordering::Relaxed) {
            db.gather(next_note()).await.expect("noted");
        }
    };
    let other = async {
        while !is_over.load(Ordering::Relaxed) {
            db.gather(Beside(next_note())).await.expect("noted");
        }
    };
    let outsider = async {
        let mut waited = Vec::new();
        for _ in 0..20 {
            let since = Instant::now();
            waited.push(db.conn().await.map(|_| since.elapsed()));
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        is_over.store(true, Ordering::Relaxed);
        waited
    };
    let ((), (), waited) = tokio::join!(one, other, outsider);
    assert!(waited.iter().all(Result::is_ok), "{waited:?}");
    assert_eq!(ids(&url).await.len(), usize::try_from(next.load(Ordering::Relaxed)).expect("few"));
}
