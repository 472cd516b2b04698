//! The wire itself: what it holds, cuts, tears and loses.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use payonce::config::DatabaseConfig;
use payonce::ids::Ids;
use payonce::infra::clock::Clock;
use payonce::infra::db::Db;
use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection, PgConnection};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

use super::commits::Exchanges;
use super::{Met, Proxy, Silence};
use crate::support::{TestApp, TestOptions, stores};

/// As long as one listens to believe that nothing comes.
const QUIET: Duration = Duration::from_millis(200);
const SOON: Duration = Duration::from_secs(10);

/// Who says something, and whether a commit has been told of then.
enum Said {
    Service(Vec<u8>),
    Postgres(Vec<u8>, bool),
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(4 + body.len()).expect("short").to_be_bytes();
    [&[kind], &length[..], body].concat()
}

fn first_message(body: &[u8]) -> Vec<u8> {
    message(0, body).split_off(1)
}

fn query(text: &str) -> Said {
    Said::Service(message(b'Q', format!("{text}\0").as_bytes()))
}

fn prepare(name: &str, text: &str) -> [Said; 2] {
    let parse = message(b'P', format!("{name}\0{text}\0\0\0").as_bytes());
    let asked = [parse, message(b'D', format!("S{name}\0").as_bytes()), message(b'S', b"")].concat();
    let answered = [message(b'1', b""), message(b'n', b""), message(b'Z', b"I")].concat();
    [Said::Service(asked), Said::Postgres(answered, false)]
}

fn execute(name: &str) -> Said {
    // A text among the parameters is none of the statement.
    let bind = message(b'B', format!("\0{name}\0\0\0\0\x01\0\0\0\x06INSERT\0\0").as_bytes());
    Said::Service([bind, message(b'E', b"\0\0\0\0\0"), message(b'S', b"")].concat())
}

fn done(tag: &str, state: u8, commits: bool) -> Said {
    let tag = message(b'C', format!("{tag}\0").as_bytes());
    Said::Postgres([tag, message(b'Z', &[state])].concat(), commits)
}

fn failed(state: u8) -> Said {
    Said::Postgres([message(b'E', b"SERROR\0\0"), message(b'Z', &[state])].concat(), false)
}

/// What a service says and hears in its day.
fn conversation() -> Vec<Said> {
    let mut all = vec![
        Said::Service(first_message(&80_877_103_u32.to_be_bytes())),
        Said::Postgres(b"N".to_vec(), false),
        Said::Service(first_message(b"\0\x03\0\0user\0INSERT\0\0")),
        Said::Postgres([message(b'R', &[0; 4]), message(b'Z', b"I")].concat(), false),
    ];
    all.extend(prepare("s1", "INSERT INTO things VALUES ($1)"));
    all.extend(prepare(
        "s2",
        "SELECT 1 FROM things -- nobody's: no INSERT\n WHERE a <> 'UPDATE' FOR NO KEY UPDATE",
    ));
    all.extend(prepare("s3", "WITH gone AS (DELETE FROM things RETURNING a) SELECT a FROM gone"));
    all.extend([
        execute("s1"),
        done("INSERT 0 1", b'I', true),
        execute("s2"),
        done("SELECT 1", b'I', false),
        execute("s3"),
        done("SELECT 1", b'I', true),
        execute("s1"),
        failed(b'I'),
        query("BEGIN; SET LOCAL lock_timeout = 5"),
        done("SET", b'T', false),
        execute("s1"),
        done("INSERT 0 1", b'T', false),
        execute("s2"),
        done("SELECT 1", b'T', false),
        query("COMMIT"),
        done("COMMIT", b'I', true),
        query("BEGIN"),
        done("BEGIN", b'T', false),
        execute("s2"),
        done("SELECT 1", b'T', false),
        query("COMMIT"),
        done("COMMIT", b'I', false),
        query("BEGIN"),
        done("BEGIN", b'T', false),
        execute("s1"),
        done("INSERT 0 1", b'T', false),
        execute("s1"),
        failed(b'E'),
        query("COMMIT"),
        done("ROLLBACK", b'I', false),
        query("update things set a = 1"),
        done("UPDATE 1", b'I', true),
    ]);
    // The name is given to another statement.
    all.extend(prepare("s1", "SELECT 2"));
    all.extend([execute("s1"), done("SELECT 1", b'I', false)]);
    all
}

