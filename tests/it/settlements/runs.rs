//! Settling in batches: everything of an age, once, whoever dies meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use payonce::infra::duty::Batch;
use payonce::{audit, settlement};
use serde_json::{Value, json};
use sqlx::Connection;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::claw_back::{refund, sell};
use crate::commands;
use crate::support::service::is_full;
use crate::support::settling::RatesServer;
use crate::support::{Chance, Cluster, TestApp, TestOptions, minutes, until_waiting};

/// Orders of another merchant that stand in the way of a run.
const CROWD: i64 = 25_000;

/// Writes as many that were paid so many days ago, and nothing of what belongs to them.
async fn crowd(app: &TestApp, prefix: &str, days_ago: u32) {
    app.sql(&format!(
        "SET session_replication_role = replica;
         INSERT INTO orders (merchant_id, order_no, user_id, status, amount, currency, paid_by, paid_at, expires_at,
                             created_at, updated_at)
         SELECT 'second', '{prefix}' || g, 'u1', 'PAID', 1990, 'CNY', 'po_{prefix}' || g, paid_at, paid_at, paid_at, paid_at
         FROM (SELECT g, now() - interval '{days_ago} days' + g * interval '1 ms' AS paid_at
               FROM generate_series(1, {CROWD}) AS g) AS seeded"
    ))
    .await;
}

/// Entries that were read so far of the index of what can be settled.
async fn entries_read(app: &TestApp) -> i64 {
    let read = "SELECT idx_tup_read FROM pg_stat_user_indexes WHERE indexrelname = 'orders_paid_unsettled'";
    sqlx::query_scalar(read).fetch_one(&mut app.direct_connection().await).await.expect("a figure")
}

/// What comes of it when an instance of its own does that, and how many entries it reads.
async fn entries_read_by<T>(app: &TestApp, work: impl AsyncFnOnce(&TestApp) -> T) -> (T, i64) {
    let one = TestApp::start_with(TestOptions::over(app)).await;
    let before = entries_read(app).await;
    let outcome = work(&one).await;
    // A connection tells what it read when it is closed.
    one.instance.app.db.close().await;
    app.eventually("what was read is told", async || entries_read(app).await > before).await;
    (outcome, entries_read(app).await - before)
}

#[tokio::test]
async fn a_run_settles_all_that_is_old_enough_and_nothing_else() {
    let app = TestApp::start().await;
    app.rebate_rule(None, "0.05").await;
    app.seed_paid_orders("OLD", 4_300, 40, 50).await;
    app.seed_paid_orders("NEW", 10, 20, 50).await;
    app.paid_order("TOP", json!({"user_id": "u1", "currency": "CNY", "amount": 100, "kind": "TOPUP"})).await;
    app.order("OPEN").await;
    app.settle("OLD7").await.expect(201);

    let asked =
        app.admin_post("/admin/settlements/run", json!({"older_than_days": 30, "dry_run": true})).await;
    let asked = asked.expect(200).body;
    assert_eq!(asked["waiting"], json!([{"currency": "CNY", "orders": 4_299, "amount": 4_299 * 1990}]));
    assert_eq!(asked["has_more"], false);
    assert_eq!((&asked["run"], app.count("settlement_runs").await), (&Value::Null, 0));

    let run_id = app.begin_settling(30).await;
    let begun = app.settlement_run(&run_id).await;
    assert_eq!((&begun["status"], &begun["expected"]), (&json!("RUNNING"), &json!(4_299)));
    // A page, and what progress shows.
    assert_eq!(settlement::run_due(&app.instance.app).await.expect("a page"), Batch::MoreWaiting);
    let half = app.settlement_run(&run_id).await;
    assert_eq!((&half["status"], &half["settled"]), (&json!("RUNNING"), &json!(4_000)));
    app.run_until_idle().await;
    let done = app.settlement_run(&run_id).await;
    assert_eq!(
        (&done["status"], &done["settled"], &done["skipped"], &done["commissions"]),
        (&json!("DONE"), &json!(4_299), &json!(0), &json!({"CNY": 4_299 * 99}))
    );
    assert_eq!(app.count("settlements").await, 4_300);
    assert_eq!(app.find_order("NEW1").await["settle_status"], "UNSETTLED");

    // Everything is settled by now: the next one has nothing to do, but for what is younger.
    let again = app.begin_settling(30).await;
    app.run_until_idle().await;
    assert_eq!(app.settlement_run(&again).await["settled"], 0);
    let all = app.begin_settling(0).await;
    app.run_until_idle().await;
    assert_eq!(app.settlement_run(&all).await["settled"], 10);
    let runs = app.admin_get("/admin/settlements/runs?limit=2").await.expect(200).body;
    assert_eq!((&runs["data"][0]["run_id"], &runs["has_more"]), (&json!(all), &json!(true)));
    app.end().await;
}

