//! Commissions: an order is settled once, exactly by its rates, and a refund claims back what it costs.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};
use sqlx::Executor;

use crate::support::service::is_full;
use crate::support::{Cluster, TestApp, TestOptions};

mod claw_back;
mod gone;
mod runs;
mod terms;
mod written_off;

const AVAILABLE: &str = "USER_AVAILABLE:demo:u1:CNY";
const EXPENSE: &str = "COMMISSION_EXPENSE:demo:CNY";

/// No Redis at all: what must come out right without any lock.
fn no_lock() -> TestOptions {
    TestOptions { redis_url: Some("redis://127.0.0.1:1/".to_owned()), ..TestOptions::default() }
}

fn items(lines: &[(&str, i64, i64)]) -> Value {
    let line = |(sku, quantity, unit_price): &(&str, i64, i64)| json!({"sku": sku, "quantity": quantity, "unit_price": unit_price});
    lines.iter().map(line).collect()
}

fn of(user: &str, lines: &[(&str, i64, i64)]) -> Value {
    json!({"user_id": user, "currency": "CNY", "items": items(lines)})
}

fn with(mut body: Value, rebate: Value) -> Value {
    body["rebate"] = rebate;
    body
}

#[tokio::test]
async fn without_a_rule_nothing_is_earned_and_nothing_is_booked() {
    let app = TestApp::start().await;
    app.plain_paid_order("NO-RULE").await;
    let settled = app.settle("NO-RULE").await.expect(201);
    assert_eq!((&settled.body["commission"], &settled.body["rate"]), (&json!(0), &json!("0")));
    assert_eq!(app.count_where("ledger_transactions", "kind = 'SETTLEMENT'").await, 0);
    app.end().await;
}

#[tokio::test]
async fn a_commission_follows_rules_levels_and_the_orders_own_terms() {
    let app = TestApp::start().await;
    for sku in ["TEA", "CUP", "POT"] {
        app.stock(sku, 1000).await;
    }
    let plain = json!({"user_id": "u1", "currency": "CNY", "amount": 1990});
    app.rebate_rule(None, "0.05").await;
    app.rebate_rule(Some("TEA"), "0.1").await;
    app.rebate_rule(Some("CUP"), "0").await;
    app.user_level("u2", "1.5").await;
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
async fn of_two_that_ask_in_the_same_microsecond_one_has_settled_the_order() {
    let app = TestApp::start().await;
    app.plain_paid_order("A1").await;
    app.sql(
        "CREATE FUNCTION somebody_else() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
             INSERT INTO public.settlements (merchant_id, order_no, user_id, base_amount, rate, line_rates, factor, commission,
                                             currency, created_at, updated_at)
             VALUES (NEW.merchant_id, NEW.order_no, NEW.user_id, NEW.amount, 0, '{0}', 1, 0, NEW.currency, NEW.updated_at,
                     NEW.updated_at);
             UPDATE public.orders SET settle_status = 'SETTLED', updated_at = NEW.updated_at
             WHERE merchant_id = NEW.merchant_id AND order_no = NEW.order_no;
             INSERT INTO public.outbox (merchant_id, order_no, event, event_version, payload, created_at)
             VALUES (NEW.merchant_id, NEW.order_no, 'order.settled', 1, '{\"order_no\": \"A1\", \"commission\": 0}', NEW.updated_at);
             INSERT INTO told VALUES (NEW.updated_at);
             RETURN NULL; END $$;
         CREATE TABLE told (at timestamptz);
         GRANT SELECT ON told TO PUBLIC;
         CREATE TRIGGER somebody_else BEFORE UPDATE ON orders FOR EACH ROW
             WHEN (pg_trigger_depth() = 0 AND NEW.settle_status = 'SETTLED' AND OLD.settle_status <> 'SETTLED')
             EXECUTE FUNCTION somebody_else()",
    )
    .await;
    let settled = app.post_keyed("/settlements", "k-1", &json!({"order_no": "A1"})).await.expect(200);
    assert_eq!(app.count("told").await, 1, "it was settled while this one was about to do so");
    assert_eq!(app.count_where("settlements", "created_at = (SELECT at FROM told)").await, 1, "dated alike");
    assert_eq!(settled.body["commission"], 0);
    app.sql("DROP TRIGGER somebody_else ON orders; DROP TABLE told; DROP FUNCTION somebody_else").await;
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

/// Orders that are asked for side by side.
const BESIDE: usize = 5;

/// Every one of many orders is asked to be settled by many at once.
async fn storm(options: TestOptions, orders: usize, callers: usize) {
    let cluster = Cluster::start(4, options).await;
    let app = cluster.first();
    app.rebate_rule(None, "0.05").await;
    app.seed_paid_orders("S", orders, 1, 7).await;
    let settle = async |order: usize, caller: usize| {
        // Who finds the order or the database too busy asks again, as the answer says.
        loop {
            let reply = cluster.turn(caller).settle(&format!("S{order}")).await;
            match reply.status {
                200 | 201 => return reply,
                409 | 503 => assert!(reply.header("retry-after").is_some(), "{}", reply.text),
                _ => panic!("{}", reply.text),
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let mut made = 0;
    // All callers of an order at once, and those of a few orders beside them.
    for first in (1..=orders).step_by(BESIDE) {
        let asked = (0..callers).flat_map(|caller| (first..first + BESIDE).map(move |order| (order, caller)));
        let replies = join_all(asked.map(|(order, caller)| settle(order, caller))).await;
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
    storm(no_lock(), if is_full() { 1000 } else { 100 }, 100).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_orders_are_settled_once_each_however_many_ask() {
    storm(TestOptions::default(), 25, 40).await;
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
    app.end_without_deadlocks().await;
}

#[tokio::test]
async fn a_run_begins_also_where_what_it_is_for_takes_too_long_to_count() {
    let vars = vec![("DATABASE_STATEMENT_MS", "500".to_owned())];
    let app = TestApp::start_with(TestOptions { vars, ..TestOptions::default() }).await;
    app.rebate_rule(None, "0.05").await;
    app.plain_paid_order("A1").await;
    let begin = async |dry_run: bool| {
        let body = json!({"older_than_days": 0, "dry_run": dry_run, "reason": "the story wants it"});
        app.admin_post("/admin/settlements/run", body).await
    };
    let mut owner = app.direct_connection().await;
    owner.execute("BEGIN; LOCK TABLE orders").await.expect("nobody reads it");
    begin(true).await.expect(503);
    let begun = begin(false).await.expect(200).body;
    assert_eq!((&begun["waiting"], &begun["has_more"]), (&json!([]), &json!(true)));
    assert_eq!(begun["run"]["expected"], Value::Null, "nobody knows");
    owner.execute("ROLLBACK").await.expect("free");
    app.run_until_idle().await;
    let run = app.settlement_run(begun["run"]["run_id"].as_str().expect("an id")).await;
    assert_eq!((&run["status"], &run["settled"]), (&json!("DONE"), &json!(1)));
    app.end().await;
}
