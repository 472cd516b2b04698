//! Metered work: held before it, charged after it, and never twice.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::books::sides;
use crate::support::metering::{hold, hold_with};
use crate::support::{TestApp, metric, minutes, seconds};

#[tokio::test]
async fn the_estimate_is_held_the_actual_charged_and_the_rest_freed() {
    let app = TestApp::start().await;
    app.top_up("T", "u1", 1_000).await;
    app.tokens("0.03").await;
    let made = app.post("/usage/holds", hold("k1", "u1", 10_001)).await.expect(201);
    assert_eq!((made.text_of("status"), &made.body["held"]), ("HELD", &json!(301)), "a hold is rounded up");
    assert_eq!(app.cny_of("u1").await, (699, 301));
    let again = app.post("/usage/holds", hold("k1", "u1", 10_001)).await.expect(200);
    assert_eq!(again.body, made.body);

    let id = made.text_of("hold_id");
    app.report(id, "m1", 4_000).await.expect(200);
    app.report(id, "m2", 7_350).await.expect(200);
    app.report(id, "m3", 6_000).await.expect(200);
    assert_eq!(app.standing(id).await, ("HELD".into(), 301, 0, Some(7_350)));
    let done = app.confirm(id, None).await.expect(200);
    // 7,350 × 0.03 = 220.5
    assert_eq!(app.standing(id).await, ("CONFIRMED".into(), 0, 221, Some(7_350)));
    assert_eq!(app.cny_of("u1").await, (779, 0));
    let charge = app.booking(&format!("USAGE_CHARGE:{id}")).await.expect("a booking");
    assert_eq!(
        charge,
        sides([
            ("MERCHANT:demo:CNY", -221),
            ("USER_AVAILABLE:demo:u1:CNY", -80),
            ("USER_HELD:demo:u1:CNY", 301)
        ])
    );
    assert_eq!(app.confirm(id, None).await.expect(200).body, done.body);
    assert_eq!(app.confirm(id, Some(7_350)).await.expect(200).body, done.body);
    assert_eq!(app.confirm(id, Some(7_351)).await.problem(409), "HOLD_CLOSED");
    assert_eq!(app.release(id).await.problem(409), "HOLD_CLOSED");
    assert_eq!(app.report(id, "m4", 9_000).await.problem(409), "HOLD_CLOSED");
    assert_eq!(app.report(id, "m2", 7_350).await.expect(200).body, done.body, "it was heard before");
    assert_eq!(app.post("/usage/holds", hold("k1", "u1", 10_001)).await.expect(200).body, done.body);
    assert_eq!(app.told("usage.charged").await, 1);
    app.end().await;
}

#[tokio::test]
async fn a_release_and_an_expiry_free_all_of_it() {
    let app = TestApp::start().await;
    app.top_up("T", "u1", 1_000).await;
    app.tokens("1").await;
    let released = app.held("k1", "u1", 300).await;
    app.report(&released, "m1", 200).await.expect(200);
    let done = app.release(&released).await.expect(200);
    assert_eq!(app.release(&released).await.expect(200).body, done.body);
    assert_eq!(app.confirm(&released, Some(300)).await.problem(409), "HOLD_CLOSED");

    let body = hold_with("k2", "u1", 300, json!({"expires_in": 60}));
    let expiring = app.post("/usage/holds", body).await.expect(201).text_of("hold_id").to_owned();
    app.clock.advance(seconds(55));
    app.run_until_idle().await;
    assert_eq!(app.standing(&expiring).await.0, "HELD");
    app.clock.advance(seconds(6));
    app.run_until_idle().await;
    assert_eq!(app.standing(&expiring).await, ("EXPIRED".into(), 0, 0, None));
    assert_eq!(app.release(&expiring).await.problem(409), "HOLD_CLOSED");
    for _ in 0..2 {
        assert_eq!(app.report(&expiring, "m1", 5).await.problem(409), "HOLD_CLOSED", "also to a repeat");
    }
    assert_eq!(app.standing(&expiring).await, ("EXPIRED".into(), 0, 0, Some(5)), "it was heard all the same");
    assert_eq!(app.cny_of("u1").await, (1_000, 0));
    assert_eq!((app.told("usage.charged").await, app.told("usage.hold_expired").await), (0, 1));
    app.end().await;
}