#[tokio::test]
async fn whatever_time_a_channel_says_that_it_took_the_money_at_a_run_goes_by_when_that_was() {
    let app = TestApp::start().await;
    app.rebate_rule(None, "0.05").await;
    for (order_no, paid_at) in [("PAST", "2001-01-01T00:00:00Z"), ("FUTURE", "2099-01-01T00:00:00Z")] {
        app.order(order_no).await;
        let attempt = app.pay_url(order_no).await.expect(200).text_of("pay_order_id").to_owned();
        let mut callback = app.success(order_no, &attempt, order_no, 1_990);
        callback["paid_at"] = json!(paid_at);
        app.clock.advance(minutes(5));
        app.deliver(&callback).await;
        let order = app.find_order(order_no).await;
        assert_eq!(order["pay_orders"][0]["paid_at"], paid_at, "what the channel says");
        let at = |field: &str| order[field].as_str().and_then(|at| OffsetDateTime::parse(at, &Rfc3339).ok());
        let (made, paid, now) = (at("created_at"), at("paid_at"), app.clock.now());
        assert!(made.is_some() && made <= paid && paid <= Some(now), "{order}, at {now}");
    }
    for (days, settled) in [(0, 0), (1, 2)] {
        app.clock.advance(minutes(days * 24 * 60));
        let run_id = app.begin_settling(1).await;
        app.run_until_idle().await;
        assert_eq!(app.settlement_run(&run_id).await["settled"], settled, "after {days} days");
    }
    app.end().await;
}

#[tokio::test]
async fn a_run_of_one_merchant_leaves_the_others_alone() {
    let app = TestApp::start().await;
    app.rebate_rule(None, "0.05").await;
    app.merchant("second", "hold").await;
    app.seed_paid_orders("A", 5, 10, 1).await;
    let body = json!({"older_than_days": 1, "merchant_id": "second", "reason": "the story wants it"});
    let begun = app.admin_post("/admin/settlements/run", body).await.expect(200).body;
    app.run_until_idle().await;
    let run = app.settlement_run(begun["run"]["run_id"].as_str().expect("an id")).await;
    assert_eq!(
        (&run["status"], &run["settled"], app.count("settlements").await),
        (&json!("DONE"), &json!(0), 0)
    );
    app.end().await;
}

#[tokio::test]
async fn a_batch_that_waits_for_its_first_order_holds_none_of_those_behind_it() {
    let app = TestApp::start().await;
    // As whoever locks both does: of two merchants the one whose name is the other's beginning comes first.
    for merchant in ["a", "a-b"] {
        let key = app.merchant(merchant, "hold").await;
        let paid = app.order_to_pay_as(&key, "1").await;
        app.sandbox_pay(&paid, json!({})).await.expect(200);
    }
    app.run_until_idle().await;
    app.begin_settling(0).await;
    let mut other = app.direct_connection().await;
    let mut held = other.begin().await.expect("a transaction");
    let first = "SELECT 1 FROM orders WHERE merchant_id = 'a' FOR UPDATE NOWAIT";
    sqlx::query(first).execute(&mut *held).await.expect("the row is held");
    let beside = async {
        until_waiting(&app, 1).await;
        let second = "SELECT 1 FROM orders WHERE merchant_id = 'a-b' FOR UPDATE NOWAIT";
        sqlx::query(second).execute(&mut *held).await.expect("nobody waits in a circle");
        held.rollback().await.expect("both rows are free");
    };
    let (page, ()) = tokio::join!(settlement::run_due(&app.instance.app), beside);
    assert_eq!(page.expect("a page"), Batch::MoreWaiting);
    app.run_until_idle().await;
    assert_eq!(app.count("settlements").await, 2);
    app.end_without_deadlocks().await;
}

