//! Commissions: an order is settled once, exactly by its rates, and a refund claims back what it costs.

use std::time::Duration;

use futures_util::future::join_all;
use payonce::settlement;
use serde_json::{Value, json};

use crate::support::service::is_full;
use crate::support::settling::RatesServer;
use crate::support::{Chance, Cluster, Reply, TestApp, TestOptions, metric};

mod runs;

const AVAILABLE: &str = "USER_AVAILABLE:demo:u1:CNY";
const RECEIVABLE: &str = "USER_RECEIVABLE:demo:u1:CNY";
const EXPENSE: &str = "COMMISSION_EXPENSE:demo:CNY";

/// No Redis at all: what must come out right without any lock.
fn no_lock() -> TestOptions {
    TestOptions { redis_url: Some("redis://127.0.0.1:1/".to_owned()), ..TestOptions::default() }
}

fn items(lines: &[(&str, i64, i64)]) -> Value {
    let line = |(sku, quantity, unit_price): &(&str, i64, i64)| json!({"sku": sku, "quantity": quantity, "unit_price": unit_price});
    lines.iter().map(line).collect()
}

#[tokio::test]
async fn a_commission_follows_rules_levels_and_the_orders_own_terms() {
    let app = TestApp::start().await;
    for sku in ["TEA", "CUP", "POT"] {
        app.stock(sku, 1000).await;
    }
    let plain = json!({"user_id": "u1", "currency": "CNY", "amount": 1990});
    app.paid_order("NO-RULE", plain.clone()).await;
    let settled = app.settle("NO-RULE").await.expect(201);
    assert_eq!((&settled.body["commission"], &settled.body["rate"]), (&json!(0), &json!("0")));
    assert_eq!(app.count("ledger_transactions").await, 0, "nothing is no booking");

    app.rebate_rule(None, "0.05").await;
    app.rebate_rule(Some("TEA"), "0.1").await;
    app.rebate_rule(Some("CUP"), "0").await;
    app.user_level("u2", "1.5").await;
    let of = |user: &str, lines: &[(&str, i64, i64)]| json!({"user_id": user, "currency": "CNY", "items": items(lines)});
    let with = |mut body: Value, rebate: Value| {
        body["rebate"] = rebate;
        body
    };
    for (index, (body, commission, rate, factor, earner)) in [
        // The merchant's rule, rounded down: 99.5.
        (plain.clone(), 99, "0.05", "1", "u1"),
        // The thing's rule before the merchant's.
        (of("u1", &[("TEA", 1, 1990)]), 199, "0.1", "1", "u1"),
        // A rule of nothing is a rule.
        (of("u1", &[("CUP", 1, 1990)]), 0, "0", "1", "u1"),
        // Each line by its own: 100 + 0 + 24.95, rounded once.
        (of("u1", &[("TEA", 2, 500), ("CUP", 1, 491), ("POT", 1, 499)]), 124, "0.06278894", "1", "u1"),
        // 5 + 5 × 0.05 = 0.5 of a unit: two halves make a whole.
        (of("u1", &[("POT", 1, 10), ("POT", 1, 10)]), 1, "0.05", "1", "u1"),
        // The level of who earns.
        (of("u2", &[("TEA", 1, 1990)]), 298, "0.1", "1.5", "u2"),
        // The order's own rate before any rule, for the buyer …
        (with(of("u1", &[("TEA", 1, 1990)]), json!({"rate": "0.33333333"})), 663, "0.33333333", "1", "u1"),
        // … or for who is named, by their level.
        (with(plain.clone(), json!({"user_id": "u2", "rate": "1"})), 2985, "1", "1.5", "u2"),
        (with(plain.clone(), json!({"user_id": "u2"})), 149, "0.05", "1.5", "u2"),
        (with(plain.clone(), json!({"rate": "0"})), 0, "0", "1", "u1"),
    ]
    .into_iter()
    .enumerate()
    {
        let order_no = format!("F{index}");
        app.paid_order(&order_no, body).await;
        let settled = app.settle(&order_no).await.expect(201).body;
        let expected = json!({
            "order_no": order_no, "user_id": earner, "base_amount": settled["base_amount"], "rate": rate,
            "factor": factor, "commission": commission, "clawed_back": 0, "currency": "CNY", "status": "SETTLED",
            "created_at": settled["created_at"],
        });
        assert_eq!(settled, expected);
        assert_eq!(app.settlement_of(&order_no).await, expected);
        let order = app.find_order(&order_no).await;
        assert_eq!(order["settlement"], expected);
        assert_eq!(
            (&order["settle_status"], &order["amount"]),
            (&json!("SETTLED"), &expected["base_amount"])
        );
    }
    let earned = (99 + 199 + 124 + 1 + 663, 298 + 2985 + 149);
    let users = (app.balance_of(AVAILABLE).await, app.balance_of("USER_AVAILABLE:demo:u2:CNY").await);
    assert_eq!(users, earned);
    assert_eq!(app.balance_of(EXPENSE).await, earned.0 + earned.1);

    // What is settled keeps its rates.
    app.rebate_rule(None, "1").await;
    assert_eq!(app.settle("F0").await.expect(200).body["commission"], 99);
    app.end().await;
}