#[tokio::test]
async fn a_final_report_after_the_expiry_is_charged_late_and_never_below_zero() {
    let app = TestApp::start().await;
    app.top_up("T", "u1", 1_000).await;
    app.tokens("1").await;
    let first = app.held("k1", "u1", 300).await;
    let second = app.held("k2", "u1", 300).await;
    app.clock.advance(minutes(16));
    app.run_until_idle().await;
    assert_eq!(app.cny_of("u1").await, (1_000, 0));

    let late = app.confirm(&first, Some(250)).await.expect(200);
    assert_eq!((&late.body["late"], &late.body["charged"]), (&json!(true), &json!(250)));
    assert_eq!(app.cny_of("u1").await, (750, 0));
    let short = app.confirm(&second, Some(900)).await.expect(200);
    assert_eq!((&short.body["charged"], &short.body["shortfall"]), (&json!(750), &json!(150)));
    assert_eq!(app.balances_of("u1").await, [("CNY".to_owned(), 0, 0, 150)]);
    let owed = app.open_exception().await;
    assert_eq!((&owed["kind"], &owed["subject"]), (&json!("USAGE_SHORTFALL"), &json!(second)));
    assert_eq!(app.confirm(&second, Some(900)).await.expect(200).body, short.body);
    // The merchant's in full: what the user owes is its own asset.
    assert_eq!(app.trial_balance().await["MERCHANT demo CNY"], -1_150);
    app.end().await;
}

#[tokio::test]
async fn usage_beyond_the_estimate_extends_the_hold_as_long_as_the_balance_lasts() {
    let app = TestApp::start().await;
    app.top_up("T", "u1", 1_000).await;
    app.tokens("1").await;
    let id = app.held("k1", "u1", 300).await;
    app.report(&id, "m1", 800).await.expect(200);
    assert_eq!(app.cny_of("u1").await, (200, 800));
    // It passes what is there: heard all the same, all that there is is set aside, and the stream is told to stop, as often
    // as it asks before there is more.
    for _ in 0..2 {
        assert_eq!(app.report(&id, "m2", 1_100).await.problem(422), "INSUFFICIENT_BALANCE");
    }
    assert_eq!(app.standing(&id).await, ("HELD".into(), 1_000, 0, Some(1_100)));
    app.top_up("T2", "u1", 100).await;
    for _ in 0..2 {
        app.report(&id, "m2", 1_100).await.expect(200);
    }
    assert_eq!(app.standing(&id).await, ("HELD".into(), 1_100, 0, Some(1_100)));
    assert_eq!(app.report(&id, "m3", 1_201).await.problem(422), "INSUFFICIENT_BALANCE");
    assert_eq!(app.confirm(&id, Some(1_200)).await.problem(422), "UNITS_SHRINK");
    let done = app.confirm(&id, None).await.expect(200);
    assert_eq!((&done.body["charged"], &done.body["shortfall"]), (&json!(1_100), &json!(101)));
    assert_eq!(app.balances_of("u1").await, [("CNY".to_owned(), 0, 0, 101)]);
    app.end().await;
}