#[tokio::test]
async fn a_run_of_one_merchant_passes_over_those_of_others_one_bounded_look_after_the_other() {
    let app = TestApp::start().await;
    app.rebate_rule(None, "0.05").await;
    app.merchant("second", "hold").await;
    crowd(&app, "BEFORE", 50).await;
    app.seed_paid_orders("A", 4_300, 40, 50).await;
    crowd(&app, "BETWEEN", 39).await;
    app.seed_paid_orders("B", 10, 38, 5).await;

    let begin = async |one: &TestApp, dry_run: bool| {
        let body = json!({"older_than_days": 30, "merchant_id": "demo", "dry_run": dry_run,
                          "reason": "the story wants it"});
        one.admin_post("/admin/settlements/run", body).await.expect(200).body
    };
    let waiting = json!([{"currency": "CNY", "orders": 4_310, "amount": 4_310 * 1990}]);
    let asked = begin(&app, true).await;
    assert_eq!((&asked["waiting"], &asked["has_more"]), (&waiting, &json!(false)));
    let begun = begin(&app, false).await;
    let run_id = begun["run"]["run_id"].as_str().expect("a run");
    assert_eq!(begun["run"]["expected"], 4_310);

    for (status, settled, most) in [
        // Nothing of the first look is its own: it goes on behind it.
        ("RUNNING", 0, 20_000),
        // A page that is full ends its look, one entry behind its last.
        ("RUNNING", 4_000, 9_001),
        ("RUNNING", 4_300, 20_000),
        ("DONE", 4_310, 5_310),
    ] {
        let page = async |one: &TestApp| settlement::run_due(&one.instance.app).await.expect("a page");
        let (page, read) = entries_read_by(&app, page).await;
        assert_eq!(page, Batch::MoreWaiting);
        let run = app.settlement_run(run_id).await;
        assert_eq!((&run["status"], &run["settled"]), (&json!(status), &json!(settled)));
        assert!(read <= most, "{read} entries were read for a page, {most} at most");
    }
    assert_eq!(app.settlement_run(run_id).await["skipped"], 0);
    let is_left_alone = "merchant_id = 'second' AND settle_status = 'UNSETTLED'";
    assert_eq!(app.count_where("orders", is_left_alone).await, 2 * CROWD);
    assert_eq!(app.count("settlements").await, 4_310);
    app.sql("SET session_replication_role = replica; DELETE FROM orders WHERE merchant_id = 'second'").await;
    app.end().await;
}

#[tokio::test]
async fn an_order_that_the_source_is_wrong_about_keeps_no_other_from_its_commission() {
    let rates = RatesServer::start().await;
    let app = TestApp::start_with(TestOptions { vars: rates.vars(), ..TestOptions::default() }).await;
    for (number, user) in [("A1", "u1"), ("A2", "wrong"), ("A3", "u1"), ("A4", "u1"), ("A5", "u1")] {
        app.paid_order(number, json!({"user_id": user, "currency": "CNY", "amount": 1000})).await;
    }
    app.clock.advance(std::time::Duration::from_secs(86_400 * 2));
    let run = app.begin_settling(1).await;
    app.run_until_idle().await;
    let told = app.settlement_run(&run).await;
    assert_eq!((&told["status"], &told["settled"], &told["skipped"]), (&json!("DONE"), &json!(4), &json!(1)));
    assert_eq!(app.find_order("A2").await["settle_status"], "UNSETTLED");
    assert_eq!(app.balance_of("USER_AVAILABLE:demo:u1:CNY").await, 4 * 200);
    app.end().await;
}

