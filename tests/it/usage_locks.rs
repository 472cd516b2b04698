//! What metered work locks, and what it does not.

use futures_util::future::join_all;
use payonce::usage;
use reqwest::Method;
use serde_json::json;
use sqlx::{AssertSqlSafe, Executor, raw_sql};

use crate::support::metering::{hold, hold_with};
use crate::support::stores::tell_redis;
use crate::support::{SECRET_KEY, TestApp, seconds, until_waiting};

#[tokio::test]
async fn while_the_work_runs_nothing_is_locked() {
    let app = TestApp::start().await;
    app.top_up("T", "u1", 1_000).await;
    app.tokens_with("1", json!({"cycle_quota": 1_000})).await.expect(200);
    let id = app.held("k1", "u1", 300).await;
    app.report(&id, "m1", 400).await.expect(200);
    // Given back without waiting for it.
    app.eventually("the lock is given back", async || {
        tell_redis::<Vec<String>>(&app.redis_url, &["KEYS", "lock:*"]).await.is_empty()
    })
    .await;
    let mut owner = app.direct_connection().await;
    let every_row = "BEGIN;
         SELECT 1 FROM usage_holds FOR UPDATE NOWAIT;
         SELECT 1 FROM usage_cycles FOR UPDATE NOWAIT;
         SELECT 1 FROM accounts WHERE user_id = 'u1' FOR UPDATE NOWAIT;
         SELECT 1 FROM products FOR UPDATE NOWAIT;
         ROLLBACK";
    owner.execute(raw_sql(every_row)).await.expect("nobody has them");
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_names_somebody_elses_hold_waits_for_nobody_and_holds_nobody_up() {
    let app = TestApp::start().await;
    let stranger = app.merchant("other", "hold").await;
    app.top_up("T", "u1", 1_000).await;
    app.tokens("1").await;
    app.tokens_with("0", json!({"merchant_id": "other"})).await.expect(200);
    let id = app.held("k1", "u1", 300).await;
    let own = app.call(Method::POST, "/usage/holds", &stranger, Some(&hold("k1", "u1", 0))).await.expect(201);
    let own = own.text_of("hold_id");

    let mut owner = app.direct_connection().await;
    let lock = format!("BEGIN; SELECT 1 FROM usage_holds WHERE hold_id = '{id}' FOR UPDATE");
    owner.execute(raw_sql(AssertSqlSafe(lock))).await.expect("in hand");
    let tell = async |key: &str, id: &str, deed: &str| {
        let body = match deed {
            "progress" => json!({"message_id": "m1", "cumulative_units": 900}),
            _ => json!({}),
        };
        app.call(Method::POST, &format!("/usage/holds/{id}/{deed}"), key, Some(&body)).await
    };
    for deed in ["progress", "confirm", "release"] {
        assert_eq!(tell(&stranger, &id, deed).await.problem(404), "NOT_FOUND", "{deed}");
    }
    owner.execute("ROLLBACK").await.expect("free");

    // In one batch with its merchant: each hears of their own.
    let both = (0..40).map(|n| {
        let (app, tell, id, stranger) = (&app, &tell, id.as_str(), stranger.as_str());
        async move {
            match n % 4 {
                0 => tell(stranger, id, "progress").await.problem(404).to_owned(),
                1 => tell(SECRET_KEY, own, "progress").await.problem(404).to_owned(),
                2 => tell(stranger, own, "progress").await.expect(200).text_of("status").to_owned(),
                _ => app.report(id, "m2", 300).await.expect(200).text_of("status").to_owned(),
            }
        }
    });
    let heard = join_all(both).await;
    assert!(heard.iter().all(|answer| answer == "NOT_FOUND" || answer == "HELD"), "{heard:?}");
    assert_eq!(app.standing(&id).await, ("HELD".into(), 300, 0, Some(300)));
    app.end().await;
}

#[tokio::test]
async fn reports_of_a_hold_that_ran_out_wait_for_no_balance_and_no_quota() {
    let app = TestApp::start().await;
    app.top_up("T", "u1", 1_000).await;
    app.tokens_with("1", json!({"cycle_quota": 1_000})).await.expect(200);
    let id = app.held("k1", "u1", 300).await;
    app.clock.advance(seconds(901));
    app.run_until_idle().await;
    let mut owner = app.direct_connection().await;
    let others = "BEGIN;
         SELECT 1 FROM usage_cycles FOR UPDATE;
         SELECT 1 FROM accounts WHERE user_id = 'u1' FOR UPDATE";
    owner.execute(raw_sql(others)).await.expect("in hand");
    assert_eq!(app.report(&id, "m1", 400).await.problem(409), "HOLD_CLOSED");
    owner.execute("ROLLBACK").await.expect("free");
    let late = app.confirm(&id, None).await.expect(200).body;
    assert_eq!((&late["late"], &late["charged"]), (&json!(true), &json!(400)));
    assert_eq!(app.cny_of("u1").await, (600, 0));
    app.end().await;
}

#[tokio::test]
async fn whoever_waits_for_a_cycle_to_be_opened_holds_none_that_is_known() {
    let app = TestApp::start().await;
    app.top_up("T", "u1", 1_000).await;
    app.tokens_with("1", json!({"cycle_quota": 100})).await.expect(200);
    for cycle in ["a", "b"] {
        app.post("/usage/holds", hold_with(cycle, "u1", 10, json!({"cycle": cycle}))).await.expect(201);
    }
    // As if somebody else were opening the second one in this moment.
    let mut owner = app.direct_connection().await;
    let taken_away = "CREATE TEMPORARY TABLE opened AS SELECT * FROM usage_cycles WHERE cycle = 'b';
         DELETE FROM usage_cycles WHERE cycle = 'b'";
    owner.execute(raw_sql(taken_away)).await.expect("one is known");
    owner.execute("SET deadlock_timeout = '10ms'").await.expect("it looks soon");
    let opening = "BEGIN; INSERT INTO usage_cycles SELECT * FROM opened";
    owner.execute(raw_sql(opening)).await.expect("in hand");
    app.clock.advance(seconds(901));
    let beside = async {
        until_waiting(&app, 1).await;
        let known = "SELECT 1 FROM usage_cycles WHERE cycle = 'a' FOR UPDATE";
        owner.execute(known).await.expect("nobody waits in a circle");
        owner.execute("COMMIT").await.expect("both are known");
    };
    let (expired, ()) = tokio::join!(usage::expire_due(&app.instance.app), beside);
    expired.expect("a walk");
    app.run_until_idle().await;
    assert_eq!(app.cny_of("u1").await, (1_000, 0));
    app.end().await;
}