#[tokio::test]
async fn a_repeat_gets_the_same_settlement_and_a_key_the_same_bytes() {
    let app = TestApp::start().await;
    app.rebate_rule(None, "0.05").await;
    app.plain_paid_order("A1").await;
    let body = json!({"order_no": "A1"});
    let first = app.post_keyed("/settlements", "k-1", &body).await.expect(201);
    let again = app.post_keyed("/settlements", "k-1", &body).await;
    assert!(again.is_replayed());
    assert_eq!(again.said(), first.said());
    let other = app.post_keyed("/settlements", "k-2", &body).await.expect(200);
    let plain = app.settle("A1").await.expect(200);
    assert_eq!((&other.body, &plain.body), (&first.body, &first.body));
    assert_eq!(
        app.post_keyed("/settlements", "k-2", &body).await.said(),
        other.said(),
        "a repeat is kept too"
    );
    assert_eq!(
        app.post_keyed("/settlements", "k-1", &json!({"order_no": "A2"})).await.problem(422),
        "IDEMPOTENCY_KEY_REUSED"
    );
    let told = app.count_where("outbox", "event = 'order.settled' AND payload ->> 'commission' = '99'").await;
    assert_eq!((told, app.count("settlements").await, app.balance_of(AVAILABLE).await), (1, 1, 99));

    let timeline = app.admin_get("/admin/orders/A1/timeline").await.expect(200);
    let entries = timeline.body["data"].as_array().expect("a page").clone();
    let entry = entries.iter().find(|entry| entry["kind"] == "SETTLEMENT").expect("it is told");
    assert_eq!((&entry["status"], &entry["details"]["commission"]), (&json!("SETTLED"), &json!(99)));
    app.end().await;
}

#[tokio::test]
async fn what_cannot_be_settled_says_why_and_nothing_moves() {
    let app = TestApp::start().await;
    app.rebate_rule(None, "0.05").await;
    app.order("OPEN").await;
    app.order("SHUT").await;
    app.close("SHUT").await.expect(200);
    app.paid_order("TOP", json!({"user_id": "u1", "currency": "CNY", "amount": 100, "kind": "TOPUP"})).await;
    app.plain_paid_order("BACK").await;
    // As after a refund of everything, and so put back at the end.
    app.sql("UPDATE orders SET status = 'REFUNDED', refunded_amount = amount WHERE order_no = 'BACK'").await;
    let before = app.row_counts().await;
    for (order_no, status, code) in [
        ("OPEN", 409, "ORDER_NOT_PAID"),
        ("SHUT", 409, "ORDER_NOT_PAID"),
        ("TOP", 409, "ORDER_NOT_SETTLEABLE"),
        ("BACK", 409, "ORDER_NOT_SETTLEABLE"),
        ("NOWHERE", 404, "ORDER_NOT_FOUND"),
    ] {
        let refused = app.settle(order_no).await;
        assert_eq!(refused.problem(status), code, "{order_no}");
        let keyed = app.post_keyed("/settlements", order_no, &json!({"order_no": order_no})).await;
        assert_eq!(keyed.problem(status), code, "{order_no}");
    }
    assert_eq!(app.get("/settlements/OPEN").await.problem(404), "NOT_FOUND");
    assert_eq!(app.get("/settlements/NOWHERE").await.problem(404), "ORDER_NOT_FOUND");
    let stranger = app.merchant("second", "hold").await;
    let body = json!({"order_no": "TOP"});
    let theirs = app.call(reqwest::Method::POST, "/settlements", &stranger, Some(&body)).await;
    assert_eq!(theirs.problem(404), "ORDER_NOT_FOUND");
    app.sql("UPDATE orders SET status = 'PAID', refunded_amount = 0 WHERE order_no = 'BACK'").await;
    let mut after = app.row_counts().await;
    for table in ["merchants", "api_keys", "admin_log"] {
        after.insert(table.to_owned(), before[table]);
    }
    assert_eq!(after, before);

    // A part that went back earns nothing.
    app.sql("UPDATE orders SET status = 'PARTIALLY_REFUNDED', refunded_amount = 991 WHERE order_no = 'BACK'")
        .await;
    let settled = app.settle("BACK").await.expect(201).body;
    assert_eq!((&settled["base_amount"], &settled["commission"]), (&json!(999), &json!(49)));
    app.sql("UPDATE orders SET refunded_amount = 0, status = 'PAID' WHERE order_no = 'BACK'").await;
    app.end().await;
}

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
        json!(null),
    ] {
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
    before.entry("rebate_rules".to_owned()).and_modify(|count| *count += 1);
    before.entry("admin_log".to_owned()).and_modify(|count| *count += 2);
    assert_eq!(app.row_counts().await, before);
    app.end().await;
}