/// Workers of two instances die again and again in the middle of a page, wherever that is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_is_killed_again_and_again_settles_and_counts_everything_once() {
    let cluster = Cluster::start(2, TestOptions::default()).await;
    let (app, mut chance) = (cluster.first(), Chance::new());
    let count = if is_full() { 20_000 } else { 5_000 };
    app.rebate_rule(None, "0.05").await;
    app.seed_paid_orders("K", count, 40, 30).await;
    let run_id = app.begin_settling(30).await;
    let mut deaths = 0_u32;
    while app.settlement_run(&run_id).await["status"] != "DONE" {
        let work = cluster.instances.iter().map(|one| {
            let (service, patience) =
                (one.instance.app.clone(), chance.pause(u64::from(deaths + 1) * 10_000));
            tokio::spawn(async move {
                tokio::time::timeout(patience, settlement::run_due(&service)).await.is_err()
            })
        });
        for worker in work.collect::<Vec<_>>() {
            deaths += u32::from(worker.await.expect("no panic"));
        }
        // What the dead held is free again.
        for one in &cluster.instances {
            one.clock.advance(Duration::from_secs(26));
        }
    }
    println!("{deaths} deaths");
    let run = app.settlement_run(&run_id).await;
    let all = i64::try_from(count).expect("small");
    assert_eq!((&run["settled"], &run["skipped"]), (&json!(all), &json!(0)));
    assert_eq!(run["commissions"], json!({"CNY": 99 * all}));
    assert_eq!(app.count("settlements").await, all);
    assert_eq!(app.balance_of("COMMISSION_EXPENSE:demo:CNY").await, 99 * all);
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_beside_single_settlements_gives_nothing_twice() {
    let cluster = Cluster::start(2, TestOptions::default()).await;
    let app = cluster.first();
    app.rebate_rule(None, "0.05").await;
    app.seed_paid_orders("B", 1_000, 40, 3).await;
    let run_id = app.begin_settling(30).await;
    let singly = async {
        for number in (1..=1_000).rev().step_by(5) {
            let settled = cluster.turn(number).settle(&format!("B{number}")).await;
            assert!(matches!(settled.status, 200 | 201), "{}", settled.text);
        }
    };
    let in_batches = async {
        while app.settlement_run(&run_id).await["status"] != "DONE" {
            settlement::run_due(&cluster.turn(1).instance.app).await.expect("a page");
        }
    };
    tokio::join!(singly, in_batches);
    let run = app.settlement_run(&run_id).await;
    assert_eq!((app.count("settlements").await, &run["skipped"]), (1_000, &json!(0)));
    assert_eq!(app.balance_of("COMMISSION_EXPENSE:demo:CNY").await, 99_000);
    cluster.end().await;
}

#[tokio::test]
async fn an_order_that_cannot_be_settled_keeps_no_other_from_it() {
    let app = TestApp::start().await;
    app.rebate_rule(None, "0.05").await;
    app.seed_paid_orders("P", 20, 40, 3).await;
    // Its figures are wrong: the database refuses it.
    app.sql(
        "SET session_replication_role = replica;
         INSERT INTO ledger_transactions (transaction_id, kind, created_at, account_ids, amounts)
         VALUES ('SETTLEMENT:demo:P7', 'SETTLEMENT', now(), '{CHANNEL:sandbox:CNY,MERCHANT:demo:CNY}', '{1,-1}')",
    )
    .await;
    let run_id = app.begin_settling(30).await;
    app.run_until_idle().await;
    let run = app.settlement_run(&run_id).await;
    assert_eq!((&run["status"], &run["settled"], &run["skipped"]), (&json!("DONE"), &json!(19), &json!(1)));
    app.sql(
        "SET session_replication_role = replica;
         DELETE FROM ledger_transactions WHERE transaction_id = 'SETTLEMENT:demo:P7'",
    )
    .await;
    assert_eq!(app.settle("P7").await.expect(201).body["commission"], 99);
    app.end().await;
}

