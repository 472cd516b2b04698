//! A database of an earlier version is brought up to this one, and everything in it is right.

use payonce::audit;
use payonce::ids::Ids;
use payonce::infra::clock::Clock;
use payonce::infra::db::Db;
use serde_json::json;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};
use time::macros::datetime;

use crate::support::books::sides;
use crate::support::{TestApp, TestOptions, stores};

/// The migration that opened the books.
const BOOKS: i64 = 8;

/// A healthy world of the version before: one thing in every state.
fn world_before_the_books() -> &'static str {
    let (before, _) =
        include_str!("audit/world.sql").split_once("-- ==== the books").expect("a line between");
    before
}

/// A database that the version before the books left, with its world.
async fn database_of_the_version_before() -> String {
    let url = stores::empty_database().await;
    let migrations = sqlx::migrate!();
    let before =
        migrations.iter().map(|migration| migration.version).filter(|version| *version < BOOKS).max();
    let mut owner = PgConnection::connect(&url).await.expect("connect");
    migrations.run_direct(before, &mut owner, false).await.expect("the version before");
    let world = world_before_the_books();
    let fill = format!("BEGIN; SET LOCAL session_replication_role = replica; {world}; COMMIT");
    owner.execute(AssertSqlSafe(fill)).await.expect("a world");
    owner.close().await.expect("close");
    url
}

#[tokio::test]
async fn the_books_open_with_everything_that_was_there_and_go_on_from_it() {
    let url = database_of_the_version_before().await;
    let mut owner = PgConnection::connect(&url).await.expect("connect");
    sqlx::migrate!().run_direct(None, &mut owner, false).await.expect("this version");
    owner.close().await.expect("close");
    let config = stores::database_config(&url);
    let db = Db::new(&config, Ids::seeded(Clock::system(), 1)).expect("a pool");
    let report = audit::audit(&db, datetime!(2030-01-01 00:00 UTC)).await.expect("an audit");
    assert!(
        report.ok,
        "{:#?}",
        report.checks.iter().filter(|check| check.violations > 0).collect::<Vec<_>>()
    );
    db.close().await;

    let app =
        TestApp::start_with(TestOptions { database_url: Some(url.clone()), ..TestOptions::default() }).await;
    let opened = [
        ("CHANNEL sandbox CNY", 570),
        ("CHANNEL sandbox USD", 5),
        ("MERCHANT m CNY", -100),
        ("PLATFORM_REVENUE - USD", -5),
        ("SUSPENSE sandbox CNY", -170),
        ("USER_AVAILABLE m CNY", -300),
    ];
    assert_eq!(app.trial_balance().await, sides(opened));
    // What the channel took back before was never booked, and is not now.
    assert_eq!(app.booking("REFUND:rf_cx").await, None);

    let told = json!({"event_id": "r1", "kind": "REFUND", "refund_id": "rf_r", "out_trade_no": "po_d0",
                      "refund_fee": 70, "currency": "CNY", "status": "SUCCEEDED"});
    app.deliver(&told).await;
    let mut gone = sides(opened);
    gone.insert("CHANNEL sandbox CNY".to_owned(), 500);
    gone.insert("SUSPENSE sandbox CNY".to_owned(), -100);
    assert_eq!(app.trial_balance().await, gone);
    app.end().await;
    stores::drop_database(&url).await;
}
