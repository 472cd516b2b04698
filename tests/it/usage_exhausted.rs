//! Work that passes what there is for it: what there is is set aside, and whoever should stop hears so each time, once.

use serde_json::{Value, json};

use crate::support::metering::hold;
use crate::support::{TestApp, minutes};

/// What was told of holds that were exhausted, in order: (units, held, reason).
async fn exhaustions(app: &TestApp) -> Vec<(i64, i64, String)> {
    let told = "SELECT payload FROM outbox WHERE event = 'usage.hold_exhausted' ORDER BY id";
    let told: Vec<Value> =
        sqlx::query_scalar(told).fetch_all(app.instance.app.db.pool()).await.expect("events");
    let read = |event: &Value| {
        let number = |field: &str| event[field].as_i64().expect("a number");
        (number("units"), number("held"), event["reason"].as_str().expect("a word").to_owned())
    };
    told.iter().map(read).collect()
}

#[tokio::test]
async fn what_was_used_is_set_aside_as_far_as_the_balance_goes_and_nobody_else_spends_it() {
    let app = TestApp::start().await;
    app.top_up("T", "u1", 1_000).await;
    app.tokens("0.3").await;
    let (id, other) = (app.held("k1", "u1", 1_000).await, app.held("k2", "u1", 500).await);
    assert_eq!(app.cny_of("u1").await, (550, 450));
    // 3,000 × 0.3 = 900, and 850 are there for it.
    let short = app.report(&id, "m1", 3_000).await;
    assert_eq!(short.problem(422), "INSUFFICIENT_BALANCE");
    assert!(short.text_of("detail").contains("what there was is set aside"), "{}", short.text);
    assert_eq!(app.standing(&id).await, ("HELD".into(), 850, 0, Some(3_000)));
    assert_eq!(app.cny_of("u1").await, (0, 1_000));
    assert_eq!(app.report(&id, "m1", 3_000).await.problem(422), "INSUFFICIENT_BALANCE");
    app.assert_books_balance().await;

    // It was used up: no other work begins with it, and it goes to nobody.
    assert_eq!(app.post("/usage/holds", hold("k3", "u1", 1)).await.problem(422), "INSUFFICIENT_BALANCE");
    let out = json!({"withdrawal_no": "W1", "user_id": "u1", "amount": 1, "currency": "CNY", "channel": "sandbox",
                     "account": "a"});
    assert_eq!(app.post("/withdrawals", out).await.problem(422), "INSUFFICIENT_BALANCE");

    // What another one frees is enough, and what is not wanted stays free.
    app.release(&other).await.expect(200);
    app.report(&id, "m1", 3_000).await.expect(200);
    assert_eq!(app.standing(&id).await, ("HELD".into(), 900, 0, Some(3_000)));
    assert_eq!(app.cny_of("u1").await, (100, 900));
    app.confirm(&id, None).await.expect(200);
    assert_eq!(app.balances_of("u1").await, [("CNY".to_owned(), 100, 0, 0)]);
    app.end().await;
}

#[tokio::test]
async fn an_end_frees_also_what_was_set_aside_in_part() {
    let app = TestApp::start().await;
    app.top_up("T1", "u1", 100).await;
    app.top_up("T2", "u2", 100).await;
    app.tokens("1").await;
    let (released, expired) = (app.held("k1", "u1", 30).await, app.held("k1", "u2", 30).await);
    for id in [&released, &expired] {
        assert_eq!(app.report(id, "m1", 250).await.problem(422), "INSUFFICIENT_BALANCE");
        assert_eq!(app.standing(id).await, ("HELD".into(), 100, 0, Some(250)));
    }
    app.release(&released).await.expect(200);
    assert_eq!(app.cny_of("u1").await, (100, 0));
    app.clock.advance(minutes(16));
    app.run_until_idle().await;
    assert_eq!(app.standing(&expired).await, ("EXPIRED".into(), 0, 0, Some(250)));
    assert_eq!(app.cny_of("u2").await, (100, 0));
    app.end().await;
}

#[tokio::test]
async fn a_hold_that_is_exhausted_again_says_so_again_and_once_each_time() {
    let app = TestApp::start().await;
    app.top_up("T1", "u1", 100).await;
    app.tokens("1").await;
    let id = app.held("k1", "u1", 30).await;
    let dry = async |message: &str, units: i64| {
        assert_eq!(app.report(&id, message, units).await.problem(422), "INSUFFICIENT_BALANCE");
    };
    dry("m1", 101).await;
    dry("m2", 130).await;
    // More comes, and it is not enough: nothing has changed for whoever was told to stop.
    app.top_up("T2", "u1", 20).await;
    dry("m2", 130).await;
    let first = (101, 100, "INSUFFICIENT_BALANCE".to_owned());
    assert_eq!(exhaustions(&app).await, std::slice::from_ref(&first));

    app.top_up("T3", "u1", 50).await;
    app.report(&id, "m2", 130).await.expect(200);
    app.report(&id, "m3", 170).await.expect(200);
    assert_eq!(exhaustions(&app).await, std::slice::from_ref(&first), "all of it was there");
    dry("m4", 171).await;
    dry("m5", 180).await;
    let second = (171, 170, "INSUFFICIENT_BALANCE".to_owned());
    assert_eq!(exhaustions(&app).await, [first.clone(), second.clone()]);
    app.assert_books_balance().await;

    app.top_up("T4", "u1", 10).await;
    app.report(&id, "m5", 180).await.expect(200);
    dry("m6", 190).await;
    let third = (190, 180, "INSUFFICIENT_BALANCE".to_owned());
    assert_eq!(exhaustions(&app).await, [first, second, third]);
    let done = app.confirm(&id, None).await.expect(200);
    assert_eq!((&done.body["charged"], &done.body["shortfall"]), (&json!(180), &json!(10)));
    app.end().await;
}

#[tokio::test]
async fn a_quota_that_is_used_up_again_says_so_again_also_where_nothing_more_was_set_aside() {
    let app = TestApp::start().await;
    app.top_up("T", "u1", 1_000).await;
    app.tokens_with("1", json!({"cycle_quota": 100})).await.expect(200);
    let (one, two) = (app.held("k1", "u1", 60).await, app.held("k2", "u1", 40).await);
    for (message, units) in [("m1", 41), ("m2", 42)] {
        assert_eq!(app.report(&two, message, units).await.problem(422), "QUOTA_EXCEEDED");
    }
    app.confirm(&one, Some(10)).await.expect(200);
    for _ in 0..2 {
        app.report(&two, "m2", 42).await.expect(200);
    }
    let first = (41, 41, "QUOTA_EXCEEDED".to_owned());
    assert_eq!(exhaustions(&app).await, std::slice::from_ref(&first));
    for (message, units) in [("m3", 91), ("m4", 92)] {
        assert_eq!(app.report(&two, message, units).await.problem(422), "QUOTA_EXCEEDED");
    }
    assert_eq!(exhaustions(&app).await, [first, (91, 91, "QUOTA_EXCEEDED".to_owned())]);
    app.end().await;
}
