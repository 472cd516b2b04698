//! After refunds: what is claimed back of a commission, and given again.

use futures_util::future::join_all;
use payonce::orders::OrderKey;
use payonce::settlement;
use serde_json::{Value, json};

use super::{AVAILABLE, EXPENSE, of};
use crate::support::{Chance, TestApp, until_waiting};

const RECEIVABLE: &str = "USER_RECEIVABLE:demo:u1:CNY";

fn key_of(order_no: &str) -> OrderKey {
    OrderKey { merchant_id: "demo".parse().expect("an id"), order_no: order_no.parse().expect("a number") }
}

/// What is left of an order changes, as within the transaction of a refund.
async fn left(app: &TestApp, order_no: &str, left: i64, refund: &str) {
    let key = key_of(order_no);
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

/// An order that is paid through the sandbox, which can give it back.
pub(super) async fn sell(app: &TestApp, order_no: &str, amount: i64) -> String {
    sell_as(app, order_no, json!({"user_id": "u1", "currency": "CNY", "amount": amount})).await
}

async fn sell_as(app: &TestApp, order_no: &str, mut body: Value) -> String {
    body["order_no"] = json!(order_no);
    app.order_with(body).await;
    let paid = app.pay_url(order_no).await.expect(200).text_of("pay_order_id").to_owned();
    app.sandbox_pay(&paid, json!({})).await.expect(200);
    app.run_until_idle().await;
    paid
}

pub(super) async fn refund(app: &TestApp, order_no: &str, refund_no: &str, amount: i64) {
    let body = json!({"refund_no": refund_no, "order_no": order_no, "amount": amount});
    app.post("/refunds", body).await.expect(201);
    app.run_until_idle().await;
    assert_eq!(app.find_refund(refund_no).await["status"], "SUCCEEDED");
}

/// The channel takes a refund back that it had made.
pub(super) async fn take_back(app: &TestApp, paid: &str, refund_no: &str, amount: i64) {
    let id = app.refund_id(refund_no).await;
    app.take_refund_back(&format!("back-{refund_no}"), &id, paid, amount).await;
}

#[tokio::test]
async fn a_refund_claims_back_what_it_costs_and_never_more_than_a_user_has() {
    let app = TestApp::start().await;
    app.rebate_rule(None, "0.01").await;
    let paid = sell(&app, "A1", 1000).await;
    sell(&app, "A2", 700).await;
    app.settle("A1").await.expect(201);
    assert_eq!(stands(&app, "A1").await, ((10, 0, 10), (0, "SETTLED".into())));

    // 5 of 1000 cost a whole unit, because 9.95 is rounded down; the next 50 then cost nothing more.
    refund(&app, "A1", "R1", 5).await;
    assert_eq!(stands(&app, "A1").await, ((9, 0, 9), (1, "SETTLED".into())));
    refund(&app, "A1", "R2", 50).await;
    assert_eq!(stands(&app, "A1").await, ((9, 0, 9), (1, "SETTLED".into())));
    // The channel takes the first back: what is left now was paid for by it, and stays paid for.
    take_back(&app, &paid, "R1", 5).await;
    assert_eq!(stands(&app, "A1").await, ((9, 0, 9), (1, "SETTLED".into())));

    // The balance was spent but for 4: the rest is owed.
    let spent = json!({"withdrawal_no": "W1", "user_id": "u1", "amount": 5, "currency": "CNY",
                       "channel": "sandbox", "account": "a"});
    app.post("/withdrawals", spent).await.expect(201);
    app.run_until_idle().await;
    refund(&app, "A1", "R3", 945).await;
    assert_eq!(stands(&app, "A1").await, ((0, 5, 0), (10, "CLAWED_BACK".into())));
    assert_eq!(app.balances_of("u1").await, [("CNY".to_owned(), 0, 0, 5)]);

    // Another commission does not pay the debt off by itself; a refund taken back does, first of all.
    app.settle("A2").await.expect(201);
    assert_eq!(stands(&app, "A2").await, ((7, 5, 7), (0, "SETTLED".into())));
    take_back(&app, &paid, "R3", 945).await;
    assert_eq!(stands(&app, "A1").await, ((11, 0, 16), (1, "SETTLED".into())));
    take_back(&app, &paid, "R2", 50).await;
    assert_eq!(stands(&app, "A1").await, ((12, 0, 17), (0, "SETTLED".into())));
    assert_eq!(app.find_order("A1").await["settlement"]["clawed_back"], 0);
    let events = app.count_where("outbox", "event = 'settlement.clawed_back'").await;
    assert_eq!(events, 4, "whoever must hear of it hears of each change");
    let timeline = app.admin_get("/admin/orders/A1/timeline").await.expect(200).body;
    let told = |kind: &str, more: &str| -> Vec<(String, String, Value)> {
        let entries =
            timeline["data"].as_array().expect("a page").iter().filter(|entry| entry["kind"] == kind);
        let text = |value: &Value| value.as_str().expect("a word").to_owned();
        entries.map(|e| (text(&e["event"]), text(&e["status"]), e["details"][more].clone())).collect()
    };
    let step = |event: &str, status: &str, more: Value| (event.to_owned(), status.to_owned(), more);
    let of_commission = [
        step("GIVEN", "SETTLED", json!(0)),
        step("PART_CLAWED_BACK", "SETTLED", json!(1)),
        step("ALL_CLAWED_BACK", "CLAWED_BACK", json!(10)),
        step("RESTORED", "SETTLED", json!(1)),
        step("RESTORED", "SETTLED", json!(0)),
    ];
    assert_eq!(told("SETTLEMENT", "clawed_back"), of_commission);
    let ends = told("REFUND", "refund_no").into_iter().filter(|(_, status, _)| status == "FAILED");
    assert_eq!(
        ends.map(|(.., number)| number).collect::<Vec<_>>(),
        ["R1", "R3", "R2"].map(|number| json!(number))
    );
    app.end().await;
}

/// An order of 1990 in three lines, 1000 by 0.1, 491 by nothing and 499 by 0.05, which earns 100 + 0 + 24.95 = 124.95.
/// Of so much that is left of it, 124.95 × left / 1990 is due, rounded down.
async fn sell_three_lines(app: &TestApp) -> String {
    for (sku, rate) in [("TEA", "0.1"), ("CUP", "0"), ("POT", "0.05")] {
        app.stock(sku, 10).await;
        app.rebate_rule(Some(sku), rate).await;
    }
    let paid = sell_as(app, "A1", of("u1", &[("TEA", 2, 500), ("CUP", 1, 491), ("POT", 1, 499)])).await;
    // Its first line lies behind the others now: whoever reads them must say in which order.
    app.sql(
        "UPDATE order_items SET quantity = quantity WHERE line_no = (SELECT min(line_no) FROM order_items)",
    )
    .await;
    paid
}

#[tokio::test]
async fn lines_of_different_rates_are_claimed_back_to_the_unit() {
    let app = TestApp::start().await;
    let paid = sell_three_lines(&app).await;
    app.settle("A1").await.expect(201);
    assert_eq!(stands(&app, "A1").await, ((124, 0, 124), (0, "SETTLED".into())));
    // 1657 are left: 104.04 are due, and 124 − 104 are claimed back. By the rates of other lines (124.55 or 99.1 in all)
    // it would be another number.
    refund(&app, "A1", "R1", 333).await;
    assert_eq!(stands(&app, "A1").await, ((104, 0, 104), (20, "SETTLED".into())));
    // 957: 60.09.
    refund(&app, "A1", "R2", 700).await;
    assert_eq!(stands(&app, "A1").await, ((60, 0, 60), (64, "SETTLED".into())));
    // 916: 57.51.
    refund(&app, "A1", "R3", 41).await;
    assert_eq!(stands(&app, "A1").await, ((57, 0, 57), (67, "SETTLED".into())));
    // The second one came to nothing after all. 1616: 101.47.
    take_back(&app, &paid, "R2", 700).await;
    assert_eq!(stands(&app, "A1").await, ((101, 0, 101), (23, "SETTLED".into())));
    app.end().await;
}

#[tokio::test]
async fn what_was_settled_of_a_rest_follows_the_same_rates_and_never_grows() {
    let app = TestApp::start().await;
    let paid = sell_three_lines(&app).await;
    refund(&app, "A1", "R1", 333).await;
    // 1657 are left to earn by: 104.04.
    let settled = app.settle("A1").await.expect(201).body;
    assert_eq!((&settled["base_amount"], &settled["commission"]), (&json!(1657), &json!(104)));
    assert_eq!(stands(&app, "A1").await, ((104, 0, 104), (0, "SETTLED".into())));
    // 957: 60.09.
    refund(&app, "A1", "R2", 700).await;
    assert_eq!(stands(&app, "A1").await, ((60, 0, 60), (44, "SETTLED".into())));
    // 916: 57.51.
    refund(&app, "A1", "R3", 41).await;
    assert_eq!(stands(&app, "A1").await, ((57, 0, 57), (47, "SETTLED".into())));
    // The one from before the settlement came to nothing after all. 1249: 78.42.
    take_back(&app, &paid, "R1", 333).await;
    assert_eq!(stands(&app, "A1").await, ((78, 0, 78), (26, "SETTLED".into())));
    // 1949: 122.38 would be due, and 104 were given.
    take_back(&app, &paid, "R2", 700).await;
    assert_eq!(stands(&app, "A1").await, ((104, 0, 104), (0, "SETTLED".into())));
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
async fn what_is_given_again_pays_off_a_debt_that_is_made_in_the_same_instant() {
    let app = TestApp::start().await;
    app.rebate_rule(None, "0.05").await;
    let (first, second) = (sell(&app, "A1", 1990).await, sell(&app, "A2", 1990).await);
    for order_no in ["A1", "A2"] {
        app.settle(order_no).await.expect(201);
    }
    refund(&app, "A1", "R1", 1990).await;
    let all = json!({"withdrawal_no": "W1", "user_id": "u1", "amount": 99, "currency": "CNY",
                     "channel": "sandbox", "account": "u@example.com"});
    app.post("/withdrawals", all).await.expect(201);
    app.run_until_idle().await;
    let back = json!({"refund_no": "R2", "order_no": "A2"});
    app.post("/refunds", back).await.expect(201);
    let (of_first, of_second) = (app.refund_id("R1").await, app.refund_id("R2").await);

    // The user's first debt is written while whoever gives something again waits for the same balance.
    let mut other = app.direct_connection().await;
    let mut other = sqlx::Connection::begin(&mut other).await.expect("a transaction");
    let balance = "SELECT 1 FROM accounts WHERE account_id = 'USER_AVAILABLE:demo:u1:CNY' FOR UPDATE";
    sqlx::query(balance).execute(&mut *other).await.expect("the balance");
    let restored = async {
        until_waiting(&app, 1).await;
        app.take_refund_back("e1", &of_first, &first, 1990).await;
    };
    let freed = async {
        until_waiting(&app, 2).await;
        other.rollback().await.expect("the end");
    };
    tokio::join!(app.tell_refund("e2", &of_second, &second, 1990, "SUCCEEDED"), restored, freed);
    assert_eq!((app.balance_of(AVAILABLE).await, app.balance_of(RECEIVABLE).await), (0, 0));
    app.run_until_idle().await;
    app.end().await;
}

#[tokio::test]
async fn one_refund_is_booked_once() {
    let app = TestApp::start().await;
    app.rebate_rule(None, "0.05").await;
    app.plain_paid_order("A1").await;
    app.settle("A1").await.expect(201);
    left(&app, "A1", 1000, "rf_1").await;
    let key = key_of("A1");
    let mut tx = app.instance.app.db.begin().await.expect("a transaction");
    let again = settlement::claw_back_in_tx(&mut tx, &key, 500, "rf_1", app.clock.now()).await;
    let refused = tx.finish(again).await.expect_err("it was booked before");
    assert!(refused.constraint().is_some_and(|name| name.starts_with("ledger_")), "{refused}");
    left(&app, "A1", 1990, "back rf_1").await;
    assert_eq!(app.balance_of(AVAILABLE).await, 99);
    app.end().await;
}

#[tokio::test]
async fn a_refund_that_waits_for_stock_keeps_nobody_from_a_balance() {
    let app = TestApp::start().await;
    app.rebate_rule(None, "0.05").await;
    app.stock("TEA", 5).await;
    let items = json!([{"sku": "TEA", "quantity": 1, "unit_price": 1990}]);
    app.order_with(json!({"order_no": "A1", "user_id": "u1", "currency": "CNY", "items": items})).await;
    let paid = app.pay_url("A1").await.expect(200).text_of("pay_order_id").to_owned();
    app.sandbox_pay(&paid, json!({})).await.expect(200);
    app.run_until_idle().await;
    app.settle("A1").await.expect(201);
    let body = json!({"refund_no": "R1", "order_no": "A1", "return_stock": true});
    app.post("/refunds", body).await.expect(201);

    // Whoever has the stock, as a payment has it, wants a balance next, as one of a top-up beside it does.
    let mut other = app.direct_connection().await;
    let mut other = sqlx::Connection::begin(&mut other).await.expect("a transaction");
    sqlx::query("SELECT 1 FROM skus FOR UPDATE").execute(&mut *other).await.expect("the stock");
    let meanwhile = async {
        until_waiting(&app, 1).await;
        let balance = "SELECT 1 FROM accounts WHERE user_id = 'u1' FOR UPDATE NOWAIT";
        let free = sqlx::query(balance).execute(&mut *other).await;
        other.rollback().await.expect("the end");
        free
    };
    let ((), free) = tokio::join!(app.run_until_idle(), meanwhile);
    assert!(free.is_ok(), "{free:?}");
    assert_eq!(stands(&app, "A1").await, ((0, 0, 0), (99, "CLAWED_BACK".into())));
    assert_eq!(app.stock_of("TEA").await, (5, 0));
    app.end().await;
}

#[tokio::test]
async fn the_largest_order_earns_and_gives_back_to_the_last_unit() {
    let app = TestApp::start().await;
    app.rebate_rule(None, "1").await;
    app.user_level("u1", "10").await;
    let most = 1_000_000_000_000_i64;
    let paid = sell(&app, "A1", most).await;
    app.settle("A1").await.expect(201);
    assert_eq!(stands(&app, "A1").await, ((10 * most, 0, 10 * most), (0, "SETTLED".into())));
    refund(&app, "A1", "R1", 1).await;
    assert_eq!(stands(&app, "A1").await.1, (10, "SETTLED".into()));
    refund(&app, "A1", "R2", most - 1).await;
    assert_eq!(stands(&app, "A1").await, ((0, 0, 0), (10 * most, "CLAWED_BACK".into())));
    take_back(&app, &paid, "R2", most - 1).await;
    assert_eq!(stands(&app, "A1").await.1, (10, "SETTLED".into()));
    app.end().await;
}
