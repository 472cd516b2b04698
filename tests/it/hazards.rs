//! Traps in what we build on, each sprung on purpose: cancelled statements, clients that hang up, Redis and
//! PostgreSQL that are down, hung or crashed, connections that never say anything.

use std::time::{Duration, Instant};

use payonce::channels::sandbox::{FaultKind, FaultOp};
use payonce::config::DatabaseConfig;
use payonce::ids::Ids;
use payonce::infra::clock::Clock;
use payonce::infra::db::Db;
use payonce::local::PostgresServer;
use reqwest::Method;
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection};
use tokio::time::{sleep, timeout};

use crate::support::raw;
use crate::support::stores;
use crate::support::{OPERATOR, Reply, SECRET_KEY, TestApp, TestOptions, hang_up_once, until_waiting};

mod moved;
mod without_redis;

fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

fn order(order_no: &str) -> Value {
    json!({"order_no": order_no, "user_id": "u1", "currency": "CNY", "amount": 1990})
}

// ---- 1: a cancelled statement --------------------------------------------------------------------------------

async fn db_with_notes(pool_size: u32) -> (Db, String) {
    let url = stores::fresh_database().await;
    let config = DatabaseConfig {
        pool_size,
        acquire_deadline: Duration::from_secs(20),
        statement_deadline: Duration::from_secs(5),
        ..stores::database_config(&url)
    };
    let db = Db::new(&config, Ids::random(Clock::system())).expect("a pool");
    stores::as_owner(&url, "CREATE TABLE notes (id bigint PRIMARY KEY)").await;
    (db, url)
}

/// Gives up halfway: on opening a transaction, inside one, and in a statement that stands alone.
async fn give_up(db: &Db, index: u64) {
    let patience = Duration::from_micros(37 * (index % 41));
    match index % 4 {
        0 => drop(timeout(patience, db.begin()).await),
        1 => tokio::select! {
            biased;
            tx = db.begin() => drop(tx),
            () = sleep(patience) => {}
        },
        2 => {
            let task = tokio::spawn({
                let db = db.clone();
                async move { drop(db.begin().await) }
            });
            sleep(patience).await;
            task.abort();
        }
        _ => {
            let mut conn = db.conn().await.expect("a connection");
            let note = sqlx::query("INSERT INTO notes SELECT -1 WHERE pg_sleep(0.002) IS NULL");
            drop(timeout(patience, note.execute(&mut conn)).await);
        }
    }
}

/// Writes a note, alone or in a transaction; returns when it was acknowledged.
async fn write(db: &Db, id: i64) {
    let note = sqlx::query("INSERT INTO notes VALUES ($1)").bind(id);
    if id % 2 == 0 {
        let mut conn = db.conn().await.expect("a connection");
        note.execute(&mut conn).await.expect("written");
        return;
    }
    let mut tx = db.begin().await.expect("a transaction");
    let conn: &mut payonce::infra::db::Conn = &mut tx;
    let written = note.execute(conn).await.map(drop).map_err(payonce::infra::db::DbError::from);
    tx.finish(written).await.expect("committed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_acknowledged_write_is_lost_beside_cancelled_ones() {
    let (db, url) = db_with_notes(4).await;
    let mut tasks = tokio::task::JoinSet::new();
    for id in 0..400 {
        let db = db.clone();
        tasks.spawn(async move {
            give_up(&db, id).await;
            write(&db, i64::try_from(id).expect("small")).await;
        });
        if id % 20 == 0 {
            sleep(millis(2)).await;
        }
    }
    while let Some(done) = tasks.join_next().await {
        done.expect("acknowledged");
    }

    // Somebody else looks: what only our own connections see is not written.
    let mut outside = PgConnection::connect(&url).await.expect("connect");
    let kept: i64 =
        sqlx::query_scalar("SELECT count(*) FROM notes").fetch_one(&mut outside).await.expect("a count");
    assert_eq!(kept, 400, "acknowledged and lost");
    let half_open: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM pg_stat_activity
         WHERE datname = current_database() AND application_name = 'payonce' AND xact_start IS NOT NULL",
    )
    .fetch_one(&mut outside)
    .await
    .expect("a count");
    assert_eq!(half_open, 0, "transactions that nobody will end");
    outside.close().await.expect("closed");
    db.close().await;
    stores::drop_database(&url).await;
}