#[test]
fn commits_are_told_from_the_rest_however_messages_are_cut() {
    for size in [1, 2, 3, 5, 7, 11, 1_000] {
        let mut exchanges = Exchanges::default();
        for (turn, said) in conversation().into_iter().enumerate() {
            match said {
                Said::Service(bytes) => bytes.chunks(size).for_each(|piece| exchanges.hear_question(piece)),
                Said::Postgres(bytes, commits) => {
                    let told =
                        bytes.chunks(size).map(|piece| exchanges.hear_answer(piece)).collect::<Vec<_>>();
                    let (last, before) = told.split_last().expect("a piece");
                    assert_eq!(
                        (*last, before.contains(&true)),
                        (commits, false),
                        "{turn} in pieces of {size}"
                    );
                }
            }
        }
    }
}

/// A database of the story's own, as a URL over TCP, and the port in it.
pub async fn database() -> (String, u16) {
    let server = &stores::shared().await.postgres;
    let fresh: PgConnectOptions = stores::fresh_database().await.parse().expect("a URL");
    let name = fresh.get_database().expect("a database");
    let url = server.url().replacen("/payonce", &format!("/{name}"), 1);
    (url, server.port())
}

async fn connection(url: &str) -> PgConnection {
    PgConnection::connect(url).await.expect("a connection")
}

#[tokio::test]
async fn a_commit_whose_answer_is_lost_is_an_error_and_is_done() {
    let (url, port) = database().await;
    let mut beside = connection(&url).await;
    sqlx::raw_sql("CREATE TABLE things (thing int)").execute(&mut beside).await.expect("a table");
    let wire = Proxy::before_postgres(port).await;
    let through = wire.before_url(&url, port);
    let insert = "INSERT INTO things VALUES ($1) RETURNING thing";

    let mut alone = connection(&through).await;
    wire.lose_answers(1);
    let read: i64 =
        sqlx::query_scalar("SELECT count(*) FROM things").fetch_one(&mut alone).await.expect("a count");
    assert_eq!((read, wire.met().lost), (0, 0), "who reads is answered");
    let told = sqlx::query_scalar::<_, i32>(insert).bind(1).fetch_one(&mut alone).await;
    assert!(matches!(told, Err(sqlx::Error::Io(_))), "{told:?}");

    let mut together = connection(&through).await;
    wire.lose_answers(1);
    sqlx::raw_sql("BEGIN").execute(&mut together).await.expect("begun");
    sqlx::query(insert).bind(2).execute(&mut together).await.expect("written");
    let told = sqlx::raw_sql("COMMIT").execute(&mut together).await;
    assert!(matches!(told, Err(sqlx::Error::Io(_))), "{told:?}");

    let done: Vec<i32> = sqlx::query_scalar("SELECT thing FROM things ORDER BY thing")
        .fetch_all(&mut beside)
        .await
        .expect("a look");
    assert_eq!((done, wire.met()), (vec![1, 2], Met { lost: 2, ..Met::default() }));
    stores::drop_database(&url).await;
}

#[tokio::test]
async fn what_comes_back_from_a_use_while_the_database_is_gone_without_a_word_keeps_no_place() {
    let (url, port) = database().await;
    let wire = Proxy::before_postgres(port).await;
    let config = DatabaseConfig {
        pool_size: 2,
        statement_deadline: Duration::from_secs(1),
        ..stores::database_config(&wire.before_url(&url, port))
    };
    let db = Db::new(&config, Ids::random(Clock::system())).expect("a pool");
    let both = async || join_all([db.conn(), db.conn()]).await.into_iter().collect::<Result<Vec<_>, _>>();
    for round in 1..=4 {
        let mut used = both().await.expect("both places");
        for conn in &mut used {
            sqlx::raw_sql("SELECT 1").execute(conn).await.expect("well");
        }
        wire.tear();
        drop(used);
        // Who comes next finds out, and whoever connects anew is answered.
        let since = Instant::now();
        while !db.answers().await {
            assert!(since.elapsed() < SOON, "places are lost in round {round}");
        }
    }
    assert_eq!(both().await.map(|both| both.len()).ok(), Some(2));
    let since = Instant::now();
    db.close().await;
    assert!(since.elapsed() < Duration::from_secs(1), "one in use was forgotten");
    assert!(wire.met().torn >= 4, "{:?}", wire.met());
    stores::drop_database(&url).await;
}

/// A wire, a client at its one end and the store at the other, who have spoken.
async fn wire() -> (Proxy, TcpListener, TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let wire = Proxy::before(listener.local_addr().expect("an address").port()).await;
    let (client, store) = pair(&wire, &listener).await;
    (wire, listener, client, store)
}

async fn pair(wire: &Proxy, listener: &TcpListener) -> (TcpStream, TcpStream) {
    let mut client = TcpStream::connect(("127.0.0.1", wire.port)).await.expect("a connection");
    let mut store = listener.accept().await.expect("a connection").0;
    says(&mut client, b"hello").await;
    hears(&mut store, b"hello").await;
    says(&mut store, b"you").await;
    hears(&mut client, b"you").await;
    (client, store)
}

