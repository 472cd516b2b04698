//! A hold is confirmed, or reported of, while its time runs out: it ends once, whichever comes first.

use std::cell::Cell;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use payonce::usage;
use serde_json::json;
use sqlx::{AssertSqlSafe, Executor, raw_sql};

use super::{beside, leave, start};
use crate::support::metering::hold_with;
use crate::support::{Chance, TestApp, seconds, until_at_the_gate, until_waiting};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_confirm_and_an_expiry_in_the_same_instant_charge_exactly_once() {
    let app = start(Some("redis://127.0.0.1:1".to_owned())).await;
    let mut chance = Chance::new();
    app.top_up("T", "u1", 10_000).await;
    app.tokens("1").await;
    let mut ids = Vec::new();
    for n in 0..60 {
        let body = hold_with(&format!("k{n}"), "u1", 100, json!({"expires_in": 60}));
        ids.push(app.post("/usage/holds", body).await.expect(201).text_of("hold_id").to_owned());
    }
    app.clock.advance(seconds(60));
    let pauses: Vec<Duration> = ids.iter().map(|_| chance.pause(30_000)).collect();
    let confirms = ids.iter().zip(pauses).map(|(id, pause)| {
        let app = &app;
        async move {
            tokio::time::sleep(pause).await;
            app.confirm(id, Some(50)).await.expect(200)
        }
    });
    let expiry = async {
        for _ in 0..8 {
            usage::expire_due(&app.instance.app).await.expect("a batch");
            tokio::time::sleep(Duration::from_millis(4)).await;
        }
    };
    let (confirmed, ()) = tokio::join!(join_all(confirms), expiry);
    let late = confirmed.iter().filter(|answer| answer.body["late"] == true).count();
    println!("{late} of {} were late", ids.len());
    assert_eq!(app.cny_of("u1").await, (7_000, 0));
    assert_eq!(app.told("usage.charged").await, 60);
    assert_eq!(app.told("usage.hold_expired").await, i64::try_from(late).expect("small"));
    app.end().await;
}

/// Whoever writes down the end of a hold stops there for as long as the gate is shut. It is no wait for a row, so nobody
/// loses patience.
async fn build_gate(app: &TestApp) {
    app.sql(
        "CREATE FUNCTION gate() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             WHILE NOT pg_try_advisory_xact_lock(1) LOOP PERFORM pg_sleep(0.005); END LOOP;
             RETURN NEW; END $$;
         CREATE TRIGGER gate BEFORE INSERT ON usage_history FOR EACH ROW WHEN (NEW.from_status IS NOT NULL)
             EXECUTE FUNCTION gate()",
    )
    .await;
}

