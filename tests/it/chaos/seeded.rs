//! Who looks at the books is looked at: books in which all is well, and for each thing that can be wrong one that is.

use payonce::channels::sandbox::{FaultKind, FaultOp};
use serde_json::json;
use sqlx::{Connection, Executor, PgConnection};

use super::rest::{self, SHELF};
use super::right_time;
use crate::support::metering::hold;
use crate::support::unfinished;
use crate::support::{TestApp, seconds};

/// What is made wrong, and a piece of each line that then tells of it.
const SEEDS: &[(&str, &[&str])] = &[
    // ---- payments ----
    (
        "INSERT INTO sandbox.payments (transaction_id, pay_order_id, number, amount, currency, paid_at, created_at, updated_at)
         SELECT 'kept', paid_by, 9, 5, 'CNY', now(), now(), now() FROM orders WHERE order_no = 'A'",
        &["kept of"],
    ),
    (
        "UPDATE sandbox.payments SET transaction_id = 'told'
         WHERE pay_order_id = (SELECT paid_by FROM orders WHERE order_no = 'A');
         UPDATE sandbox.deliveries SET body = 'told'
         WHERE pay_order_id = (SELECT paid_by FROM orders WHERE order_no = 'A')",
        &["is in 0 places", "is nowhere", "is not there"],
    ),
    (
        "UPDATE sandbox.payments SET amount = 1991
         WHERE pay_order_id = (SELECT paid_by FROM orders WHERE order_no = 'A')",
        &["1991,CNY) there and"],
    ),
    (
        "UPDATE sandbox.payments SET currency = 'USD'
         WHERE transaction_id = (SELECT transaction_id FROM stray_payments WHERE status = 'HELD')",
        &["1990,USD) there and"],
    ),
    (
        "UPDATE stray_payments SET out_trade_no = 'another' WHERE status = 'HELD'",
        &["(another,1990,CNY) here"],
    ),
    (
        "UPDATE sandbox.payments SET refunded_amount = 499 WHERE refunded_amount = 500",
        &["499 went back there and 500 here"],
    ),
    (
        "UPDATE sandbox.payments SET refunded_amount = 0 WHERE refunded_amount = 1990",
        &["0 went back there and 1990 here"],
    ),
    (
        "UPDATE sandbox.payments SET refunded_amount = 1990
         WHERE transaction_id = (SELECT transaction_id FROM stray_payments WHERE status = 'HELD')",
        &["1990 went back there and 0 here"],
    ),
    // ---- lives ----
    ("UPDATE world.lives SET made_at = made_at + interval '1 h' WHERE order_no = 'A'", &["life A from"]),
    ("UPDATE world.lives SET made_at = made_at - interval '1 h' WHERE order_no = 'A'", &["life A from"]),
    ("UPDATE world.lives SET closed_at = now() + interval '1 h' WHERE order_no = 'A'", &["life A from"]),
    ("UPDATE world.lives SET closed_at = made_at - interval '1 min' WHERE order_no = 'RAN-OUT'", &["life RAN-OUT from"]),
    ("UPDATE world.lives SET closed_at = NULL WHERE order_no = 'RAN-OUT'", &["life RAN-OUT from"]),
    ("DELETE FROM world.lives WHERE order_no = 'A'", &["life A from never"]),
    // ---- refunds ----
    (
        "UPDATE sandbox.refunds SET refund_id = 'invented' WHERE amount = 500",
        &["is not there and 500CNY here", "invented is 500CNY there and not here"],
    ),
    ("UPDATE sandbox.refunds SET amount = 499 WHERE amount = 500", &["499CNY there and 500CNY here"]),
    ("UPDATE sandbox.refunds SET currency = 'USD' WHERE amount = 500", &["500USD there and 500CNY here"]),
    (
        "UPDATE sandbox.refunds SET taken_back_at = now() WHERE amount = 500",
        &["is not there and 500CNY here"],
    ),
    // ---- payouts ----
    (
        "UPDATE sandbox.payouts SET payout_id = 'invented'",
        &["is not there and 600CNY here", "invented is 600CNY there and not here"],
    ),
    ("UPDATE sandbox.payouts SET amount = 601", &["601CNY there and 600CNY here"]),
    ("UPDATE sandbox.payouts SET currency = 'USD'", &["600USD there and 600CNY here"]),
    (
        "INSERT INTO sandbox.payouts (payout_id, account, amount, currency, paid_out_at, created_at, updated_at)
         SELECT withdrawal_id, account, amount, currency, now(), now(), now() FROM withdrawals WHERE status = 'REVERSED'",
        &["100CNY there and not here"],
    ),
    // ---- at rest ----
    ("UPDATE compensations SET status = 'DEAD' WHERE id = (SELECT min(id) FROM compensations)", &["is dead"]),
    (
        "INSERT INTO deliveries (event_id, kind, event, lane, body, status, due_at, created_at, updated_at)
         VALUES (0, 'REPLAY_CALLBACK', 'a', 'a', '', 'DEAD', now(), now(), now())",
        &["delivery of event 0 is DEAD"],
    ),
    (
        "INSERT INTO refunds (refund_id, merchant_id, refund_no, order_no, pay_order_id, amount, currency, status, reason,
                              created_at, updated_at)
         SELECT 'rf_w', merchant_id, 'W', order_no, paid_by, 1, currency, 'AWAITING_APPROVAL', 'r', now(), now()
         FROM orders WHERE order_no = 'A'",
        &["refund W waits for an operator"],
    ),
    ("UPDATE usage_holds SET shortfall = 0 WHERE shortfall > 0", &["exception USAGE_SHORTFALL"]),
    (
        "UPDATE exceptions SET status = 'OPEN', action = NULL, resolved_by = NULL, reason = NULL
         WHERE kind = 'AMOUNT_MISMATCH'",
        &["exception AMOUNT_MISMATCH"],
    ),
    ("UPDATE exceptions SET kind = 'CONTRADICTION' WHERE kind = 'STRAY_MONEY'", &["exception CONTRADICTION"]),
    ("UPDATE skus SET stock = stock + 1 WHERE sku = 'TEA'", &["TEA: 999999 there, 2 sold"]),
    ("UPDATE skus SET lock_stock = 1 WHERE sku = 'RARE'", &["RARE: 40 there, 0 sold, 40 at first; 1 held"]),
];