async fn says(who: &mut TcpStream, what: &[u8]) {
    who.write_all(what).await.expect("said");
}

async fn hears(who: &mut TcpStream, what: &[u8]) {
    let mut heard = vec![0; what.len()];
    timeout(SOON, who.read_exact(&mut heard)).await.expect("soon").expect("something");
    assert_eq!(heard, what);
}

/// Neither a word nor the end.
async fn hears_nothing(who: &mut TcpStream) {
    let heard = timeout(QUIET, who.read(&mut [0; 9])).await;
    assert!(heard.is_err(), "{heard:?}");
}

async fn hears_the_end(who: &mut TcpStream) {
    let heard = timeout(SOON, who.read(&mut [0; 9])).await.expect("soon");
    assert!(!matches!(heard, Ok(1..)), "{heard:?}");
}

#[tokio::test]
async fn a_silence_holds_what_one_side_says_until_it_is_over() {
    let (wire, _listener, mut client, mut store) = wire().await;
    wire.silence(Silence::Asking);
    says(&mut client, b"a").await;
    hears_nothing(&mut store).await;
    says(&mut store, b"b").await;
    hears(&mut client, b"b").await;
    wire.silence(Silence::Answering);
    hears(&mut store, b"a").await;
    says(&mut store, b"c").await;
    hears_nothing(&mut client).await;
    wire.silence(Silence::Both);
    says(&mut client, b"d").await;
    tokio::join!(hears_nothing(&mut client), hears_nothing(&mut store));
    wire.heal();
    hears(&mut client, b"c").await;
    hears(&mut store, b"d").await;
    assert_eq!(wire.met(), Met { held: 3, ..Met::default() });
}

#[tokio::test]
async fn what_passes_a_wire_that_is_far_away_comes_late() {
    let (wire, _listener, mut client, mut store) = wire().await;
    let since = Instant::now();
    wire.delay(QUIET);
    says(&mut client, b"a").await;
    hears(&mut store, b"a").await;
    says(&mut store, b"b").await;
    hears(&mut client, b"b").await;
    assert!(since.elapsed() >= 2 * QUIET, "there and back in {:?}", since.elapsed());
    assert_eq!(wire.met(), Met { late: 2, ..Met::default() });
}

#[tokio::test]
async fn what_is_held_when_the_wire_is_cut_never_arrives() {
    let (wire, listener, mut client, mut store) = wire().await;
    wire.silence(Silence::Both);
    says(&mut client, b"a").await;
    says(&mut store, b"b").await;
    tokio::join!(hears_nothing(&mut client), hears_nothing(&mut store));
    wire.cut();
    tokio::join!(hears_the_end(&mut client), hears_the_end(&mut store));
    wire.heal();
    pair(&wire, &listener).await;
    assert_eq!(wire.met(), Met { held: 2, cut: 1, ..Met::default() });
}

#[tokio::test]
async fn who_leaves_in_a_silence_is_heard_late_and_seen_to_have_left() {
    let (wire, _listener, mut client, mut store) = wire().await;
    wire.silence(Silence::Asking);
    says(&mut client, b"a").await;
    drop(client);
    hears_nothing(&mut store).await;
    wire.heal();
    hears(&mut store, b"a").await;
    hears_the_end(&mut store).await;
}

#[tokio::test]
async fn a_client_whose_store_is_gone_hears_of_it_when_the_wire_is_healed() {
    let (wire, listener, mut client, mut store) = wire().await;
    wire.tear();
    hears_the_end(&mut store).await;
    says(&mut client, b"a").await;
    hears_nothing(&mut client).await;
    let (mut other, _its_store) = pair(&wire, &listener).await;
    wire.heal();
    hears_the_end(&mut client).await;
    hears_nothing(&mut other).await;
    assert_eq!(wire.met(), Met { torn: 1, ..Met::default() });
}

/// Nothing but the silence itself says that a connection is dead: a machine that is gone sends no word of it.
#[tokio::test]
async fn a_redis_that_was_gone_without_a_word_is_found_again() {
    let server = stores::fresh_redis().await;
    let wire = Proxy::before(server.port()).await;
    let redis_url = Some(wire.before_url(&server.url(), server.port()));
    let app = TestApp::start_with(TestOptions { redis_url, ..TestOptions::default() }).await;
    let redis = &app.instance.app.redis;
    redis.mark("before", SOON).await.expect("an answer");
    wire.tear();
    let since = Instant::now();
    while redis.mark("after", SOON).await.is_err() {
        assert!(since.elapsed() < SOON, "whoever connects anew is answered, and it does not");
        sleep(QUIET).await;
    }
    app.end().await;
}