#[tokio::test]
async fn a_connection_given_up_in_the_middle_is_closed_and_not_handed_on() {
    let (db, url) = db_with_notes(1).await;
    async fn pid(db: &Db) -> i32 {
        let mut conn = db.conn().await.expect("a connection");
        sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&mut conn).await.expect("a pid")
    }
    let first = pid(&db).await;
    assert_eq!(pid(&db).await, first, "the pool has one connection");

    let mut conn = db.conn().await.expect("a connection");
    assert!(timeout(millis(50), sqlx::query("SELECT pg_sleep(5)").execute(&mut conn)).await.is_err());
    let refused = sqlx::query("SELECT 1").execute(&mut conn).await;
    assert!(refused.is_err(), "whoever still has it cannot go on with it");
    drop(conn);
    let second = pid(&db).await;
    assert_ne!(second, first, "given up in a statement");

    let mut tx = db.begin().await.expect("a transaction");
    let conn: &mut payonce::infra::db::Conn = &mut tx;
    sqlx::query("INSERT INTO notes VALUES (1)").execute(conn).await.expect("written");
    drop(tx);
    assert_ne!(pid(&db).await, second, "given up in a transaction");
    let kept: i64 =
        sqlx::query_scalar("SELECT count(*) FROM notes").fetch_one(db.pool()).await.expect("a count");
    assert_eq!(kept, 0);
    db.close().await;
    stores::drop_database(&url).await;
}

// ---- 2: the client hangs up ----------------------------------------------------------------------------------

#[tokio::test]
async fn a_client_that_hangs_up_cancels_only_its_wait() {
    let app = TestApp::start().await;
    app.order("H1").await;
    app.fault(FaultOp::Create, FaultKind::Delay, 1, Some(600)).await;
    let body = json!({"order_no": "H1", "payer_id": "u1", "channel": "sandbox"});
    let request = app.http.post(format!("{}/pay/url", app.url)).bearer_auth(SECRET_KEY).json(&body);
    hang_up_once(app.begun_attempt_of("H1"), request.send()).await;

    // No duty runs here and nobody asks again: the work itself goes on to its end.
    app.eventually("the link of a client that left", || async {
        app.find_order("H1").await["pay_orders"][0]["status"] == "PAYING"
    })
    .await;
    assert!(app.pay_url("H1").await.expect(200).text_of("pay_url").starts_with("http"));
    app.end().await;
}

#[tokio::test]
async fn an_operator_who_hangs_up_cancels_only_their_wait() {
    let app = TestApp::start().await;
    let before = app.count("api_keys").await;
    let mut slow = PgConnection::connect(&app.database_url).await.expect("connect");
    let mut tx = slow.begin().await.expect("a transaction");
    sqlx::query("SELECT 1 FROM api_keys FOR UPDATE").execute(&mut *tx).await.expect("the rows are locked");
    let request = app.http.post(format!("{}/admin/merchants/demo/keys", app.url)).bearer_auth(OPERATOR);
    let asking = request.json(&json!({"reason": "a story"})).send();
    hang_up_once(until_waiting(&app, 1), asking).await;
    tx.rollback().await.expect("the rows are free");
    app.eventually("new keys", || async { app.count("api_keys").await == before + 2 }).await;
    app.end().await;
}

async fn readiness(app: &TestApp) -> Reply {
    app.call(Method::GET, "/readyz", "", None).await
}

// ---- 5: connections that never say anything ------------------------------------------------------------------