#[tokio::test]
async fn zero_is_zero_and_nothing_is_not() {
    let app = TestApp::start().await;
    app.top_up("T", "u1", 1_000).await;
    app.tokens("1").await;
    let silent = app.held("k1", "u1", 300).await;
    assert_eq!(app.confirm(&silent, None).await.problem(422), "VALIDATION_FAILED", "nobody said anything");
    app.confirm(&silent, Some(0)).await.expect(200);
    assert_eq!(app.standing(&silent).await, ("CONFIRMED".into(), 0, 0, Some(0)));
    let reported = app.held("k2", "u1", 300).await;
    app.report(&reported, "m1", 0).await.expect(200);
    app.confirm(&reported, None).await.expect(200);
    assert_eq!(app.standing(&reported).await, ("CONFIRMED".into(), 0, 0, Some(0)));
    let nothing = app.held("k3", "u1", 0).await;
    app.report(&nothing, "m1", 40).await.expect(200);
    app.confirm(&nothing, None).await.expect(200);
    assert_eq!(app.cny_of("u1").await, (960, 0));
    app.end().await;
}

#[tokio::test]
async fn a_call_costs_its_price_however_much_it_used_and_nothing_when_it_used_nothing() {
    let app = TestApp::start().await;
    app.top_up("T", "u1", 1_000).await;
    app.tokens_with("9.5", json!({"pricing": "PER_CALL", "cycle_quota": 2})).await.expect(200);
    let one = app.held("k1", "u1", 5_000).await;
    assert_eq!(app.cny_of("u1").await, (990, 10));
    app.confirm(&one, None).await.expect(200);
    assert_eq!(app.standing(&one).await, ("CONFIRMED".into(), 0, 10, Some(1)));
    let failed = app.held("k2", "u1", 5_000).await;
    assert_eq!(app.post("/usage/holds", hold("k3", "u1", 1)).await.problem(422), "QUOTA_EXCEEDED");
    app.confirm(&failed, Some(0)).await.expect(200);
    // What came to nothing does not count.
    let other = app.held("k3", "u1", 1).await;
    app.confirm(&other, Some(70_000)).await.expect(200);
    assert_eq!(app.cny_of("u1").await, (980, 0));
    assert_eq!(app.post("/usage/holds", hold("k4", "u1", 1)).await.problem(422), "QUOTA_EXCEEDED");
    app.end().await;
}

#[tokio::test]
async fn a_cycle_is_paid_once_in_advance_and_its_quota_is_what_it_buys() {
    let app = TestApp::start().await;
    app.top_up("T", "u1", 1_000).await;
    app.tokens_with("400", json!({"pricing": "PER_CYCLE", "cycle_quota": 100})).await.expect(200);
    let monthly = |key: &str, units: i64, cycle: &str| hold_with(key, "u1", units, json!({"cycle": cycle}));
    let first = app.post("/usage/holds", monthly("k1", 60, "2026-11")).await.expect(201);
    assert_eq!((&first.body["held"], &first.body["charged"]), (&json!(0), &json!(400)));
    let second = app.post("/usage/holds", monthly("k2", 40, "2026-11")).await.expect(201);
    assert_eq!((&second.body["held"], &second.body["charged"]), (&json!(0), &json!(0)));
    assert_eq!(app.post("/usage/holds", monthly("k3", 1, "2026-11")).await.problem(422), "QUOTA_EXCEEDED");
    // The first came to nothing: its units are free again, the cycle stays paid for.
    app.release(first.text_of("hold_id")).await.expect(200);
    app.confirm(second.text_of("hold_id"), Some(40)).await.expect(200);
    assert_eq!(app.cny_of("u1").await, (600, 0));
    app.post("/usage/holds", monthly("k3", 60, "2026-11")).await.expect(201);
    let paying = app.post("/usage/holds", monthly("k4", 1, "2026-12")).await.expect(201);
    assert_eq!(app.cny_of("u1").await, (200, 0));
    let refused = app.post("/usage/holds", monthly("k5", 1, "2027-01")).await;
    assert_eq!(refused.problem(422), "INSUFFICIENT_BALANCE");
    // What a cycle cost is told once: not again with the charge of the hold that paid for it.
    app.confirm(paying.text_of("hold_id"), None).await.expect(200);
    assert_eq!(app.told("usage.cycle_charged").await, 2);
    let told = "event = 'usage.charged' AND (payload ->> 'charged')::bigint <> 0";
    assert_eq!(app.count_where("outbox", told).await, 0);
    app.end().await;
}