/// An order of two that is paid and partly given back; stray money that went back, some of a wrong amount among it, and
/// some that the channel keeps; a withdrawal that went out and one that did not; work that cost more than was there; and an
/// order that ran out.
async fn books() -> TestApp {
    let app = TestApp::start().await;
    for (sku, stock) in SHELF {
        app.stock(sku, stock).await;
    }
    let items = json!([{"sku": "TEA", "quantity": 2, "unit_price": 995}]);
    app.order_with(json!({"order_no": "A", "user_id": "u1", "currency": "CNY", "items": items})).await;
    let attempt = app.pay_url("A").await.expect(200).text_of("pay_order_id").to_owned();
    app.sandbox_pay(&attempt, json!({})).await.expect(200);
    app.run_until_idle().await;
    app.post("/refunds", json!({"refund_no": "R", "order_no": "A", "amount": 500})).await.expect(201);
    let attempt = app.order_to_pay("B").await;
    app.sandbox_pay(&attempt, json!({"amount": 7})).await.expect(200);
    app.late_money("C").await;
    app.run_until_idle().await;
    app.fault(FaultOp::Refund, FaultKind::Refuse, 1, None).await;
    app.late_money("D").await;
    app.top_up("T", "u1", 1_000).await;
    for (number, amount) in [("W", 600), ("V", 100)] {
        let body = json!({"withdrawal_no": number, "user_id": "u1", "amount": amount, "currency": "CNY",
                          "channel": "sandbox", "account": "a"});
        app.post("/withdrawals", body).await.expect(201);
        app.run_until_idle().await;
        app.fault(FaultOp::Payout, FaultKind::Refuse, 1, None).await;
    }
    app.tokens("3").await;
    let made = app.post("/usage/holds", hold("H", "u1", 10)).await.expect(201);
    app.confirm(made.text_of("hold_id"), Some(200)).await.expect(200);
    app.order_with(
        json!({"order_no": "RAN-OUT", "user_id": "u1", "currency": "CNY", "items": items, "expires_in": 1}),
    )
    .await;
    app.clock.advance(seconds(2));
    app.run_until_idle().await;
    app
}