/// Every one of many orders is asked to be settled by many at once.
async fn storm(options: TestOptions, orders: usize, callers: usize) {
    let cluster = Cluster::start(2, options).await;
    let app = cluster.first();
    app.rebate_rule(None, "0.05").await;
    app.seed_paid_orders("S", orders, 1, 7).await;
    let settle = async |number: usize| {
        let order_no = format!("S{}", number % orders + 1);
        // Who finds the database too busy asks again, as the answer says.
        loop {
            let reply = cluster.turn(number / orders).settle(&order_no).await;
            match reply.status {
                200 | 201 => return reply,
                409 | 503 => assert!(reply.header("retry-after").is_some(), "{}", reply.text),
                _ => panic!("{}", reply.text),
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let mut made = 0;
    for round in 0..callers.div_ceil(10) {
        let first = round * 10 * orders;
        let replies = join_all((first..first + 10.min(callers) * orders).map(settle)).await;
        assert!(replies.iter().all(|reply| reply.body["commission"] == 99));
        made += replies.iter().filter(|reply| reply.status == 201).count();
    }
    let count = i64::try_from(orders).expect("small");
    assert_eq!((made, app.count("settlements").await), (orders, count), "one settlement each");
    let mut users = 0;
    for user in 0..7 {
        users += app.balance_of(&format!("USER_AVAILABLE:demo:u{user}:CNY")).await;
    }
    assert_eq!(users, 99 * count);
    assert_eq!(app.balance_of(EXPENSE).await, 99 * count);
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_orders_are_settled_once_each_however_many_ask_without_any_lock() {
    if is_full() { storm(no_lock(), 1000, 100).await } else { storm(no_lock(), 100, 20).await }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_orders_are_settled_once_each_however_many_ask() {
    storm(TestOptions::default(), 50, 10).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_requests_at_once_on_one_order_are_one_settlement() {
    for options in [TestOptions::default(), no_lock()] {
        let instances = if is_full() { 10 } else { 3 };
        let cluster = Cluster::start(instances, options).await;
        let app = cluster.first();
        app.rebate_rule(None, "0.05").await;
        app.plain_paid_order("A1").await;
        let body = json!({"order_no": "A1"});
        let ask = async |number: usize| match number % 2 {
            0 => cluster.turn(number).settle("A1").await,
            // Each under a key of its own: none shares another one's run.
            _ => cluster.turn(number).post_keyed("/settlements", &format!("k{number}"), &body).await,
        };
        let replies = join_all((0..500).map(ask)).await;
        let (settled, busy): (Vec<_>, Vec<_>) =
            replies.into_iter().partition(|reply| matches!(reply.status, 200 | 201));
        for reply in &busy {
            assert_eq!(reply.problem(409), "LOCK_BUSY");
            assert!(reply.header("retry-after").is_some());
        }
        println!("{} got it, {} were told to come again", settled.len(), busy.len());
        assert!(settled.len() > 400, "most get the winner's answer");
        assert!(settled.iter().all(|reply| reply.body == settled[0].body));
        assert_eq!(settled.iter().filter(|reply| reply.status == 201).count(), 1, "one made it");
        assert_eq!((app.count("settlements").await, app.balance_of(AVAILABLE).await), (1, 99));
        cluster.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_at_once_on_one_users_balance_stand_in_nobodys_way() {
    let app = TestApp::start().await;
    app.rebate_rule(None, "0.05").await;
    app.seed_paid_orders("H", 640, 1, 1).await;
    let numbers: Vec<usize> = (1..=640).collect();
    let client = async |orders: &[usize]| {
        for number in orders {
            app.settle(&format!("H{number}")).await.expect(201);
        }
    };
    join_all(numbers.chunks(10).map(client)).await;
    assert_eq!(app.balance_of("USER_AVAILABLE:demo:u0:CNY").await, 640 * 99);
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_of_rates_may_take_longer_than_a_lock_lives() {
    let rates = RatesServer::start().await;
    let vars = [rates.vars(), vec![("LOCK_TTL_MS", "300".to_owned())]].concat();
    let cluster = Cluster::start(2, TestOptions { vars, ..TestOptions::default() }).await;
    let app = cluster.first();
    app.stock("TEA", 10).await;
    app.paid_order("A1", json!({"user_id": "u1", "currency": "CNY", "items": items(&[("TEA", 3, 500)])}))
        .await;
    app.plain_paid_order("A2").await;
    rates.delay(1500);
    let lost = metric(app, "payonce_lock_lost_total", &[("scene", "SETTLE")]).await;
    let (slow, others) = tokio::join!(app.settle("A1"), async {
        tokio::time::sleep(Duration::from_millis(700)).await;
        // Twice its life is over, and the lock is held: here nobody is asked a second time.
        join_all([cluster.turn(1).settle("A1"), app.settle("A1")]).await
    });
    assert_eq!(slow.expect(201).body["commission"], 300);
    assert_eq!(others[0].problem(409), "LOCK_BUSY");
    assert_eq!((others[1].status, &others[1].body["commission"]), (200, &json!(300)));
    assert_eq!(rates.calls(), 1);
    assert_eq!(metric(app, "payonce_lock_lost_total", &[("scene", "SETTLE")]).await - lost, 0.0);

    // The lock is lost in the middle, and another instance takes it: one of them settles.
    let (first, second) = tokio::join!(app.settle("A2"), async {
        tokio::time::sleep(Duration::from_millis(300)).await;
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
        assert_unavailable(&app.settle("A1").await);
    }
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
}

/// What is left of an order changes, as within the transaction of a refund.
async fn left(app: &TestApp, order_no: &str, left: i64, refund: &str) {
    let key = payonce::orders::OrderKey {
        merchant_id: "demo".parse().expect("an id"),
        order_no: order_no.parse().expect("a number"),
    };
    let mut tx = app.instance.app.db.begin().await.expect("a transaction");
    let outcome = match refund.strip_prefix("back ") {
        None => settlement::claw_back_in_tx(&mut tx, &key, left, refund, app.clock.now()).await,
        Some(refund) => settlement::restore_in_tx(&mut tx, &key, left, refund, app.clock.now()).await,
    };
    tx.finish(outcome).await.expect("booked");
}

/// (available, receivable, expense), and (claimed back, status).
async fn stands(app: &TestApp, order_no: &str) -> ((i64, i64, i64), (i64, String)) {
    let settlement = app.settlement_of(order_no).await;
    let balances =
        (app.balance_of(AVAILABLE).await, app.balance_of(RECEIVABLE).await, app.balance_of(EXPENSE).await);
    let status = settlement["status"].as_str().expect("a status").to_owned();
    (balances, (settlement["clawed_back"].as_i64().expect("a number"), status))
}

#[tokio::test]
async fn a_refund_claims_back_what_it_costs_and_never_more_than_a_user_has() {
    let app = TestApp::start().await;
    app.rebate_rule(None, "0.01").await;
    app.paid_order("A1", json!({"user_id": "u1", "currency": "CNY", "amount": 1000})).await;
    app.paid_order("A2", json!({"user_id": "u1", "currency": "CNY", "amount": 700})).await;
    app.plain_paid_order("NEVER").await;
    app.settle("A1").await.expect(201);
    assert_eq!(stands(&app, "A1").await, ((10, 0, 10), (0, "SETTLED".into())));

    // An order that was never settled has nothing to claim back.
    left(&app, "NEVER", 0, "rf_0").await;
    // 5 of 1000 cost a whole unit, because 9.95 is rounded down; the next 50 then cost nothing more.
    left(&app, "A1", 995, "rf_1").await;
    assert_eq!(stands(&app, "A1").await, ((9, 0, 9), (1, "SETTLED".into())));
    left(&app, "A1", 945, "rf_2").await;
    assert_eq!(stands(&app, "A1").await, ((9, 0, 9), (1, "SETTLED".into())));
    // The channel takes the first back: what is left now was paid for by it, and stays paid for.
    left(&app, "A1", 950, "back rf_1").await;
    assert_eq!(stands(&app, "A1").await, ((9, 0, 9), (1, "SETTLED".into())));

    // The balance was spent but for 4: the rest is owed.
    app.sql(
        "BEGIN; INSERT INTO accounts (account_id, created_at, updated_at)
                VALUES ('PLATFORM_REVENUE:CNY', now(), now());
         WITH spent AS (INSERT INTO ledger_transactions (transaction_id, kind, created_at)
                        VALUES ('WITHDRAWAL:w1', 'WITHDRAWAL', now()))
         INSERT INTO ledger_entries (transaction_id, account_id, amount)
         VALUES ('WITHDRAWAL:w1', 'USER_AVAILABLE:demo:u1:CNY', 5), ('WITHDRAWAL:w1', 'PLATFORM_REVENUE:CNY', -5);
         COMMIT",
    )
    .await;
    left(&app, "A1", 0, "rf_3").await;
    assert_eq!(stands(&app, "A1").await, ((0, 5, 0), (10, "CLAWED_BACK".into())));
    let report = app.admin_get("/admin/audit").await.expect(200);
    let broken: Vec<_> =
        report.body["checks"].as_array().expect("checks").iter().filter(|c| c["violations"] != 0).collect();
    assert!(broken.iter().all(|check| check["id"] == "settlement_follows_refunds"), "{broken:#?}");
    assert_eq!(broken.len(), 1, "no refund asked for it");
    // The same refund a second time changes nothing, because nothing is left to claim.
    left(&app, "A1", 0, "rf_3").await;
    assert_eq!(stands(&app, "A1").await, ((0, 5, 0), (10, "CLAWED_BACK".into())));

    // Another commission does not pay the debt off by itself; a refund taken back does, first of all.
    app.settle("A2").await.expect(201);
    assert_eq!(stands(&app, "A2").await, ((7, 5, 7), (0, "SETTLED".into())));
    left(&app, "A1", 300, "back rf_3").await;
    assert_eq!(stands(&app, "A1").await, ((7, 2, 10), (7, "SETTLED".into())));
    left(&app, "A1", 1000, "back rf_2").await;
    assert_eq!(stands(&app, "A1").await, ((12, 0, 17), (0, "SETTLED".into())));
    assert_eq!(app.find_order("A1").await["settlement"]["clawed_back"], 0);
    let events = app.count_where("outbox", "event = 'settlement.clawed_back'").await;
    assert_eq!(events, 4, "whoever must hear of it hears of each change");
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_and_commissions_on_one_balance_at_once_end_exactly() {
    let app = TestApp::start().await;
    let mut chance = Chance::new();
    app.rebate_rule(None, "0.05").await;
    app.seed_paid_orders("C", 60, 1, 1).await;
    for number in 1..=30 {
        app.settle(&format!("C{number}")).await.expect(201);
    }
    let claims = (1..=30).map(|number| {
        let (app, pause) = (&app, chance.pause(20_000));
        async move {
            tokio::time::sleep(pause).await;
            left(app, &format!("C{number}"), 0, &format!("rf_{number}")).await;
        }
    });
    let claims: Vec<_> = claims.collect();
    let settled = join_all((31..=60).map(|number| {
        let app = &app;
        async move { app.settle(&format!("C{number}")).await.expect(201) }
    }));
    tokio::join!(join_all(claims), settled);
    let has = app.balance_of("USER_AVAILABLE:demo:u0:CNY").await;
    let owes = app.balance_of("USER_RECEIVABLE:demo:u0:CNY").await;
    assert_eq!(has - owes, 30 * 99);
    assert_eq!(app.balance_of(EXPENSE).await, 30 * 99);
    for number in 1..=30 {
        left(&app, &format!("C{number}"), 1990, &format!("back rf_{number}")).await;
    }
    assert_eq!(app.balance_of("USER_AVAILABLE:demo:u0:CNY").await, 60 * 99);
    app.end().await;
}

#[tokio::test]
async fn one_refund_is_booked_once() {
    let app = TestApp::start().await;
    app.rebate_rule(None, "0.05").await;
    app.plain_paid_order("A1").await;
    app.settle("A1").await.expect(201);
    left(&app, "A1", 1000, "rf_1").await;
    let key = payonce::orders::OrderKey {
        merchant_id: "demo".parse().expect("an id"),
        order_no: "A1".parse().expect("a number"),
    };
    let mut tx = app.instance.app.db.begin().await.expect("a transaction");
    let again = settlement::claw_back_in_tx(&mut tx, &key, 500, "rf_1", app.clock.now()).await;
    let refused = tx.finish(again).await.map_err(|error| error.constraint().map(str::to_owned));
    assert_eq!(refused, Err(Some("ledger_transactions_pkey".to_owned())));
    left(&app, "A1", 1990, "back rf_1").await;
    assert_eq!(app.balance_of(AVAILABLE).await, 99);
    app.end().await;
}