#[tokio::test]
async fn a_quota_counts_what_is_held_and_what_was_charged() {
    let app = TestApp::start().await;
    app.top_up("T", "u1", 1_000).await;
    app.tokens_with("1", json!({"cycle_quota": 100})).await.expect(200);
    let one = app.held("k1", "u1", 60).await;
    assert_eq!(app.post("/usage/holds", hold("k2", "u1", 41)).await.problem(422), "QUOTA_EXCEEDED");
    let two = app.held("k2", "u1", 40).await;
    assert_eq!(app.report(&two, "m1", 41).await.problem(422), "QUOTA_EXCEEDED");
    app.confirm(&one, Some(10)).await.expect(200);
    app.report(&two, "m2", 90).await.expect(200);
    // What was used was used: it is charged beyond the quota, and nothing more begins.
    assert_eq!(app.report(&two, "m3", 95).await.problem(422), "QUOTA_EXCEEDED");
    app.confirm(&two, None).await.expect(200);
    assert_eq!(app.cny_of("u1").await, (895, 0));
    assert_eq!(app.post("/usage/holds", hold("k3", "u1", 1)).await.problem(422), "QUOTA_EXCEEDED");
    app.post("/usage/holds", hold_with("k3", "u1", 1, json!({"cycle": "next"}))).await.expect(201);
    app.end().await;
}

#[tokio::test]
async fn what_is_not_said_of_a_product_stays_as_it_is() {
    let app = TestApp::start().await;
    app.top_up("T", "u1", 1_000).await;
    let set = async |more: Value| {
        let set = app.tokens_with("1", more).await.expect(200).body;
        (set["cycle_quota"].clone(), set["allow_compensating_charge"].clone())
    };
    assert_eq!(set(json!({})).await, (json!(null), json!(false)));
    let limited = (json!(100), json!(true));
    assert_eq!(set(json!({"cycle_quota": 100, "allow_compensating_charge": true})).await, limited);
    assert_eq!(set(json!({"fx_version": "v2"})).await, limited);
    assert_eq!(app.post("/usage/holds", hold("k1", "u1", 101)).await.problem(422), "QUOTA_EXCEEDED");
    assert_eq!(
        set(json!({"cycle_quota": null, "allow_compensating_charge": false})).await,
        (json!(null), json!(false))
    );
    app.held("k1", "u1", 101).await;
    let log: Vec<String> =
        sqlx::query_scalar("SELECT target FROM admin_log WHERE action = 'products.set' ORDER BY 1")
            .fetch_all(app.instance.app.db.pool())
            .await
            .expect("rows");
    assert_eq!(
        log,
        [
            "demo/tokens = 1 CNY",
            "demo/tokens = 1 CNY of v2",
            "demo/tokens = 1 CNY, no quota, compensating charge not allowed",
            "demo/tokens = 1 CNY, quota 100, compensating charge allowed"
        ]
    );
    app.end().await;
}

#[tokio::test]
async fn one_that_cannot_be_freed_keeps_nobody_elses_money() {
    let app = TestApp::start().await;
    app.tokens("1").await;
    let mut ids = Vec::new();
    for n in 0..4 {
        let user = format!("u{n}");
        app.top_up(&format!("T{n}"), &user, 100).await;
        ids.push(app.held("k", &user, 100).await);
    }
    app.clock.advance(minutes(16));
    let mut owner = app.direct_connection().await;
    let lock = "BEGIN; SELECT 1 FROM accounts WHERE account_id = 'USER_AVAILABLE:demo:u0:CNY' FOR UPDATE";
    sqlx::Executor::execute(&mut owner, sqlx::raw_sql(lock)).await.expect("in hand");
    payonce::usage::expire_due(&app.instance.app).await.expect("a run");
    for id in &ids[1..] {
        assert_eq!(app.standing(id).await.0, "EXPIRED");
    }
    assert_eq!(app.standing(&ids[0]).await.0, "HELD");
    sqlx::Executor::execute(&mut owner, "ROLLBACK").await.expect("free");
    payonce::usage::expire_due(&app.instance.app).await.expect("a run");
    assert_eq!(app.standing(&ids[0]).await.0, "EXPIRED");
    app.end().await;
}