/// What is left in the middle, and the look that tells of it.
const UNFINISHED: &[(&str, &str)] = &[
    ("UPDATE compensations SET status = 'READY' WHERE id = (SELECT min(id) FROM compensations)", "task"),
    ("UPDATE compensations SET status = 'RUNNING' WHERE id = (SELECT min(id) FROM compensations)", "task"),
    ("UPDATE refunds SET status = 'PENDING' WHERE refund_no = 'R'", "refund"),
    ("UPDATE refunds SET status = 'PROCESSING' WHERE refund_no = 'R'", "refund"),
    ("UPDATE withdrawals SET status = 'PAYING' WHERE withdrawal_no = 'W'", "withdrawal"),
    ("UPDATE withdrawals SET status = 'REVERSING' WHERE withdrawal_no = 'V'", "withdrawal"),
    (
        "INSERT INTO settlement_runs (run_id, paid_before, leased_until, created_at, updated_at)
         VALUES ('a', now(), now(), now(), now())",
        "run",
    ),
    (
        "UPDATE usage_holds SET status = 'HELD', charged = 0, shortfall = 0, expires_at = '2000-01-01'",
        "hold",
    ),
    (
        "INSERT INTO reconciliations (reconciliation_id, channel, day, begins_at, ends_at, source, leased_until, created_at,
                                      updated_at)
         VALUES ('a', 'sandbox', '2000-01-01', now(), now(), 'CHANNEL', now(), now(), now())",
        "reconciliation",
    ),
    (
        "INSERT INTO pay_orders (pay_order_id, merchant_id, order_no, payer_id, channel, amount, currency, expires_at,
                                 created_at, updated_at)
         SELECT 'a', merchant_id, order_no, user_id, 'sandbox', amount, currency, now(), now(), now()
         FROM orders WHERE order_no = 'A'",
        "attempt",
    ),
    (
        "UPDATE pay_orders SET status = 'PAYING', transaction_id = NULL, paid_at = NULL WHERE order_no = 'A'",
        "trade",
    ),
    (
        "UPDATE sandbox.trades SET status = 'OPEN'
         WHERE pay_order_id = (SELECT pay_order_id FROM pay_orders WHERE status = 'FAILED')",
        "trade",
    ),
    ("UPDATE orders SET expires_at = '2000-01-01' WHERE order_no = 'B'", "order"),
    (
        "INSERT INTO outbox (merchant_id, event, event_version, payload, created_at)
         VALUES ('demo', 'story.told', 1, '{}', now())",
        "event",
    ),
    (
        "INSERT INTO deliveries (event_id, kind, event, lane, body, status, due_at, created_at, updated_at)
         VALUES (0, 'REPLAY_CALLBACK', 'story.told', 'a', '', 'PENDING', now(), now(), now())",
        "delivery",
    ),
    (
        "UPDATE sandbox.deliveries SET status = 'PENDING' WHERE id = (SELECT min(id) FROM sandbox.deliveries)",
        "callback",
    ),
];

/// What is found when something was made wrong, which is undone again.
async fn found_after(
    seed: &'static str,
    conn: &mut PgConnection,
    look: impl AsyncFn(&mut PgConnection) -> Vec<String>,
) -> Vec<String> {
    let mut tx = conn.begin().await.expect("a transaction");
    tx.execute(sqlx::raw_sql(seed)).await.unwrap_or_else(|error| panic!("{error}: {seed}"));
    let found = look(&mut tx).await;
    tx.rollback().await.expect("undone");
    found
}

/// No look is there that has told of nothing.
fn assert_all_told(looks: &[(&str, &str)], told: &[String]) {
    for (word, _) in looks {
        assert!(told.iter().any(|line| line.starts_with(&format!("{word} "))), "nothing is wrong for {word}");
    }
}

#[tokio::test]
async fn whatever_is_wrong_in_the_books_is_seen() {
    let app = books().await;
    right_time::keep(&app.database_url).await;
    let mut conn = app.direct_connection().await;
    let look = async |conn: &mut PgConnection| {
        let mut found = TestApp::differences_of_books(&mut *conn).await;
        found.extend(rest::unrest(conn).await);
        found
    };
    assert_eq!(look(&mut conn).await, Vec::<String>::new());
    let mut told = Vec::new();
    for &(seed, expected) in SEEDS {
        let found = found_after(seed, &mut conn, look).await;
        let is_told = |piece: &&str| found.iter().any(|line| line.contains(*piece));
        assert!(found.len() == expected.len() && expected.iter().all(is_told), "{seed}: {found:#?}");
        told.extend(found_after(seed, &mut conn, rest::unrest).await);
    }
    assert_all_told(&rest::LOOKS, &told);
    conn.close().await.ok();
    app.end().await;
}

#[tokio::test]
async fn whatever_is_left_in_the_middle_is_seen() {
    let app = books().await;
    let mut conn = app.direct_connection().await;
    let now = app.clock.now();
    let look = async |conn: &mut PgConnection| unfinished::all(conn, now).await;
    assert_eq!(look(&mut conn).await, Vec::<String>::new());
    let mut told = Vec::new();
    for &(seed, word) in UNFINISHED {
        let found = found_after(seed, &mut conn, look).await;
        assert!(found.len() == 1 && found[0].starts_with(&format!("{word} ")), "{seed}: {found:#?}");
        told.extend(found);
    }
    assert_all_told(&unfinished::LOOKS, &told);
    conn.close().await.ok();
    app.end().await;
}
