//! Quotas of cycles, over time and beside others.

use serde_json::json;
use sqlx::{Executor, raw_sql};
use time::{Date, Month};

use crate::support::metering::{hold, hold_with};
use crate::support::{TestApp, minutes, seconds};

/// What is used of the only cycle.
async fn used(app: &TestApp) -> i64 {
    sqlx::query_scalar("SELECT used_units FROM usage_cycles")
        .fetch_one(app.instance.app.db.pool())
        .await
        .expect("a cycle")
}

#[tokio::test]
async fn a_quota_counts_what_was_charged_before_there_was_one() {
    let app = TestApp::start().await;
    app.top_up("T", "u1", 1_000).await;
    app.tokens("1").await;
    let charged = app.held("k1", "u1", 60).await;
    app.confirm(&charged, Some(50)).await.expect(200);
    let released = app.held("k2", "u1", 60).await;
    app.release(&released).await.expect(200);
    let open = app.held("k3", "u1", 30).await;
    app.post("/usage/holds", hold_with("k0", "u1", 9, json!({"cycle": "another"}))).await.expect(201);
    app.tokens_with("1", json!({"cycle_quota": 100})).await.expect(200);

    assert_eq!(app.post("/usage/holds", hold("k4", "u1", 51)).await.problem(422), "QUOTA_EXCEEDED");
    let limited = app.held("k4", "u1", 50).await;
    // What was held without a quota is not held up by one, and counts when it is charged, whatever is held under one
    // in the same batch.
    let (first, second) = tokio::join!(app.confirm(&open, Some(30)), app.confirm(&limited, Some(10)));
    first.expect(200);
    second.expect(200);
    assert_eq!(used(&app).await, 90);
    assert_eq!(app.post("/usage/holds", hold("k5", "u1", 11)).await.problem(422), "QUOTA_EXCEEDED");
    app.held("k5", "u1", 10).await;

    // What is charged while there is none again counts too.
    app.tokens_with("1", json!({"cycle_quota": null})).await.expect(200);
    let free = app.held("k6", "u1", 500).await;
    app.confirm(&free, Some(400)).await.expect(200);
    app.tokens_with("1", json!({"cycle_quota": 501})).await.expect(200);
    assert_eq!(app.post("/usage/holds", hold("k7", "u1", 2)).await.problem(422), "QUOTA_EXCEEDED");
    app.held("k7", "u1", 1).await;
    app.end().await;
}

#[tokio::test]
async fn a_hold_stays_in_the_month_in_which_it_was_taken_and_the_next_month_begins_anew() {
    let app = TestApp::start().await;
    app.top_up("T", "u1", 1_000).await;
    app.tokens_with("1", json!({"cycle_quota": 100})).await.expect(200);
    // Half a minute before the year is over.
    let (now, year) = (app.clock.now(), app.clock.now().year());
    let next_year =
        Date::from_calendar_date(year + 1, Month::January, 1).expect("a day").midnight().assume_utc();
    app.clock.advance((next_year - now).try_into().expect("forward"));
    app.clock.set_back(seconds(30));
    let (one, two) = (app.held("k1", "u1", 60).await, app.held("k2", "u1", 40).await);
    assert_eq!(app.post("/usage/holds", hold("k3", "u1", 1)).await.problem(422), "QUOTA_EXCEEDED");

    app.clock.advance(seconds(60));
    assert_eq!(app.post("/usage/holds", hold("k1", "u1", 60)).await.expect(200).text_of("hold_id"), one);
    app.confirm(&one, Some(50)).await.expect(200);
    app.held("k3", "u1", 100).await;
    assert_eq!(app.post("/usage/holds", hold("k4", "u1", 1)).await.problem(422), "QUOTA_EXCEEDED");
    // Of the old month there is left what was given back of it.
    app.report(&two, "m1", 50).await.expect(200);
    assert_eq!(app.report(&two, "m2", 51).await.problem(422), "QUOTA_EXCEEDED");
    let cycles: Vec<(String, i64)> =
        sqlx::query_as("SELECT cycle, used_units FROM usage_cycles ORDER BY cycle")
            .fetch_all(app.instance.app.db.pool())
            .await
            .expect("cycles");
    assert_eq!(cycles, [(format!("{year}-12"), 100), (format!("{}-01", year + 1), 100)]);
    app.end().await;
}

#[tokio::test]
async fn a_report_within_what_a_hold_counts_for_leaves_its_cycle_alone() {
    let app = TestApp::start().await;
    app.top_up("T", "u1", 1_000).await;
    app.tokens_with("1", json!({"cycle_quota": 100})).await.expect(200);
    let (one, two) = (app.held("k1", "u1", 40).await, app.held("k2", "u1", 40).await);
    let row = async || -> String {
        sqlx::query_scalar("SELECT ctid::text FROM usage_cycles")
            .fetch_one(app.instance.app.db.pool())
            .await
            .expect("a cycle")
    };
    let before = row().await;
    let mut owner = app.direct_connection().await;
    let lock = "BEGIN; SELECT 1 FROM usage_cycles FOR UPDATE";
    owner.execute(raw_sql(lock)).await.expect("in hand");
    app.report(&one, "m1", 40).await.expect(200);
    app.report(&one, "m0", 20).await.expect(200);
    owner.execute("ROLLBACK").await.expect("free");
    assert_eq!(row().await, before, "it was not written");
    app.report(&one, "m2", 60).await.expect(200);
    assert_eq!(app.told("usage.hold_exhausted").await, 0);
    for (message, units) in [("m1", 41), ("m2", 42), ("m2", 42)] {
        assert_eq!(app.report(&two, message, units).await.problem(422), "QUOTA_EXCEEDED");
    }
    assert_eq!(app.told("usage.hold_exhausted").await, 1);
    assert_eq!(used(&app).await, 100);
    app.end().await;
}

#[tokio::test]
async fn what_is_reported_beyond_a_quota_leaves_nothing_of_it_to_others() {
    let app = TestApp::start().await;
    app.top_up("T", "u1", 5_000).await;
    app.tokens_with("1", json!({"cycle_quota": 1_000})).await.expect(200);
    let one = app.held("k1", "u1", 100).await;
    app.report(&one, "m1", 700).await.expect(200);
    assert_eq!(used(&app).await, 700);
    for _ in 0..2 {
        let refused = app.report(&one, "m2", 1_200).await;
        assert_eq!(refused.problem(422), "QUOTA_EXCEEDED");
        assert!(refused.text_of("detail").starts_with("0 units are left"), "{}", refused.text);
        assert_eq!(used(&app).await, 1_000, "as far as it goes, and once");
    }
    for units in [300, 1] {
        assert_eq!(app.post("/usage/holds", hold("k2", "u1", units)).await.problem(422), "QUOTA_EXCEEDED");
    }

    // An end gives back what it counted for, also where that was less than what was reported.
    app.release(&one).await.expect(200);
    assert_eq!(used(&app).await, 0);
    let two = app.held("k2", "u1", 300).await;
    assert_eq!(app.report(&two, "m1", 1_300).await.problem(422), "QUOTA_EXCEEDED");
    assert_eq!(used(&app).await, 1_000);
    app.clock.advance(minutes(16));
    app.run_until_idle().await;
    assert_eq!(used(&app).await, 0);
    // What is charged counts, also beyond it.
    app.confirm(&two, None).await.expect(200);
    assert_eq!(used(&app).await, 1_300);
    app.end().await;
}