#[tokio::test]
async fn a_repeat_with_other_terms_is_refused_and_moves_nothing() {
    let app = TestApp::start().await;
    app.top_up("T", "u1", 1_000).await;
    app.tokens("1").await;
    app.tokens_with("2", json!({"fx_version": "v2"})).await.expect(200);
    let made = app.post("/usage/holds", hold("k1", "u1", 100)).await.expect(201);
    // Another price later on changes nothing of it.
    app.tokens("3").await;
    assert_eq!(app.post("/usage/holds", hold("k1", "u1", 100)).await.expect(200).body, made.body);
    for (field, value) in [
        ("currency", json!("USD")),
        ("fx_version", json!("v2")),
        ("estimated_units", json!(101)),
        ("cycle", json!("another")),
    ] {
        let refused = app.post("/usage/holds", hold_with("k1", "u1", 100, json!({field: value}))).await;
        assert_eq!(refused.problem(422), "USAGE_KEY_REUSED", "{field}");
        assert_eq!(refused.body["errors"][0]["field"], field);
    }
    assert_eq!(app.cny_of("u1").await, (900, 100));
    app.confirm(made.text_of("hold_id"), Some(100)).await.expect(200);
    assert_eq!(app.cny_of("u1").await, (900, 0), "at the price that it was made by");
    app.end().await;
}

#[tokio::test]
async fn a_key_with_currency_and_fx_version_is_another_one_for_each() {
    let app = TestApp::start().await;
    app.top_up("T", "u1", 1_000).await;
    app.tokens_with("1", json!({"key_scope": "REQUEST_CURRENCY_FX"})).await.expect(200);
    app.tokens_with("2", json!({"key_scope": "REQUEST_CURRENCY_FX", "fx_version": "v2"})).await.expect(200);
    let plain = app.held("k1", "u1", 100).await;
    let of_v2 = hold_with("k1", "u1", 100, json!({"fx_version": "v2"}));
    let other = app.post("/usage/holds", of_v2.clone()).await.expect(201);
    assert_ne!(other.text_of("hold_id"), plain);
    assert_eq!(app.post("/usage/holds", of_v2).await.expect(200).body, other.body);
    assert_eq!(app.cny_of("u1").await, (700, 300));
    for kind in [json!({}), json!({"key_scope": "REQUEST_CURRENCY_FX", "pricing": "PER_CALL"})] {
        assert_eq!(app.tokens_with("5", kind).await.problem(409), "PRODUCT_DIFFERS");
    }
    app.end().await;
}

