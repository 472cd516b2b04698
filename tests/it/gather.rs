//! Group commit: what many callers ask for at once is done by one statement, and means what it means alone.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use payonce::config::DatabaseConfig;
use payonce::ids::Ids;
use payonce::infra::clock::Clock;
use payonce::infra::db::{Conn, Db, DbError};
use payonce::infra::gather::{Command, Patience, column};
use sqlx::{Connection, PgConnection};

use crate::support::stores;

/// What a note does to its batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    Fine,
    /// Takes its time.
    Slow,
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

    async fn carry_out(batch: &[Self], _: Patience, conn: &mut Conn) -> Result<Vec<Noted>, DbError> {
        assert!(batch.iter().all(|note| note.mood != Mood::Panics), "a defect, on purpose");
        if batch.iter().any(|note| note.mood == Mood::Slow) {
            sqlx::query("SELECT pg_sleep(1)").execute(&mut *conn).await?;
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
    let db = Db::new(&config, Ids::random(Clock::system())).expect("a pool");
    for table in [
        "CREATE TABLE notes (id bigint PRIMARY KEY, name text NOT NULL)",
        "CREATE TABLE counters (name text PRIMARY KEY, count bigint NOT NULL)",
    ] {
        stores::as_owner(&url, table).await;
    }
    (db, url)
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
        let notes = (0..300).map(|id| Note::of_order(id, if id % 3 == 0 { "a" } else { "b" }));
        let noted = join_all(notes.map(|note| db.gather(note))).await;
        let (mut a, mut b) = (0, 0);
        for noted in noted {
            let noted = noted.expect("noted");
            let count = if noted.id % 3 == 0 { &mut a } else { &mut b };
            *count += 1;
            assert_eq!(noted.count, *count, "the order in which they came: {noted:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_does_not_wait_for_the_batch_under_way_unless_it_is_of_its_order() {
    let (db, _) = db(128).await;
    let slow = tokio::spawn({
        let db = db.clone();
        async move { db.gather(Beside(Note::in_mood(0, Mood::Slow))).await }
    });
    tokio::time::sleep(Duration::from_millis(200)).await;
    let began = Instant::now();
    let (of_its_order, crowd) = tokio::join!(
        async { (db.gather(Beside(Note::of_order(100, "order-0"))).await.expect("noted"), began.elapsed()) },
        async {
            let noted = join_all((1..=20).map(|id| db.gather(Beside(Note::new(id))))).await;
            (noted.into_iter().map(|noted| noted.expect("noted").id).collect::<Vec<_>>(), began.elapsed())
        }
    );
    assert_eq!(crowd.0, (1..=20).collect::<Vec<_>>());
    assert!(crowd.1 < Duration::from_millis(500), "beside the slow one: {:?}", crowd.1);
    assert_eq!(of_its_order.0.count, 2, "behind the slow one");
    assert!(of_its_order.1 > Duration::from_millis(500), "{:?}", of_its_order.1);
    assert_eq!(slow.await.expect("no panic").expect("noted").count, 1);

    // A few are no crowd: one batch with all of them costs less than two.
    let slow = tokio::spawn({
        let db = db.clone();
        async move { db.gather(Beside(Note::in_mood(200, Mood::Slow))).await }
    });
    tokio::time::sleep(Duration::from_millis(200)).await;
    let few = join_all((201..=204).map(|id| db.gather(Beside(Note::new(id))))).await;
    assert!(few.into_iter().all(|noted| noted.expect("noted").batch == 4), "together, behind the slow one");
    slow.await.expect("no panic").expect("noted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_batches_at_once_keep_the_turn_of_an_order_and_lose_nobody() {
    for max_batch in [4, 16] {
        let (db, url) = db(max_batch).await;
        let notes = (0..600).map(|id| Note::of_order(id, &format!("order-{}", id % 30)));
        let noted = join_all(notes.map(|note| db.gather(Beside(note)))).await;
        for (noted, id) in noted.into_iter().zip(0..) {
            let noted = noted.expect("noted");
            assert_eq!((noted.id, noted.count), (id, 1 + id / 30), "the order in which they came");
        }
        assert_eq!(ids(&url).await.len(), 600);
        // And then it rests, and begins anew.
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(db.gather(Beside(Note::of_order(600, "order-0"))).await.expect("noted").count, 21);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_beside_another_batch_leaves_its_order_free() {
    let (db, _) = db(4).await;
    let notes = (0..100).map(|id| match id {
        50 => Note { mood: Mood::Panics, ..Note::of_order(50, "order-1") },
        _ => Note::of_order(id, &format!("order-{}", id % 20)),
    });
    let noted = join_all(notes.map(|note| db.gather(Beside(note)))).await;
    let failed = noted.iter().filter(|noted| noted.is_err()).count();
    assert!((1..=4).contains(&failed), "its batch and no more: {failed}");
    assert!(db.gather(Beside(Note::of_order(101, "order-1"))).await.is_ok(), "its order is free again");
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