#[tokio::test]
async fn connections_that_do_not_come_to_the_point_are_closed() {
    let app = TestApp::start().await;
    let addr = app.instance.addr;
    let drip = "x-slow: and steady, for as long as it takes and a good while longer than that\r\n".as_bytes();
    let (half, silent, dripping) = tokio::join!(
        raw::say(addr, b"GET /livez HTTP/1.1\r\nhost: x\r\nx-ha"),
        raw::say(addr, b""),
        raw::say_slowly(addr, b"GET /livez HTTP/1.1\r\n", drip, millis(150)),
    );
    for (what, closed) in [("half a header", &half), ("silent", &silent), ("dripping", &dripping)] {
        println!("{what}: closed after {:?}", closed.after);
        assert!((millis(1800)..millis(4500)).contains(&closed.after), "{what}: {:?}", closed.after);
    }
    assert!(half.status() != 200 && silent.status() == 0 && dripping.status() != 200);
    app.end().await;
}

#[tokio::test]
async fn a_dripping_body_ends_in_408() {
    let app = TestApp::start().await;
    let head = |method: &str, path: &str, token: &str| {
        format!(
            "{method} {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: 1000\r\n\r\n{{"
        )
    };
    let requests = [
        head("POST", "/orders", SECRET_KEY),
        head("POST", "/admin/skus", OPERATOR),
        head("POST", "/webhooks/sandbox", "x"),
        head("POST", "/sandbox/trades/po_1/pay", "x"),
        head("POST", "/sandbox/gateway/create", "x"),
        head("PUT", "/sandbox/faults", OPERATOR),
    ];
    let spaces = [b' '; 200];
    let calls = requests
        .iter()
        .map(|request| raw::say_slowly(app.instance.addr, request.as_bytes(), &spaces, millis(200)));
    for (request, closed) in requests.iter().zip(futures_util::future::join_all(calls).await) {
        assert_eq!(closed.status(), 408, "{request}: {}", closed.text);
        assert!(closed.text.contains("BODY_TIMEOUT") && closed.after < millis(9000), "{closed:?}");
    }
    app.end().await;
}

// ---- 6: PostgreSQL -------------------------------------------------------------------------------------------

async fn app_on(postgres: &PostgresServer) -> TestApp {
    TestApp::start_with(TestOptions {
        database_url: Some(postgres.socket_url()),
        vars: vec![("DATABASE_ACQUIRE_MS", "1000".to_owned()), ("DATABASE_STATEMENT_MS", "1000".to_owned())],
        ..TestOptions::default()
    })
    .await
}

/// So many orders at once; gives the answers and how long the slowest took.
async fn orders(app: &TestApp, prefix: &str, count: usize) -> (Vec<Reply>, Duration) {
    let asked = Instant::now();
    let calls = (0..count).map(|index| app.post("/orders", order(&format!("{prefix}{index}"))));
    (futures_util::future::join_all(calls).await, asked.elapsed())
}

/// So many looks at one order at once, each on a connection of its own, unlike orders that are made; gives the answers
/// and how long the slowest took.
async fn looks(app: &TestApp, order_no: &str, count: usize) -> (Vec<Reply>, Duration) {
    let (asked, path) = (Instant::now(), format!("/orders/{order_no}"));
    let looks = futures_util::future::join_all((0..count).map(|_| app.get(&path))).await;
    (looks, asked.elapsed())
}

/// The connections of the service that the server knows of.
async fn backends(postgres: &PostgresServer) -> Vec<i32> {
    let mut outside = PgConnection::connect(&postgres.socket_url()).await.expect("connect");
    sqlx::query_scalar("SELECT pid FROM pg_stat_activity WHERE application_name = 'payonce'")
        .fetch_all(&mut outside)
        .await
        .expect("pids")
}