#[tokio::test]
async fn a_run_waits_for_a_source_that_is_silent_or_refuses_us() {
    let rates = RatesServer::start().await;
    let app = TestApp::start_with(TestOptions { vars: rates.vars(), ..TestOptions::default() }).await;
    app.seed_paid_orders("W", 2_100, 40, 3).await;
    let run_id = app.begin_settling(30).await;
    // Away, a token that has expired, no such place, too late, moved elsewhere.
    for status in [500_u16, 401, 403, 404, 408, 429, 302] {
        rates.says(Some((status, "{}")));
        app.clock.advance(Duration::from_secs(6));
        let asked = rates.calls();
        assert!(settlement::run_due(&app.instance.app).await.is_err(), "{status}");
        assert!(status != 401 || rates.calls() - asked == 4, "the fifth batch is not begun");
        let run = app.settlement_run(&run_id).await;
        assert_eq!(
            (&run["status"], &run["settled"], &run["skipped"]),
            (&json!("RUNNING"), &json!(0), &json!(0)),
            "{status}"
        );
        let told = run["last_error"].as_str().is_some_and(|error| error.contains(&status.to_string()));
        assert!(told, "{run}");
    }
    assert!(!is_late(&app).await, "it may pass");
    // Tried again and again, and refused for minutes.
    app.clock.advance(Duration::from_secs(300));
    assert!(settlement::run_due(&app.instance.app).await.is_err());
    assert!(is_late(&app).await, "the audit tells somebody");
    rates.says(None);
    app.run_until_idle().await;
    assert_eq!(app.settlement_run(&run_id).await["status"], "RUNNING", "it rests a while");
    app.clock.advance(Duration::from_secs(6));
    app.run_until_idle().await;
    let run = app.settlement_run(&run_id).await;
    assert_eq!(
        (&run["status"], &run["settled"], &run["last_error"]),
        (&json!("DONE"), &json!(2_100), &Value::Null)
    );
    assert_eq!(run["commissions"], json!({"CNY": 2_100 * 398}));
    app.end().await;
}

/// Whether the audit says so of a run.
async fn is_late(app: &TestApp) -> bool {
    let report = audit::audit(&app.instance.app.db, app.clock.now()).await.expect("an audit");
    report.checks.iter().any(|check| check.id == "settlement_run_late" && check.violations > 0)
}

/// Of 63 orders the source is wrong about one, and is asked by halves: 13 times, and each takes a while.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_that_takes_longer_than_its_lease_stays_with_who_has_begun_it() {
    let rates = RatesServer::start().await;
    let vars = [rates.vars(), vec![("TASK_LEASE_MS", "2000".to_owned())]].concat();
    let cluster = Cluster::start(2, TestOptions { vars, ..TestOptions::default() }).await;
    let (app, other) = (cluster.first(), cluster.turn(1));
    app.seed_paid_orders("L", 63, 40, 3).await;
    app.paid_order("WRONG", json!({"user_id": "wrong", "currency": "CNY", "amount": 1990})).await;
    let run_id = app.begin_settling(0).await;
    rates.delay(400);
    let is_over = AtomicBool::new(false);
    let page = async {
        settlement::run_due(&app.instance.app).await.expect("a page");
        is_over.store(true, Ordering::SeqCst);
    };
    let looks = async {
        let mut looks = 0;
        app.eventually("the source is asked", async || rates.calls() > 0).await;
        while !is_over.load(Ordering::SeqCst) {
            let found = settlement::run_due(&other.instance.app).await.expect("a look");
            assert_eq!(found, Batch::Done, "somebody else is at it");
            looks += 1;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        looks
    };
    let ((), looks) = tokio::join!(page, looks);
    assert!(looks > 20, "others look all the while: {looks}");
    let run = app.settlement_run(&run_id).await;
    assert_eq!((&run["status"], &run["settled"], &run["skipped"]), (&json!("DONE"), &json!(63), &json!(1)));
    assert_eq!(rates.calls(), 13, "nothing was asked twice");
    cluster.end().await;
}

