//! Where rates come from: the tables, and an endpoint that may be slow, silent or wrong.

use std::time::Duration;

use futures_util::future::join_all;
use payonce::settlement;
use serde_json::{Value, json};

use super::{AVAILABLE, items};
use crate::support::settling::RatesServer;
use crate::support::{Cluster, Reply, TestApp, TestOptions};

#[tokio::test]
async fn wrong_terms_change_nothing() {
    let app = TestApp::start().await;
    app.stock("TEA", 10).await;
    app.rebate_rule(Some("TEA"), "0.05").await;
    app.user_level("u1", "1.2").await;
    let mut before = app.row_counts().await;
    let rule = |rate: Value| json!({"merchant_id": "demo", "sku": "TEA", "rate": rate});
    let level =
        |factor: Value| json!({"merchant_id": "demo", "user_id": "u1", "level": "GOLD", "factor": factor});
    for rate in [
        json!("1.00000001"),
        json!("-0.1"),
        json!("0.123456789"),
        json!(0.05),
        json!("5%"),
        json!(""),
        json!("5e-2"),
        json!("1.00000000000000000000000000001"),
        json!("0.00000000000000000000000000004"),
        json!(null),
    ] {
        // An order's own rate is one like any other, but for that it may have none.
        let own = json!({"order_no": "OWN", "user_id": "u1", "currency": "CNY", "amount": 100, "rebate": {"rate": rate}});
        if !rate.is_null() {
            let refused = app.post("/orders", own).await;
            assert_eq!(refused.problem(422), "VALIDATION_FAILED", "{rate}");
            assert_eq!(refused.body["errors"][0]["field"], "rebate.rate", "{rate}");
        }
        let refused = app.admin_post("/admin/rebate-rules", rule(rate.clone())).await;
        assert_eq!(refused.problem(422), "VALIDATION_FAILED", "{rate}");
        assert_eq!(refused.body["errors"][0]["field"], "rate", "{rate}");
    }
    for factor in
        [json!("0"), json!("-1"), json!("10.0001"), json!("1e3"), json!("1.00001"), json!(1), json!("NaN")]
    {
        let refused = app.admin_post("/admin/user-levels", level(factor.clone())).await;
        assert_eq!(refused.problem(422), "VALIDATION_FAILED", "{factor}");
        assert_eq!(refused.body["errors"][0]["field"], "factor", "{factor}");
    }
    assert_eq!(app.row_counts().await, before);

    // Right ones replace what is there, and stand in the log.
    app.rebate_rule(Some("TEA"), "1").await;
    app.rebate_rule(None, "0.00000001").await;
    let rules = app.admin_get("/admin/rebate-rules?merchant_id=demo").await.expect(200).body["data"].clone();
    let told = |rule: &Value| (rule["sku"].clone(), rule["rate"].clone());
    assert_eq!(
        rules.as_array().expect("a page").iter().map(told).collect::<Vec<_>>(),
        [(Value::Null, json!("0.00000001")), (json!("TEA"), json!("1"))]
    );
    let levels = app.admin_get("/admin/user-levels?merchant_id=demo").await.expect(200).body["data"].clone();
    assert_eq!((&levels[0]["factor"], &levels[0]["level"]), (&json!("1.2"), &json!("GOLD")));
    let log = app.admin_get("/admin/admin-log").await.expect(200).body["data"].clone();
    let targets: Vec<&str> =
        log.as_array().expect("a page").iter().filter_map(|entry| entry["target"].as_str()).collect();
    assert_eq!(
        targets[..3],
        ["demo/* = 0.00000001", "demo/TEA = 1", "demo/u1 = GOLD, 1.2"],
        "the last comes first"
    );
    before.entry("rebate_rules".to_owned()).and_modify(|count| *count += 1);
    before.entry("admin_log".to_owned()).and_modify(|count| *count += 2);
    assert_eq!(app.row_counts().await, before);
    app.end().await;
}