/// A hold whose time is over and that nobody ended yet.
async fn overdue(app: &TestApp, key: &str) -> String {
    let body = hold_with(key, "u1", 100, json!({"expires_in": 60}));
    let id = app.post("/usage/holds", body).await.expect(201).text_of("hold_id").to_owned();
    app.clock.advance(seconds(60));
    id
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whichever_of_a_confirm_and_an_expiry_has_the_hold_the_other_finds_its_end() {
    let app = start(Some("redis://127.0.0.1:1".to_owned())).await;
    app.top_up("T", "u1", 10_000).await;
    app.tokens("1").await;
    build_gate(&app).await;
    let expire = async || {
        usage::expire_due(&app.instance.app).await.expect("a batch");
    };
    let mut late = 0;
    for round in 1..=4 {
        let id = overdue(&app, &format!("k{round}")).await;
        let mut gate = app.direct_connection().await;
        gate.execute("SELECT pg_advisory_lock(1)").await.expect("shut");
        let is_expired_first = round % 2 == 0;
        let confirmed = if is_expired_first {
            let confirming = async {
                until_at_the_gate(&app).await;
                app.confirm(&id, Some(50)).await
            };
            let opening = async {
                // The confirm waits for the hold.
                until_waiting(&app, 1).await;
                gate.execute("SELECT pg_advisory_unlock(1)").await.expect("open");
            };
            tokio::join!(expire(), confirming, opening).1
        } else {
            let passing_over = async {
                until_at_the_gate(&app).await;
                expire().await;
                assert_eq!(app.standing(&id).await, ("HELD".into(), 100, 0, None));
                gate.execute("SELECT pg_advisory_unlock(1)").await.expect("open");
            };
            tokio::join!(app.confirm(&id, Some(50)), passing_over).0
        };
        late += i64::from(is_expired_first);
        assert_eq!(confirmed.expect(200).body["late"], is_expired_first);
        expire().await;
        assert_eq!(app.standing(&id).await, ("CONFIRMED".into(), 0, 50, Some(50)));
        assert_eq!(app.cny_of("u1").await, (10_000 - 50 * round, 0));
        assert_eq!(app.told("usage.charged").await, round);
        assert_eq!(app.told("usage.hold_expired").await, late);
    }
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_that_is_never_found_free_is_waited_for_once_it_is_overdue() {
    let app = start(None).await;
    app.top_up("T", "u1", 10_000).await;
    app.tokens("1").await;
    let id = overdue(&app, "k1").await;
    let expire = async || {
        usage::expire_due(&app.instance.app).await.expect("a run");
    };
    let mut owner = app.direct_connection().await;
    let lock = format!("BEGIN; SELECT 1 FROM usage_holds WHERE hold_id = '{id}' FOR UPDATE");
    owner.execute(raw_sql(AssertSqlSafe(lock))).await.expect("in hand");
    // Its time is just over: whoever has it in hand may be about to end it.
    expire().await;
    assert_eq!(app.standing(&id).await.0, "HELD");

    app.clock.advance(seconds(15));
    let ending = async {
        // Each run waits for a moment only.
        while app.standing(&id).await.0 == "HELD" {
            expire().await;
        }
    };
    let letting_go = async {
        until_waiting(&app, 1).await;
        owner.execute("ROLLBACK").await.expect("free");
    };
    tokio::join!(ending, letting_go);
    assert_eq!(app.standing(&id).await, ("EXPIRED".into(), 0, 0, None));
    assert_eq!(app.cny_of("u1").await, (10_000, 0));
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_that_two_instances_report_of_without_a_pause_ends_behind_its_time() {
    let app = start(None).await;
    let (here, there) = (beside(&app).await, beside(&app).await);
    app.top_up("T", "u1", 1_000_000).await;
    app.tokens("1").await;
    let id = overdue(&app, "k1").await;
    app.clock.advance(seconds(15));
    let is_over = Cell::new(false);
    // Each instance writes one report down, and another one waits behind it.
    let report = async |app: &TestApp, name: &str| {
        let mut units = 0;
        while !is_over.get() {
            units += 1;
            let heard = app.report(&id, &format!("{name}-{units}"), units).await;
            assert!(heard.status == 200 || heard.body["code"] == "HOLD_CLOSED", "{heard:?}");
        }
    };
    let expiry = async {
        let since = Instant::now();
        // In the turns of the duty.
        while app.standing(&id).await.0 == "HELD" {
            assert!(since.elapsed() < seconds(30), "it is reported of and never ends");
            tokio::time::sleep(Duration::from_millis(200)).await;
            usage::expire_due(&app.instance.app).await.expect("a run");
        }
        println!("it ended after {:?}", since.elapsed());
        is_over.set(true);
    };
    tokio::join!(report(&here, "a"), report(&here, "b"), report(&there, "c"), report(&there, "d"), expiry);
    let (status, held, _, units) = app.standing(&id).await;
    assert_eq!((status.as_str(), held), ("EXPIRED", 0));
    let late = app.confirm(&id, None).await.expect(200).body;
    assert_eq!((&late["late"], &late["charged"]), (&json!(true), &json!(units)));
    leave([here, there]).await;
    app.end_without_deadlocks().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_whose_balance_is_never_found_free_is_waited_for_once_it_is_overdue() {
    let app = start(None).await;
    app.top_up("T", "u1", 10_000).await;
    app.tokens("1").await;
    let id = overdue(&app, "k1").await;
    app.clock.advance(seconds(15));
    let mut owner = app.direct_connection().await;
    let lock = "BEGIN; SELECT 1 FROM accounts WHERE account_id LIKE '%:u1:%' FOR UPDATE";
    owner.execute(lock).await.expect("in hand");
    let letting_go = async {
        until_waiting(&app, 1).await;
        // Far longer than a batch waits for anybody.
        tokio::time::sleep(Duration::from_millis(500)).await;
        owner.execute("ROLLBACK").await.expect("free");
    };
    let (expired, ()) = tokio::join!(usage::expire_due(&app.instance.app), letting_go);
    expired.expect("a run");
    assert_eq!(app.standing(&id).await, ("EXPIRED".into(), 0, 0, None));
    assert_eq!(app.cny_of("u1").await, (10_000, 0));
    app.end().await;
}