/// A run over A1 and A2, of 1,990 each. While it waits for the rates so much of A1 goes back.
async fn run_while_a1_goes_back(amount: i64) -> (TestApp, RatesServer, Value) {
    let rates = RatesServer::start().await;
    let app = TestApp::start_with(TestOptions { vars: rates.vars(), ..TestOptions::default() }).await;
    for order_no in ["A1", "A2"] {
        sell(&app, order_no, 1990).await;
    }
    let run_id = app.begin_settling(0).await;
    rates.delay(3000);
    let meanwhile = async {
        app.eventually("the source is asked", async || rates.calls() == 1).await;
        refund(&app, "A1", "R1", amount).await;
        rates.delay(0);
    };
    let (page, ()) = tokio::join!(settlement::run_due(&app.instance.app), meanwhile);
    page.expect("a page");
    let run = app.settlement_run(&run_id).await;
    (app, rates, run)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_passes_over_no_order_of_which_a_part_goes_back_meanwhile() {
    let (app, rates, run) = run_while_a1_goes_back(1).await;
    assert_eq!((&run["status"], &run["settled"], &run["skipped"]), (&json!("DONE"), &json!(2), &json!(0)));
    // 1989 × 0.1 × 2 = 397.8, and 398 of the whole.
    let earned = |settlement: &Value| (settlement["base_amount"].clone(), settlement["commission"].clone());
    assert_eq!(earned(&app.settlement_of("A1").await), (json!(1989), json!(397)));
    assert_eq!(earned(&app.settlement_of("A2").await), (json!(1990), json!(398)));
    assert_eq!(rates.calls(), 2, "of the other one it is not asked again");
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_that_goes_back_as_a_whole_meanwhile_was_not_skipped() {
    let (app, _rates, run) = run_while_a1_goes_back(1990).await;
    assert_eq!((&run["status"], &run["settled"], &run["skipped"]), (&json!("DONE"), &json!(1), &json!(0)));
    assert_eq!(app.find_order("A1").await["settle_status"], "UNSETTLED");
    assert_eq!(app.settlement_of("A2").await["commission"], 398);
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_settles_by_itself() {
    let app = TestApp::start().await;
    app.rebate_rule(None, "0.05").await;
    app.seed_paid_orders("X", 30, 40, 3).await;
    let environment = commands::environment(&app.database_url, &app.redis_url);
    let asked = ["settle", "--older-than-days", "30", "-o", "json"];
    let dry = commands::run(&[&asked[..], &["--dry-run"]].concat(), &environment).await;
    assert_eq!(commands::json_of(&dry)[0]["orders"], 30, "{}", commands::errors(&dry));
    assert_eq!(app.count("settlement_runs").await, 0);
    let without_reason = commands::run(&asked, &environment).await;
    assert_eq!(without_reason.status.code(), Some(2));

    let done = commands::run(&[&asked[..], &["--reason", "the story wants it"]].concat(), &environment).await;
    let run = commands::json_of(&done);
    assert_eq!(
        (done.status.code(), &run["status"], &run["settled"]),
        (Some(0), &json!("DONE"), &json!(30)),
        "{}",
        commands::errors(&done)
    );
    let logged = "action = 'settlements.run' AND reason = 'the story wants it'
                  AND target LIKE 'sr_%: all merchants, 30 days'";
    assert_eq!((app.count_where("admin_log", logged).await, app.count("settlements").await), (1, 30));
    let of_one = ["--merchant-id", "demo", "--reason", "of one"];
    let done = commands::run(&[&asked[..], &of_one].concat(), &environment).await;
    assert_eq!(commands::json_of(&done)["status"], "DONE", "{}", commands::errors(&done));
    let logged = "reason = 'of one' AND target LIKE 'sr_%: demo, 30 days'";
    assert_eq!(app.count_where("admin_log", logged).await, 1);

    // The figures of one are wrong: the database refuses it.
    app.seed_paid_orders("Y", 2, 40, 3).await;
    app.sql(
        "SET session_replication_role = replica;
         INSERT INTO ledger_transactions (transaction_id, kind, created_at, account_ids, amounts)
         VALUES ('SETTLEMENT:demo:Y1', 'SETTLEMENT', now(), '{CHANNEL:sandbox:CNY,MERCHANT:demo:CNY}', '{1,-1}')",
    )
    .await;
    let done = commands::run(&[&asked[..], &of_one].concat(), &environment).await;
    let run = commands::json_of(&done);
    assert_eq!(
        (done.status.code(), &run["status"], &run["settled"], &run["skipped"]),
        (Some(3), &json!("DONE"), &json!(1), &json!(1)),
        "{}",
        commands::errors(&done)
    );
    app.sql(
        "SET session_replication_role = replica;
         DELETE FROM ledger_transactions WHERE transaction_id = 'SETTLEMENT:demo:Y1'",
    )
    .await;
    let away = [environment, vec![("RATES_URL", "http://127.0.0.1:1/rates".to_owned())]].concat();
    app.seed_paid_orders("Z", 1, 40, 3).await;
    let done = commands::run(&[&asked[..], &of_one, &["--patience", "1"]].concat(), &away).await;
    let run = commands::json_of(&done);
    assert_eq!((done.status.code(), &run["settled"]), (Some(3), &json!(0)), "{}", commands::errors(&done));
    assert!(run["status"] != "DONE" && run["last_error"].is_string(), "{run}");
    app.end().await;
}