#[tokio::test]
async fn a_black_holed_postgresql_hangs_no_request_and_is_well_after_it() {
    let mut postgres = stores::private_postgres().await;
    let app = app_on(&postgres).await;
    for reply in orders(&app, "before", 12).await.0 {
        reply.expect(201);
    }
    looks(&app, "before0", 12).await;
    let old = backends(&postgres).await;
    postgres.pause().await.expect("paused");

    let ((made, slow), (found, slower)) =
        tokio::join!(orders(&app, "during", 16), looks(&app, "before0", 16));
    let slowest = slow.max(slower);
    println!("during the black hole the slowest of 32 answers took {slowest:?}");
    assert!(slowest < Duration::from_secs(6), "{slowest:?}");
    for reply in made.iter().chain(&found) {
        assert_eq!(reply.problem(503), "DATABASE_UNAVAILABLE");
        assert!(reply.header("retry-after").is_some());
    }
    let asked = Instant::now();
    let state = readiness(&app).await.expect(503);
    assert_eq!((&state.body["status"], &state.body["database"]), (&json!("unavailable"), &json!("down")));
    assert!(asked.elapsed() < millis(1500), "{:?}", asked.elapsed());
    app.call(Method::GET, "/livez", "", None).await.expect(200);

    postgres.resume().await.expect("resumed");
    let back = Instant::now();
    for reply in orders(&app, "during", 16).await.0 {
        assert!(matches!(reply.status, 200 | 201), "the same request goes through: {}", reply.text);
    }
    println!("after it 16 requests were answered in {:?}", back.elapsed());
    assert!(back.elapsed() < Duration::from_secs(3), "{:?}", back.elapsed());
    assert_eq!(readiness(&app).await.expect(200).body["status"], "ready");
    let kept: Vec<i32> = backends(&postgres).await.into_iter().filter(|pid| old.contains(pid)).collect();
    assert!(kept.is_empty(), "connections from before the black hole are still used: {kept:?}");
    app.end().await;
}

#[tokio::test]
async fn after_a_crash_of_postgresql_requests_succeed_without_a_restart() {
    let mut postgres = stores::private_postgres().await;
    let app = app_on(&postgres).await;
    for reply in orders(&app, "before", 12).await.0 {
        reply.expect(201);
    }
    postgres.kill().await.expect("killed");
    let (down, slowest) = orders(&app, "down", 4).await;
    for reply in down {
        assert_eq!(reply.problem(503), "DATABASE_UNAVAILABLE");
    }
    assert!(slowest < Duration::from_secs(3), "{slowest:?}");
    readiness(&app).await.expect(503);

    postgres.restart().await.expect("back");
    for reply in orders(&app, "after", 24).await.0 {
        reply.expect(201);
    }
    for reply in orders(&app, "before", 12).await.0 {
        reply.expect(200);
    }
    assert_eq!(readiness(&app).await.expect(200).body["status"], "ready");
    app.end().await;
}

/// A failover as the pool sees it: all connections are dead at once, and nothing was idle for long.
#[tokio::test]
async fn dead_connections_that_were_just_used_are_not_handed_to_requests() {
    let app = TestApp::start().await;
    for round in 0..3 {
        for reply in orders(&app, &format!("warm{round}-"), 16).await.0 {
            reply.expect(201);
        }
        looks(&app, &format!("warm{round}-0"), 16).await;
        let mut outside = PgConnection::connect(&app.database_url).await.expect("connect");
        let ended: i64 = sqlx::query_scalar(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
             WHERE datname = current_database() AND application_name = 'payonce'",
        )
        .fetch_one(&mut outside)
        .await
        .expect("ended");
        assert!(ended > 4, "{ended} connections");
        app.post("/orders", order(&format!("next{round}"))).await.expect(201);
        for reply in looks(&app, &format!("next{round}"), 16).await.0 {
            reply.expect(200);
        }
        for reply in orders(&app, &format!("after{round}-"), 16).await.0 {
            reply.expect(201);
        }
    }
    app.end().await;
}