#[tokio::test]
async fn a_key_in_another_currency_is_another_hold_at_a_price_of_its_own() {
    let app = TestApp::start().await;
    app.top_up("T", "u1", 1_000).await;
    app.order_with(
        json!({"order_no": "D", "user_id": "u1", "currency": "USD", "amount": 1_000, "kind": "TOPUP"}),
    )
    .await;
    let link = app.pay_url("D").await.expect(200);
    app.sandbox_pay(link.text_of("pay_order_id"), json!({})).await.expect(200);
    app.run_until_idle().await;
    app.tokens_with("1", json!({"key_scope": "REQUEST_CURRENCY_FX"})).await.expect(200);
    app.tokens_with("3", json!({"key_scope": "REQUEST_CURRENCY_FX", "currency": "USD"})).await.expect(200);

    let yuan = app.held("k1", "u1", 100).await;
    let in_dollars = hold_with("k1", "u1", 100, json!({"currency": "USD"}));
    let dollars = app.post("/usage/holds", in_dollars.clone()).await.expect(201);
    assert_ne!(dollars.text_of("hold_id"), yuan);
    assert_eq!(app.post("/usage/holds", in_dollars).await.expect(200).body, dollars.body);
    assert_eq!(
        app.balances_of("u1").await,
        [("CNY".to_owned(), 900, 100, 0), ("USD".to_owned(), 700, 300, 0)]
    );
    app.confirm(&yuan, Some(50)).await.expect(200);
    app.confirm(dollars.text_of("hold_id"), Some(50)).await.expect(200);
    assert_eq!(app.balances_of("u1").await, [("CNY".to_owned(), 950, 0, 0), ("USD".to_owned(), 850, 0, 0)]);
    app.end().await;
}

#[tokio::test]
async fn what_is_wrong_moves_nothing() {
    let app = TestApp::start().await;
    app.top_up("T", "u1", 1_000).await;
    app.tokens("1").await;
    for (more, code) in [
        (json!({"estimated_units": -1}), "VALIDATION_FAILED"),
        (json!({"estimated_units": 1_000_000_000_001_i64}), "VALIDATION_FAILED"),
        (json!({"estimated_units": 1e40}), "VALIDATION_FAILED"),
        (json!({"estimated_units": "5"}), "VALIDATION_FAILED"),
        (json!({"estimated_units": 1.5}), "VALIDATION_FAILED"),
        (json!({"estimated_units": null}), "VALIDATION_FAILED"),
        (json!({"expires_in": 0}), "VALIDATION_FAILED"),
        (json!({"expires_in": 604_801}), "VALIDATION_FAILED"),
        (json!({"currency": "XXY"}), "VALIDATION_FAILED"),
        (json!({"idempotency_key": ""}), "VALIDATION_FAILED"),
        (json!({"surprise": 1}), "VALIDATION_FAILED"),
        (json!({"product_code": "nothing"}), "UNKNOWN_PRODUCT"),
        (json!({"currency": "USD"}), "UNKNOWN_PRODUCT"),
        (json!({"fx_version": "v9"}), "UNKNOWN_PRODUCT"),
        (json!({"estimated_units": 1_001}), "INSUFFICIENT_BALANCE"),
        (json!({"user_id": "nobody"}), "INSUFFICIENT_BALANCE"),
    ] {
        let refused = app.post("/usage/holds", hold_with("k1", "u1", 100, more.clone())).await;
        assert_eq!(refused.problem(422), code, "{more}");
        assert!(!refused.text_of("detail").contains("reported"), "nothing was: {}", refused.text);
    }
    app.tokens_with("1000000000000", json!({"fx_version": "dear"})).await.expect(200);
    let dear = hold_with("k1", "u1", 2, json!({"fx_version": "dear"}));
    assert_eq!(app.post("/usage/holds", dear).await.problem(422), "VALIDATION_FAILED");
    assert_eq!(app.count("usage_holds").await, 0);

    let id = app.held("k1", "u1", 100).await;
    for units in [json!(-1), json!(1_000_000_000_001_i64), json!(1e40), json!("1"), json!(null)] {
        let body = json!({"message_id": "m1", "cumulative_units": units});
        let path = format!("/usage/holds/{id}/progress");
        assert_eq!(app.post(&path, body).await.problem(422), "VALIDATION_FAILED");
    }
    for units in [json!(-1), json!(1_000_000_000_001_i64), json!("1")] {
        let refused = app.post(&format!("/usage/holds/{id}/confirm"), json!({"units": units})).await;
        assert_eq!(refused.problem(422), "VALIDATION_FAILED");
    }
    app.report(&id, "m1", 50).await.expect(200);
    let reused = app.report(&id, "m1", 51).await;
    assert_eq!(reused.problem(422), "USAGE_MESSAGE_REUSED");
    assert_eq!(reused.body["errors"][0]["field"], "cumulative_units");
    let reused =
        app.post(&format!("/usage/holds/{id}/confirm"), json!({"message_id": "m1", "units": 51})).await;
    assert_eq!(reused.problem(422), "USAGE_MESSAGE_REUSED");
    assert_eq!(reused.body["errors"][0]["field"], "units");
    assert_eq!(app.confirm(&id, Some(49)).await.problem(422), "UNITS_SHRINK");
    let unknown = "uh_06H8K2M4N6P8R0T2V4X6Z8B0D2";
    assert_eq!(app.report(unknown, "m1", 1).await.problem(404), "NOT_FOUND");
    assert_eq!(app.confirm(unknown, Some(1)).await.problem(404), "NOT_FOUND");
    assert_eq!(app.release(unknown).await.problem(404), "NOT_FOUND");
    let outsider = app.merchant("other", "hold").await;
    for deed in ["progress", "confirm", "release"] {
        let body = match deed {
            "progress" => json!({"message_id": "m9", "cumulative_units": 1}),
            _ => json!({}),
        };
        let path = format!("/usage/holds/{id}/{deed}");
        let refused = app.call(Method::POST, &path, &outsider, Some(&body)).await;
        assert_eq!(refused.problem(404), "NOT_FOUND", "{deed}");
    }
    assert_eq!(app.standing(&id).await, ("HELD".into(), 100, 0, Some(50)));
    assert_eq!(app.cny_of("u1").await, (900, 100));
    app.end().await;
}