#[tokio::test]
async fn what_is_not_there_has_no_terms() {
    let app = TestApp::start().await;
    let before = app.row_counts().await;
    for (path, body, status, code) in [
        (
            "/admin/rebate-rules",
            json!({"merchant_id": "demo", "sku": "NONE", "rate": "0.1"}),
            422,
            "UNKNOWN_SKU",
        ),
        ("/admin/rebate-rules", json!({"merchant_id": "none", "rate": "0.1"}), 404, "NOT_FOUND"),
        (
            "/admin/user-levels",
            json!({"merchant_id": "none", "user_id": "u", "level": "A", "factor": "1"}),
            404,
            "NOT_FOUND",
        ),
        (
            "/admin/user-levels",
            json!({"merchant_id": "demo", "user_id": "u", "level": " ", "factor": "1"}),
            422,
            "VALIDATION_FAILED",
        ),
        ("/admin/settlements/run", json!({"older_than_days": 1}), 422, "VALIDATION_FAILED"),
        ("/admin/settlements/run", json!({"older_than_days": -1, "reason": "x"}), 422, "VALIDATION_FAILED"),
        (
            "/admin/settlements/run",
            json!({"older_than_days": 36501, "reason": "x"}),
            422,
            "VALIDATION_FAILED",
        ),
        (
            "/admin/settlements/run",
            json!({"older_than_days": 1, "merchant_id": "none", "reason": "x"}),
            404,
            "NOT_FOUND",
        ),
    ] {
        assert_eq!(app.admin_post(path, body.clone()).await.problem(status), code, "{body}");
    }
    assert_eq!(app.admin_get("/admin/settlements/runs/sr_none").await.problem(404), "NOT_FOUND");
    assert_eq!(app.row_counts().await, before);
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_of_rates_may_take_longer_than_a_lock_lives() {
    let rates = RatesServer::start().await;
    let times = vec![("LOCK_TTL_MS", "900".to_owned()), ("RATES_DEADLINE_MS", "15000".to_owned())];
    let vars = [rates.vars(), times].concat();
    let cluster = Cluster::start(2, TestOptions { vars, ..TestOptions::default() }).await;
    let app = cluster.first();
    app.stock("TEA", 10).await;
    app.paid_order("A1", json!({"user_id": "u1", "currency": "CNY", "items": items(&[("TEA", 3, 500)])}))
        .await;
    app.plain_paid_order("A2").await;
    rates.delay(4500);
    let holder = async || app.redis_command::<Option<String>>(&["GET", "lock:ORDER:demo:A1"]).await;
    let (slow, others) = tokio::join!(app.settle("A1"), async {
        app.eventually("its rates are asked for", async || rates.calls() == 1).await;
        let first = holder().await;
        tokio::time::sleep(Duration::from_millis(2100)).await;
        // Twice its life is over, and the lock is held: here nobody is asked a second time.
        assert!(first.is_some() && holder().await == first, "the lock was kept");
        join_all([cluster.turn(1).settle("A1"), app.settle("A1")]).await
    });
    assert_eq!(slow.expect(201).body["commission"], 300);
    assert_eq!(others[0].problem(409), "LOCK_BUSY");
    assert_eq!((others[1].status, &others[1].body["commission"]), (200, &json!(300)));
    assert_eq!(rates.calls(), 1);

    // The lock is lost in the middle, and another instance has it: one of them settles.
    let (first, second) = tokio::join!(app.settle("A2"), async {
        app.eventually("its rates are asked for", async || rates.calls() == 2).await;
        let _: () = app.redis_command(&["SET", "lock:ORDER:demo:A2", "another"]).await;
        // It is looked at every 300 ms; what is free would be taken again.
        tokio::time::sleep(Duration::from_millis(900)).await;
        let _: i64 = app.redis_command(&["DEL", "lock:ORDER:demo:A2"]).await;
        cluster.turn(1).settle("A2").await
    });
    assert_eq!(first.problem(409), "LOCK_BUSY", "who lost its lock leaves it to the other");
    assert_eq!(second.expect(201).body["commission"], 398);
    assert_eq!(app.settle("A2").await.expect(200).body["commission"], 398);
    assert_eq!(app.balance_of(AVAILABLE).await, 300 + 398);
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_is_silent_or_talks_nonsense_moves_nothing() {
    let rates = RatesServer::start().await;
    let mut vars = rates.vars();
    vars[1].1 = "300".to_owned();
    let app = TestApp::start_with(TestOptions { vars, ..TestOptions::default() }).await;
    app.plain_paid_order("A1").await;
    let before = app.row_counts().await;
    let too_much =
        format!(r#"{{"orders":[{{"rates":["0.1"],"factor":"1"}}],"more":"{}"}}"#, "x".repeat(3 << 20));
    for answer in [
        (500, "{}"),
        (302, "{}"),
        (200, "nonsense"),
        (200, r#"{"orders":[]}"#),
        (200, r#"{"orders":[{"rates":["1.1"],"factor":"1"}]}"#),
        (200, r#"{"orders":[{"rates":["-0.1"],"factor":"1"}]}"#),
        (200, r#"{"orders":[{"rates":["0.1"],"factor":"0"}]}"#),
        (200, r#"{"orders":[{"rates":["0.1"],"factor":"10.5"}]}"#),
        (200, r#"{"orders":[{"rates":["0.1","0.1"],"factor":"1"}]}"#),
        (200, &too_much),
    ] {
        rates.says(Some(answer));
        let reply = app.settle("A1").await;
        if answer.0 == 200 { assert_unusable(&reply) } else { assert_unavailable(&reply) }
    }
    rates.says(Some((422, "{}")));
    assert_unusable(&app.settle("A1").await);
    rates.says(None);
    rates.delay(1000);
    assert_unavailable(&app.settle("A1").await);
    assert_eq!(app.row_counts().await, before);
    rates.delay(0);
    // The order's own rate goes before the source's, whose factor still counts.
    assert_eq!(app.settle("A1").await.expect(201).body["commission"], 398);
    let own = json!({"user_id": "u1", "currency": "CNY", "amount": 1000, "rebate": {"rate": "0.5"}});
    app.paid_order("A2", own).await;
    let settled = app.settle("A2").await.expect(201).body;
    assert_eq!(
        (&settled["commission"], &settled["rate"], &settled["factor"]),
        (&json!(1000), &json!("0.5"), &json!("2"))
    );
    app.end().await;
}

#[track_caller]
fn assert_unavailable(reply: &Reply) {
    assert_eq!(reply.problem(503), "RATES_UNAVAILABLE");
    assert!(reply.header("retry-after").is_some());
    assert!(reply.text_of("detail").contains("repeat the same request"), "{}", reply.text);
}

/// Nobody is told that a repeat helps.
#[track_caller]
fn assert_unusable(reply: &Reply) {
    assert_eq!(reply.problem(503), "RATES_UNAVAILABLE");
    assert_eq!(reply.header("retry-after"), None);
    assert!(reply.text_of("detail").contains("cannot be used; nothing was moved"), "{}", reply.text);
}

#[tokio::test]
async fn a_run_leaves_out_the_orders_that_its_source_falls_over() {
    let rates = RatesServer::start().await;
    let app = TestApp::start_with(TestOptions { vars: rates.vars(), ..TestOptions::default() }).await;
    app.seed_paid_orders("F", 63, 40, 3).await;
    // Neighbours, as those of one merchant are.
    for number in 0..9 {
        let order = json!({"user_id": "fatal", "currency": "CNY", "amount": 1990});
        app.paid_order(&format!("FATAL-{number}"), order).await;
    }
    let run_id = app.begin_settling(0).await;
    settlement::run_due(&app.instance.app).await.expect("a page");
    let run = app.settlement_run(&run_id).await;
    assert_eq!((&run["status"], &run["settled"], &run["skipped"]), (&json!("DONE"), &json!(63), &json!(9)));
    // Asked about one alone, it is silent.
    assert_eq!(app.settle("FATAL-0").await.problem(503), "RATES_UNAVAILABLE");
    app.end().await;
}

#[tokio::test]
async fn a_source_that_can_do_little_at_once_settles_a_whole_batch_but_for_whom_it_falls_over() {
    let rates = RatesServer::start().await;
    let app = TestApp::start_with(TestOptions { vars: rates.vars(), ..TestOptions::default() }).await;
    app.seed_paid_orders("L", 500, 40, 20).await;
    // One of twenty, all over the batch.
    app.sql("UPDATE orders SET user_id = 'fatal' WHERE user_id = 'u0'").await;
    rates.most(30);
    let run_id = app.begin_settling(0).await;
    settlement::run_due(&app.instance.app).await.expect("a page");
    let run = app.settlement_run(&run_id).await;
    assert_eq!((&run["status"], &run["settled"], &run["skipped"]), (&json!("DONE"), &json!(475), &json!(25)));
    app.end().await;
}

#[tokio::test]
async fn a_run_comes_to_its_end_although_its_source_falls_over_every_order_that_is_left() {
    let rates = RatesServer::start().await;
    let app = TestApp::start_with(TestOptions { vars: rates.vars(), ..TestOptions::default() }).await;
    app.plain_paid_order("BEFORE").await;
    app.settle("BEFORE").await.expect(201);
    for order_no in ["F1", "F2"] {
        app.paid_order(order_no, json!({"user_id": "fatal", "currency": "CNY", "amount": 1990})).await;
    }
    let run_id = app.begin_settling(0).await;
    let rests = async || {
        app.clock.advance(Duration::from_secs(6));
        assert!(settlement::run_due(&app.instance.app).await.is_err());
        assert_eq!(app.settlement_run(&run_id).await["status"], "RUNNING");
    };
    rests().await;
    app.clock.advance(Duration::from_secs(3_600));
    // As long as it is silent about whomever it may come back.
    rates.says(Some((500, "{}")));
    rests().await;
    rates.says(None);
    app.clock.advance(Duration::from_secs(6));
    settlement::run_due(&app.instance.app).await.expect("a page");
    let run = app.settlement_run(&run_id).await;
    assert_eq!((&run["status"], &run["settled"], &run["skipped"]), (&json!("DONE"), &json!(0), &json!(2)));
    assert_eq!(app.find_order("F1").await["settle_status"], "UNSETTLED", "a later run takes it");
    app.end().await;
}