#[tokio::test]
async fn a_key_gets_the_first_answer_again_byte_for_byte() {
    let app = TestApp::start().await;
    app.top_up("T", "u1", 1_000).await;
    app.tokens("1").await;
    let first = app.post_keyed("/usage/holds", "i1", &hold("k1", "u1", 100)).await.expect(201);
    let id = first.text_of("hold_id").to_owned();
    let (path, body) = (format!("/usage/holds/{id}/confirm"), json!({"units": 70}));
    let confirmed = app.post_keyed(&path, "i2", &body).await.expect(200);
    assert_eq!(
        app.post_keyed("/usage/holds", "i1", &hold("k1", "u1", 100)).await.expect(201).text,
        first.text
    );
    assert_eq!(app.post_keyed(&path, "i2", &body).await.expect(200).text, confirmed.text);
    assert_eq!(
        app.post_keyed(&path, "i2", &json!({"units": 71})).await.problem(422),
        "IDEMPOTENCY_KEY_REUSED"
    );
    assert_eq!(app.cny_of("u1").await, (930, 0));
    app.end().await;
}

#[tokio::test]
async fn a_hold_that_outlives_its_time_is_a_leak_that_a_gauge_shows() {
    let app = TestApp::start().await;
    app.top_up("T", "u1", 1_000).await;
    app.tokens("1").await;
    let id = app.held("k1", "u1", 100).await;
    app.clock.advance(minutes(17));
    let mut owner = app.direct_connection().await;
    // Somebody has it in hand for too long.
    let lock = format!("BEGIN; SELECT 1 FROM usage_holds WHERE hold_id = '{id}' FOR UPDATE");
    sqlx::Executor::execute(&mut owner, sqlx::raw_sql(sqlx::AssertSqlSafe(lock))).await.expect("held");
    // Stories beside this one set the same gauge of the process.
    app.eventually("the gauge says so", async || {
        payonce::usage::expire_due(&app.instance.app).await.expect("a batch");
        metric(&app, "payonce_hold_leak", &[]).await >= 1.0
    })
    .await;
    sqlx::Executor::execute(&mut owner, "ROLLBACK").await.expect("free");
    app.run_until_idle().await;
    assert_eq!(app.standing(&id).await.0, "EXPIRED");
    app.end().await;
}
